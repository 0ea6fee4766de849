"""Ways of running many frames: which plans they take, and how many are on their way at once."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from nnapi_prof.bundle.plan_set import PlanChoice, PlanSet, SelectionRule
from nnapi_prof.costs.conditions import ALL, parse_cpus
from nnapi_prof.errors import SerializationError, escape_untrusted

MOST_IN_FLIGHT = 63
"""The runtime library's queue has room for no more."""
FRAMES_A_LANE = 4
"""In flight, where nobody says how many: as the runtime library does it."""
MOST_WAYS = 1000


def usual_in_flight(lanes: Collection[str]) -> int:
    """Returns the runtime library's default number of frames in flight on several lanes; one for a
    single lane."""
    return min(FRAMES_A_LANE * len(lanes), MOST_IN_FLIGHT) if len(lanes) > 1 else 1


@dataclass(frozen=True, slots=True)
class FrameSchedule:
    """One way of running many frames."""

    name: str
    """For people: ``mixture of plans``, ``all-cpu``."""
    choices: tuple[PlanChoice, ...]
    """Plans of the bundle, with their shares of the frames."""
    in_flight: int
    """Frames that were handed in and are not out, at most."""
    predicted_per_second: float | None = None
    """Frames; None where nothing predicts it."""
    threads: int | None = None
    """Of the CPU engine; None: these and the cores are what the bundle's conditions say."""
    cpus: str = ALL
    """The cores of those threads, as in the conditions."""
    overlaps: bool = False
    """A frame's own segments may run at once: each as soon as what it reads is there, and those
    before it on its processor are done."""

    def __post_init__(self) -> None:
        PlanSet(SelectionRule.MIXTURE, self.choices)  # checks the shares
        if not 1 <= self.in_flight <= MOST_IN_FLIGHT:
            raise SerializationError(
                f"{self.in_flight} frames in flight: 1 to {MOST_IN_FLIGHT} are possible"
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "plans": [[choice.plan, choice.share] for choice in self.choices],
            "in_flight": self.in_flight,
            "predicted_per_second": self.predicted_per_second,
            "threads": self.threads,
            "cpus": self.cpus,
            "overlaps": self.overlaps,
        }

    @classmethod
    def from_json(cls, data: Any, n_plans: int) -> FrameSchedule:
        """Raises SerializationError where it is no way of running these plans."""
        rows = data["plans"]
        if not all(type(plan) is int and 0 <= plan < n_plans for plan, _ in rows):
            raise SerializationError(f"a way of running frames names plans beyond {n_plans}")
        rate, threads = data["predicted_per_second"], data["threads"]
        if type(data["in_flight"]) is not int:
            raise SerializationError("the number of frames in flight is not a number")
        if not (rate is None or (type(rate) in (int, float) and math.isfinite(rate))):
            raise SerializationError("a prediction of frames per second is not a number")
        if not (threads is None or (type(threads) is int and threads > 0)):
            raise SerializationError("a way of running frames has no number of threads")
        choices = tuple(PlanChoice(plan, share=float(share)) for plan, share in rows)
        name = escape_untrusted(str(data["name"]), 100)
        cpus = parse_cpus(str(data.get("cpus", ALL)))
        overlaps = data.get("overlaps", False) is True
        return cls(name, choices, data["in_flight"], rate, threads, cpus, overlaps)


@dataclass(frozen=True, slots=True)
class FramePlan:
    """How a bundle runs many frames, and what else one could do."""

    ways: tuple[FrameSchedule, ...]
    """The one that is meant, then its rivals."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.ways) <= MOST_WAYS:
            raise SerializationError(
                f"frames run in {len(self.ways)} ways: 1 to {MOST_WAYS} are possible"
            )

    @property
    def in_flight(self) -> int:
        """Frames on their way at most, as they are meant to run."""
        return self.ways[0].in_flight

    @property
    def is_serial(self) -> bool:
        """Whether it is meant for one frame, one segment after the other, with branches at once as
        the rival that is not faster."""
        own, *others = self.ways
        return not own.overlaps and any(way.overlaps for way in others)

    @property
    def plan_set(self) -> PlanSet | None:
        """The set that selects a frame's plan; None where all frames take the bundle's first."""
        choices = self.ways[0].choices
        is_first = [choice.plan for choice in choices] == [0]
        return None if is_first else PlanSet(SelectionRule.MIXTURE, choices)

    def to_json(self) -> dict[str, Any]:
        return {"ways": [way.to_json() for way in self.ways]}

    @classmethod
    def from_json(cls, data: Any, n_plans: int) -> FramePlan:
        """The inverse of :meth:`to_json`, for a bundle of so many plans. Raises
        SerializationError."""
        return cls(tuple(FrameSchedule.from_json(row, n_plans) for row in data["ways"]))
