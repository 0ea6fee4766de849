"""``nnapi-prof partition``: constraints, conditions, and branches of one frame at once."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import nnapi_prof as np_
from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.deployment import runtime_bundle
from nnapi_prof.bundle.storage import read_bundle, write_bundle
from nnapi_prof.costs import Conditions, Mode, Precision
from nnapi_prof.costs.measurement import Kind
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.find import phone_file
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import CPU, REFERENCE, Engine, Preference, Target
from nnapi_prof.nnapi.container import ContainerKind, read_container
from tests.cli.common import INPUT, SIM, Cli, Profiled, Result, trace
from tests.models import Function


@pytest.fixture
def partition(cli: Cli, profiled: Profiled) -> Callable[..., tuple[Bundle, Result]]:
    """The bundle that a partition with options makes, and what it prints."""

    def call(*options: str) -> tuple[Bundle, Result]:
        output = profiled.bundle.with_name("other.nnprof")
        done = cli.ok("partition", *profiled.named, "--output", output, *options, profiled.model)
        return read_bundle(output), done

    return call


def on_nnapi(bundle: Bundle) -> list[str]:
    """The labels of what the plan runs there."""
    segments = (s for s in bundle.plan.segments if s.target.engine is Engine.NNAPI)
    return [bundle.graph.units[u].label for s in segments for u in s.units]


def test_units_are_pinned_and_forbidden(partition):
    pinned, done = partition("--pin", "sigmoid*=cpu")
    assert "meets the constraints" in done.err
    (unit,) = (u.index for u in pinned.graph.units if u.label.startswith("sigmoid"))
    assert [s.target for s in pinned.plan.segments if unit in s.units] == [CPU]
    none, _ = partition("--max-regions", "0")
    assert not on_nnapi(none)
    off, _ = partition("--forbid", "conv2d*")
    assert not any(label.startswith("conv") for label in on_nnapi(off))


def test_a_list_and_a_limit_of_compile_time(partition):
    bundle, _ = partition("--list", "sigmoid*")
    assert any(plan.name.startswith("listed nnapi:") for plan in bundle.plans)
    bundle, done = partition("--max-compile-ms", "0.5")
    assert not on_nnapi(bundle)
    assert any("of 0.500 ms allowed" in note for note in bundle.plan.notes)
    assert "95 % interval" in done.out and bundle.plan.segments[0].interval_ns is not None


def test_the_fastest(cli, profiled, tmp_path):
    asked = ("--output", tmp_path / "best.nnprof", "--best", "--seconds", "5", "--no-verify")
    result = cli.document("partition", *profiled.named, *asked, profiled.model)
    plan, last = result["plan"], result["curve"][-1]
    assert last["ns"] == pytest.approx(plan["predicted_ns"])
    assert len(plan["segments"]) <= last["segments"] and last["exact"]
    proof = plan["proof"]
    assert proof["kind"] in ("exact", "bound_met") and proof["gap"] == 0
    assert not proof["constrained"] and proof["objective"] is None
    assert read_bundle(tmp_path / "best.nnprof").plan.proof is not None
    assert result["baselines"][0]["proof"] is None


@pytest.mark.parametrize(
    ("options", "conditions", "words"),
    [
        ("--relaxed", Conditions(Precision.RELAXED, threads=4), "with relaxed precision the"),
        ("--float16 --mode burst --threads 2 --cpus all",
         Conditions(Precision.FLOAT16, Mode.BURST, 2, "all"), "with float16 the outputs"),
    ],
)  # fmt: skip
def test_from_profile_to_run(cli, tiny, tmp_path, options, conditions, words):
    costs, bundle = tmp_path / "costs.sqlite", tmp_path / "tiny.nnprof"
    named = (*SIM, "--input", INPUT, "--costs", costs, *options.split())
    only = ("--preference", "fast", "--accelerator", "nnapi-reference")
    cli.ok("profile", *named, *only, tiny)
    with CostStore(costs) as store:
        (device,) = store.devices()
        rows = [r for r in store.measurements(device.fingerprint) if r.kind is not Kind.THREADS]
    reference = Target.nnapi(REFERENCE, Preference.FAST_SINGLE_ANSWER)
    assert {r.conditions for r in rows if r.target == CPU} == {conditions.on(CPU)}
    assert {r.conditions for r in rows if r.target != CPU} == {conditions.on(reference)}
    cli.ok("partition", *named, "--output", bundle, tiny)
    loaded = read_bundle(bundle)
    assert loaded.conditions == conditions
    assert bool(loaded.halved) == (conditions.precision is Precision.FLOAT16)
    # The CPU is the faster one here; what is asked is what NNAPI gives.
    (plan,) = (p for p in loaded.plans if {s.target for s in p.segments}.isdisjoint({CPU}))
    write_bundle(bundle, dataclasses.replace(loaded, plans=(plan,)), tiny)
    result = cli.ok("run", *SIM, bundle)
    assert words in result.out and conditions.options in result.out.splitlines()[0]
    document = json.loads((bundle / "run.json").read_text())
    assert document["conditions"] == conditions.options
    if conditions.precision is Precision.FLOAT16:  # near what float32 gives, and not the same
        assert 1e-6 < max(check["relative"] for check in document["checks"]) < 1e-2


@pytest.mark.parametrize(
    ("conditions", "lacking", "advice"),
    [
        ("--mode burst", "nothing was measured on this device's NNAPI with --mode burst",
         "run `nnapi-prof profile --mode burst`"),
        ("--cpus 0x1", "were never measured", "nnapi-prof profile"),
        ("--threads 2", "were never measured on this device's CPU with 2 threads",
         "run `nnapi-prof profile --threads 2` with the same model"),
    ],
)  # fmt: skip
def test_other_conditions_were_not_measured(cli, profiled, conditions, lacking, advice):
    asked = (*profiled.named, *conditions.split(), profiled.model)
    error = cli.error("partition", *asked, code=1)
    assert lacking in error and advice in error


def test_a_run_may_keep_to_other_cores(cli, profiled):
    result = cli.ok("run", *SIM, "--cpus", "0x01", "--memory-mb", "4096", profiled.bundle)
    assert "--cpus 0x1" in result.out.splitlines()[0]


def test_times_are_taken_in_rounds(cli, profiled):
    with CostStore(profiled.costs) as store:
        (device,) = store.devices()
        rows = [row for row in store.measurements(device.fingerprint) if row.usable]
    assert rows
    for row in rows:
        assert len(row.rounds) == 5 and row.warmup_runs is not None
        assert sum(each.runs for each in row.rounds) == len(row.samples_ns)
        assert row.target != CPU or (row.kernels_xnnpack or 0) + (row.kernels_portable or 0) > 0
    text = cli.ok("report", "--costs", profiled.costs, "-o", "-", profiled.bundle).out
    assert "<dt>rounds of each</dt><dd>5</dd>" in text and "to doubt" not in text


# ---- branches at once ----------------------------------------------------------------------------


@pytest.fixture
def plan(cli: Cli, tmp_path: Path) -> Callable[..., SimpleNamespace]:
    """``plan(1.1, assumed=1.2)``: the phone's contention, and what the partition is told of it.
    The phone's GPU is as fast as its CPU, with next to no transfers."""

    def make(contention: float, assumed: float) -> SimpleNamespace:
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
        left, right = (
            nn.Sequential(nn.Conv2d(16, 48, 3), nn.ReLU(), nn.Conv2d(48, 16, 3)) for _ in range(2)
        )
        net = Function(lambda x, left, right: left(x) + right(x), left=left, right=right)
        model = trace(net, tmp_path / "net.pt", (1, 16, 24, 24))
        device = ("--device", f"sim:{tmp_path / 'phone.json'}")
        costs, folder = ("--costs", tmp_path / "costs.sqlite"), tmp_path / "net.nnprof"
        named = (*device, *costs, "--threads", 1, "--input", "1x16x24x24")
        cli.ok("profile", *named, "--preference", "fast", model)
        asked = ("--parallel", "--contention", assumed, "--seconds", 4, "-o", folder, model)
        document = cli.document("partition", *named, *asked)
        out = " ".join(cli.ok("partition", *named, *asked).out.split())
        return SimpleNamespace(
            device=device, costs=costs, folder=folder, document=document, out=out
        )

    return make


