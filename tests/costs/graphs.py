"""Graphs and measurements made by hand for the tests of costs."""

from collections.abc import Iterable

from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.model.fit import RegionMatcher
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import Preference, Target
from nnapi_prof.graph.unit import Unit, UnitGraph

NPU = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)
LOW = Target.nnapi("npu", Preference.LOW_POWER)


def chain_graph(sizes: list[int], signatures: list[str] | None = None) -> UnitGraph:
    """A chain: unit i reads ``sizes[i]`` floats and writes ``sizes[i + 1]``."""
    names = signatures or [f"sig{i}" for i in range(len(sizes) - 1)]
    values = {f"v{i}": TensorType((1, size)) for i, size in enumerate(sizes)}
    units = tuple(
        Unit(i, f"u{i}", f"op{i}", (f"n{i}",), (f"v{i}",), (f"v{i + 1}",), name, macs=1000)
        for i, name in enumerate(names)
    )
    return UnitGraph(units, values, ("v0",), (f"v{len(sizes) - 1}",))


def diamond() -> UnitGraph:
    """u0 -> (u1, u2) -> u3."""
    values = {f"v{i}": TensorType((1, 8)) for i in range(5)}
    reads = (("v0",), ("v1",), ("v1",), ("v2", "v3"))
    units = tuple(
        Unit(i, f"u{i}", kind, (f"n{i}",), reads[i], (f"v{i + 1}",), kind.upper())
        for i, kind in enumerate("abcd")
    )
    return UnitGraph(units, values, ("v0",), ("v4",))


def row(
    graph: UnitGraph,
    region: Iterable[int],
    target: Target,
    ns: float | None,
    *,
    status: Status = Status.OK,
    message: str | None = None,
) -> Measurement:
    """The measurement of a region of ``graph``: ``ns`` as its only sample, or none."""
    region = tuple(sorted(region))
    units = [graph.units[u] for u in region]
    entering, leaving = graph.boundary(region)
    return Measurement(
        signature=RegionMatcher(graph).signature(region),
        kind=Kind.UNIT if len(region) == 1 else Kind.CHAIN,
        label="+".join(unit.label for unit in units),
        members=tuple(unit.signature for unit in units),
        offsets=tuple(u - region[0] for u in region),
        target=target,
        fingerprint="device-1",
        agent_version="1",
        status=status,
        message=message,
        samples_ns=() if ns is None else (round(ns),),
        input_bytes=sum(graph.values[v].n_bytes for v in entering),
        output_bytes=sum(graph.values[v].n_bytes for v in leaving),
        n_operations=len(region),
        simulated=True,
    )
