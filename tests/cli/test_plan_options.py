"""`nnapi-prof partition` with constraints and a list of its own."""

from pathlib import Path

from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.graph.plan import CPU, Engine
from tests.cli.common import INPUT, Cli, Profiled, Result


def partition(cli: Cli, profiled: Profiled, output: Path, *options: str) -> Result:
    named = ("--device", "sim:npu-phone", "--input", INPUT, "--costs", profiled.costs)
    return cli("partition", *named, "--output", output, *options, profiled.model)


def test_units_are_pinned_and_forbidden(cli: Cli, profiled: Profiled, tmp_path: Path) -> None:
    done = partition(cli, profiled, tmp_path / "a.nnprof", "--pin", "sigmoid*=cpu")
    assert done.code == 0, done.err
    assert "meets the constraints" in done.err
    plan = read_bundle(tmp_path / "a.nnprof").plan
    graph = read_bundle(tmp_path / "a.nnprof").graph
    (pinned,) = [u.index for u in graph.units if u.label.startswith("sigmoid")]
    assert [s.target for s in plan.segments if pinned in s.units] == [CPU]
    none = partition(cli, profiled, tmp_path / "b.nnprof", "--max-regions", "0")
    assert none.code == 0
    targets = [s.target.engine for s in read_bundle(tmp_path / "b.nnprof").plan.segments]
    assert Engine.NNAPI not in targets
    off = partition(cli, profiled, tmp_path / "c.nnprof", "--forbid", "conv2d*")
    assert off.code == 0
    bundle = read_bundle(tmp_path / "c.nnprof")
    for segment in bundle.plan.segments:
        if segment.target.engine is Engine.NNAPI:
            assert not any(bundle.graph.units[u].label.startswith("conv") for u in segment.units)


def test_a_list(cli: Cli, profiled: Profiled, tmp_path: Path) -> None:
    output = tmp_path / "m.nnprof"
    done = partition(cli, profiled, output, "--list", "sigmoid*")
    assert done.code == 0, done.err
    assert any(plan.name.startswith("listed nnapi:") for plan in read_bundle(output).plans)


def test_a_limit_of_compile_time(cli: Cli, profiled: Profiled, tmp_path: Path) -> None:
    output = tmp_path / "c.nnprof"
    done = partition(cli, profiled, output, "--max-compile-ms", "0.5")
    assert done.code == 0, done.err
    plan = read_bundle(output).plan
    assert not any(s.target.engine is Engine.NNAPI for s in plan.segments)
    assert any("of 0.500 ms allowed" in note for note in plan.notes)
    assert "95 % interval" in done.out and plan.segments[0].interval_ns is not None
