"""Result of the partitioner as data: targets, segments, plans.

This module does not depend on the partitioner, so that reading a plan does not import it.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.causes import Cause, Fact

AUTO = "auto"
"""Accelerator name that leaves the choice to NNAPI's own runtime (Compilation_create)."""
REFERENCE = "nnapi-reference"
"""Accelerator that every Android has: NNAPI's own kernels, on the CPU's cores."""


class Preference(enum.Enum):
    """NNAPI's PreferenceCode."""

    LOW_POWER = 0
    FAST_SINGLE_ANSWER = 1
    SUSTAINED_SPEED = 2

    @property
    def short(self) -> str:
        """Word for the preference in keys and tables."""
        return {0: "low_power", 1: "fast", 2: "sustained"}[self.value]


class Precision(enum.Enum):
    """Precision that a region computes in."""

    FLOAT32 = "float32"
    RELAXED = "relaxed"
    """Float32 that may be computed as float16; the CPU does so where it has float16 arithmetic."""
    FLOAT16 = "float16"
    """Float16: NNAPI models keep inputs and outputs in float32; the CPU uses the float16 kernels
    that it has."""
    INT8 = "int8"
    """Quantised to 8 bits, including inputs and outputs."""


class Engine(enum.Enum):
    """Engine that executes a segment."""

    CPU = "cpu"
    """CPU engine of the agent on the device."""
    NNAPI = "nnapi"
    HOST = "host"
    """Eager PyTorch on the host, only for units that no engine of the agent can run."""
    EXECUTORCH = "executorch"
    """Partitioner of ExecuTorch with its back end, or ExecuTorch's portable kernels."""
    QNN = "qnn"
    """NPU of a Snapdragon, by Qualcomm's compiler: its simulator gives costs; nothing runs it."""


@dataclass(frozen=True, slots=True)
class TargetKind:
    """Properties that all targets of one engine share."""

    spelling: str
    """Form of the targets' keys, for people."""
    pattern: re.Pattern[str]
    """Pattern of the targets' keys."""
    code: int | None = None
    """Number of the engine in requests and runtime containers; None where no agent has it."""
    conditions: frozenset[str] = frozenset()
    """Fields of :class:`nnapi_prof.costs.Conditions` that concern the engine."""


_ON_BOTH = frozenset({"precision", "cpus", "sustained_s"})
_ON_NNAPI = frozenset({"mode"}) | _ON_BOTH
TARGET_KINDS: Mapping[Engine, TargetKind] = {
    Engine.CPU: TargetKind("cpu", re.compile("cpu(/1)?"), 0, _ON_BOTH | {"threads"}),
    Engine.HOST: TargetKind("host", re.compile("host"), None, _ON_NNAPI),
    Engine.NNAPI: TargetKind(
        "nnapi:ACCELERATOR/PREFERENCE",
        re.compile(rf"nnapi:.+/({'|'.join(p.short for p in Preference)})", re.DOTALL),
        1,
        _ON_NNAPI,
    ),
    Engine.EXECUTORCH: TargetKind("executorch:PARTITIONER", re.compile(r"executorch:[^\s/]+")),
    Engine.QNN: TargetKind("qnn:CHIP/PRECISION", re.compile(r"qnn:\w+/(fp16|int8)")),
}
"""Engine -> its kind of target; a new kind needs an entry here and a member of :class:`Engine`."""
TARGET_SPELLINGS = tuple(kind.spelling for kind in TARGET_KINDS.values())


def is_target(key: str) -> bool:
    """Returns whether ``key`` names a target without a precision of its own, as in cost tables."""
    return any(kind.pattern.fullmatch(key) for kind in TARGET_KINDS.values())


_SUFFIX = re.compile(rf"@({'|'.join(p.value for p in Precision if p is not Precision.FLOAT32)})")


