"""What a plan takes before it runs at its pace, beside its latency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from nnapi_prof.costs.model.region import CostModel
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import Costs, CurvePoint, make_problem
from nnapi_prof.partition.constraints import CompileCosts, CompileTimes


@dataclass(frozen=True, slots=True)
class StartUp:
    """Of one plan."""

    compile_ns: float | None
    """All its segments; None where costs tell no compile times."""
    first_run_ns: float
    """Compiling, and the first inference: as measured of segments that were, for the others what
    an inference takes later on."""
    shared_bytes: int
    """Tensors that segments hand over, the model's inputs and outputs among them, each once: memory
    that drivers share with the application."""


def start_ups(graph: UnitGraph, costs: Costs, points: Sequence[CurvePoint]) -> dict[int, StartUp]:
    """Number of segments -> what that point's plan takes."""
    problem = make_problem(graph, costs)
    budget = None
    if hasattr(costs, "compile_overhead"):
        try:
            budget = CompileTimes.read(problem, cast("CompileCosts", costs)).budget(math.inf)
        except UsageError:  # adjusted costs over others that tell no compile times
            budget = None
    found = {}
    for point in points:
        compiling = None if budget is None else budget.of(point.placements)
        first = sum(
            _first_ns(costs, units, problem.targets[k], problem.segment_ns(units, k))
            for units, k in point.placements
        )
        found[point.n_segments] = StartUp(
            compiling,
            (compiling or 0.0) + first,
            shared_bytes(graph, [units for units, _ in point.placements]),
        )
    return found


def shared_bytes(graph: UnitGraph, segments: Sequence[Sequence[int]]) -> int:
    """:attr:`StartUp.shared_bytes` of a plan's segments."""
    crossing = {name for units in segments for side in graph.boundary(units) for name in side}
    return sum(graph.values[name].n_bytes for name in crossing)


def _first_ns(costs: Costs, units: Sequence[int], target: Target, ns: float) -> float:
    row = costs.whole(units, target) if isinstance(costs, CostModel) else None
    return ns if row is None or row.first_ns is None else float(row.first_ns)
