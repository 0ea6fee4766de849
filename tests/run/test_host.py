"""What the host adds to a run, by the command line: its own units, and constants as outputs."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.cli import main
from nnapi_prof.execution.report import RunReport
from nnapi_prof.reports.frames import baseline_frame


class Embedded(nn.Module):
    """Indices of 64 bits in, which a device holds in 32."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.layer = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(self.table(x)))


class HostFirst(nn.Module):
    """An operation for the host alone in front of one for the device: no device value precedes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(torch.lgamma(x)))


class WithConstant(nn.Module):
    """An output that depends on no input, and one input returned as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.register_buffer("anchors", torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.layer(x), self.anchors * 2, x


class Volumes(nn.Module):
    """Five dimensions in and out."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x - 0.5)
        return y, y.flatten(1)


class HostOnly(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.lgamma(torch.logcumsumexp(x, 1))


def run_all(tmp_path: Path, model: nn.Module, example: torch.Tensor, spec: str) -> dict:
    """Profile, partition and run on a simulated phone; what ``run`` kept."""
    path, bundle = tmp_path / "model.pt", tmp_path / "model.nnprof"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(model.eval(), example), str(path))
    asked = ["--device", "sim:npu-phone"]
    table = ["--costs", str(tmp_path / "costs.db")]
    for command in (
        ["profile", *asked, *table, "--input", spec, str(path)],
        ["partition", *asked, *table, "--input", spec, "--output", str(bundle), str(path)],
        ["run", *asked, str(bundle)],
    ):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 0, command
    return json.loads((bundle / "run.json").read_text())


def test_indices_reach_the_device(tmp_path: Path) -> None:
    result = run_all(tmp_path, Embedded(), torch.zeros(1, 12, dtype=torch.int64), "1x12:int64")
    assert [check["relative"] <= 1e-6 for check in result["checks"]] == [True]
    assert "host" not in {segment["target"] for segment in result["runs"][0]["segments"]}


def test_five_dimensions_reach_the_device(tmp_path: Path) -> None:
    result = run_all(tmp_path, Volumes(), torch.ones(2, 3, 2, 4, 5), "2x3x2x4x5")
    assert [check["relative"] <= 1e-6 for check in result["checks"]] == [True, True]
    assert [tuple(check["shape"]) for check in result["checks"]] == [(2, 3, 2, 4, 5), (2, 120)]
    assert "host" not in {segment["target"] for segment in result["runs"][0]["segments"]}


def test_a_host_segment_comes_first(tmp_path: Path) -> None:
    result = run_all(tmp_path, HostFirst(), torch.ones(1, 16), "1x16")
    assert [check["relative"] <= 1e-4 for check in result["checks"]] == [True]
    plan = result["runs"][0]
    assert [segment["target"] == "host" for segment in plan["segments"]] == [True, False]
    assert plan["segments"][0]["samples_ns"] == [] and len(plan["total_ns"]) == 30
    # What was not timed is no part of the prediction that stands beside what was.
    ran = RunReport.from_json(json.dumps(result)).runs[0]
    assert ran.predicted_ns == ran.segments[1].predicted_ns < ran.plan.predicted_ns
    row = baseline_frame([ran.plan], RunReport.from_json(json.dumps(result))).iloc[0]
    assert row["predicted_ms"] * 1e6 == pytest.approx(ran.predicted_ns)
    assert row["predicted_ms"] == pytest.approx(row["measured_ms"], rel=0.1)


def test_outputs_that_no_unit_makes(tmp_path: Path) -> None:
    result = run_all(tmp_path, WithConstant(), torch.ones(1, 6), "1x6")
    assert [tuple(check["shape"]) for check in result["checks"]] == [(1, 4), (4,), (1, 6)]
    assert all(check["relative"] <= 1e-4 for check in result["checks"])


def test_nothing_runs_on_the_device(tmp_path: Path) -> None:
    result = run_all(tmp_path, HostOnly(), torch.ones(2, 3), "2x3")
    assert [check["relative"] for check in result["checks"]] == [0.0]
    assert result["runs"][0]["total_ns"] == [] and any("host" in note for note in result["notes"])
