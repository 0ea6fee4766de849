"""The judge of what several processors do at once, by brute force, for up to seven units.

Shares no code with the partitioner: the loads of every plan, as tests/partition/precisions.py
enumerates them, then one linear programme over all of them; and every schedule of segments is
tried.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numba
import numpy as np
from scipy.optimize import linprog

from nnapi_prof.graph.plan import Engine
from nnapi_prof.partition.problem import Problem
from tests.partition.judge import mask_of, region_costs
from tests.partition.precisions import least_of_plans

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
    answer = linprog(
        [1.0] * len(sets) + [0.0] * len(loads),
        A_ub=rows,
        b_ub=[0.0] * m,
        A_eq=[[0.0] * len(sets) + [1.0] * len(loads)],
        b_eq=[1.0],
        method="highs",
    )
    return float(answer.fun) * scale


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
