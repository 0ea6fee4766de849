"""What a picture says of each unit: its latency where it runs and everywhere else, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnapi_prof.costs.marginal import marginal
from nnapi_prof.costs.region import CostModel
from nnapi_prof.graph.plan import Target
from nnapi_prof.reports.frames import all_targets
from nnapi_prof.reports.words import format_ms, marginal_words, place_words

NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """One accelerator or engine: latencies by preference, or why not, in words."""

    place: str
    words: str
    timed: bool
    """``words`` are latencies in ms."""


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """Of one unit. ``here_ms`` is its part of what its segment takes, None where that is
    unknown."""

    unit: int
    here_ms: float | None
    rows: tuple[PlaceFacts, ...]


def unit_facts(costs: CostModel, here_ns: Mapping[int, float]) -> list[UnitFacts]:
    """One for each unit, in order; ``here_ns`` is what each takes in its segment, where known."""
    targets = all_targets(costs)
    places: dict[str, list[Target]] = {}
    for target in targets:
        places.setdefault(place_words(target.key), []).append(target)
    found = []
    for unit in costs.graph.units:
        here = here_ns.get(unit.index)
        rows = tuple(_place(costs, unit.index, name, own) for name, own in places.items())
        found.append(UnitFacts(unit.index, None if here is None else here / NS_PER_MS, rows))
    return found


def _place(costs: CostModel, unit: int, name: str, targets: list[Target]) -> PlaceFacts:
    words: dict[str, list[str]] = {}
    timed = False
    for target in targets:
        cost = marginal(costs, costs.graph, unit, target)
        reason = costs.refusals.get((unit, target))
        if reason is not None:
            said = reason
        elif cost is None:
            said = "unknown"
        else:
            said, timed = marginal_words(cost, lambda ns: format_ms(ns / NS_PER_MS)), True
            alone = costs.region_cost((unit,), target)
            if alone is not None and alone.estimated:
                said += " (estimated)"
        preference = target.preference.short if target.preference else ""
        words.setdefault(said, []).append(preference)
    if len(words) == 1:
        return PlaceFacts(name, next(iter(words)), timed)
    told = [f"{said} {'/'.join(preferences)}" for said, preferences in words.items()]
    return PlaceFacts(name, ", ".join(told), timed)
