"""A plan as a monotone labelling: a number for each unit, and no more than that.

Number the segments of a plan in order, with empty phases between them in which new segments can
begin, and give each phase a target. A plan is then one number a unit, its phase, that never falls
along a dependency: ideals and convexity are in the inequality. So moving a unit anywhere between
its latest predecessor and its earliest successor is a legal plan, and what that changes are costs
of its own values, and of a segment that begins or ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnapi_prof.partition.arrays import Ints
from nnapi_prof.partition.problem import Placement, Problem

REACH = 12
"""Segments further apart than this are not tried as one: each try looks at all between."""


MOST_TO_JOIN = 200
"""Segments. A plan of more has other troubles, and looking at all pairs takes seconds."""


def labelling_of_plan(
    placements: Sequence[Placement], n_units: int, targets: Sequence[int]
) -> tuple[Ints, Ints]:
    """Phase of each unit, and target of each phase, with an empty phase of each of the ``targets``
    before, between and behind the segments."""
    phase = np.zeros(n_units, dtype=np.int64)
    phase_target: list[int] = list(targets)
    for units, k in placements:
        phase[list(units)] = len(phase_target)
        phase_target += [k, *targets]
    return phase, np.array(phase_target, dtype=np.int64)


def plan_of_labelling(phase: Ints, phase_target: Ints) -> tuple[Placement, ...]:
    """The plan of a labelling."""
    order = np.argsort(phase, kind="stable")
    used, begin = np.unique(phase[order], return_index=True)
    return tuple(
        (tuple(sorted(units.tolist())), int(phase_target[number]))
        for number, units in zip(used, np.split(order, begin[1:]), strict=True)
    )


def join_segments(problem: Problem, placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """The plan with segments of one target joined where nothing between them stands in the way and
    it costs no more."""
    phases = list(placements)
    if len(phases) > MOST_TO_JOIN:
        return tuple(phases)
    i = 0
    while i < len(phases):
        units, k = phases[i]
        for j in range(i + 1, min(len(phases), i + 1 + REACH)):
            others, other_k = phases[j]
            if other_k == k and _can_join(problem, phases[i : j + 1]):
                whole = tuple(sorted((*units, *others)))
                apart = problem.segment_ns(units, k) + problem.segment_ns(others, k)
                if problem.segment_ns(whole, k) <= apart:
                    # What stood between and depends on the first goes behind the joined segment.
                    phases[i : j + 1] = _with_joined(problem, phases[i : j + 1], whole, k)
                    break
        else:
            i += 1
    return tuple(phases)


def _can_join(problem: Problem, stretch: Sequence[Placement]) -> bool:
    """Whether the first and the last segment can run as one: no segment between both reads from
    the first and is read by the last."""
    return _split(problem, stretch) is not None


def _split(
    problem: Problem, stretch: Sequence[Placement]
) -> tuple[list[Placement], list[Placement]] | None:
    """The segments between that stay before, and those that go behind; None where one must do
    both."""
    behind_units = set(stretch[0][0])
    before: list[Placement] = []
    behind: list[Placement] = []
    for units, k in stretch[1:-1]:
        if any(p in behind_units for u in units for p in problem.predecessors[u]):
            behind_units.update(units)
            behind.append((units, k))
        else:
            before.append((units, k))
    behind_units -= set(stretch[0][0])
    if any(p in behind_units for u in stretch[-1][0] for p in problem.predecessors[u]):
        return None
    return before, behind


def _with_joined(
    problem: Problem, stretch: Sequence[Placement], whole: tuple[int, ...], k: int
) -> list[Placement]:
    split = _split(problem, stretch)
    assert split is not None
    before, behind = split
    return [*before, (whole, k), *behind]


def is_plan(problem: Problem, placements: Sequence[Placement]) -> bool:
    """Whether the segments run every unit once, each after what it reads."""
    done: set[int] = set()
    for units, _ in placements:
        inside = set(units)
        if not inside or inside & done or not inside <= set(range(problem.n)):
            return False
        done |= inside
        if any(p not in done for u in units for p in problem.predecessors[u]):
            return False
    return len(done) == problem.n
