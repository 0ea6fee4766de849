"""Windows: stretches of a plan that are solved exactly, the rest held fixed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from nnapi_prof.partition.arrays import AS_FLOAT
from nnapi_prof.partition.baselines import segments_ns
from nnapi_prof.partition.problem import GRAPH_INPUT, Placement, Problem, Region
from nnapi_prof.partition.search.exact import search_ideals
from nnapi_prof.partition.search.relaxation import relax
from nnapi_prof.partition.search.result import Watch

SMALLEST, LARGEST = 12, 60
"""Units of a window, about."""
STEPS, WIDTH = 400_000, 1_000
"""Of the exact programme in one window, and labels of a level."""
SHARE_OF_MEMORY = 0.8
_LEAST_GAIN = 1e-7
"""Relative."""


def windows(problem: Problem, plan: Sequence[Placement], turn: int) -> Iterator[tuple[int, int]]:
    """First and behind-the-last segment of stretches of a plan, overlapping, of about as many units
    as a window has; with each turn others."""
    size = (24, 40, SMALLEST, LARGEST)[turn % 4]
    counts = [len(units) for units, _ in plan]
    first = 0
    while first < len(plan):
        last, total = first, 0
        while last < len(plan) and (total < size or last < first + 2):
            total += counts[last]
            last += 1
        if last > first + 1 or problem.n <= 2 * LARGEST:
            yield first, last
        if last == len(plan):
            return
        first += max(1, (last - first) // 2)


def subproblem(problem: Problem, units: Sequence[int], plan: Sequence[Placement] = ()) -> Problem:
    """The problem of some units alone (ascending): what others make are inputs, what others read
    are outputs. Its best plan, put in the place of these segments, is the best with the others
    held fixed where ``plan`` has them, if the units are those of consecutive segments."""
    place = {u: i for i, u in enumerate(units)}
    bits = 1 << problem.arrays.format
    bit_of = {u: int(bits[k]) for others, k in plan for u in others}
    touched = sorted({v for u in units for v in problem.values_of[u]})
    values = []
    for index in touched:
        value = problem.values[index]
        readers = tuple(place[r] for r in value.readers if r in place)
        is_inner = value.producer in place
        if not is_inner and not readers:
            continue
        leaves = value.is_output or len(readers) < len(value.readers)
        outside = value.formats if value.is_output else 0
        for reader in value.readers:
            if reader not in place:
                outside |= bit_of.get(reader, AS_FLOAT)
        if not is_inner:  # in the format it is made in, and in those that others have it in anyhow
            outside |= bit_of.get(value.producer, value.formats)
        values.append(
            replace(
                value,
                producer=place[value.producer] if is_inner else GRAPH_INPUT,
                readers=readers,
                is_output=is_inner and leaves,
                formats=outside,
            )
        )
    inside = set(units)
    rows = np.asarray(units, dtype=np.int64)
    return replace(
        problem,
        labels=tuple(problem.labels[u] for u in units),
        predecessors=tuple(
            tuple(sorted(place[p] for p in problem.predecessors[u] if p in place)) for u in units
        ),
        values=tuple(values),
        unit_ns=problem.unit_ns[rows],
        region_ns={
            (frozenset(place[u] for u in region), k): ns
            for (region, k), ns in problem.region_ns.items()
            if region <= inside
        },
        estimated=None,
        refusals={},
        ruled_out={},
        constant_bytes=(),
    )


def improve_stretch(
    problem: Problem,
    plan: Sequence[Placement],
    first: int,
    last: int,
    costlier: Collection[Region],
    watch: Watch,
) -> tuple[Placement, ...]:
    """The segments from ``first`` to before ``last`` solved exactly, the rest of the plan held
    fixed; those of the plan where that finds nothing better. ``costlier`` are regions that cost
    more whole than by their parts."""
    stretch = tuple(plan[first:last])
    units = sorted(u for segment, _ in stretch for u in segment)
    small = subproblem(problem, units, plan)
    place = {u: i for i, u in enumerate(units)}
    now = segments_ns(problem, stretch) + small.conversions_ns(
        [(tuple(place[u] for u in segment), k) for segment, k in stretch]
    )
    relaxation = relax(small, watch.seconds_left)
    if relaxation is None or relaxation.bound_ns >= now * (1 - _LEAST_GAIN):
        return stretch
    small = relaxation.fixed(small, now)
    result = search_ideals(
        small,
        relaxation.prices,
        now * (1 - _LEAST_GAIN),
        watch,
        watched=[
            (frozenset(place[u] for u in region), k)
            for region, k in costlier
            if region <= place.keys()
        ],
        width=WIDTH,
        steps=STEPS,
        memory_bytes=watch.limits.memory_bytes * SHARE_OF_MEMORY,
    )
    if result is None or not result.placements:
        return stretch
    changed = tuple(
        (tuple(sorted(units[i] for i in segment)), k) for segment, k in result.placements
    )
    converting_ns = small.conversions_ns(result.placements)
    return changed if segments_ns(problem, changed) + converting_ns < now else stretch
