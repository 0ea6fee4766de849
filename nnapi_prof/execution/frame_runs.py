"""Frames as they ran: which frame ran by which plan, on which lanes, and when."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nnapi_prof.bundle.plan_set import FrameSchedule
from nnapi_prof.device.protocol.results import FrameSample, Outcome
from nnapi_prof.errors import SerializationError

CPU_LANE = "cpu"
MOST_PLANS = 10_000
"""Of a bundle, whose runs are read without it."""


@dataclass(frozen=True, slots=True)
class LaneSpan:
    """The time that a lane spent on one segment of a frame."""

    lane: str
    """``cpu``, an accelerator's name, or ``nnapi`` where NNAPI chose."""
    plan: int
    """Of the bundle's."""
    segment: int
    """Of the plan's."""
    frame: int
    begin_ns: int
    """Of the agent's clock, as are the frames' times."""
    end_ns: int


@dataclass(frozen=True, slots=True)
class FrameScheduleRun:
    """One way of running frames, as it ran."""

    way: FrameSchedule
    frames: tuple[FrameSample, ...] = field(default=(), repr=False)
    """In the order in which they were handed in; their plans are the way's, by index."""
    spans: tuple[LaneSpan, ...] = field(default=(), repr=False)
    """What ran on which lane, and when."""
    rounds: tuple[int, ...] = ()
    """How many frames each round had, in order."""
    error: str | None = None
    """Why it did not run to its end; the sentence of the first frame that failed, where some did.
    """

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes that ran anything, the CPU first."""
        names = {span.lane for span in self.spans}
        return tuple(sorted(names, key=lambda name: (name != CPU_LANE, name)))

    @property
    def busy_ns(self) -> dict[str, int]:
        """Lane -> how long it worked, over all frames."""
        busy = dict.fromkeys(self.lanes, 0)
        for span in self.spans:
            busy[span.lane] += span.end_ns - span.begin_ns
        return busy

    @property
    def frames_per_second(self) -> float | None:
        """The median of the rounds, so that one that was disturbed does not count; None where no
        frame was measured."""
        counted = [_steady(frames, self.way.in_flight) for frames in self._each_round()]
        rates = [1e9 * n / ns for n, ns in counted if ns]
        return statistics.median(rates) if rates else None

    @property
    def predicted_per_second(self) -> float | None:
        return self.way.predicted_per_second

    @property
    def frame_ns(self) -> tuple[int, ...]:
        """The latency of each frame that did not fail, without the first of each round."""
        return tuple(
            frame.end_ns - frame.begin_ns
            for frames in self._each_round()
            for frame in (frames[self.way.in_flight :] or frames)
            if frame.outcome is not Outcome.FAILED
        )

    def latency_ns(self, share: float) -> float | None:
        """Returns the latency that this share of frames kept to, from the hand-over to the end of
        their last segment; None where none was measured."""
        times = self.frame_ns
        if len(times) < 2:
            return float(times[0]) if times else None
        return statistics.quantiles(times, n=100, method="inclusive")[round(100 * share) - 1]

    @property
    def outcomes(self) -> Counter[Outcome]:
        """How many frames gave, bit by bit, what their plan gives alone, and how many did not."""
        return Counter(frame.outcome for frame in self.frames)

    def _each_round(self) -> Iterator[Sequence[FrameSample]]:
        first = 0
        for n in self.rounds:
            yield self.frames[first : first + n]
            first += n

    def to_json(self) -> dict[str, Any]:
        return {
            "way": self.way.to_json(),
            "rounds": list(self.rounds),
            "error": self.error,
            "frames": [[f.plan, f.outcome.value, f.begin_ns, f.end_ns] for f in self.frames],
            "lanes": list(self.lanes),
            "spans": [
                [self.lanes.index(s.lane), s.plan, s.segment, s.frame, s.begin_ns, s.end_ns]
                for s in self.spans
            ],
        }

    @classmethod
    def from_json(cls, data: Any) -> FrameScheduleRun:
        """The inverse of :meth:`to_json`. Raises SerializationError, LookupError, ValueError or
        TypeError where it is no such run."""
        numbers = [n for row in data["spans"] for n in row]
        numbers += [n for _, _, *times in data["frames"] for n in times]
        if not all(type(n) is int and 0 <= n < 2**63 for n in (*numbers, *data["rounds"])):
            raise SerializationError("the times of frames are no numbers of nanoseconds")
        lanes = [str(name) for name in data["lanes"]]
        return cls(
            FrameSchedule.from_json(data["way"], MOST_PLANS),
            tuple(FrameSample(p, Outcome(word), *times) for p, word, *times in data["frames"]),
            tuple(LaneSpan(lanes[lane], *rest) for lane, *rest in data["spans"]),
            tuple(data["rounds"]),
            data["error"],
        )


def _steady(frames: Sequence[FrameSample], in_flight: int) -> tuple[int, int]:
    """How many frames came out while as many as may be were on their way, and in how many ns; of a
    few frames all of them."""
    if not frames:
        return 0, 0
    ends = sorted(frame.end_ns for frame in frames)
    last_begin = frames[-1].begin_ns
    counted = [ns for ns in ends[min(in_flight, len(ends)) - 1 :] if ns <= last_begin]
    if len(counted) < 3:
        return len(frames), ends[-1] - frames[0].begin_ns
    return len(counted) - 1, counted[-1] - counted[0]
