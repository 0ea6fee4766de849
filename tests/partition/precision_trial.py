"""Placements in several precisions on trial: plans within errors, and whole fronts, of many random
graphs of up to 8 units against a brute force over formats, segments and targets.

    python -m tests.partition.precision_trial          (make judge)

judges NNAPI_PROF_PRECISION_EXAMPLES graphs, as tests/partition/trial.py says.
"""

import itertools
import math
import os
import random
from collections.abc import Iterator, Sequence

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import ProofKind
from nnapi_prof.partition import (
    Constraints,
    ErrorLimit,
    SearchLimits,
    best_within,
    front,
    plan_problem,
)
from nnapi_prof.partition.problem import Placement, Problem
from tests.partition.drawing import draw_case
from tests.partition.precisions import (
    Front,
    Noise,
    converting_ns,
    draw_noise,
    formats_of,
    least_ns,
    true_front,
    with_formats,
)
from tests.partition.problems import check_plan, draw_problem
from tests.partition.trial import on_trial

MOST_UNITS = 8
EXACT = 1e-9
"""Relative: how far apart two sums of the same costs can be."""
MET = 2e-6
"""Relative: how far above the optimum a plan may be that is said to meet its bound."""


def draw_noisy(seed: int) -> tuple[Problem, Noise]:
    """A problem with formats, and its noise; every other one as the judge of plans draws it."""
    if seed % 2:
        draws = (draw_case(f"precision/{seed}/{i}").problem for i in itertools.count())
        problem = next(problem for problem in draws if problem.n <= MOST_UNITS)
    else:
        problem = draw_problem(seed, MOST_UNITS)
    problem = with_formats(problem, seed)
    return problem, draw_noise(problem, seed)


def complaints(seed: int) -> list[str]:
    problem, noise = draw_noisy(seed)
    truth = true_front(problem, noise)
    chance = random.Random(seed)
    powers = [power for _, power in truth] or [0.0]
    budgets = [0.0, chance.uniform(min(powers), max(powers)), chance.choice(powers)]
    budget, tolerance = chance.choice(budgets), chance.choice((0.0, 0.01, 0.2))
    about_front = _about_front(problem, noise, truth, budgets, chance.choice((4, 16)))
    return [*_about_plan(problem, noise, truth, budget, tolerance), *about_front]


def _about_plan(
    problem: Problem, noise: Noise, truth: Front, budget: float, tolerance: float
) -> Iterator[str]:
    """The fastest plan within one error, and the one to ship."""
    limit = ErrorLimit(noise, math.sqrt(budget))
    least = least_ns(truth, limit.limit**2)
    try:
        limited = dict(constraints=Constraints(errors=(limit,)), limits=SearchLimits(seconds=60.0))
        answer = plan_problem(problem, tolerance=tolerance, with_curve=False, **limited)
    except PartitionError as error:
        if math.isfinite(least):
            yield f"refused: there is a plan of {least}, but: {error}"
        return
    if math.isinf(least):
        yield f"impossible: no plan is within {budget}"
        return
    for plan in (answer.best, answer.default):
        placements = [(s.units, problem.target_index(s.target)) for s in plan.segments]
        yield from _about_placements(problem, noise, placements, plan.predicted_ns, None)
        if limit.error(placements) > limit.limit * (1 + EXACT):
            yield f"limit: an error of {limit.error(placements)}, {limit.limit} allowed"
    if answer.default.predicted_ns > answer.best.predicted_ns * (1 + tolerance) * (1 + EXACT):
        yield f"tolerance: {answer.default.predicted_ns} for {answer.best.predicted_ns}"
    if not math.isclose(answer.best.predicted_ns, least, rel_tol=MET, abs_tol=1e-12):
        yield f"optimum: {answer.best.predicted_ns}, but {least} is within {budget}"


def _about_front(
    problem: Problem, noise: Noise, truth: Front, budgets: list[float], most: int
) -> Iterator[str]:
    try:
        points = front(problem, noise, budgets=budgets, most=most)
    except PartitionError as error:
        if truth:
            yield f"refused: there is a front, but: {error}"
        return
    if not truth:
        yield f"impossible: no plan exists, but {points}"
        return
    for faster, slower in itertools.pairwise(points):
        if faster.ns > slower.ns or faster.noise <= slower.noise:
            yield f"order: {faster} before {slower}"
    for point in points:
        yield from _about_placements(problem, noise, point.placements, point.ns, point.noise)
        least = least_ns(truth, point.budget)
        if point.proof.bound_ns > least * (1 + EXACT):
            yield f"bound: {point.proof.bound_ns} within {point.budget}, but {least} is possible"
        if point.proof.kind is not ProofKind.GAP and point.ns > least * (1 + MET):
            yield f"proof: {point.ns} within {point.budget}, but {least} is possible"
    for budget in (*budgets, math.inf):
        best = best_within(points, budget)
        ns = math.inf if best is None else best.ns
        if not math.isclose(ns, least_ns(truth, budget), rel_tol=MET, abs_tol=1e-12):
            yield f"budget: {ns} within {budget}, but the least is {least_ns(truth, budget)}"


def _about_placements(
    problem: Problem,
    noise: Noise,
    placements: Sequence[Placement],
    said_ns: float,
    said_noise: float | None,
) -> Iterator[str]:
    """Whether they are a plan at all, and cost and err what is said of them."""
    try:
        check_plan(problem, placements)
    except AssertionError:
        yield f"invalid: {placements} is not a plan"
        return
    eight = sum(1 << u for units, k in placements for u in units if formats_of(problem)[k])
    ns = sum(problem.segment_ns(units, k) for units, k in placements)
    ns += converting_ns(problem, eight)
    if not math.isclose(ns, said_ns, rel_tol=EXACT, abs_tol=1e-12):
        yield f"invalid: {placements} takes {ns}, it says {said_ns}"
    power = sum(float(noise[list(units), k].sum()) for units, k in placements)
    if said_noise is not None and not math.isclose(power, said_noise, rel_tol=EXACT):
        yield f"invalid: {placements} has a noise of {power}, it says {said_noise}"


if __name__ == "__main__":
    examples = int(os.environ.get("NNAPI_PROF_PRECISION_EXAMPLES", "2000"))
    on_trial({"precisions": complaints}, examples)
