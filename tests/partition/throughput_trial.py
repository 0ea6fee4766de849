"""Processors at once on trial: mixtures of plans, and schedules of one frame, of many random graphs
of up to 7 units against a brute force over all plans and all schedules.

    python -m tests.partition.throughput_trial         (make judge)

judges NNAPI_PROF_THROUGHPUT_EXAMPLES graphs of each kind, as tests/partition/trial.py says.
"""

import math
import os
import random

import numpy as np

from nnapi_prof.errors import PartitionError
from nnapi_prof.partition import SearchLimits, Watch
from nnapi_prof.partition.lanes import make_lanes, on_lanes
from nnapi_prof.partition.mixture import best_mixture
from nnapi_prof.partition.overlap import integral_bound, lower_bound
from nnapi_prof.partition.parallel import plan_parallel
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search.anytime import search
from tests.partition.drawing import draw_case
from tests.partition.lanes_judge import all_loads, lane_names, least_bottleneck, least_makespan
from tests.partition.precisions import with_formats
from tests.partition.problems import draw_problem
from tests.partition.trial import Judge, on_trial

MET = 1e-5
"""Relative: how far HiGHS's answers may be from the truth."""
BELOW = 1e-6
"""Relative: by how much a bound may be above the truth."""


def draw_small(seed: int) -> Problem | None:
    """A problem of up to seven units; None where the draw has more, or no processor."""
    problem = draw_problem(seed, 7) if seed % 2 else draw_case(f"lanes/{seed}").problem
    if problem.n <= 5 and seed % 4 == 1:
        problem = with_formats(problem, seed)
    return problem if problem.n <= 7 and lane_names(problem) else None


def draw_few(seed: int) -> Problem | None:
    """A problem of which every schedule can be looked at without tricks; None for other draws."""
    problem = draw_small(seed)
    if problem is None or problem.formats is not None:
        return None
    m = len(lane_names(problem))
    return problem if problem.n <= (7 if m <= 2 else 5 if m == 3 else 4) else None


def draw_contention(
    problem: Problem, chance: random.Random
) -> float | dict[tuple[str, str], float]:
    names = lane_names(problem)
    if chance.random() < 0.5:
        return chance.choice((1.0, 1.1, 1.3, 2.5))
    pairs = [(a, b) for a in names for b in names if a != b]
    return {pair: chance.choice((1.0, 1.1, 1.3, 1.8, 3.0)) for pair in pairs}


def judge_mixture(seed: int) -> list[str] | None:
    """The best mixture of plans against the best of all mixtures of all plans."""
    problem = draw_small(seed)
    if problem is None:
        return None
    lanes = make_lanes(problem.targets, draw_contention(problem, random.Random(seed)))
    try:
        problem = on_lanes(problem, lanes)
    except PartitionError:
        return None
    serial = search(problem, Watch(SearchLimits(seconds=20.0)))
    loads = all_loads(problem)
    if serial is None:
        return ["there are plans, and none was found"] if loads else None
    result = best_mixture(problem, lanes, Watch(SearchLimits(seconds=20.0)), serial.plans)
    truth, mixture = least_bottleneck(loads, lanes.slowdown), result.mixture
    wrong = []
    if not result.is_optimal:
        wrong.append("the mixture is not proven")
    if not math.isclose(mixture.busy_ns, truth, rel_tol=MET, abs_tol=1e-12):
        wrong.append(f"the mixture takes {mixture.busy_ns} ns a frame, the best {truth}")
    if result.bound_ns > truth * (1 + BELOW):
        wrong.append(f"the bound of mixtures is {result.bound_ns}, the truth {truth}")
    if len(mixture.columns) > lanes.count:
        wrong.append(f"{len(mixture.columns)} plans for {lanes.count} lanes")
    if not math.isclose(math.fsum(mixture.shares), 1.0, rel_tol=1e-6):
        wrong.append(f"shares {mixture.shares}")
    return wrong


def judge_schedule(seed: int) -> list[str] | None:
    """The schedule of one frame against every schedule, and the bounds against the truth."""
    problem = draw_few(seed)
    if problem is None:
        return None
    contention = draw_contention(problem, random.Random(seed))
    lanes = make_lanes(problem.targets, contention)
    truth = least_makespan(problem, lanes.slowdown)
    try:
        answer = plan_parallel(problem, contention=contention, promising=0.0)
    except PartitionError:
        return None if truth == np.inf else ["there are schedules, and none was found"]
    wrong = []
    # One segment after the other, the serial plan may be faster where contention is high.
    best = min(truth, answer.serial_ns)
    if not math.isclose(answer.latency_ns, best, rel_tol=BELOW):
        wrong.append(f"the schedule takes {answer.latency_ns} ns, the best {best}")
    if not answer.proof.is_optimal:
        wrong.append("the schedule is not proven")
    on = on_lanes(problem, lanes)
    for bound in (lower_bound(on, lanes), integral_bound(on, lanes, 1.0)):
        if bound is not None and bound.ns > best * (1 + 1e-7):
            wrong.append(f"a bound of schedules is {bound.ns}, the truth {best}")
    return wrong


JUDGES: dict[str, Judge] = {"mixtures": judge_mixture, "schedules": judge_schedule}


if __name__ == "__main__":
    on_trial(JUDGES, int(os.environ.get("NNAPI_PROF_THROUGHPUT_EXAMPLES", "2000")))
