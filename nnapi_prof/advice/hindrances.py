"""Finds what prevents a faster plan, from its graph, its costs and its segments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nnapi_prof.advice.prices import WorkPrices
from nnapi_prof.costs.model.region import CostModel
from nnapi_prof.graph.advice import Hindrance
from nnapi_prof.graph.causes import detail
from nnapi_prof.graph.plan import AUTO, Engine, Plan, Target
from nnapi_prof.graph.unit import UnitGraph

MOVERS = frozenset("permute transpose to_channels_last to_contiguous view reshape clone".split())
"""Operations of labels that compute nothing."""
PERMUTES = frozenset({"permute", "transpose"})
"""Those of them that somebody wrote: the others follow from what stands around them."""
WIDE = frozenset({"float64", "complex64", "complex128"})
"""Types that NNAPI does not have."""
SLOW, SHARE = 2.0, 0.03
"""A unit is slow that takes so many times what work of its size does, and so much of the plan."""


@dataclass(frozen=True, slots=True)
class HindranceFinding:
    """Units that stand in the way together."""

    kind: Hindrance
    units: tuple[int, ...]
    targets: tuple[Target, ...]
    """That do not run them, or do slowly."""
    reasons: tuple[str, ...] = ()


def find_hindrances(
    graph: UnitGraph,
    costs: CostModel,
    plan: Plan,
    prices: Mapping[Target, WorkPrices],
    kept_off: Iterable[int] = (),
) -> list[HindranceFinding]:
    """Those of a plan; of several about the same units the first.

    ``prices`` are of the targets that may matter, ``kept_off`` the units that constraints keep off
    accelerators.
    """
    findings = [
        *_kept_off(graph, costs, prices, frozenset(kept_off)),
        *_find_refusals(graph, costs, plan, prices),
        *_cuts(plan),
        *_slow(graph, costs, plan, prices),
        *_layouts(graph),
    ]
    first: dict[tuple[int, ...], HindranceFinding] = {}
    for finding in findings:
        first.setdefault(finding.units, finding)
    return list(first.values())


def accelerators(targets: Iterable[Target]) -> list[Target]:
    """Those that have a name of their own."""
    return [t for t in targets if t.engine is Engine.NNAPI and t.accelerator != AUTO]


def _find_refusals(
    graph: UnitGraph, costs: CostModel, plan: Plan, prices: Mapping[Target, WorkPrices]
) -> list[HindranceFinding]:
    """Finds operations that an accelerator refuses, or that not even the CPU engine runs, with all
    their units. All operations in 64 bits are one finding."""
    hosted = {u for s in plan.segments if s.target.engine is Engine.HOST for u in s.units}
    units: dict[str, set[int]] = defaultdict(set)
    places: dict[str, dict[Target, None]] = defaultdict(dict)
    reasons: dict[str, dict[str, None]] = defaultdict(dict)
    for (unit, target), why in sorted(costs.refusals.items()):
        of_host = target.engine is Engine.CPU and unit in hosted
        if target not in prices or not (of_host or target in accelerators([target])):
            continue
        key = "64 bits" if _is_wide(graph, unit) else graph.units[unit].operation
        units[key].add(unit)
        places[key][target] = None
        reasons[key][detail(why)] = None
    return [
        HindranceFinding(
            Hindrance.REFUSED, tuple(sorted(own)), tuple(places[key]), tuple(reasons[key])
        )
        for key, own in units.items()
    ]


def _is_wide(graph: UnitGraph, unit: int) -> bool:
    own = graph.units[unit]
    return any(graph.values[name].dtype in WIDE for name in (*own.inputs, *own.outputs))


def _kept_off(
    graph: UnitGraph,
    costs: CostModel,
    prices: Mapping[Target, WorkPrices],
    kept_off: frozenset[int],
) -> list[HindranceFinding]:
    """Finds operations that constraints keep off accelerators, with all their units; and one
    finding for all of them together."""
    by_operation: dict[str, list[int]] = defaultdict(list)
    for unit in sorted(kept_off):
        by_operation[graph.units[unit].operation].append(unit)
    groups = [*by_operation.values(), *([sorted(kept_off)] if len(by_operation) > 1 else [])]
    return [
        HindranceFinding(
            Hindrance.KEPT_OFF,
            tuple(units),
            tuple(
                target
                for target in accelerators(prices)
                if all(costs.unit_cost(unit, target) is not None for unit in units)
            ),
        )
        for units in groups
    ]


def _cuts(plan: Plan) -> list[HindranceFinding]:
    """Segments between two of one accelerator."""
    findings = []
    ends = zip(plan.segments, plan.segments[1:], plan.segments[2:], strict=False)
    for before, inner, after in ends:
        name = before.target.accelerator
        if name is not None and name == after.target.accelerator != inner.target.accelerator:
            findings.append(
                HindranceFinding(Hindrance.CUT, tuple(sorted(inner.units)), (before.target,))
            )
    return findings


def _slow(
    graph: UnitGraph, costs: CostModel, plan: Plan, prices: Mapping[Target, WorkPrices]
) -> list[HindranceFinding]:
    """Units that take far longer than others of their size, those alike together."""
    alike: dict[tuple[str, Target], list[int]] = defaultdict(list)
    spent: dict[tuple[str, Target], float] = defaultdict(float)
    for segment in plan.segments:
        own = prices.get(segment.target)
        for unit in segment.units if own is not None else ():
            work = graph.units[unit].work
            ns = costs.unit_cost(unit, segment.target)
            if own is None or work is None or ns is None or ns < SLOW * own.usual_ns(work):
                continue
            key = graph.units[unit].signature, segment.target
            alike[key].append(unit)
            spent[key] += ns
    least = SHARE * plan.predicted_ns
    return [
        HindranceFinding(Hindrance.SLOW, tuple(sorted(units)), (target,))
        for (signature, target), units in alike.items()
        if spent[signature, target] >= least
    ]


def _layouts(graph: UnitGraph) -> list[HindranceFinding]:
    """Neighbours that only move values, with at most one unit between two of them, and a permute
    among them."""
    movers = [unit.index for unit in graph.units if unit.operation in MOVERS]
    root = {unit: unit for unit in movers}

    def top(unit: int) -> int:
        while root[unit] != unit:
            unit = root[unit]
        return unit

    for unit in movers:
        near = set(graph.predecessors(unit))
        near |= {far for each in near for far in graph.predecessors(each)}
        for other in near & set(movers):
            root[top(unit)] = top(other)
    groups: dict[int, list[int]] = defaultdict(list)
    for unit in movers:
        groups[top(unit)].append(unit)
    return [
        HindranceFinding(Hindrance.LAYOUT, tuple(units), ())
        for units in groups.values()
        if any(graph.units[unit].operation in PERMUTES for unit in units)
    ]
