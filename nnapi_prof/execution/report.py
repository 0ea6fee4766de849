"""Report a run on a device: timings of plan and baselines, and the comparison of outputs.

In a bundle the last report is ``run.json``; earlier ones are in ``runs/``. For frames in flight a
report has the plan of each frame, and the lanes and times of its segments.
"""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnapi_prof.bundle.plan_set import FrameSchedule
from nnapi_prof.bundle.storage import read_file
from nnapi_prof.costs.measurement import p95
from nnapi_prof.costs.store.selection import instant
from nnapi_prof.device import description_parts
from nnapi_prof.device.protocol import FrameSample, Outcome
from nnapi_prof.errors import SerializationError, UsageError, escape_untrusted
from nnapi_prof.graph.plan import Engine, Plan

CPU_LANE = "cpu"
MOST_PLANS = 10_000
"""Largest number of plans of a bundle, when its runs are read without it."""


@dataclass(frozen=True, slots=True)
class LaneSpan:
    """The time that a lane spent on one segment of a frame."""

    lane: str
    """``cpu``, an accelerator's name, or ``nnapi`` where NNAPI chose."""
    plan: int
    """Index of the plan in the bundle."""
    segment: int
    """Index of the segment in the plan."""
    frame: int
    begin_ns: int
    """Start in ns of the agent's clock, which frames use, too."""
    end_ns: int


@dataclass(frozen=True, slots=True)
class FrameScheduleRun:
    """One way of running frames, as it ran."""

    way: FrameSchedule
    frames: tuple[FrameSample, ...] = field(default=(), repr=False)
    """In the order of submission; their plans are indices of the way's plans."""
    spans: tuple[LaneSpan, ...] = field(default=(), repr=False)
    """Times of segments on their lanes."""
    rounds: tuple[int, ...] = ()
    """Number of frames of each round, in order."""
    error: str | None = None
    """Why it did not run to its end, or the message of the first failed frame."""

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes that ran anything, the CPU first."""
        names = {span.lane for span in self.spans}
        return tuple(sorted(names, key=lambda name: (name != CPU_LANE, name)))

    @property
    def busy_ns(self) -> dict[str, int]:
        """Lane -> its busy time over all frames, in ns."""
        busy = dict.fromkeys(self.lanes, 0)
        for span in self.spans:
            busy[span.lane] += span.end_ns - span.begin_ns
        return busy

    @property
    def frames_per_second(self) -> float | None:
        """The median over the rounds, which ignores a disturbed one; None where no frame was
        measured."""
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
        """Returns the latency within which this share of frames finished, from submission to the
        end of their last segment; None where no frame was measured."""
        times = self.frame_ns
        if len(times) < 2:
            return float(times[0]) if times else None
        return statistics.quantiles(times, n=100, method="inclusive")[round(100 * share) - 1]

    @property
    def outcomes(self) -> Counter[Outcome]:
        """Number of frames by outcome: the bits of their plan alone, other bits, or a failure."""
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
        """Reads what :meth:`to_json` returns. Raises SerializationError, LookupError, ValueError or
        TypeError for other data."""
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
    """Returns how many frames came out while as many as allowed were in flight, and in how many ns;
    counts all frames where there are few."""
    if not frames:
        return 0, 0
    ends = sorted(frame.end_ns for frame in frames)
    last_begin = frames[-1].begin_ns
    counted = [ns for ns in ends[min(in_flight, len(ends)) - 1 :] if ns <= last_begin]
    if len(counted) < 3:
        return len(frames), ends[-1] - frames[0].begin_ns
    return len(counted) - 1, counted[-1] - counted[0]


@dataclass(frozen=True, slots=True)
class SegmentTiming:
    """One segment of a plan as it ran; ``samples_ns`` is empty for a segment run on the host."""

    segment: int
    target: str
    label: str
    predicted_ns: float
    samples_ns: tuple[int, ...]
    compile_ns: int | None
    first_ns: int | None = None
    """Time of its first, cold run; only for the bundle's first plan. ``samples_ns`` are warm."""

    @property
    def median_ns(self) -> float | None:
        return float(statistics.median(self.samples_ns)) if self.samples_ns else None

    @property
    def p95_ns(self) -> float | None:
        return p95(self.samples_ns) if self.samples_ns else None


