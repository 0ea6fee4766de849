"""Parts of a problem that are solved on their own, with the rest of a plan held fixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from nnapi_prof.partition.problem import GRAPH_INPUT, Placement, Problem, Value

SMALLEST, LARGEST = 12, 60
"""Units of a window, about."""


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


def restricted(problem: Problem, units: Sequence[int]) -> Problem:
    """The problem of some units alone (ascending): what others make are inputs, what others read
    are outputs. Its best plan, put in the place of these segments, is the best with the others
    held fixed, if the units are those of consecutive segments."""
    place = {u: i for i, u in enumerate(units)}
    touched = sorted({v for u in units for v in problem.values_of[u]})
    values = []
    for index in touched:
        value = problem.values[index]
        readers = tuple(place[r] for r in value.readers if r in place)
        made = value.producer in place
        if not made and not readers:
            continue
        leaves = value.is_output or len(readers) < len(value.readers)
        values.append(
            Value(
                place[value.producer] if made else GRAPH_INPUT,
                readers,
                value.n_bytes,
                made and leaves,
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
    )
