"""``partition --parallel``: branches of one frame at once, where that runs faster."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import nnapi_prof as np_
from nnapi_prof.bundle.deployment import runtime_bundle
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.device.find import phone_file
from nnapi_prof.errors import UsageError
from nnapi_prof.nnapi.container import ContainerKind, read_container
from tests.cli.common import INPUT, Profiled, Result, trace

Cli = Callable[..., Result]
SIZE = "1x16x24x24"


class Branches(nn.Module):
    """Two branches of convolutions that do not wait for each other."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Conv2d(16, 48, 3), nn.ReLU(), nn.Conv2d(48, 16, 3))
        self.right = nn.Sequential(nn.Conv2d(16, 48, 3), nn.ReLU(), nn.Conv2d(48, 16, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) + self.right(x)


@pytest.fixture
def phone(tmp_path: Path) -> Path:
    """gpu-phone with a GPU that is as fast as its CPU, and next to no transfers."""
    description = json.loads(phone_file("gpu-phone").read_text())
    description.pop("memory_bandwidth")
    description["contention"] = {"value": 1.1, "unit": "ratio", "origin": "a test"}
    gpu = description["accelerators"][0]
    description["accelerators"] = [gpu]
    gpu.pop("driver_share")
    gpu["peak"]["default"]["value"] = description["cpu"]["peak"]["default"]["value"]
    for constant, value in (("transfer_floor", 10), ("transfer_bandwidth", 20), ("invocation", 20)):
        gpu[constant]["value"] = value
    path = tmp_path / "phone.json"
    path.write_text(json.dumps(description))
    return path


def test_branches_at_once_where_they_run_faster(cli: Cli, phone: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, folder = trace(Branches(), tmp_path / "net.pt", (1, 16, 24, 24)), tmp_path / "net.nnprof"
    named = [
        *("--device", f"sim:{phone}", "--threads", 1, "--input", SIZE),
        *("--costs", tmp_path / "costs.sqlite"),
    ]
    cli("profile", *named, "--preference", "fast", model)
    asked = ("--parallel", "--contention", 1.1, "--seconds", 4, "-o", folder)
    document = cli("partition", *named, *asked, "--json", model).document("partition")
    parallel, ways = document["parallel"], document["frames"]["ways"]
    assert parallel["tried"] and parallel["promise"] > 1.3
    assert parallel["latency_ns"] < parallel["serial_ns"] / 1.2
    assert ways[0]["overlaps"] and not ways[1]["overlaps"]
    assert any("branches at once" in note for note in document["notes"])

    document = cli("run", *named[:2], folder, "--json").document("run")
    overlapped, serial = document["frames"]
    assert overlapped["latency_ns"] < serial["latency_ns"] / 1.2
    assert overlapped["latency_ns"] == pytest.approx(parallel["latency_ns"], rel=0.05)
    assert overlapped["same"] == overlapped["frames"] > 0
    # The plan's latency is that of its segments at once, and the serial plan is no baseline.
    first = document["plans"][0]
    assert first["plan"]["name"] == "parallel"
    assert first["predicted_ns"] == pytest.approx(parallel["latency_ns"])
    assert first["plan"]["predicted_ns"] == first["predicted_ns"]
    assert first["median_ns"] == pytest.approx(overlapped["latency_ns"])
    shown = " ".join(cli("partition", *named, *asked, model).out.split())
    assert "times as fast as the fastest rule that needs no partitioner" in shown
    headline = cli("report", *named[-2:], "--format", "md", "-o", "-", folder).out
    assert re.search(r"× as fast\*\* as the fastest rule|× as fast as the fastest rule", headline)
    refused = cli("advise", *named[-2:], folder)
    assert refused.code == 2 and "make one without --parallel" in refused.error
    # The file for apps says so, too, and libraries from before pass over it.
    sections = read_container(runtime_bundle(read_bundle(folder)), ContainerKind.BUNDLE)
    assert sections["OVLP"] == (1).to_bytes(4, "little") + bytes(4)


def test_a_schedule_that_is_not_faster_is_a_rival(cli: Cli, phone: Path, tmp_path: Path) -> None:
    description = json.loads(phone.read_text())
    description["contention"]["value"] = 4.0
    phone.write_text(json.dumps(description))
    torch.manual_seed(0)
    model, folder = trace(Branches(), tmp_path / "net.pt", (1, 16, 24, 24)), tmp_path / "net.nnprof"
    costs = ("--costs", tmp_path / "costs.sqlite")
    named = ("--device", f"sim:{phone}", "--threads", 1, "--input", SIZE, *costs)
    cli("profile", *named, "--preference", "fast", model)
    asked = ("--parallel", "--contention", 1, "--seconds", 4, "-o", folder)
    out = " ".join(cli("partition", *named, *asked, model).out.split())
    assert "times as fast is not taken" in out
    document = cli("run", *named[:2], folder, "--json").document("run")
    plans = {each["plan"]["name"]: each for each in document["plans"]}
    serial, overlapped = document["frames"]
    assert document["plans"][0] == plans["dp"] and not serial["differing"]
    assert plans["parallel"]["median_ns"] == pytest.approx(overlapped["latency_ns"])
    assert cli("advise", *costs, folder).code == 0  # of the plan, which is one frame's
    assert cli("run", *named[:2], folder, "--no-baselines").code == 0


def test_a_chain_is_not_tried(cli: Cli, profiled: Profiled, tmp_path: Path) -> None:
    named = ["--device", "sim:npu-phone", "--input", INPUT, "--costs", profiled.costs]
    folder = tmp_path / "chain.nnprof"
    out = cli("partition", *named, "--parallel", "-o", folder, profiled.model).out
    assert "too little to try" in " ".join(out.split())
    assert read_bundle(folder).frames is None
    done = cli("partition", *named, "--parallel", "--max-regions", 1, profiled.model)
    assert done.code == 2 and "--max-regions and --parallel exclude each other" in done.error


def test_from_python(profiled: Profiled) -> None:
    model = np_.load(profiled.model, inputs=[INPUT])
    costs = np_.read_costs(model, str(profiled.costs), "simulated npu*")
    planned = np_.partition(model, costs, np_.Parallel(), seconds=2, verify=False)
    assert planned.parallel is not None and planned.parallel.promise >= 1
    with pytest.raises(UsageError, match="profile\\(\\) measured"):
        np_.partition(model, costs.table, np_.Parallel())


def test_frames_and_branches_know_the_targets_that_one_frame_knows(
    cli: Cli, profiled: Profiled, tmp_path: Path
) -> None:
    """Preferences that are never faster only multiply luck: greedy takes them by noise."""
    model = np_.load(profiled.model, inputs=[INPUT])
    table = tmp_path / "costs.sqlite"
    named = ("--device", "sim:npu-phone", "--input", INPUT, "--costs", table)
    cli("profile", *named, "--every-preference", "--runs", 5, profiled.model)
    costs = np_.read_costs(model, str(table), "simulated npu*")
    one = np_.partition(model, costs, verify=False)
    many = np_.partition(model, costs, np_.Throughput(), seconds=2, verify=False)
    targets = {s.target for plan in one.plans for s in plan.segments}
    assert targets < set(costs.priced.targets)
    assert {s.target for plan in many.plans for s in plan.segments} <= targets
    rules = {plan.name: plan.predicted_ns for plan in one.plans}
    assert all(rules[p.name] == p.predicted_ns for p in many.plans if p.name in rules)