@dataclass(frozen=True, slots=True)
class PlanRun:
    """A plan's end-to-end samples. ``error`` is set where the plan did not run to its end."""

    plan: Plan
    total_ns: tuple[int, ...]
    segments: tuple[SegmentTiming, ...]
    error: str | None = None
    flags: tuple[str, ...] = ()
    """Reasons to distrust the times, for people."""
    first_ns: int | None = None
    """Latency of the first, cold run after compilation. ``total_ns`` are warm."""
    copies_ns: tuple[int, ...] = ()
    """Part of ``total_ns`` that copies inputs and outputs; empty if the latency is the model's."""

    @property
    def median_copies_ns(self) -> float | None:
        return float(statistics.median(self.copies_ns)) if self.copies_ns else None

    @property
    def median_ns(self) -> float | None:
        return float(statistics.median(self.total_ns)) if self.total_ns else None

    @property
    def p95_ns(self) -> float | None:
        """The latency within which 95 % of the runs finished."""
        return p95(self.total_ns) if self.total_ns else None

    @property
    def predicted_ns(self) -> float:
        """The prediction of what was timed: without segments on the host, which are not timed, and
        without copies where the latency is the model's. For a plan that runs on the host
        altogether, the whole prediction."""
        on_device = [s.predicted_ns for s in self.plan.segments if s.target.engine != Engine.HOST]
        if not on_device:
            return self.plan.predicted_ns
        copies_ns = self.plan.copies_ns if self.copies_ns else 0.0
        return sum(on_device) + copies_ns - self.plan.overlapped_ns


MOST_NS = 10**15
"""Largest time that is accepted, eleven days."""


class Evidence(enum.Enum):
    """The evidence that an output of eager PyTorch gives: it decides what agreement proves."""

    VALUES = "values"
    """Numbers that differ, or a single one: something to compare."""
    ZEROS = "zeros"
    CONSTANT = "constant"
    """One and the same number everywhere."""
    DENORMAL = "denormal"
    """Nothing as large as float32's smallest normal number: a device may well give zeros."""
    NOT_FINITE = "not finite"
    """NaN and infinities."""
    EMPTY = "empty"
    """No elements."""


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """The comparison of one output with eager PyTorch. ``relative`` is max |a - b| / max |b|."""

    name: str
    shape: tuple[int, ...]
    max_abs: float
    relative: float
    tolerance: float
    evidence: Evidence = Evidence.VALUES

    @property
    def ok(self) -> bool:
        return self.relative <= self.tolerance

    def texts(self, least: int = 1) -> tuple[str, str]:
        """Return ``relative``, with at least ``least`` decimals, and ``tolerance``, rounded within
        5 %; both with enough digits to show which is larger."""
        for digits in range(17):
            texts = f"{self.relative:.{max(digits, least)}e}", f"{self.tolerance:.{digits}e}"
            shown, allowed = map(float, texts)
            is_near = math.isclose(allowed, self.tolerance, rel_tol=0.05)
            if is_near and (shown <= allowed) == self.ok:
                break
        return texts

    @property
    def tells(self) -> bool:
        """Whether agreement is evidence that the outputs for other inputs agree, too."""
        return self.evidence is Evidence.VALUES


@dataclass(frozen=True, slots=True)
class RunReport:
    """All of one ``nnapi-prof run``: the plan first, then its baselines."""

    model: str
    device: str
    """For people: ``simulated npu-phone`` or ``Pixel 6 (serial)``."""
    fingerprint: str
    simulated: bool
    """Whether the measurements are simulated; the predictions have ``Plan.simulated``."""
    created_at: str
    runs: tuple[PlanRun, ...]
    checks: tuple[OutputCheck, ...]
    notes: tuple[str, ...] = ()
    conditions: str = ""
    """The options for other than the usual conditions."""
    frames: tuple[FrameScheduleRun, ...] = ()
    """Runs of many frames at once, where they were asked for: first in the bundle's own way, then
    in the others. Each has its frames' times and its lanes' spans."""

    def to_json(self) -> str:
        data = dataclasses.asdict(dataclasses.replace(self, frames=()))
        data["frames"] = [run.to_json() for run in self.frames]
        for row, check in zip(data["checks"], self.checks, strict=True):
            row["evidence"] = check.evidence.value
        for row, run in zip(data["runs"], self.runs, strict=True):
            row["plan"] = json.loads(run.plan.to_json())
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> RunReport:
        """Reads a run report. Raises SerializationError where ``text`` is not one."""
        try:
            data: dict[str, Any] = json.loads(text)
            runs = tuple(
                PlanRun(
                    Plan.from_json(json.dumps(r["plan"])),
                    _read_times(r["total_ns"]),
                    tuple(
                        SegmentTiming(**{**s, "samples_ns": _read_times(s["samples_ns"])})
                        for s in r["segments"]
                    ),
                    r["error"],
                    tuple(r["flags"]),
                    r.get("first_ns"),
                    _read_times(r.get("copies_ns", [])),
                )
                for r in data["runs"]
            )
            checks = tuple(_output_check(c) for c in data["checks"])
            frames = tuple(FrameScheduleRun.from_json(row) for row in data.get("frames", ()))
            parts = ("runs", "checks", "notes", "frames")
            rest = {k: v for k, v in data.items() if k not in parts}
            notes = tuple(data["notes"])
            return cls(**rest, runs=runs, checks=checks, notes=notes, frames=frames)
        except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
            words = (
                f"it lacks {error}"
                if isinstance(error, KeyError)
                else escape_untrusted(str(error), 300)
            )
            raise SerializationError(f"this is not a run report ({words})") from error


