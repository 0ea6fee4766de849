"""Costs of one's own: what is measured, changed unit by unit and weighted target by target.

The partitioner finds the least sum over segments of

    weight(target) x (invocation + transfer + the units' costs)

whatever these are, so that its plan stays the exact optimum. A region that was measured whole costs
what it took, plus what the function adds to (or takes from) its units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from nnapi_prof.costs.table import CostTable, adjusted
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.causes import Cause
from nnapi_prof.graph.plan import Plan, Segment, Target
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.partition import Problem

UnitCost = Callable[[Unit, Target, float], float | None]
"""Unit, target and what the unit costs there in ns -> what it is to cost; None keeps it off."""
Weight = Callable[[Target], float] | Mapping[str, float]
"""Target -> the factor of everything there; or patterns of target names -> factors, of which the
first that fits counts (1 where none does)."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective that a plan minimises, where that is not the latency."""

    name: str
    """For people: ``energy``."""
    unit: str
    """Of a million of its values, as milliseconds are of nanoseconds: ``mJ``."""

    def __str__(self) -> str:
        return f"{self.name} in {self.unit}"


def adjusted_table(
    graph: UnitGraph, base: CostTable, cost: UnitCost | None, weight: Weight | None
) -> CostTable:
    """The costs as a function and weights change them; the function is asked once for every unit on
    every target that runs it. Raises UsageError where either says what is no number from 0 on, or
    a pattern fits no target."""
    if isinstance(weight, Mapping):
        for pattern in weight:
            if not any(fnmatchcase(target.key, pattern) for target in base.targets):
                there = ", ".join(target.key for target in base.targets)
                raise UsageError(f"weight of {pattern!r}: no target fits it; there are {there}")
    own = {
        (unit.index, target): ns if cost is None else _checked(cost(unit, target, ns), unit, target)
        for target in base.targets
        for unit in graph.units
        if (ns := base.unit_cost(unit.index, target)) is not None
    }
    return adjusted(base, own, {target: _factor(weight, target) for target in base.targets})


def _factor(weight: Weight | None, target: Target) -> float:
    """The weight of a target."""
    if weight is None:
        return 1.0
    if isinstance(weight, Mapping):
        fitting = (w for name, w in weight.items() if fnmatchcase(target.key, name))
        factor = next(fitting, 1.0)
    else:
        factor = weight(target)
    if not (math.isfinite(factor) and factor >= 0):
        raise UsageError(f"the weight of {target} is {factor!r}: a number from 0 on is wanted")
    return float(factor)


def _checked(value: float | None, unit: Unit, target: Target) -> float | None:
    if value is None or (math.isfinite(value) and value >= 0):
        return value
    raise UsageError(
        f"the cost function says {value!r} for {unit.label} on {target}: a number from 0 on is"
        " wanted, or None where it must not run there"
    )


def as_latency(plan: Plan, base: Problem, objective: Objective) -> Plan:
    """A plan that was found under changed costs, with the latencies of the base; numbers in its
    causes and notes are said in the objective's unit, and a note says what they are. Its proof
    stays that of the objective, and says so."""
    segments = tuple(_as_latency(segment, base, objective) for segment in plan.segments)
    note = (
        f"chosen for the least {objective}: {plan.predicted_ns / 1e6:.4g} {objective.unit}; causes"
        " and notes use it, too, latencies are those of the costs as they are"
    )
    own = (each if isinstance(each, str) else each.words(objective.unit) for each in plan.remarks)
    remarks = (*(f"{objective.name}: {text}" for text in own), note)
    proof = plan.proof and replace(plan.proof, constrained=True, objective=str(objective))
    return replace(plan, segments=segments, remarks=remarks, proof=proof)


def _as_latency(segment: Segment, base: Problem, objective: Objective) -> Segment:
    why = segment.why
    if isinstance(why, Cause):
        why = replace(why, unit=objective.unit)
    ns = base.segment_ns(segment.units, base.target_index(segment.target))
    return replace(segment, why=why, predicted_ns=ns)
