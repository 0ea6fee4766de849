"""What a run on a device gave: timings of plan and baselines, and the comparison of outputs."""

from __future__ import annotations

import dataclasses
import enum
import json
import statistics
from dataclasses import dataclass
from typing import Any

from nnapi_prof.errors import SerializationError, visible
from nnapi_prof.graph.plan import Engine, Plan


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
    """Of its first, cold run; known of the plan itself. ``samples_ns`` are warm."""

    @property
    def median_ns(self) -> float | None:
        return statistics.median(self.samples_ns) if self.samples_ns else None


@dataclass(frozen=True, slots=True)
class PlanRun:
    """A plan's end-to-end samples. ``error`` is set where the plan did not run to its end."""

    plan: Plan
    total_ns: tuple[int, ...]
    segments: tuple[SegmentTiming, ...]
    error: str | None = None
    flags: tuple[str, ...] = ()
    """What a reader should know before trusting the times, for people."""
    first_ns: int | None = None
    """Of the first, cold run after compilation. ``total_ns`` are warm."""

    @property
    def median_ns(self) -> float | None:
        return statistics.median(self.total_ns) if self.total_ns else None

    @property
    def predicted_ns(self) -> float:
        """The prediction for what was timed: without the segments on the host, which are not. Of
        a plan that runs there altogether, all of it."""
        on_device = [s.predicted_ns for s in self.plan.segments if s.target.engine != Engine.HOST]
        return sum(on_device) if on_device else self.plan.predicted_ns


MOST_NS = 10**15
"""Nothing here runs for eleven days."""


class Evidence(enum.Enum):
    """What an output of eager PyTorch is made of, which decides what agreeing with it tells."""

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
    """One output against eager PyTorch. ``relative`` is max |a - b| / max |b|."""

    name: str
    shape: tuple[int, ...]
    max_abs: float
    relative: float
    tolerance: float
    evidence: Evidence = Evidence.VALUES

    @property
    def ok(self) -> bool:
        return self.relative <= self.tolerance

    @property
    def tells(self) -> bool:
        """Whether that it agrees tells that the outputs for other inputs will."""
        return self.evidence is Evidence.VALUES


@dataclass(frozen=True, slots=True)
class RunReport:
    """All of one ``nnapi-prof run``: the plan first, then its baselines."""

    model: str
    device: str
    """For people: ``simulated npu-phone`` or ``Pixel 6 (serial)``."""
    fingerprint: str
    simulated: bool
    """Of what was measured; the predictions have ``Plan.simulated``."""
    created_at: str
    runs: tuple[PlanRun, ...]
    checks: tuple[OutputCheck, ...]
    notes: tuple[str, ...] = ()
    conditions: str = ""
    """The options that asked for other than the usual conditions."""

    def to_json(self) -> str:
        data = dataclasses.asdict(self)
        for row, check in zip(data["checks"], self.checks, strict=True):
            row["evidence"] = check.evidence.value
        for row, run in zip(data["runs"], self.runs, strict=True):
            row["plan"] = json.loads(run.plan.to_json())
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> RunReport:
        """Raises SerializationError where ``text`` is no run report."""
        try:
            data: dict[str, Any] = json.loads(text)
            runs = tuple(
                PlanRun(
                    Plan.from_json(json.dumps(r["plan"])),
                    _times(r["total_ns"]),
                    tuple(
                        SegmentTiming(**{**s, "samples_ns": _times(s["samples_ns"])})
                        for s in r["segments"]
                    ),
                    r["error"],
                    tuple(r["flags"]),
                    r.get("first_ns"),
                )
                for r in data["runs"]
            )
            checks = tuple(_check(c) for c in data["checks"])
            rest = {k: v for k, v in data.items() if k not in ("runs", "checks", "notes")}
            return cls(**rest, runs=runs, checks=checks, notes=tuple(data["notes"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            words = f"it lacks {error}" if isinstance(error, KeyError) else visible(str(error), 300)
            raise SerializationError(f"this is no run report ({words})") from error


def _check(row: dict[str, Any]) -> OutputCheck:
    evidence = Evidence(row.get("evidence", "values"))  # runs before 0.1.0 was released lack it
    return OutputCheck(**{**row, "shape": tuple(row["shape"]), "evidence": evidence})


def _times(values: list[Any]) -> tuple[int, ...]:
    """Samples in ns. Raises ValueError where they are none."""
    if not all(isinstance(ns, int) and 0 <= ns < MOST_NS for ns in values):
        raise ValueError("its times are no numbers of nanoseconds")
    return tuple(values)