def _output_check(row: dict[str, Any]) -> OutputCheck:
    evidence = Evidence(row.get("evidence", "values"))  # runs before 0.1.0 was released lack it
    return OutputCheck(**{**row, "shape": tuple(row["shape"]), "evidence": evidence})


def _read_times(values: list[Any]) -> tuple[int, ...]:
    """Returns samples in ns. Raises ValueError where they are something else."""
    if not all(isinstance(ns, int) and 0 <= ns < MOST_NS for ns in values):
        raise ValueError("its times are no numbers of nanoseconds")
    return tuple(values)


RESULT_FILE = "run.json"
"""Name of the last run's report in the bundle."""
EARLIER = "runs"
"""Name of the bundle's folder of earlier reports, each named by its time."""
MOST_BYTES = 1 << 26
"""Largest size of a run's report: five times that of a thousand segments, run a thousand times."""
MOST_KEPT = 50
"""Number of earlier runs that are kept. `nnapi-prof partition` starts again, with another
bundle."""


def keep(bundle: Path, report: RunReport) -> Path:
    """Writes a run's report into its bundle, as the last one; returns the file.

    The file that it replaces moves to the earlier ones, if it is a run report.
    """
    file = bundle / RESULT_FILE
    text = report.to_json()
    for place in (file, bundle / EARLIER):
        if place.is_symlink():  # a stranger may redirect the write to another file
            place.unlink()
    if file.is_file():
        _file_away(bundle, file, text)
    file.write_text(text, encoding="utf-8")
    return file


def _file_away(bundle: Path, file: Path, text: str) -> None:
    try:
        former = read_file(file, MOST_BYTES)
        time = RunReport.from_json(former.decode()).created_at
    except (SerializationError, UnicodeDecodeError):
        file.unlink()  # damaged, or a link: it has no run
        return
    if former == text.encode():
        return
    folder = bundle / EARLIER
    folder.mkdir(exist_ok=True)
    name = "".join(c if c.isalnum() else "-" for c in time.partition("+")[0])[:40]
    path, n = folder / f"{name}.json", 1
    while path.exists():  # another run in the same second
        n += 1
        path = folder / f"{name}-{n:02}.json"
    path.write_bytes(former)
    for old in _earlier(bundle)[:-MOST_KEPT]:
        old.unlink()


def _earlier(bundle: Path) -> list[Path]:
    """Returns the files of earlier runs, the oldest first."""
    return sorted((bundle / EARLIER).glob("*.json"), key=lambda path: path.stem)


def last(bundle: Path) -> RunReport | None:
    """Returns the bundle's last run; None where it was never run. Raises SerializationError where
    the file is damaged."""
    file = bundle / RESULT_FILE
    if not file.is_file():
        return None
    return _read_report(file, "`nnapi-prof run` makes it again")


def every(bundle: Path) -> tuple[RunReport, ...]:
    """Returns all kept runs, the oldest first. Raises SerializationError as :func:`last`."""
    files = _earlier(bundle)[-MOST_KEPT:]
    earlier = [_read_report(path, "remove the file to do without it") for path in files]
    newest = last(bundle)
    return (*earlier, newest) if newest is not None else tuple(earlier)


def _read_report(path: Path, remedy: str) -> RunReport:
    try:
        return RunReport.from_json(read_file(path, MOST_BYTES).decode())
    except (SerializationError, UnicodeDecodeError) as error:
        raise SerializationError(f"{path}: {error}; {remedy}") from error


def choose(runs: Sequence[RunReport], words: str) -> RunReport:
    """Returns the last of ``runs`` that matches.

    ``words`` are a date (runs until its end match), a device (its fingerprint or the beginning of
    it, or a part of its name; ``*`` and ``?`` are wildcards) or ``DEVICE@DATE``. Raises UsageError,
    listing the runs, where none matches.
    """
    device, _, date = words.rpartition("@")
    try:
        until = instant(date, end=True)
    except ValueError:
        device, until = words, None
    fitting = [
        run
        for run in runs
        if (not device or _is_on(run, device))
        and (until is None or instant(run.created_at) <= until)
    ]
    if fitting:
        return fitting[-1]
    there = "; ".join(f"{run.created_at[:19]} on {run.device}" for run in runs)
    raise UsageError(
        f"no run of the bundle fits {words!r}: "
        + (f"there are {there}" if there else "it was never run: `nnapi-prof run` does it")
    )


def _is_on(run: RunReport, device: str) -> bool:
    pattern = device.lower()
    name = description_parts(run.device)[0].lower()
    named = fnmatch.fnmatchcase(name, f"*{pattern}*")
    return run.fingerprint.startswith(pattern) or named
