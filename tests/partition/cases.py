"""Graphs and cost tables for the partitioner, as real UnitGraphs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings

from nnapi_prof.costs.model import TabulatedCosts
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import Plan, Preference, Target
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


@dataclass(frozen=True)
class Table:
    """Costs by unit and target, which tests change one by one; what is not given is free."""

    targets: tuple[Target, ...]
    unit: Mapping[tuple[int, Target], float]
    start: Mapping[Target, float] = field(default_factory=dict)
    per_byte: Mapping[Target, tuple[float, float]] = field(default_factory=dict)
    whole: Mapping[tuple[frozenset[int], Target], float] = field(default_factory=dict)
    refusals: Mapping[tuple[int, Target], str] = field(default_factory=dict)
    guessed: frozenset[tuple[int, Target]] = frozenset()
    simulated: bool = True

    def of(self, graph: UnitGraph) -> CostTable:
        shape = len(graph.units), len(self.targets)
        unit_ns, guessed = np.full(shape, np.inf), np.zeros(shape, dtype=np.bool_)
        for (u, target), ns in self.unit.items():
            if target in self.targets:
                unit_ns[u, self.targets.index(target)] = ns
        for u, target in self.guessed:
            guessed[u, self.targets.index(target)] = True
        rates = np.array([self.per_byte.get(t, (0.0, 0.0)) for t in self.targets], dtype=np.float64)
        return CostTable(
            targets=self.targets,
            unit_ns=unit_ns,
            overhead_ns=np.array([self.start.get(target, 0.0) for target in self.targets]),
            in_ns_per_byte=rates[:, 0],
            out_ns_per_byte=rates[:, 1],
            region_ns=self.whole,
            estimated=guessed,
            refusals=self.refusals,
            simulated=self.simulated,
        )


def table(rows: Mapping[Target, Sequence[float | None]], **rest: Any) -> Table:
    """Costs of units on each target in ns; None where one does not run."""
    costs = {(u, t): ns for t, row in rows.items() for u, ns in enumerate(row) if ns is not None}
    return Table(tuple(rows), costs, **rest)


def problem_of(graph: UnitGraph, costs: Table | CostTable | TabulatedCosts) -> Problem:
    """The problem of placing a graph's units under costs of whatever origin."""
    table = costs.of(graph) if isinstance(costs, Table) else costs
    return make_problem(graph, table if isinstance(table, CostTable) else table.table)


def solve(graph: UnitGraph, costs: Table | CostTable | TabulatedCosts, **options: Any) -> Plan:
    """The plan to ship of a graph under some costs."""
    return plan_problem(problem_of(graph, costs), with_curve=False, **options).default


def build_graph(reads: list[list[int]], sizes: list[int], sinks: Iterable[int] = ()) -> UnitGraph:
    """Unit i makes value ``v{i}`` of ``sizes[i]`` floats and reads those of ``reads[i]``.

    Units that read nothing read the graph input ``x`` of 8 floats. What nobody reads is an output,
    and so are the values of ``sinks``.
    """
    units = []
    for i, preds in enumerate(reads):
        inputs = tuple(f"v{p}" for p in preds) or ("x",)
        units.append(Unit(i, f"u{i}", f"op{i}", (f"u{i}",), inputs, (f"v{i}",), f"s{i}"))
    read = {p for preds in reads for p in preds}
    values = {"x": TensorType((8,))} | {f"v{i}": TensorType((s,)) for i, s in enumerate(sizes)}
    outputs = tuple(f"v{i}" for i in range(len(reads)) if i not in read or i in set(sinks))
    return UnitGraph(tuple(units), values, ("x",), outputs)


def chain(n: int) -> UnitGraph:
    return build_graph([[i - 1] if i else [] for i in range(n)], [10] * n)


def lower_bound(problem: Problem) -> float:
    """Returns a bound of every plan in ns: cheapest units, free invocations and hand-over."""
    return float(unit_shares(problem).sum())
