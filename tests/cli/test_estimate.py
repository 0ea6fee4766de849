"""``nnapi-prof estimate`` and ``calibrate``."""

import itertools
import socket
import time
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
from tests.cli.common import INPUT, Cli, TinyNet, trace


def estimate(cli: Cli, model: Path, phone: object) -> dict[str, Any]:
    return cli.document("estimate", model, "--input", INPUT, "--phone", phone)


@pytest.mark.parametrize("phone", [*list_phones(), *shipped()])
def test_every_phone_that_comes_along_gives_a_plan(cli, tiny, phone):
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


def test_it_is_the_same_every_time_and_asks_nobody(cli, tiny, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("estimate opened a connection or a process")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr("subprocess.Popen", refuse)
    assert estimate(cli, tiny, "pixel4") == estimate(cli, tiny, "pixel4")


def test_output_says_what_it_is(cli, tiny):
    result = cli("estimate", tiny, "--input", INPUT, "--phone", "npu-phone").out
    assert "estimated, simulated phone" in result
    assert "nothing was measured for this model" in result
    result = cli("estimate", tiny, "--input", INPUT, "--phone", "pixel4").out
    assert "simulated" not in result and "estimated" in result and "MIT" in result


@pytest.mark.slow
@pytest.mark.parametrize("phone", ["npu-phone", "pixel4"])
def test_two_seconds_after_the_model_is_loaded(tmp_path, phone):
    deep = convolutions(3, *[8] * 100)
    program = load_program(trace(deep, tmp_path / "deep.pt"), [INPUT])
    begin = time.process_time()
    costs = estimated_costs(program, read_phone(phone))
    plan_problem(make_problem(program.units, costs.table), with_curve=False)
    baselines(make_problem(program.units, costs.table))
    assert time.process_time() - begin < 2


def convolutions(*channels: int) -> nn.Sequential:
    """Returns convolutions of 3 x 3 in a row, which the shipped phones know."""
    pairs = itertools.pairwise(channels)
    layers = ((nn.Conv2d(a, b, 3, padding=1), nn.ReLU()) for a, b in pairs)
    return nn.Sequential(*itertools.chain.from_iterable(layers))


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


@pytest.mark.slow
def test_a_network_of_known_types_has_a_band_and_a_strange_one_says_unknown(cli, tmp_path):
    image = (1, 3, 224, 224)
    asked = ("--input", "1x3x224x224", "--phone", "pixel4")
    pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    network = nn.Sequential(convolutions(3, 32, 64, 64, 128, 128), *pool)
    plain = trace(network, tmp_path / "plain.pt", image)
    assert 0.02 < cli.document("estimate", *asked, plain)["plan"]["error"] < 0.4
    strange = trace(Attends(), tmp_path / "strange.pt", image)
    result = cli.document("estimate", *asked, strange)
    assert result["plan"]["error"] is None
    never = result["plan"]["never_measured"]
    assert {"BATCH_MATMUL", "SOFTMAX"} <= set(never)
    assert 0 < sum(never.values()) <= 1
    assert any(u["costs"]["cpu"]["never_measured"] == "SOFTMAX" for u in result["units"])
    out = cli.ok("estimate", *asked, strange).out
    for words in ("no SOFTMAX was ever measured there", "unknown", "TFLite's GPU delegate"):
        assert words in out


def test_what_runs_nowhere_goes_to_the_host_without_known_error(cli, tmp_path):
    odd = trace(TinyNet(lambda x: torch.special.gammaln(x + 1)), tmp_path / "odd.pt")
    result = estimate(cli, odd, "pixel4")
    assert "host" in {s["target"] for s in result["plan"]["segments"]}
    assert result["plan"]["error"] is None


def test_calibrate_writes_what_estimate_reads(cli, profiled, tmp_path):
    out = tmp_path / "phone.json"
    done = cli.ok("calibrate", "--costs", profiled.costs, "--output", out)
    assert "Cross-validated errors, 5 folds, seed 0, simulated" in done.out
    first = out.read_text()
    again = cli("calibrate", "--costs", profiled.costs, "--output", out, "--json")
    assert out.read_text() == first
    text = again.document("calibrate")
    assert (text["simulated"], text["folds"], text["file"]) == (True, 5, str(out))
    assert {"cpu", "nnapi:sim-npu/fast"} <= {each["target"] for each in text["targets"]}
    assert all(each["median_error"] <= each["error"] for each in text["targets"])
    few = cli.error("calibrate", "--costs", profiled.costs, "--threads", 7, code=1)
    assert "no unit was measured" in few
    result = estimate(cli, profiled.model, out)
    with CostStore(profiled.costs) as store:
        rows = store.measurements(store.devices()[0].fingerprint)
    measured = {(r.signature, r.target.key): r.summary.median_ns for r in rows if r.usable}
    (conv,) = [unit for unit in result["units"] if unit["label"].startswith("conv2d 3x3 8->8")]
    alone = measured[conv["signature"], "cpu"]
    assert conv["costs"]["cpu"]["ns"] == pytest.approx(alone, rel=0.5)
    assert Target("nnapi:sim-npu/fast").key in conv["costs"]


def test_partition_fills_what_was_not_measured(cli, profiled, tmp_path):
    """A model of which the profile knows the convolutions, but not what stands between them."""
    other, folder = trace(TinyNet(torch.tanh), tmp_path / "other.pt"), tmp_path / "other.nnprof"
    assert "never measured" in cli.error("partition", *profiled.named, other, code=1)
    done = cli.ok("partition", *profiled.named, "--estimate", "--output", folder, other)
    assert "est." in done.out
    bundle = read_bundle(folder)
    assert any("estimated from what else was measured" in note for note in bundle.notes)
    assert any(segment.estimated for plan in bundle.plans for segment in plan.segments)
    assert cli.document("report", "--costs", profiled.costs, folder)["estimated"]


def test_what_was_measured_stays_as_measured(profiled):
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
