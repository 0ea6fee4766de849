"""Levels of the search as records: how each ideal was left, and the way back through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnapi_prof.partition.ideals import members
from nnapi_prof.partition.labels import OPENED, Floats, Ints, Record
from nnapi_prof.partition.problem import Placement

JUMP = -2
"""In place of a label: a region measured whole was run."""


@dataclass(slots=True)
class Level:
    """The ideals of one size, and how each is left with no segment open.

    A slot is an ideal, or, where the number of segments is limited, an ideal and a number of
    segments: ideal x layers + number.
    """

    ideals: list[int]
    ready: list[int]
    """Masks of the units that can run next."""
    done_share: list[float]
    closed_ns: Floats
    """[slots]"""
    closed_segments: Ints
    closed_by: Ints
    """Index of the label whose segment ended, or JUMP - (index of the jump), or OPENED."""
    labels: Record | None = None
    """Those grown from the level before, then those that begin a segment here."""


@dataclass(frozen=True, slots=True)
class Jump:
    """A region measured whole that runs between two ideals."""

    level: int
    slot: int
    """Of that level."""
    region: int
    """Mask."""
    target: int
    ns: float
    """Of everything up to its end."""
    segments: int


def trace(levels: Sequence[Level], jumps: Sequence[Jump]) -> tuple[Placement, ...]:
    """The placements that lead to the last level's cheapest slot, first one first."""
    path: list[Placement] = []
    size = len(levels) - 1
    slot = int(levels[size].closed_ns.argmin())
    while size > 0:
        by = int(levels[size].closed_by[slot])
        if by <= JUMP:
            jump = jumps[JUMP - by]
            path.append((members(jump.region), jump.target))
            size, slot = jump.level, jump.slot
            continue
        units: list[int] = []
        labels, label = _labels(levels[size]), by
        while (unit := int(labels.unit[label])) != OPENED:
            units.append(unit)
            label = int(labels.parent[label])
            size -= 1
            labels = _labels(levels[size])
        path.append((tuple(sorted(units)), int(labels.target[label])))
        slot = int(labels.parent[label])
    return tuple(path[::-1])


def _labels(level: Level) -> Record:
    assert level.labels is not None, "a way leads through a level without labels"
    return level.labels
