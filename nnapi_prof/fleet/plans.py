"""From a choice of plans for many phones to the bundle's plans: names of phones, feature levels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nnapi_prof.api.costs import Costs
from nnapi_prof.bundle.bundle import accelerators_of
from nnapi_prof.bundle.plan_set import OTHERS, PhoneTraits, PlanChoice, PlanSet, SelectionRule
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.costs.model.views import half_interval_ns
from nnapi_prof.costs.table import drop_dominated_targets
from nnapi_prof.device.protocol.description import described_info
from nnapi_prof.device.protocol.results import AgentInfo
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.execution.build import levels_of
from nnapi_prof.graph.plan import Engine, Plan, Segment, Target
from nnapi_prof.graph.program import Program
from nnapi_prof.partition.fleet import FleetObjective, Matrix
from nnapi_prof.partition.fleet_search import FleetPlan
from nnapi_prof.partition.problem import Problem


def info_of(costs: Costs) -> AgentInfo | None:
    """Returns the information about the device of these costs; None where the device was only
    described by its latencies."""
    if costs.agent_info is not None:
        return costs.agent_info
    if not costs.device_info:
        return None
    return described_info(costs.device_info, costs.simulated)


def useful_targets(costs: Sequence[Costs], problems: Sequence[Problem]) -> list[Problem]:
    """The problems without targets that bring nothing on any of the phones."""
    useful: set[Target] = set()
    for each, problem in zip(costs, problems, strict=True):
        if each.measured is not None:
            useful |= set(drop_dominated_targets(each.base_table).targets)
        else:
            useful |= set(_undominated(problem))
    return [_only(problem, useful) for problem in problems]


def _undominated(problem: Problem) -> list[Target]:
    """Lists targets of a problem without measured regions, but for those that another preference of
    the same accelerator beats everywhere."""
    order = sorted(range(len(problem.targets)), key=lambda k: float(problem.unit_ns[:, k].min()))
    alive: list[int] = []
    for k in order:
        rivals = [
            r for r in alive if problem.targets[r].accelerator == problem.targets[k].accelerator
        ]
        if problem.region_ns or not any(_as_fast(problem, r, k) for r in rivals):
            alive.append(k)
    return [problem.targets[k] for k in alive]


def _as_fast(problem: Problem, k: int, other: int) -> bool:
    prices = (problem.overhead_ns, problem.in_ns_per_byte, problem.out_ns_per_byte)
    return (
        problem.targets[k].engine is Engine.NNAPI
        and bool((problem.unit_ns[:, k] <= problem.unit_ns[:, other]).all())
        and all(price[k] <= price[other] for price in prices)
    )


def _only(problem: Problem, targets: set[Target]) -> Problem:
    places = [k for k, target in enumerate(problem.targets) if target in targets]
    index = {k: i for i, k in enumerate(places)}
    return Problem(
        labels=problem.labels,
        predecessors=problem.predecessors,
        values=problem.values,
        targets=tuple(problem.targets[k] for k in places),
        unit_ns=problem.unit_ns[:, places],
        overhead_ns=problem.overhead_ns[places],
        in_ns_per_byte=problem.in_ns_per_byte[places],
        out_ns_per_byte=problem.out_ns_per_byte[places],
        region_ns={
            (units, index[k]): ns for (units, k), ns in problem.region_ns.items() if k in index
        },
        estimated=None if problem.estimated is None else problem.estimated[:, places],
        refusals={(u, index[k]): why for (u, k), why in problem.refusals.items() if k in index},
        formats=None if problem.formats is None else problem.formats[places],
    )


def fleet_levels(infos: Sequence[AgentInfo | None]) -> dict[str, int]:
    """Key of each target -> the feature level that all phones which have it know."""
    levels: dict[str, int] = {}
    for info in infos:
        if info is not None:
            for key, level in levels_of(info).items():
                levels[key] = min(level, levels.get(key, level))
    return levels


def cannot_convert(
    program: Callable[[], Program],
    plan: FleetPlan,
    levels: Mapping[str, int],
    infos: Sequence[AgentInfo | None],
) -> bool:
    """Whether some region of a plan, which each phone takes at its own feature level, cannot be had
    at the one that they share. Asked only where these differ."""
    own = [levels_of(info) for info in infos if info is not None]
    for units, target in plan:
        key = target.base.key
        level = levels.get(key)
        if level is None or all(each.get(key, level) == level for each in own):
            continue
        try:
            convert_region(program(), units, level)
        except UnsupportedOp:
            return True
    return False


def half_ns(costs: Costs, problem: Problem, plan: FleetPlan) -> float:
    """How far a plan's predicted latency may be off on a phone, 95 %; nan where nobody knows."""
    if costs.measured is None or any(target not in problem.targets for _, target in plan):
        return float("nan")
    segments = [
        Segment(
            units,
            target,
            problem.segment_ns(units, problem.target_index(target)),
            "",
            measured=(frozenset(units), problem.target_index(target)) in problem.region_ns,
            estimated=problem.is_estimated(units, problem.target_index(target)),
        )
        for units, target in plan
    ]
    return half_interval_ns(segments, costs.measured)


def plan_set_of(
    plans: Sequence[Plan],
    phones: Sequence[PhoneTraits],
    regret: Matrix,
    share: Matrix,
    objective: FleetObjective,
    made_for: Sequence[tuple[str, str, float]],
    others: int,
    threads: Sequence[int],
) -> PlanSet:
    """The set by which a bundle with these plans chooses.

    ``regret`` is [plans, phones], ``share`` the phones' weights. A name that several phones have
    gets the plan that is the best on these together; all other phones run ``others``.
    ``made_for`` are each plan's device, for people and in cost tables, and what the CPU alone takes
    there in ns. ``threads`` are those of the CPU on each
    phone; a name that several have gets those of the heaviest.
    """
    holders: dict[str, list[int]] = {}
    for number, phone in enumerate(phones):
        for key in phone.keys:
            holders.setdefault(key, []).append(number)
    keys: list[list[str]] = [[] for _ in plans]
    for key, numbers in holders.items():
        part = regret[:, numbers]
        if objective is FleetObjective.MEAN:
            weights = share[numbers] if share[numbers].any() else np.ones(len(numbers))
            value = part[:, weights > 0] @ weights[weights > 0]
        else:
            value = part.max(axis=1)
        keys[int(value.argmin())].append(key)
    keys[others].append(OTHERS)
    choices = []
    for number, plan in enumerate(plans):
        device, fingerprint, all_cpu_ns = made_for[number]
        choices.append(
            PlanChoice(
                number,
                keys=tuple(keys[number]),
                accelerators=tuple(sorted(accelerators_of(plan))),
                device=device,
                fingerprint=fingerprint,
                all_cpu_ns=all_cpu_ns,
                threads={
                    key: threads[max(holders[key], key=lambda n: float(share[n]))]
                    for key in keys[number]
                    if key != OTHERS
                },
            )
        )
    return PlanSet(SelectionRule.PHONES, tuple(choices))
