"""Random problems whose targets differ in format, and the truth about them: every plan's latency
against its noise, by brute force over formats, segments and targets.

It goes by the definition in the docstring of :class:`Problem`: for every way of giving the units
formats, what conversions cost is a number; the rest are chains of ideals.
"""

import math
import random
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.partition.problem import GRAPH_INPUT, Problem
from tests.partition.judge import ideals_of, not_bettered, region_costs, sums_of_plans

Noise = NDArray[np.float64]
Front = list[tuple[float, float]]
"""(ns, noise) of plans that none betters in both, fastest first."""


def with_formats(problem: Problem, seed: int) -> Problem:
    """The problem with targets of 8-bit integers among others, and conversions at random costs:
    none, ties, or as much as a unit costs."""
    chance = random.Random(("formats", seed).__repr__())
    t = len(problem.targets)
    formats = np.array([0, *(chance.choice((0, 1, 1)) for _ in range(t - 1))])
    if chance.random() < 0.1:
        formats[:] = 1
    finite = problem.unit_ns[np.isfinite(problem.unit_ns)]
    typical = float(np.median(finite)) if len(finite) else 1.0
    scale = chance.choice((0.0, 0.05, 0.3, 0.3, 1.0, 3.0)) * typical

    def cost() -> float:
        kind = chance.random()
        return 0.0 if kind < 0.1 else scale if kind < 0.3 else scale * chance.random()

    values = tuple(replace(v, to_int8_ns=cost(), to_float_ns=cost()) for v in problem.values)
    faster = np.where(formats == 1, chance.choice((1.0, 0.5, 0.3)), 1.0)
    light = np.where(formats == 1, chance.choice((1.0, 0.25, 0.0)), 1.0)
    return replace(
        problem,
        values=values,
        formats=formats,
        unit_ns=problem.unit_ns * faster,
        overhead_ns=problem.overhead_ns * light,
        in_ns_per_byte=problem.in_ns_per_byte * light,
        out_ns_per_byte=problem.out_ns_per_byte * light,
        region_ns={
            region: ns * float(faster[region[1]]) for region, ns in problem.region_ns.items()
        },
    )


def draw_noise(problem: Problem, seed: int) -> Noise:
    """[n, t]: nothing on most float targets, and more on those of 8 bits; ties among them."""
    chance = random.Random(("noise", seed).__repr__())
    scale = chance.choice((1e-6, 1.0, 1e3))
    noise = np.zeros(problem.unit_ns.shape)
    for u in range(problem.n):
        own = chance.choice((0.0, 1.0, 1.0, 5.0)) * chance.choice((1.0, chance.random()))
        for k, fmt in enumerate(formats_of(problem)):
            rough = (1.0, 1.0, 1.5) if fmt else (*[0.0] * 9, 0.1)
            noise[u, k] = own * chance.choice(rough) * scale
    return noise


def formats_of(problem: Problem) -> NDArray[np.int64]:
    """[t]: 1 for targets of 8-bit integers, 0 for others."""
    floats = np.zeros(len(problem.targets), dtype=np.int64)
    return floats if problem.formats is None else problem.formats


def converting_ns(problem: Problem, eight: int) -> float:
    """What a plan's conversions cost in which the units of a set of bits run in 8 bits."""
    total = 0.0
    for value in problem.values:
        makes_int8 = value.producer != GRAPH_INPUT and bool(eight >> value.producer & 1)
        reads_int8 = any(eight >> r & 1 for r in value.readers)
        reads_float = any(not eight >> r & 1 for r in value.readers)
        if not makes_int8 and reads_int8:
            total += value.to_int8_ns
        if makes_int8 and (reads_float or value.is_output):
            total += value.to_float_ns
    return total


def true_front(problem: Problem, noise: Noise) -> Front:
    """That of all plans."""
    member = (np.arange(1 << problem.n)[:, None] >> np.arange(problem.n) & 1).astype(np.float64)
    power = member @ np.where(np.isfinite(noise), noise, 0.0)
    front: Front = []
    for ns, own in sorted(least_of_plans(problem, np.dstack((region_costs(problem), power)))):
        if not front or own < front[-1][1] * (1 - 1e-12):
            front.append((ns, own))
    return front


def least_ns(front: Front, limit: float = math.inf) -> float:
    """Of plans whose noise is at most the limit."""
    within = (ns for ns, power in front if power <= limit * (1 + 1e-9) + 1e-300)
    return min(within, default=math.inf)


def optimum(problem: Problem) -> float:
    """Least latency in ns of all plans; inf where there is none."""
    return least_ns(true_front(problem, np.zeros(problem.unit_ns.shape)))


def least_of_plans(problem: Problem, costs: NDArray[np.float64]) -> list[tuple[float, ...]]:
    """Sums of costs [2^n, t, m] of all plans that no plan betters in every number.

    Conversions count to the first; infinite costs rule a set of units out.
    """
    formats, every = formats_of(problem), (1 << problem.n) - 1
    is_mixed = formats.any() and not formats.all()
    masks = range(every + 1) if is_mixed else [every if formats.any() else 0]
    sums = []
    for int8 in masks:
        begin = np.zeros(costs.shape[2])
        begin[0] = converting_ns(problem, int8)
        limits = np.full(costs.shape[2], np.inf)
        sums += sums_of_plans(ideals_of(problem), costs, limits, begin, formats, int8)
    return [tuple(each.tolist()) for each in not_bettered(np.array(sums))] if sums else []