@functools.lru_cache(maxsize=4096)
def _split_key(key: str) -> tuple[str, Precision]:
    """Returns a target's key without its suffix, and the precision of the suffix."""
    base, mark, word = key.rpartition("@")
    if mark and _SUFFIX.fullmatch(mark + word) and is_target(base):
        return base, Precision(word)
    return key, Precision.FLOAT32


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """Target of a segment: ``cpu``, ``host``, ``nnapi:ACCELERATOR/PREFERENCE``, or in files for
    ExecuTorch ``executorch:PARTITIONER``, with the user's name of the partitioner. ``cpu`` has as
    many threads as the conditions state, ``cpu/1`` has one.

    Where precision is chosen region by region, the suffix ``@relaxed``, ``@float16`` or ``@int8``
    states it; without a suffix, the conditions of the plan do.
    """

    key: str

    @classmethod
    def nnapi(cls, accelerator: str, preference: Preference) -> Target:
        """Returns the target of an NNAPI accelerator, or :data:`AUTO`, under a preference."""
        return cls(f"nnapi:{accelerator}/{preference.short}")

    @classmethod
    def parse(cls, key: str) -> Target:
        """Returns the target of a key. Raises ValueError where no kind of target has such a key."""
        if not is_target(_split_key(key)[0]):
            raise ValueError(f"{key!r} is not one of {', '.join(TARGET_SPELLINGS)}")
        return cls(key)

    @property
    def chip(self) -> str | None:
        """``SM8750`` for ``qnn:SM8750/int8``; None for another kind."""
        return self._chip_and_precision[0]

    @property
    def chip_precision(self) -> str | None:
        """``int8`` for ``qnn:SM8750/int8``; None for another kind."""
        return self._chip_and_precision[1]

    @property
    def _chip_and_precision(self) -> tuple[str | None, str | None]:
        engine, _, rest = _split_key(self.key)[0].partition(":")
        chip, _, precision = rest.partition("/")
        return (chip, precision) if engine == Engine.QNN.value else (None, None)

    @property
    def base(self) -> Target:
        """The same target without a precision of its own."""
        return Target(_split_key(self.key)[0])

    @property
    def precision(self) -> Precision:
        """The target's own precision; FLOAT32 where the plan's conditions decide."""
        return _split_key(self.key)[1]

    def at(self, precision: Precision) -> Target:
        """Returns the same target in a precision; float32 has no suffix."""
        base = _split_key(self.key)[0]
        return Target(base if precision is Precision.FLOAT32 else f"{base}@{precision.value}")

    @property
    def engine(self) -> Engine:
        """The engine that executes segments on this target."""
        return Engine(re.split("[:/]", _split_key(self.key)[0], maxsplit=1)[0])

    @property
    def has_one_thread(self) -> bool:
        """True for the CPU with one thread under all conditions."""
        return _split_key(self.key)[0] == CPU_ALONE.key

    @property
    def accelerator(self) -> str | None:
        """Name of the NNAPI device, ``auto``, or None off NNAPI."""
        if self.engine is not Engine.NNAPI:
            return None
        return _split_key(self.key)[0].partition(":")[2].rpartition("/")[0]

    @property
    def lane(self) -> str | None:
        """The processor of the target, under any preference: ``cpu``, or the name of an
        accelerator. None for :data:`AUTO`, which may be any, for ``nnapi-reference``, which runs on
        the CPU's cores, and for the host."""
        if self.engine is Engine.CPU:
            return CPU.key
        return None if self.accelerator in (AUTO, REFERENCE) else self.accelerator

    @property
    def preference(self) -> Preference | None:
        """The preference that models are compiled under; None off NNAPI."""
        if self.engine is not Engine.NNAPI:
            return None
        word = _split_key(self.key)[0].rpartition("/")[2]
        return next(p for p in Preference if p.short == word)

    def __str__(self) -> str:
        return self.key


CPU = Target("cpu")
CPU_ALONE = Target("cpu/1")
"""CPU with one thread, for segments that are too short for waking more threads."""
HOST = Target("host")


@dataclass(frozen=True, slots=True)
class Segment:
    """Units that run as one on one target: one NNAPI model, or one run on the CPU.

    ``why`` is the reason for the target; it is only a sentence in a plan that was read from a file.
    ``measured`` is true when ``predicted_ns`` is the latency of exactly this region, measured
    whole; ``estimated`` when it comes from the static model.
    """

    units: tuple[int, ...]
    target: Target
    predicted_ns: float
    why: Cause | str
    measured: bool = False
    estimated: bool = False
    interval_ns: tuple[float, float] | None = None
    """95 % interval of the real latency, by the costs that the prediction comes from."""

    @property
    def cause(self) -> str:
        """The reason for the target, in a sentence."""
        return str(self.why)


class Rule(enum.Enum):
    """Rule of a baseline, which needs no partitioner and begins the baseline's name."""

    ALL_CPU = "all-cpu"
    BEST_SINGLE = "best-single"
    LARGEST_SUPPORTED = "largest-supported"
    LARGEST_FEW = "largest-3"
    LISTED = "listed"
    GREEDY = "greedy"


@dataclass(frozen=True, slots=True)
class BaselineName:
    """Name of a baseline, in files and tables ``best-single nnapi:NAME/fast``: its rule, and its
    target where it has one."""

    rule: Rule
    target: Target | None = None

    def __str__(self) -> str:
        return self.rule.value if self.target is None else f"{self.rule.value} {self.target.key}"

    @classmethod
    def parse(cls, name: str) -> BaselineName | None:
        """Parses a plan's name in files and tables; returns None where it is not a baseline's."""
        word, _, key = name.partition(" ")
        if word not in {rule.value for rule in Rule}:
            return None
        return cls(Rule(word), Target(key) if key else None)


