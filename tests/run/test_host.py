"""What the host adds to a run, by the command line: its own units, and constants as outputs."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.cli import main
from nnapi_prof.execution.report import RunReport
from nnapi_prof.reports.frames import baseline_frame
from tests.cli.common import trace
from tests.models import Function


def run_all(tmp_path: Path, model: nn.Module, example: torch.Tensor, spec: str) -> dict:
    """Profile, partition and run on a simulated phone; what ``run`` kept."""
    path, bundle = tmp_path / "model.pt", tmp_path / "model.nnprof"
    trace(model, path, example)
    described = ["--costs", tmp_path / "costs.db", "--input", spec, path]
    for command, *arguments in (
        ["profile", *described],
        ["partition", "--output", bundle, *described],
        ["run", bundle],
    ):
        with pytest.raises(SystemExit) as ended:
            main([command, "--device", "sim:npu-phone", *map(str, arguments)])
        assert ended.value.code == 0, command
    return json.loads((bundle / "run.json").read_text())


def test_indices_reach_the_device(tmp_path: Path) -> None:
    """Indices of 64 bits in, which a device holds in 32."""
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 8), nn.ReLU())
    result = run_all(tmp_path, model, torch.zeros(1, 12, dtype=torch.int64), "1x12:int64")
    assert [check["relative"] <= 1e-6 for check in result["checks"]] == [True]
    assert "host" not in {segment["target"] for segment in result["runs"][0]["segments"]}


def test_five_dimensions_reach_the_device(tmp_path: Path) -> None:
    def outputs(x):
        y = torch.relu(x - 0.5)
        return y, y.flatten(1)

    result = run_all(tmp_path, Function(outputs), torch.ones(2, 3, 2, 4, 5), "2x3x2x4x5")
    assert [check["relative"] <= 1e-6 for check in result["checks"]] == [True, True]
    assert [tuple(check["shape"]) for check in result["checks"]] == [(2, 3, 2, 4, 5), (2, 120)]
    assert "host" not in {segment["target"] for segment in result["runs"][0]["segments"]}


def test_a_host_segment_comes_first(tmp_path: Path) -> None:
    """An operation for the host alone: no device value precedes."""
    model = Function(lambda x, layer: torch.relu(layer(torch.lgamma(x))), layer=nn.Linear(16, 8))
    result = run_all(tmp_path, model, torch.ones(1, 16), "1x16")
    assert [check["relative"] <= 1e-4 for check in result["checks"]] == [True]
    plan = result["runs"][0]
    assert [segment["target"] == "host" for segment in plan["segments"]] == [True, False]
    assert plan["segments"][0]["samples_ns"] == [] and len(plan["total_ns"]) == 30
    # What was not timed is no part of the prediction that stands beside what was.
    report = RunReport.from_json(json.dumps(result))
    (ran, *_) = report.runs
    assert ran.predicted_ns == ran.segments[1].predicted_ns < ran.plan.predicted_ns
    row = baseline_frame([ran.plan], report).iloc[0]
    assert row["predicted_ms"] * 1e6 == pytest.approx(ran.predicted_ns)
    assert row["predicted_ms"] == pytest.approx(row["measured_ms"], rel=0.1)


def test_outputs_that_no_unit_makes(tmp_path: Path) -> None:
    """An output that depends on no input, and one input returned as it is."""
    anchors = torch.arange(4.0)
    model = Function(lambda x, layer: (layer(x), anchors * 2, x), layer=nn.Linear(6, 4))
    result = run_all(tmp_path, model, torch.ones(1, 6), "1x6")
    assert [tuple(check["shape"]) for check in result["checks"]] == [(1, 4), (4,), (1, 6)]
    assert all(check["relative"] <= 1e-4 for check in result["checks"])


def test_nothing_runs_on_the_device(tmp_path: Path) -> None:
    model = Function(lambda x: torch.lgamma(torch.logcumsumexp(x, 1)))
    result = run_all(tmp_path, model, torch.ones(2, 3), "2x3")
    assert [check["relative"] for check in result["checks"]] == [0.0]
    assert result["runs"][0]["total_ns"] == [] and any("host" in note for note in result["notes"])
