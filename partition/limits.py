"""What a search may do, and what it found."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nnapi_prof.partition.problem import Placement

MAX_LABELS = 100_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What a search may and may not."""

    upper_bound: float = math.inf
    """Only plans that cost at most so many ns, penalties included."""
    max_labels: int = MAX_LABELS
    """Of one level."""
    max_work: float = math.inf
    """Steps from an ideal or a label to the next before the search gives up: some two million a
    second."""
    segment_penalty: float = 0.0
    """ns added to each segment."""
    max_segments: int | None = None
    """Of the targets in ``counted``."""
    counted: frozenset[int] | None = None
    """Target indices; None means all."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search."""

    placements: tuple[Placement, ...]
    """Empty where no plan was found within the limits."""
    bound_ns: float
    """No plan costs less, penalties included; the upper bound where that is the least of all."""
    n_ideals: int
    n_labels: int
    work: int
    exact: bool
    """Nothing was left out for want of room or time: the plan is the optimum, or there is none."""