def test_branches_at_once_where_they_run_faster(cli, plan):
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


def test_a_schedule_that_is_not_faster_is_a_rival(cli, plan):
    planned = plan(4.0, assumed=1)
    assert "times as fast is not taken" in planned.out
    document = cli.document("run", *planned.device, planned.folder)
    plans = {each["plan"]["name"]: each for each in document["plans"]}
    serial, overlapped = document["frames"]
    assert document["plans"][0] == plans["dp"] and not serial["differing"]
    assert plans["parallel"]["median_ns"] == pytest.approx(overlapped["latency_ns"])
    cli.ok("advise", *planned.costs, planned.folder)  # of the plan, which is one frame's
    cli.ok("run", *planned.device, planned.folder, "--no-baselines")


def test_a_chain_is_not_tried(cli, profiled, tmp_path):
    folder = tmp_path / "chain.nnprof"
    out = cli("partition", *profiled.named, "--parallel", "-o", folder, profiled.model).out
    assert "too little to try" in " ".join(out.split())
    assert read_bundle(folder).frames is None


def test_from_python(profiled):
    model = np_.load(profiled.model, inputs=[INPUT])
    costs = np_.read_costs(model, str(profiled.costs), "simulated npu*")
    planned = np_.partition(model, costs, np_.Parallel(), seconds=2, verify=False)
    assert planned.parallel is not None and planned.parallel.promise >= 1
    with pytest.raises(UsageError, match="profile\\(\\) measured"):
        np_.partition(model, costs.table, np_.Parallel())


def test_frames_and_branches_know_the_targets_that_one_frame_knows(cli, profiled, tmp_path):
    """Preferences that are never faster only multiply luck: greedy takes them by noise."""
    model, table = np_.load(profiled.model, inputs=[INPUT]), tmp_path / "costs.sqlite"
    named = (*SIM, "--input", INPUT, "--costs", table)
    cli("profile", *named, "--every-preference", "--runs", 5, profiled.model)
    costs = np_.read_costs(model, str(table), "simulated npu*")
    one = np_.partition(model, costs, verify=False)
    many = np_.partition(model, costs, np_.Throughput(), seconds=2, verify=False)
    targets = {s.target for plan in one.plans for s in plan.segments}
    assert targets < set(costs.priced.targets)
    assert {s.target for plan in many.plans for s in plan.segments} <= targets
    rules = {plan.name: plan.predicted_ns for plan in one.plans}
    assert all(rules[p.name] == p.predicted_ns for p in many.plans if p.name in rules)
