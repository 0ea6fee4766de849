"""Graphs and cost tables for the partitioner, as real UnitGraphs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nnapi_prof.costs.model import TabulatedCosts
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import Plan, Preference, Target
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.partition import CostTable, Problem, make_problem, plan_problem

NPU = Target.nnapi("sim-npu", Preference.FAST_SINGLE_ANSWER)
NPU_LOW = Target.nnapi("sim-npu", Preference.LOW_POWER)
GPU = Target.nnapi("sim-gpu", Preference.FAST_SINGLE_ANSWER)
NOTHING: Mapping[Any, Any] = {}


def table(
    rows: Mapping[Target, Sequence[float | None]],
    *,
    start: Mapping[Target, float] = NOTHING,
    per_byte: Mapping[Target, tuple[float, float]] = NOTHING,
    whole: Mapping[tuple[frozenset[int], Target], float] = NOTHING,
    guessed: Iterable[tuple[int, Target]] = (),
    **rest: Any,
) -> CostTable:
    """Costs of units on each target in ns, None where one does not run; others are zero."""
    targets, n = tuple(rows), max(map(len, rows.values()))
    columns = [[*row, *[None] * (n - len(row))] for row in rows.values()]
    unit_ns = [[math.inf if ns is None else ns for ns in column] for column in columns]
    rates = np.array([per_byte.get(target, (0.0, 0.0)) for target in targets])
    estimated = np.array([[(u, target) in guessed for target in targets] for u in range(n)])
    return CostTable(
        targets=targets,
        unit_ns=np.array(unit_ns, dtype=np.float64).T,
        overhead_ns=np.array([start.get(target, 0.0) for target in targets]),
        in_ns_per_byte=rates[:, 0],
        out_ns_per_byte=rates[:, 1],
        region_ns=whole,
        estimated=estimated,
        **dict(simulated=True) | rest,
    )


def problem_of(graph: UnitGraph, costs: CostTable | TabulatedCosts) -> Problem:
    """The problem of placing a graph's units under costs of whatever origin."""
    return make_problem(graph, costs if isinstance(costs, CostTable) else costs.table)


def solve(graph: UnitGraph, costs: CostTable | TabulatedCosts, **options: Any) -> Plan:
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
