"""Random graphs and cost tables for the partitioner, as real UnitGraphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from nnapi_prof.costs.model import TabulatedCosts
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import CPU, HOST, Plan, Preference, Target
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.partition import CostTable, Problem, make_problem, plan_problem
from nnapi_prof.partition.search.tables import unit_shares

SETTINGS = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=120
)
"""Same examples in every run, and no deadline: the machine may be shared."""

NPU = Target.nnapi("sim-npu", Preference.FAST_SINGLE_ANSWER)
NPU_LOW = Target.nnapi("sim-npu", Preference.LOW_POWER)
GPU = Target.nnapi("sim-gpu", Preference.FAST_SINGLE_ANSWER)


def solve(graph: UnitGraph, costs: Table | CostTable | TabulatedCosts, **options: Any) -> Plan:
    """The plan to ship of a graph under some costs."""
    return plan_problem(problem_of(graph, costs), with_curve=False, **options).default


@dataclass(frozen=True)
class Table:
    """Costs by unit and target, which tests change one by one."""

    targets: tuple[Target, ...]
    unit: Mapping[tuple[int, Target], float]
    start: Mapping[Target, float]
    per_byte: Mapping[Target, tuple[float, float]]
    whole: Mapping[tuple[frozenset[int], Target], float] = field(default_factory=dict)
    refusals: Mapping[tuple[int, Target], str] = field(default_factory=dict)
    guessed: frozenset[tuple[int, Target]] = frozenset()
    simulated: bool = True

    def of(self, graph: UnitGraph) -> CostTable:
        """The same as arrays."""
        shape = len(graph.units), len(self.targets)
        unit_ns, guessed = np.full(shape, np.inf), np.zeros(shape, dtype=np.bool_)
        for (u, target), ns in self.unit.items():
            if target in self.targets:
                unit_ns[u, self.targets.index(target)] = ns
        for u, target in self.guessed:
            guessed[u, self.targets.index(target)] = True
        rates = np.array([self.per_byte[target] for target in self.targets], dtype=np.float64)
        return CostTable(
            targets=self.targets,
            unit_ns=unit_ns,
            overhead_ns=np.array([self.start[target] for target in self.targets]),
            in_ns_per_byte=rates[:, 0],
            out_ns_per_byte=rates[:, 1],
            region_ns=self.whole,
            estimated=guessed,
            refusals=self.refusals,
            simulated=self.simulated,
        )


def problem_of(graph: UnitGraph, costs: Table | CostTable | TabulatedCosts) -> Problem:
    """The problem of placing a graph's units under costs of whatever origin."""
    if isinstance(costs, Table):
        return make_problem(graph, costs.of(graph))
    return make_problem(graph, costs if isinstance(costs, CostTable) else costs.table)


def build_graph(reads: list[list[int]], sizes: list[int], sinks: Iterable[int] = ()) -> UnitGraph:
    """Unit i makes value ``v{i}`` of ``sizes[i]`` floats and reads those of ``reads[i]``.

    Units that read nothing read the graph input ``x`` of 8 floats. What nobody reads is an output,
    and so are the values of ``sinks``.
    """
    units = tuple(
        Unit(
            index=i,
            name=f"u{i}",
            operation=f"op{i}",
            nodes=(f"u{i}",),
            inputs=tuple(f"v{p}" for p in preds) or ("x",),
            outputs=(f"v{i}",),
            signature=f"s{i}",
        )
        for i, preds in enumerate(reads)
    )
    read = {p for preds in reads for p in preds}
    values = {"x": TensorType((8,))} | {f"v{i}": TensorType((s,)) for i, s in enumerate(sizes)}
    outputs = tuple(f"v{i}" for i in range(len(reads)) if i not in read or i in set(sinks))
    return UnitGraph(units, values, ("x",), outputs)


@st.composite
def graphs(draw: st.DrawFn, max_units: int = 6) -> UnitGraph:
    n = draw(st.integers(1, max_units))
    reads = [
        sorted(draw(st.sets(st.integers(0, i - 1), max_size=2))) if i else [] for i in range(n)
    ]
    sizes = draw(st.lists(st.integers(1, 20), min_size=n, max_size=n))
    sinks = draw(st.sets(st.integers(0, n - 1), max_size=1))
    return build_graph(reads, sizes, sinks)


@st.composite
def tables(draw: st.DrawFn, graph: UnitGraph, measured: bool = True) -> Table:
    """Costs in whole ns, so that sums are exact. The CPU runs all but what only the host runs."""
    accelerators = draw(st.sampled_from([(NPU,), (NPU, GPU), (NPU, NPU_LOW, GPU)]))
    n = len(graph.units)
    only_host = draw(st.sets(st.integers(0, n - 1), max_size=1))
    cost = st.integers(0, 60).map(float)
    unit: dict[tuple[int, Target], float] = {}
    for u in range(n):
        if u in only_host:
            unit[u, HOST] = draw(cost) + 20
            continue
        unit[u, CPU] = draw(cost) + 5
        for target in accelerators:
            if draw(st.integers(0, 3)):
                unit[u, target] = draw(cost)
    targets = (CPU, *accelerators) + ((HOST,) if only_host else ())
    start = {t: float(draw(st.integers(0, 50))) for t in targets}
    rate = st.sampled_from([0.0, 0.25, 0.5, 1.0])
    per_byte = {t: (draw(rate), draw(rate)) for t in targets}
    whole: dict[tuple[frozenset[int], Target], float] = {}
    for _ in range(draw(st.integers(0, 4)) if measured else 0):
        region = draw(st.frozensets(st.integers(0, n - 1), min_size=1, max_size=n))
        target = draw(st.sampled_from(accelerators))
        if region <= {u for u, t in unit if t == target}:
            whole[region, target] = draw(st.integers(1, 200).map(float))
    return Table(targets, unit, start, per_byte, whole)


@st.composite
def cases(draw: st.DrawFn, max_units: int = 6) -> tuple[UnitGraph, Table]:
    graph = draw(graphs(max_units))
    return graph, draw(tables(graph))


def diamond() -> UnitGraph:
    """u0 -> (u1, u2) -> u3."""
    return build_graph([[], [0], [0], [1, 2]], [10, 10, 10, 10])


def chain(n: int) -> UnitGraph:
    return build_graph([[i - 1] if i else [] for i in range(n)], [10] * n)


def near_chain(n: int) -> UnitGraph:
    """A chain with a residual sum every five units, like MobileNetV2."""
    reads = [[i - 1] if i else [] for i in range(n)]
    for i in range(7, n, 5):
        reads[i] = [i - 4, i - 1]
    return build_graph(reads, [1000] * n)


def lower_bound(problem: Problem) -> float:
    """Returns a lower bound of every plan in ns: cheapest units, free invocations and hand-over."""
    return float(unit_shares(problem).sum())
