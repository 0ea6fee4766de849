"""``nnapi-prof estimate`` and ``calibrate``."""

import itertools
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.costs.estimate.phones import shipped
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.find import list_phones
from nnapi_prof.execution.estimation import estimated_costs, filled_costs, read_phone
from nnapi_prof.execution.profile.unit_graph_cache import load_program
from nnapi_prof.graph.plan import Target
from nnapi_prof.partition import baselines, make_problem, plan_problem
from tests.cli.common import INPUT, Profiled, Result, TinyNet, trace

Cli = Callable[..., Result]


def estimate(cli: Cli, model: Path, phone: object, *more: str) -> dict[str, Any]:
    done = cli("estimate", model, "--input", INPUT, "--phone", phone, "--json", *more)
    assert done.code == 0, done.err
    return done.document("estimate")


@pytest.mark.parametrize("phone", [*list_phones(), *shipped()])
def test_every_phone_that_comes_along_gives_a_plan(cli: Cli, tiny: Path, phone: str) -> None:
    result = estimate(cli, tiny, phone)
    assert result["estimated"] is True
    assert result["simulated"] is (phone in list_phones())
    plan = result["plan"]
    assert plan["name"] == "dp"
    assert sorted(u for s in plan["segments"] for u in s["units"]) == list(
        range(len(result["units"]))
    )
    assert all(s["estimated"] and not s["measured"] for s in plan["segments"])
    least = min(p["predicted_ns"] for p in result["baselines"])
    assert plan["predicted_ns"] <= least * 1.0001
    assert "all-cpu" in {p["name"] for p in result["baselines"]}
    if phone in shipped():  # which measured networks in NHWC: no layout was ever changed there
        assert plan["error"] is None
        assert "TRANSPOSE" in plan["never_measured"]


def test_it_is_the_same_every_time_and_asks_nobody(
    cli: Cli, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("estimate opened a connection or a process")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr("subprocess.Popen", refuse)
    assert estimate(cli, tiny, "pixel4") == estimate(cli, tiny, "pixel4")


def test_output_says_what_it_is(cli: Cli, tiny: Path) -> None:
    result = cli("estimate", tiny, "--input", INPUT, "--phone", "npu-phone").out
    assert "estimated, simulated phone" in result
    assert "nothing was measured for this model" in result
    result = cli("estimate", tiny, "--input", INPUT, "--phone", "pixel4").out
    assert "simulated" not in result and "estimated" in result and "MIT" in result


class Deep(nn.Module):
    """A hundred convolutions. [1, 3, 16, 16] -> [1, 8, 16, 16]"""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(8 if i else 3, 8, 3, padding=1) for i in range(100)]
        self.layers = nn.Sequential(*(m for conv in layers for m in (conv, nn.ReLU())))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.slow
@pytest.mark.parametrize("phone", ["npu-phone", "pixel4"])
def test_two_seconds_after_the_model_is_loaded(tmp_path: Path, phone: str) -> None:
    program = load_program(trace(Deep(), tmp_path / "deep.pt"), [INPUT])
    begin = time.process_time()
    costs = estimated_costs(program, read_phone(phone))
    plan_problem(make_problem(program.units, costs.table), with_curve=False)
    baselines(make_problem(program.units, costs.table))
    assert time.process_time() - begin < 2


class Convolutions(nn.Module):
    """What the shipped phones know. [1, 3, 224, 224] -> [1, 10]"""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 64, 128, 128)
        pairs = itertools.pairwise(widths)
        self.layers = nn.Sequential(
            *(m for a, b in pairs for m in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU()))
        )
        self.last = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(x).mean((2, 3)))


class Attends(nn.Module):
    """What they do not. [1, 3, 224, 224] -> [1, 196, 64]"""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 16, stride=16)
        self.norm = nn.LayerNorm(64)
        self.grow, self.shrink = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.patches(x).flatten(2).transpose(1, 2))
        x = torch.softmax(x @ x.transpose(1, 2), -1) @ x
        return self.shrink(nn.functional.gelu(self.grow(x)))


WIDE = "1x3x224x224"


@pytest.mark.slow
def test_a_network_of_known_types_has_a_band_and_a_strange_one_says_unknown(
    cli: Cli, tmp_path: Path
) -> None:
    plain = trace(Convolutions(), tmp_path / "plain.pt", (1, 3, 224, 224))
    done = cli("estimate", plain, "--input", WIDE, "--phone", "pixel4", "--json")
    assert 0.02 < done.document("estimate")["plan"]["error"] < 0.4
    strange = trace(Attends(), tmp_path / "strange.pt", (1, 3, 224, 224))
    done = cli("estimate", strange, "--input", WIDE, "--phone", "pixel4", "--json")
    result = done.document("estimate")
    assert result["plan"]["error"] is None
    never = result["plan"]["never_measured"]
    assert {"BATCH_MATMUL", "SOFTMAX"} <= set(never)
    assert 0 < sum(never.values()) <= 1
    assert any(u["costs"]["cpu"]["never_measured"] == "SOFTMAX" for u in result["units"])
    document = cli("estimate", strange, "--input", WIDE, "--phone", "pixel4").out
    assert "no SOFTMAX was ever measured there" in document and "unknown" in document
    assert "TFLite's GPU delegate" in document


