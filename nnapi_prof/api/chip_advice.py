"""Advice for a plan on a chip: every rewrite is compiled, and planned anew.

A rewrite that the compiler makes by itself saves nothing then, and is not offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nnapi_prof.api.chip_costs import profile_on_chip
from nnapi_prof.api.events import Listener, Progress
from nnapi_prof.api.model import Model, load
from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.graph.advice import GOOD_ENOUGH, LEAST_GAIN, Advice, Hindrance
from nnapi_prof.qnn.costs import ChipCosts
from nnapi_prof.qnn.regions import activation_groups

if TYPE_CHECKING:
    from nnapi_prof.advice.rules import KnownRewrite

MOST_FORMS = 3
"""Rewrites of one operation that are compiled, those that change least first."""
COMPILING = "compiling rewrites"


@dataclass(frozen=True)
class _Obstacle:
    """The units of one operation that could be written otherwise."""

    operation: str
    units: tuple[int, ...]
    reasons: tuple[str, ...]
    """Why the NPU does not take them; empty where it does."""
    share_ns: float
    """What a rewrite can save at most, by the plan."""
    rules: Mapping[KnownRewrite, tuple[str, ...]]
    """Rewrite -> the nodes that it is for."""


def advise_on_chip(planned: ModelPlan, tries: int, listener: Listener) -> tuple[Advice, ...]:
    """Returns advice for a plan that was estimated for a chip, the largest saving first.

    Of ``tries`` operations up to three rewrites each are written into the model and compiled for
    the chip; those are offered that make the plan faster. Raises what
    :func:`nnapi_prof.api.chip_costs.profile_on_chip` raises.
    """
    obstacles = sorted(_obstacles(planned), key=lambda one: (not one.reasons, -one.share_ns))
    advice = []
    for at, obstacle in enumerate(obstacles[:tries]):
        listener.progress(Progress(COMPILING, at, min(tries, len(obstacles)), obstacle.operation))
        best = _best(planned, obstacle, listener)
        if best is not None:
            advice.append(best)
    return tuple(sorted(advice, key=lambda one: -one.saves_ns))


def _obstacles(planned: ModelPlan) -> Iterator[_Obstacle]:
    from nnapi_prof.advice.rules import rules_for
    from nnapi_prof.advice.search import names_of

    assert planned.costs is not None and isinstance(planned.costs.priced, ChipCosts)
    costs, program = planned.costs.priced, planned.model.program
    assert costs.npu is not None
    graph, leader = program.units, activation_groups(program.units)
    target = {unit: s.target for s in planned.plan.segments for unit in s.units}
    operations: dict[str, list[int]] = {}
    for unit in graph.units:
        operations.setdefault(unit.operation, []).append(unit.index)
    for operation, units in operations.items():
        rules: dict[KnownRewrite, tuple[str, ...]] = {}
        for name in names_of(program, units):
            for rule in rules_for(program.nodes[name].target):
                rules[rule] = (*rules.get(rule, ()), name)
        why = {
            costs.refusals[u, costs.npu]: None for u in units if (u, costs.npu) in costs.refusals
        }
        share = sum(
            costs.unit_cost(unit, target[unit]) or 0.0
            for unit in {group for unit in units for group in (unit, leader[unit])}
        )
        if rules and (why or share >= LEAST_GAIN * planned.plan.predicted_ns):
            yield _Obstacle(operation, tuple(units), tuple(why), share, rules)


def _best(planned: ModelPlan, obstacle: _Obstacle, listener: Listener) -> Advice | None:
    """Compiles an operation's rewrites, and takes of those that save most the one that changes
    least; None where none helps."""
    tried = []
    for rule in list(obstacle.rules)[:MOST_FORMS]:
        advice = _compiled(planned, obstacle, rule, listener)
        if advice is not None and advice.saves_ns >= LEAST_GAIN * advice.before_ns:
            tried.append(advice)
    most = max((one.saves_ns for one in tried), default=0.0)
    return next((one for one in tried if one.saves_ns >= GOOD_ENOUGH * most), None)


def _compiled(
    planned: ModelPlan, obstacle: _Obstacle, rule: KnownRewrite, listener: Listener
) -> Advice | None:
    from nnapi_prof.advice.search import rewritten

    program, costs = planned.model.program, planned.costs
    assert costs is not None and costs.origin is not None
    module = rewritten(program, dict.fromkeys(obstacle.rules[rule], rule.form))
    if module is None:
        return None
    quiet = replace(listener, note=lambda _: None, busy=lambda _: None)
    try:
        model = load(module, list(program.example_inputs), name=planned.model.name)
        after = profile_on_chip(model, costs.origin.device, quiet)
    except NnapiProfError as error:
        listener.note(f"{rule.rewrite.name} was not compiled: {error}")
        return None
    units = program.units.units
    before_ns = planned.plan.predicted_ns
    return Advice(
        kind=Hindrance.REFUSED if obstacle.reasons else Hindrance.SLOW,
        units=obstacle.units,
        labels=tuple(units[unit].label for unit in obstacle.units),
        targets=(costs.device,),
        reasons=obstacle.reasons,
        before_ns=before_ns,
        after_ns=after.plan.predicted_ns,
        rewrite=rule.rewrite,
        estimated=True,
        margin_ns=costs.origin.calibration.tie * before_ns,
    )


def planned_for_chip(model: Model, device: str, tries: int, listener: Listener) -> ModelPlan:
    """Plans a model for a chip, with advice."""
    planned = profile_on_chip(model, device, listener).planned
    return replace(planned, advice=advise_on_chip(planned, tries, listener))
