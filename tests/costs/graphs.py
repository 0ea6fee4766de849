"""Graphs and measurements made by hand for the tests of costs."""

from collections.abc import Iterable

from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.model.fit import RegionMatcher
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import Target
from nnapi_prof.graph.unit import Unit, UnitGraph

FINGERPRINT = "device-1"


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
    unit = [
        Unit(0, "u0", "a", ("n0",), ("v0",), ("v1",), "A"),
        Unit(1, "u1", "b", ("n1",), ("v1",), ("v2",), "B"),
        Unit(2, "u2", "c", ("n2",), ("v1",), ("v3",), "C"),
        Unit(3, "u3", "d", ("n3",), ("v2", "v3"), ("v4",), "D"),
    ]
    return UnitGraph(tuple(unit), values, ("v0",), ("v4",))


def row(
    graph: UnitGraph,
    region: Iterable[int],
    target: Target,
    ns: float | None,
    *,
    status: Status = Status.OK,
    message: str | None = None,
    samples: tuple[int, ...] | None = None,
) -> Measurement:
    """The measurement of a region of ``graph``: ``ns`` as its only sample, or none."""
    region = tuple(sorted(region))
    entering, leaving = graph.boundary(region)
    if samples is None:
        samples = (round(ns),) if ns is not None else ()
    return Measurement(
        signature=RegionMatcher(graph).signature(region),
        kind=Kind.UNIT if len(region) == 1 else Kind.CHAIN,
        label="+".join(graph.units[u].label for u in region),
        members=tuple(graph.units[u].signature for u in region),
        offsets=tuple(u - region[0] for u in region),
        target=target,
        fingerprint=FINGERPRINT,
        agent_version="1",
        status=status,
        message=message,
        samples_ns=samples,
        input_bytes=sum(graph.values[v].n_bytes for v in entering),
        output_bytes=sum(graph.values[v].n_bytes for v in leaving),
        n_operations=len(region),
        simulated=True,
    )
