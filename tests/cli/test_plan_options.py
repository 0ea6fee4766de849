"""`nnapi-prof partition` with constraints and a list of its own."""

from collections.abc import Callable

import pytest

from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.graph.plan import CPU, Engine
from tests.cli.common import Cli, Profiled, Result


@pytest.fixture
def partition(cli: Cli, profiled: Profiled) -> Callable[..., tuple[Bundle, Result]]:
    """The bundle that a partition with options makes, and what it prints."""

    def call(*options: str) -> tuple[Bundle, Result]:
        output = profiled.bundle.with_name("other.nnprof")
        done = cli.ok("partition", *profiled.named, "--output", output, *options, profiled.model)
        return read_bundle(output), done

    return call


Partition = Callable[..., tuple[Bundle, Result]]


def on_nnapi(bundle: Bundle) -> list[str]:
    """The labels of what the plan runs there."""
    segments = (s for s in bundle.plan.segments if s.target.engine is Engine.NNAPI)
    return [bundle.graph.units[u].label for s in segments for u in s.units]


def test_units_are_pinned_and_forbidden(partition: Partition) -> None:
    pinned, done = partition("--pin", "sigmoid*=cpu")
    assert "meets the constraints" in done.err
    (unit,) = (u.index for u in pinned.graph.units if u.label.startswith("sigmoid"))
    assert [s.target for s in pinned.plan.segments if unit in s.units] == [CPU]
    none, _ = partition("--max-regions", "0")
    assert not on_nnapi(none)
    off, _ = partition("--forbid", "conv2d*")
    assert not any(label.startswith("conv") for label in on_nnapi(off))


def test_a_list(partition: Partition) -> None:
    bundle, _ = partition("--list", "sigmoid*")
    assert any(plan.name.startswith("listed nnapi:") for plan in bundle.plans)


def test_a_limit_of_compile_time(partition: Partition) -> None:
    bundle, done = partition("--max-compile-ms", "0.5")
    assert not on_nnapi(bundle)
    assert any("of 0.500 ms allowed" in note for note in bundle.plan.notes)
    assert "95 % interval" in done.out and bundle.plan.segments[0].interval_ns is not None