class ProofKind(enum.Enum):
    """Kind of proof that no plan is faster."""

    EXACT = "exact"
    """Every plan was examined or ruled out by a bound."""
    BOUND_MET = "bound_met"
    """The plan's cost equals a lower bound of all plans."""
    GAP = "gap"
    """Not proven: the bound is below the plan's cost."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Proof of the least latency of all plans within the constraints."""

    kind: ProofKind
    least_ns: float
    """Latency of the best plan found."""
    bound_ns: float
    """Lower bound of the latency of all plans."""
    found_by: str = field(default="", compare=False)
    """Name in the code of the step of the search that found the best plan."""
    bounded_by: str = field(default="", compare=False)
    """Name in the code of the step that proved the bound."""
    constrained: bool = False
    """True where constraints exclude plans, or the objective is not the latency."""
    objective: str = ""
    """Objective other than the latency, with the unit of a million of its values: ``energy in mJ``.
    ``least_ns`` and ``bound_ns`` are then values of it."""

    @property
    def gap(self) -> float:
        """Largest excess of the best plan over the optimum, relative to the bound; 0 if proven."""
        if self.is_optimal or self.least_ns <= self.bound_ns:
            return 0.0
        return self.least_ns / self.bound_ns - 1 if self.bound_ns > 0 else math.inf

    @property
    def is_optimal(self) -> bool:
        """True where it is proven that no plan is faster than the best one found."""
        return self.kind is not ProofKind.GAP


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered segments that together run every unit once. The plan's latency is the sum of their
    predictions, conversions and copies, less the time saved by running segments at once."""

    name: str
    """Name of the plan: ``dp``, or that of a baseline."""
    segments: tuple[Segment, ...]
    simulated: bool
    remarks: tuple[Fact | str, ...] = ()
    """Remarks on the plan, beside its proof; only sentences in a plan that was read from a file."""
    proof: Proof | None = None
    """None for baselines, and for plans of earlier versions."""
    conversions_ns: float = 0.0
    """Time to convert values between floats and 8 bits, in addition to the segments."""
    overlapped_ns: float = 0.0
    """Time saved by running segments at once."""
    copies_ns: float = 0.0
    """Time to copy the model's inputs and outputs from and to an app's buffers; 0 where nothing is
    copied, the time is unknown, or the latency is that of the model alone."""

    @property
    def baseline(self) -> BaselineName | None:
        """The rule and the target of a baseline; None for any other plan."""
        return BaselineName.parse(self.name)

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks as sentences."""
        return tuple(map(str, self.remarks))

    def with_note(self, note: Fact | str) -> Plan:
        """Returns the plan with one more remark."""
        return replace(self, remarks=(*self.remarks, note))

    @property
    def estimated(self) -> bool:
        """True where a segment's latency comes from the static model."""
        return any(segment.estimated for segment in self.segments)

    @property
    def predicted_ns(self) -> float:
        segments_ns = sum(segment.predicted_ns for segment in self.segments)
        return segments_ns + self.conversions_ns + self.copies_ns - self.overlapped_ns

    def overlapping(self, latency_ns: float) -> Plan:
        """Returns the plan with this latency, which the overlap of segments reduces it to."""
        one_by_one = self.predicted_ns + self.overlapped_ns
        return replace(self, overlapped_ns=max(0.0, one_by_one - latency_ns))

    def to_json(self) -> str:
        return json.dumps(
            {
                "name": self.name,
                "simulated": self.simulated,
                "predicted_ns": self.predicted_ns,
                **({"conversions_ns": self.conversions_ns} if self.conversions_ns else {}),
                **({"overlapped_ns": self.overlapped_ns} if self.overlapped_ns else {}),
                **({"copies_ns": self.copies_ns} if self.copies_ns else {}),
                "notes": list(self.notes),
                "proof": None if self.proof is None else _proof_fields(self.proof),
                "segments": [
                    {
                        "units": list(s.units),
                        "target": s.target.key,
                        "predicted_ns": s.predicted_ns,
                        "cause": s.cause,
                        "measured": s.measured,
                        "estimated": s.estimated,
                        "interval_ns": s.interval_ns,
                    }
                    for s in self.segments
                ],
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads the output of :meth:`to_json`. Raises SerializationError for other texts."""
        try:
            data: dict[str, Any] = json.loads(text)
            segments = tuple(
                Segment(
                    tuple(s["units"]),
                    Target(s["target"]),
                    s["predicted_ns"],
                    s["cause"],
                    s["measured"],
                    s["estimated"],
                    _read_interval(s.get("interval_ns")),
                )
                for s in data["segments"]
            )
            return cls(
                data["name"],
                segments,
                data["simulated"],
                tuple(data["notes"]),
                _proof(data.get("proof")),
                float(data.get("conversions_ns", 0.0)),
                float(data.get("overlapped_ns", 0.0)),
                float(data.get("copies_ns", 0.0)),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise SerializationError(f"this is not a plan: {error!r}") from error


def _proof_fields(proof: Proof) -> dict[str, Any]:
    return {**dataclasses.asdict(proof), "kind": proof.kind.value}


def _proof(fields: Any) -> Proof | None:
    """Reads a proof from JSON; plans of earlier versions have none."""
    return None if fields is None else Proof(**{**fields, "kind": ProofKind(fields["kind"])})


def _read_interval(pair: Any) -> tuple[float, float] | None:
    """Reads an interval from JSON; plans of earlier versions have none."""
    return None if pair is None else (float(pair[0]), float(pair[1]))