def test_threads_that_a_phone_was_not_measured_with_are_refused(cli: Cli, tiny: Path) -> None:
    asked = ["estimate", tiny, "--input", INPUT, "--phone", "pixel4"]
    done = cli(*asked, "--threads", 4)
    assert done.code == 2 and "pixel4 was measured with 1 CPU thread" in done.error
    assert "not measured with --burst" in cli(*asked, "--burst").error
    assert cli(*asked, "--threads", 1).code == 0


def test_what_runs_nowhere_goes_to_the_host_without_known_error(cli: Cli, tmp_path: Path) -> None:
    odd = trace(TinyNet(lambda x: torch.special.gammaln(x + 1)), tmp_path / "odd.pt")
    result = estimate(cli, odd, "pixel4")
    assert "host" in {s["target"] for s in result["plan"]["segments"]}
    assert result["plan"]["error"] is None


def test_calibrate_writes_what_estimate_reads(cli: Cli, profiled: Profiled, tmp_path: Path) -> None:
    out = tmp_path / "phone.json"
    done = cli("calibrate", "--costs", profiled.costs, "--output", out)
    assert done.code == 0, done.err
    assert "Cross-validated errors, 5 folds, seed 0, simulated" in done.out
    first = out.read_text()
    again = cli("calibrate", "--costs", profiled.costs, "--output", out, "--json")
    assert out.read_text() == first
    text = again.document("calibrate")
    assert (text["simulated"], text["folds"], text["file"]) == (True, 5, str(out))
    assert {"cpu", "nnapi:sim-npu/fast"} <= {each["target"] for each in text["targets"]}
    assert all(each["median_error"] <= each["error"] for each in text["targets"])
    result = estimate(cli, profiled.model, out)
    with CostStore(profiled.costs) as store:
        rows = store.measurements(store.devices()[0].fingerprint)
    measured = {(r.signature, r.target.key): r.summary.median_ns for r in rows if r.usable}
    (conv,) = [unit for unit in result["units"] if unit["label"].startswith("conv2d 3x3 8->8")]
    alone = measured[conv["signature"], "cpu"]
    assert conv["costs"]["cpu"]["ns"] == pytest.approx(alone, rel=0.5)
    assert Target("nnapi:sim-npu/fast").key in conv["costs"]


def test_calibrate_names_the_devices(cli: Cli, profiled: Profiled) -> None:
    done = cli("calibrate", "--costs", profiled.costs, "--device", "nobody")
    assert done.code == 2 and "no device of the cost table is called 'nobody'" in done.error
    done = cli("calibrate", "--costs", profiled.costs, "--threads", 7)
    assert done.code == 1 and "no unit was measured" in done.error


def test_partition_fills_what_was_not_measured(
    cli: Cli, profiled: Profiled, tmp_path: Path
) -> None:
    """A model of which the profile knows the convolutions, but not what stands between them."""
    other = trace(TinyNet(torch.tanh), tmp_path / "other.pt")
    named = ["--device", "sim:npu-phone", "--input", INPUT, "--costs", profiled.costs]
    refused = cli("partition", *named, other)
    assert refused.code == 1 and "never measured" in refused.error
    done = cli("partition", *named, "--estimate", "--output", tmp_path / "other.nnprof", other)
    assert done.code == 0, done.err
    assert "est." in done.out
    bundle = read_bundle(tmp_path / "other.nnprof")
    assert any("estimated from what else was measured" in note for note in bundle.notes)
    assert any(segment.estimated for plan in bundle.plans for segment in plan.segments)


def test_what_was_measured_stays_as_measured(profiled: Profiled) -> None:
    program = load_program(profiled.model, [INPUT])
    with CostStore(profiled.costs) as store:
        fingerprint = store.devices()[0].fingerprint
        rows = store.measurements(fingerprint)
    filled, note = filled_costs(program, rows, fingerprint)
    plain = fit(program.units, rows)
    assert note is None and not filled.filled
    assert filled.targets == plain.targets
    for target in plain.targets:
        for unit in program.units.units:
            one, two = (c.region_cost([unit.index], target) for c in (plain, filled))
            assert one == two
