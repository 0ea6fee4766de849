"""Plans that are good on many phones: the candidates that :mod:`.fleet` chooses from.

One model on several phones is one problem per phone: the same units and values, but other targets
and costs. Candidates are each phone's own optimum, the CPU alone, and the optima of groups. The
costs of a group's phones, each by its weight over its least latency, are summed target by target.
The optimum of this sum is the plan of least mean regret among those that run on the whole group.
Groups are all phones and, repeatedly, those that share a plan of the current choice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import Target
from nnapi_prof.partition.baselines import find_baselines, total_ns
from nnapi_prof.partition.fleet import (
    CLOSE,
    FleetChoice,
    FleetObjective,
    Matrix,
    choose_plans,
    regrets,
)
from nnapi_prof.partition.problem import Placement, Problem, check_runnable
from nnapi_prof.partition.search import SearchLimits
from nnapi_prof.partition.solver import plan_problem
from nnapi_prof.progress import StepCallback

SECONDS = 120.0
MOST_ROUNDS = 4
"""Largest number of rounds of choice and new candidates; the second round seldom helps."""

FleetPlan = tuple[tuple[tuple[int, ...], Target], ...]
"""Segments in order, each with its units and its target."""


@dataclass(frozen=True)
class FleetSearch:
    """Candidates, their latencies on every phone, and the best choice of each number of them."""

    plans: tuple[FleetPlan, ...]
    latency_ns: Matrix
    """[plans, phones]; inf where a plan does not run."""
    least_ns: Matrix
    """[phones]: the least latency known of any plan."""
    bound_ns: Matrix
    """[phones]: lower bound of the latency of any plan."""
    choices: tuple[FleetChoice, ...]
    """Choices of 1, 2, ... plans; where more plans do not help, the last choice that did."""
    least_mean_of_one: float
    """Lower bound of the mean regret of any single plan on all phones with weight, candidate or
    not."""
    interrupted: bool = False
    """Whether Ctrl-C or the time limit ended the search."""

    @property
    def regret(self) -> Matrix:
        """[plans, phones]"""
        return regrets(self.latency_ns, self.least_ns)


def latency_of(problem: Problem, plan: FleetPlan) -> float:
    """Returns the latency in ns; inf where the phone lacks a target or a unit cannot run."""
    index = {target: k for k, target in enumerate(problem.targets)}
    if not all(target in index for _, target in plan):
        return math.inf
    return total_ns(problem, [(units, index[target]) for units, target in plan])


def summed_problem(problems: Sequence[Problem], factors: Sequence[float]) -> Problem:
    """Returns the problem in which the cost of each plan is the sum of its costs in all
    ``problems``, times their ``factors``; it has the targets that they have in common."""
    first = problems[0]
    targets = tuple(t for t in first.targets if all(t in p.targets for p in problems))
    places = [[p.targets.index(target) for target in targets] for p in problems]

    def total(name: str) -> Matrix:
        parts = [
            factor * getattr(problem, name)[..., at]
            for problem, factor, at in zip(problems, factors, places, strict=True)
        ]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float64)

    measured: dict[tuple[frozenset[int], int], None] = {}
    for problem in problems:
        index = {k: targets.index(t) for k, t in enumerate(problem.targets) if t in targets}
        measured |= {(units, index[k]): None for units, k in problem.region_ns if k in index}
    region_ns = {
        (units, k): sum(
            factor * problem.segment_ns(units, at[k])
            for problem, factor, at in zip(problems, factors, places, strict=True)
        )
        for units, k in measured
    }
    return replace(
        first,
        targets=targets,
        unit_ns=total("unit_ns"),
        overhead_ns=total("overhead_ns"),
        in_ns_per_byte=total("in_ns_per_byte"),
        out_ns_per_byte=total("out_ns_per_byte"),
        region_ns=region_ns,
        estimated=None,
        refusals={},
        ruled_out={},
    )


def plan_fleet(
    problems: Sequence[Problem],
    k: int,
    *,
    objective: FleetObjective = FleetObjective.MEAN,
    weights: Sequence[float] | None = None,
    limits: SearchLimits | None = None,
    seconds: float = SECONDS,
    report: StepCallback | None = None,
    without: Collection[FleetPlan] = (),
) -> FleetSearch:
    """Returns the best choices of 1 to ``k`` plans for some phones; each problem is one phone's.

    ``weights`` are by phone (None: all equal). ``limits`` apply to the search for each single plan,
    ``seconds`` to the whole search; Ctrl-C ends it early. The choice leaves out the plans in
    ``without``. Raises PartitionError where the problems are of different models or in several
    precisions, a unit runs nowhere, or no plan serves all phones.
    """
    _check_problems(problems, weights)
    search = _FleetSearch(
        problems, weights, limits or SearchLimits(), seconds, report, set(without)
    )
    search.own()
    search.whole()
    choices = search.choices(k, objective)
    for _ in range(MOST_ROUNDS):
        if search.is_over or not search.groups(choices):
            break
        better = search.choices(k, objective)
        gained = any(b.value < c.value - CLOSE for b, c in zip(better, choices, strict=True))
        choices = better
        if not gained:
            break
    return search.result(choices)


def _check_problems(problems: Sequence[Problem], weights: Sequence[float] | None) -> None:
    if not problems:
        raise PartitionError("a fleet has at least one phone")
    if weights is not None and len(weights) != len(problems):
        raise PartitionError(f"{len(weights)} weights for {len(problems)} phones")
    first = problems[0]
    for problem in problems:
        check_runnable(problem)
        if problem.predecessors != first.predecessors or problem.values != first.values:
            raise PartitionError("the costs are of different models, which no plan can be for")
        if problem.formats is not None:
            raise PartitionError("plans for a fleet are in one precision", "give costs in one")


class _FleetSearch:
    """Candidates and their latencies, added as they are found."""

    def __init__(
        self,
        problems: Sequence[Problem],
        weights: Sequence[float] | None,
        limits: SearchLimits,
        seconds: float,
        report: StepCallback | None,
        without: set[FleetPlan],
    ) -> None:
        self.problems = problems
        self.weights = np.ones(len(problems)) if weights is None else np.asarray(weights, float)
        self.limits = limits
        self.deadline = time.monotonic() + seconds
        self.report = report
        self.without = without
        self.latency: dict[FleetPlan, Matrix] = {}
        self.least = np.full(len(problems), np.inf)
        self.bound = np.zeros(len(problems))
        self.least_mean_of_one = 0.0
        self.tried: set[frozenset[int]] = set()
        self.interrupted = False

    @property
    def is_over(self) -> bool:
        return self.interrupted or time.monotonic() >= self.deadline

    def own(self) -> None:
        """Adds each phone's optimum, and the CPU alone."""
        for number, problem in enumerate(self.problems):
            self._tell("phones", number, len(self.problems))
            for rival in find_baselines(problem)[:1]:
                self._add(problem, rival.placements)
            if self.is_over:
                continue
            best, bound = self._solve(problem)
            self._add(problem, best)
            self.bound[number] = bound
        if not self.latency:
            raise PartitionError(
                "no plan was found for any phone", "allow more time, or plans that were left out"
            )

    def whole(self) -> None:
        """Adds the plan of least mean regret among those that run on all phones; notes its
        bound."""
        group = frozenset(np.flatnonzero(self.weights > 0).tolist())
        if self.is_over or len(group) < 2:
            return
        bound = self._of_group(group)
        self.least_mean_of_one = 0.0 if bound is None else max(0.0, bound - 1.0)

    def groups(self, choices: Sequence[FleetChoice]) -> bool:
        """Adds plans for phones that share one in some choice; returns whether one was new."""
        before = len(self.latency)
        parts = {
            frozenset(
                q for q, own in enumerate(choice.plan_of) if own == plan and self.weights[q] > 0
            )
            for choice in choices
            for plan in choice.plans
        }
        fresh = sorted((p for p in parts - self.tried if len(p) > 1), key=sorted)
        for number, group in enumerate(fresh):
            self._tell("groups", number, len(fresh))
            if self.is_over:
                break
            self._of_group(group)
        return len(self.latency) > before

    def choices(self, k: int, objective: FleetObjective) -> tuple[FleetChoice, ...]:
        """Returns the best choices of 1, 2, ..., k plans."""
        plans = list(self.latency)
        regret = regrets(np.array([self.latency[plan] for plan in plans]), self.least)
        chosen: list[FleetChoice] = []
        for number in range(1, k + 1):
            self._tell("choices", number - 1, k)
            if chosen and len(chosen[-1].plans) < number - 1:
                chosen.append(chosen[-1])  # fewer do as well
                continue
            chosen.append(choose_plans(regret, number, objective=objective, weights=self.weights))
        return tuple(chosen)

    def result(self, choices: tuple[FleetChoice, ...]) -> FleetSearch:
        return FleetSearch(
            plans=tuple(self.latency),
            latency_ns=np.array(list(self.latency.values())),
            least_ns=self.least,
            bound_ns=self.bound,
            choices=choices,
            least_mean_of_one=self.least_mean_of_one,
            interrupted=self.is_over,
        )

    def _of_group(self, group: frozenset[int]) -> float | None:
        """Adds the plan of least mean regret on a group; returns a bound of it. None where some
        unit runs on no target of all phones."""
        self.tried.add(group)
        phones = sorted(group)
        factors = self.weights[phones] / self.weights[phones].sum() / self.least[phones]
        problem = summed_problem([self.problems[q] for q in phones], factors.tolist())
        try:
            check_runnable(problem)
        except PartitionError:
            return None
        best, bound = self._solve(problem)
        self._add(problem, best)
        return bound

    def _solve(self, problem: Problem) -> tuple[tuple[Placement, ...], float]:
        seconds = min(self.limits.seconds, max(0.1, self.deadline - time.monotonic()))
        answer = plan_problem(
            problem,
            limits=replace(self.limits, seconds=seconds),
            with_curve=False,
        )
        self.interrupted |= answer.interrupted
        proof = answer.best.proof
        placements = tuple(
            (segment.units, problem.target_index(segment.target))
            for segment in answer.best.segments
        )
        return placements, 0.0 if proof is None else proof.bound_ns

    def _add(self, problem: Problem, placements: Sequence[Placement]) -> None:
        plan = tuple((tuple(units), problem.targets[k]) for units, k in placements)
        if plan in self.latency:
            return
        latency = np.array([latency_of(each, plan) for each in self.problems])
        self.least = np.minimum(self.least, latency)
        if plan not in self.without:
            self.latency[plan] = latency

    def _tell(self, step: str, done: int, total: int) -> None:
        if self.report is not None:
            self.report(step, done, total)
