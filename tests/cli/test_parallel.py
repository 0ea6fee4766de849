"""``partition --parallel``: branches of one frame at once, where that runs faster."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nnapi_prof as np_
from nnapi_prof.bundle.deployment import runtime_bundle
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.device.find import phone_file
from nnapi_prof.errors import UsageError
from nnapi_prof.nnapi.container import ContainerKind, read_container
from tests.cli.common import INPUT, Cli, Profiled, trace


class Branches(nn.Module):
    """Two branches of convolutions that do not wait for each other."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Conv2d(16, 48, 3), nn.ReLU(), nn.Conv2d(48, 16, 3))
        self.right = nn.Sequential(nn.Conv2d(16, 48, 3), nn.ReLU(), nn.Conv2d(48, 16, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) + self.right(x)


@dataclass(frozen=True)
class Planned:
    """Where branches were planned at once, for a GPU that is as fast as the CPU, with next to no
    transfers; ``out`` is what the partition printed."""

    device: tuple[object, ...]
    costs: tuple[object, ...]
    folder: Path
    document: dict[str, Any]
    out: str


@pytest.fixture
def plan(cli: Cli, tmp_path: Path) -> Callable[..., Planned]:
    """``plan(1.1, assumed=1.2)``: the phone's contention, and what the partition is told of it."""

    def make(contention: float, assumed: float) -> Planned:
        description = json.loads(phone_file("gpu-phone").read_text())
        description.pop("memory_bandwidth")
        description["contention"] = {"value": contention, "unit": "ratio", "origin": "a test"}
        gpu = description["accelerators"][0]
        description["accelerators"] = [gpu]
        gpu.pop("driver_share")
        gpu["peak"]["default"]["value"] = description["cpu"]["peak"]["default"]["value"]
        fast = {"transfer_floor": 10, "transfer_bandwidth": 20, "invocation": 20}
        for constant, value in fast.items():
            gpu[constant]["value"] = value
        (tmp_path / "phone.json").write_text(json.dumps(description))
        torch.manual_seed(0)
        model = trace(Branches(), tmp_path / "net.pt", (1, 16, 24, 24))
        device = ("--device", f"sim:{tmp_path / 'phone.json'}")
        costs, folder = ("--costs", tmp_path / "costs.sqlite"), tmp_path / "net.nnprof"
        named = (*device, *costs, "--threads", 1, "--input", "1x16x24x24")
        cli.ok("profile", *named, "--preference", "fast", model)
        asked = ("--parallel", "--contention", assumed, "--seconds", 4, "-o", folder, model)
        document = cli.document("partition", *named, *asked)
        out = " ".join(cli.ok("partition", *named, *asked).out.split())
        return Planned(device, costs, folder, document, out)

    return make


def test_branches_at_once_where_they_run_faster(cli: Cli, plan: Callable[..., Planned]) -> None:
    planned = plan(1.1, assumed=1.1)
    document, costs, folder = planned.document, planned.costs, planned.folder
    parallel, ways = document["parallel"], document["frames"]["ways"]
    assert parallel["tried"] and parallel["promise"] > 1.3
    assert parallel["latency_ns"] < parallel["serial_ns"] / 1.2
    assert ways[0]["overlaps"] and not ways[1]["overlaps"]
    assert any("branches at once" in note for note in document["notes"])

    document = cli.document("run", *planned.device, folder)
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
    assert "times as fast as the fastest rule that needs no partitioner" in planned.out
    headline = cli.ok("report", *costs, "--format", "md", "-o", "-", folder).out
    assert re.search(r"× as fast(\*\*)? as the fastest rule", headline)
    assert "make one without --parallel" in cli.error("advise", *costs, folder)
    # The file for apps says so, too, and libraries from before pass over it.
    sections = read_container(runtime_bundle(read_bundle(folder)), ContainerKind.BUNDLE)
    assert sections["OVLP"] == (1).to_bytes(4, "little") + bytes(4)


def test_a_schedule_that_is_not_faster_is_a_rival(cli: Cli, plan: Callable[..., Planned]) -> None:
    planned = plan(4.0, assumed=1)
    assert "times as fast is not taken" in planned.out
    document = cli.document("run", *planned.device, planned.folder)
    plans = {each["plan"]["name"]: each for each in document["plans"]}
    serial, overlapped = document["frames"]
    assert document["plans"][0] == plans["dp"] and not serial["differing"]
    assert plans["parallel"]["median_ns"] == pytest.approx(overlapped["latency_ns"])
    cli.ok("advise", *planned.costs, planned.folder)  # of the plan, which is one frame's
    cli.ok("run", *planned.device, planned.folder, "--no-baselines")


def test_a_chain_is_not_tried(cli: Cli, profiled: Profiled, tmp_path: Path) -> None:
    folder = tmp_path / "chain.nnprof"
    out = cli("partition", *profiled.named, "--parallel", "-o", folder, profiled.model).out
    assert "too little to try" in " ".join(out.split())
    assert read_bundle(folder).frames is None


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
