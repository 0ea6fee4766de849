"""Cost models without the targets that nothing tells from another.

The preferences of an accelerator are alternatives of one driver, and NNAPI's own choice ("auto")
is one of its accelerators; often some of them run alike. Kept as targets of their own they only
multiply luck: of several noisy measurements of one thing the partitioner takes the luckiest, region
by region, and measuring never comes to rest.
"""

from __future__ import annotations

import math
from dataclasses import replace

from nnapi_prof.costs.region import CostModel
from nnapi_prof.graph.plan import AUTO, Engine, Preference, Target


def distinct(costs: CostModel, *, auto: bool = False) -> CostModel:
    """The costs without preferences under which no region was faster beyond noise than under
    another of the same accelerator, and without "auto" where a named accelerator is as fast.

    Of equals the preference for fast answers stays. What was measured on the others is left out of
    plans, not of the fits. With ``auto`` NNAPI's own choice stays, whatever it equals.
    """
    kept: list[Target] = []
    for target in sorted(costs.targets, key=_rank):
        rivals = [k for k in kept if _comparable(target, k, auto)]
        if not any(_adds_nothing(costs, target, rival) for rival in rivals):
            kept.append(target)
    return replace(costs, targets=tuple(target for target in costs.targets if target in kept))


def _rank(target: Target) -> tuple[bool, bool]:
    """Those that stay where they are equal first."""
    leading = target.preference in (None, Preference.FAST_SINGLE_ANSWER)
    return target.accelerator == AUTO, not leading


def _comparable(target: Target, rival: Target, auto: bool) -> bool:
    if rival.engine is not Engine.NNAPI:
        return False
    return target.accelerator == rival.accelerator or (target.accelerator == AUTO and not auto)


def _adds_nothing(costs: CostModel, target: Target, rival: Target) -> bool:
    """Whether ``rival`` runs all that ``target`` runs, as fast but for noise.

    Compared are all regions measured on both: what choosing the faster of the two for each of them
    would save of their sum. Noise alone saves 0.56 of its standard deviation that way.
    """
    whole = costs.measured_regions()
    both = [
        (ns, whole[units, rival])
        for (units, place), ns in whole.items()
        if place == target and (units, rival) in whole and math.isfinite(ns)
    ]
    lacks = any(
        costs.unit_cost(unit, rival) is None
        for unit in range(len(costs.graph.units))
        if costs.unit_cost(unit, target) is not None
    )
    if lacks or not both or any(math.isinf(other) for _, other in both):
        return False
    saved = sum(max(0.0, other - ns) for ns, other in both)
    return saved <= costs.noise * sum(other for _, other in both)
