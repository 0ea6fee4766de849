"""Processors at once on trial: mixtures of plans, and schedules of one frame, of many random graphs
of up to 7 units against a brute force over all plans and all schedules.

    python -m tests.partition.throughput_trial         (make judge)

judges NNAPI_PROF_THROUGHPUT_EXAMPLES graphs of each kind, as tests/partition/trial.py says.

The brute force shares no code with the partitioner: the loads of every plan, as
tests/partition/precisions.py enumerates them, then one linear programme over all of them; and every
schedule of segments is tried.
"""

import itertools
import math
import os
import random
from collections.abc import Sequence
from dataclasses import replace

import numba
import numpy as np
from scipy.optimize import linprog

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import Engine
from nnapi_prof.partition import SearchLimits, Watch
from nnapi_prof.partition.lanes import make_lanes, on_lanes
from nnapi_prof.partition.mixture import best_mixture
from nnapi_prof.partition.overlap import integral_bound, lower_bound
from nnapi_prof.partition.parallel import plan_parallel
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.search.anytime import search
from tests.partition.drawing import draw_case
from tests.partition.judge import mask_of, region_costs
from tests.partition.precisions import least_of_plans, with_formats
from tests.partition.problems import draw_problem
from tests.partition.trial import Judge, on_trial

Loads = tuple[float, ...]


def lane_names(problem: Problem) -> list[str]:
    """The lanes of a problem, the CPU first."""
    names = {_lane(problem, k) for k in range(len(problem.targets))} - {""}
    return sorted(names, key=lambda name: (name != "cpu", name))


def _lane(problem: Problem, k: int) -> str:
    target = problem.targets[k]
    if target.engine is Engine.CPU:
        return "cpu"
    if target.engine is Engine.HOST or target.accelerator in ("auto", "nnapi-reference"):
        return ""
    return target.accelerator


def region_loads(problem: Problem) -> dict[tuple[int, int], Loads]:
    """(units as bits, target) -> load of each lane, of every set that can run there."""
    names = lane_names(problem)
    costs = region_costs(problem)
    measured = {(mask_of(units), k) for units, k in problem.region_ns}
    free = np.zeros_like(problem.unit_ns)
    moved = region_costs(replace(problem, unit_ns=free, overhead_ns=free[0], region_ns={}))
    loads: dict[tuple[int, int], Loads] = {}
    for units, k in np.argwhere(np.isfinite(costs)).tolist():
        lane = _lane(problem, k)
        if not units or not lane:
            continue
        load = dict.fromkeys(names, 0.0)
        load[lane] += costs[units, k]
        if lane != "cpu" and "cpu" in load:
            most = costs[units, k] if (units, k) in measured else math.inf
            load["cpu"] += min(moved[units, k], most)
        loads[units, k] = tuple(load.values())
    return loads


def all_loads(problem: Problem) -> list[Loads]:
    """Loads of all plans that no other plan betters on every lane."""
    shape = 1 << problem.n, len(problem.targets), len(lane_names(problem))
    loads = np.full(shape, np.inf)
    for region, load in region_loads(problem).items():
        loads[region] = load
    return least_of_plans(problem, loads)


def slowdowns(slow: np.ndarray) -> list[dict[int, float]]:
    """Every set of lanes, as lane -> how much longer it takes while that set is busy."""
    lanes = range(len(slow))
    sets = [s for size in lanes for s in itertools.combinations(lanes, size + 1)]
    return [{i: 1.0 + sum(slow[i, j] - 1.0 for j in s if j != i) for i in s} for s in sets]


def least_bottleneck(loads: Sequence[Loads], slow: np.ndarray) -> float:
    """The least time a frame takes of busy processors, over all mixtures of some loads."""
    sets, m = slowdowns(slow), len(slow)
    scale = max(max(load) for load in loads) or 1.0
    rows = [
        [-1.0 / s[i] if i in s else 0.0 for s in sets] + [load[i] / scale for load in loads]
        for i in range(m)
    ]
    is_set = np.repeat([1.0, 0.0], [len(sets), len(loads)])
    limits = dict(A_ub=rows, b_ub=[0.0] * m, A_eq=[1.0 - is_set], b_eq=[1.0])
    return float(linprog(is_set, **limits, method="highs").fun) * scale


# ---- schedules -----------------------------------------------------------------------------------


def least_makespan(problem: Problem, slow: np.ndarray) -> float:
    """When the best schedule ends, over all plans and all orders of their segments; inf where there
    is none. Each lane takes its segments in order, as soon as their inputs are there."""
    names, costs = lane_names(problem), region_costs(problem)
    by_lane = np.full((1 << problem.n, len(names)), np.inf)
    for k in range(len(problem.targets)):
        if name := _lane(problem, k):
            lane = names.index(name)
            by_lane[:, lane] = np.minimum(by_lane[:, lane], costs[:, k])
    needs = np.array([mask_of(preds) for preds in problem.predecessors], dtype=np.int64)
    n, m = problem.n, len(names)
    chosen = np.zeros((n, 3), dtype=np.int64)
    return float(_least(n, m, by_lane, needs, slow, 0, 0, chosen, np.inf))


@numba.njit(cache=True)
def _least(n, m, costs, needs, slow, done, depth, chosen, best):
    everything = (1 << n) - 1
    if done == everything:
        return min(best, _ends(n, m, costs, slow, chosen[:depth]))
    for units in range(1, everything + 1):
        if units & done:
            continue
        reads = 0
        for u in range(n):
            if units >> u & 1:
                reads |= needs[u]
        if reads & ~(done | units):
            continue
        for lane in range(m):
            if costs[units, lane] < np.inf:
                chosen[depth] = units, lane, reads
                best = _least(n, m, costs, needs, slow, done | units, depth + 1, chosen, best)
    return best


@numba.njit(cache=True)
def _ends(n, m, costs, slow, chosen):
    """When the segments (units, lane, what they read) are done."""
    count = len(chosen)
    left = np.array([costs[c[0], c[1]] for c in chosen])
    state = np.zeros(count)  # 0 waiting, 1 running, 2 done
    now, done = 0.0, 0
    while True:
        for i in range(count):
            ready = state[i] == 0 and chosen[i, 2] & ~(done | chosen[i, 0]) == 0
            for j in range(count):  # the lane is free, and its earlier segments are done
                if chosen[j, 1] == chosen[i, 1] and (state[j] == 1 or (j < i and state[j] < 2)):
                    ready = False
            if ready:
                state[i] = 1
        passing = np.inf
        speed = np.zeros(count)
        for i in range(count):
            if state[i] == 1:
                slower = 1.0
                for j in range(count):
                    if state[j] == 1 and chosen[j, 1] != chosen[i, 1]:
                        slower += slow[chosen[i, 1], chosen[j, 1]] - 1.0
                speed[i] = 1.0 / slower
                passing = min(passing, left[i] * slower)
        if passing == np.inf:
            return now
        now += passing
        for i in range(count):
            if state[i] == 1:
                left[i] -= passing * speed[i]
                if left[i] <= 1e-12 * costs[chosen[i, 0], chosen[i, 1]]:
                    state[i] = 2
                    done |= chosen[i, 0]


# ---- on trial ----------------------------------------------------------------------------------

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
