"""What a unit adds to a region on a target, and how well that is known.

A marginal cost is never measured by itself: it is fitted to latencies of units, chains and regions,
each of which pays an invocation and transfers besides. Where that is most of what was measured, a
unit's own part drowns in it; and a unit that ran under another preference only is inferred.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from nnapi_prof.costs.region import CostModel
from nnapi_prof.graph.plan import Preference, Target
from nnapi_prof.graph.unit import UnitGraph

ROUGH = 0.25
"""A standard error of more than this part of a cost makes it a rough one."""


class UnitCosts(Protocol):
    """Costs of units, of whatever origin."""

    @property
    def targets(self) -> tuple[Target, ...]: ...

    def unit_cost(self, unit_index: int, target: Target, /) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Marginal:
    """One unit on one target."""

    ns: float
    sigma_ns: float = 0.0
    """Standard error of the fit; 0 where none is known."""
    alone_ns: float | None = None
    """Measured alone, invocation and transfer included: it adds no more than that."""
    inferred: bool = False
    """Measured under another preference only."""

    @property
    def drowns(self) -> bool:
        """It cannot be told from nothing."""
        return self.ns <= self.sigma_ns

    @property
    def rough(self) -> bool:
        """To be read as an order of magnitude."""
        return self.inferred or self.sigma_ns > ROUGH * self.ns

    @property
    def most_ns(self) -> float:
        """What it takes at most: two standard errors more, and not more than alone."""
        most = self.ns + 2 * self.sigma_ns
        return most if self.alone_ns is None else max(self.ns, min(most, self.alone_ns))


def marginal(costs: UnitCosts, graph: UnitGraph, unit: int, target: Target) -> Marginal | None:
    """A unit's marginal cost; None where it cannot run there."""
    ns = costs.unit_cost(unit, target)
    if ns is None:
        return None
    if not isinstance(costs, CostModel) or target not in costs.fits:
        return Marginal(ns)
    whole = costs.whole((unit,), target)
    alone_ns = whole.summary.median_ns if whole is not None and whole.usable else None
    sigma_ns = costs.fits[target].errors.get(graph.units[unit].signature, 0.0)
    return Marginal(ns, sigma_ns, alone_ns, costs.inferred(unit, target))


def shown_targets(costs: UnitCosts, graph: UnitGraph) -> dict[str, Target]:
    """Accelerator (or ``cpu``, ``host``) -> the one target that stands for it, that under which
    most units were measured alone: the least of several preferences would be that of noise. Of
    equals ``fast``, then the first. Those that :func:`left_at_trial` has are not among them."""
    measured: Counter[Target] = Counter()
    left = left_at_trial(costs)
    if isinstance(costs, CostModel):
        for target in costs.targets:
            tried = (costs.whole((unit.index,), target) for unit in graph.units)
            measured[target] = sum(row is not None and row.usable for row in tried)
    found: dict[str, Target] = {}
    for target in costs.targets:
        name = target.accelerator or target.key
        if name in left:
            continue
        if name not in found or _rank(measured, target) > _rank(measured, found[name]):
            found[name] = target
    return found


def left_at_trial(costs: UnitCosts) -> tuple[str, ...]:
    """Accelerators of which a few units were measured only, for these lay far behind."""
    partial = costs.partial if isinstance(costs, CostModel) else frozenset()
    whole = {t.accelerator for t in costs.targets if t not in partial}
    names = dict.fromkeys(t.accelerator for t in costs.targets if t in partial)
    return tuple(name for name in names if name is not None and name not in whole)


def _rank(measured: Counter[Target], target: Target) -> tuple[int, bool]:
    return measured[target], target.preference is Preference.FAST_SINGLE_ANSWER
