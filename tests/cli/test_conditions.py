"""Precision, mode, threads and cores: asked of profile and partition, kept to by run."""

import dataclasses
import json
from pathlib import Path

import pytest

from nnapi_prof.bundle.storage import read_bundle, write_bundle
from nnapi_prof.costs import Conditions, Mode, Precision
from nnapi_prof.costs.measurement import Kind
from nnapi_prof.costs.store import CostStore
from nnapi_prof.graph.plan import CPU, REFERENCE, Preference, Target
from tests.cli.common import INPUT, SIM, Cli, Profiled


@pytest.mark.parametrize(
    ("options", "conditions", "words"),
    [
        (
            ("--relaxed",),
            Conditions(Precision.RELAXED, threads=4),
            "with relaxed precision the outputs",
        ),
        (
            ("--float16", "--mode", "burst", "--threads", "2", "--cpus", "all"),
            Conditions(Precision.FLOAT16, Mode.BURST, 2, "all"),
            "with float16 the outputs",
        ),
    ],
)
def test_from_profile_to_run(
    cli: Cli, tiny: Path, tmp_path: Path, options: tuple[str, ...], conditions: Conditions,
    words: str,
) -> None:  # fmt: skip
    costs, bundle = tmp_path / "costs.sqlite", tmp_path / "tiny.nnprof"
    named = (*SIM, "--input", INPUT, "--costs", costs, *options)
    only = ("--preference", "fast", "--accelerator", "nnapi-reference")
    cli.ok("profile", *named, *only, tiny)
    with CostStore(costs) as store:
        (device,) = store.devices()
        rows = [r for r in store.measurements(device.fingerprint) if r.kind is not Kind.THREADS]
    assert {r.conditions for r in rows if r.target == CPU} == {conditions.on(CPU)}
    assert {r.conditions for r in rows if r.target != CPU} == {
        conditions.on(Target.nnapi(REFERENCE, Preference.FAST_SINGLE_ANSWER))
    }
    cli.ok("partition", *named, "--output", bundle, tiny)
    loaded = read_bundle(bundle)
    assert loaded.conditions == conditions
    assert bool(loaded.halved) == (conditions.precision is Precision.FLOAT16)
    # The CPU is the faster one here; what is asked is what NNAPI gives.
    (on_nnapi,) = (p for p in loaded.plans if {s.target for s in p.segments}.isdisjoint({CPU}))
    write_bundle(bundle, dataclasses.replace(loaded, plans=(on_nnapi,)), tiny)
    result = cli.ok("run", *SIM, bundle)
    assert words in result.out and conditions.options in result.out.splitlines()[0]
    document = json.loads((bundle / "run.json").read_text())
    assert document["conditions"] == conditions.options
    if conditions.precision is Precision.FLOAT16:  # near what float32 gives, and not the same
        assert 1e-6 < max(check["relative"] for check in document["checks"]) < 1e-2


def test_other_conditions_were_not_measured(cli: Cli, profiled: Profiled) -> None:
    named = (*profiled.named, "--output", profiled.bundle)
    error = cli.error("partition", *named, "--mode", "burst", profiled.model, code=1)
    assert "nothing was measured on this device's NNAPI with --mode burst" in error
    assert "run `nnapi-prof profile --mode burst`" in error
    error = cli.error("partition", *named, "--cpus", "0x1", profiled.model, code=1)
    assert "were never measured" in error and "nnapi-prof profile" in error


def test_a_run_may_keep_to_other_cores(cli: Cli, profiled: Profiled) -> None:
    result = cli.ok("run", *SIM, "--cpus", "0x01", "--memory-mb", "4096", profiled.bundle)
    assert "--cpus 0x1" in result.out.splitlines()[0]


def test_times_are_taken_in_rounds(cli: Cli, profiled: Profiled) -> None:
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
