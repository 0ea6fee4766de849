"""The partitioner's answer as data: targets, segments, plans.

Nothing here knows how a plan is found, so everybody may read one without importing the partitioner.
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
"""The accelerator name that leaves the choice to NNAPI's own runtime (Compilation_create)."""
REFERENCE = "nnapi-reference"
"""The accelerator that every Android has: NNAPI's own kernels, on the CPU's cores."""


class Preference(enum.Enum):
    """NNAPI's PreferenceCode."""

    LOW_POWER = 0
    FAST_SINGLE_ANSWER = 1
    SUSTAINED_SPEED = 2

    @property
    def short(self) -> str:
        """The word used in keys and tables."""
        return {0: "low_power", 1: "fast", 2: "sustained"}[self.value]


class Precision(enum.Enum):
    """The precision that a region computes in."""

    FLOAT32 = "float32"
    RELAXED = "relaxed"
    """Float32 that may be computed as float16: the CPU does where it has arithmetic for that."""
    FLOAT16 = "float16"
    """NNAPI's models in float16 but for their inputs and outputs; the CPU computes so by whatever
    kernels it has."""
    INT8 = "int8"
    """Quantised to 8 bits, inputs and outputs too."""


class Engine(enum.Enum):
    """The engine that executes a segment."""

    CPU = "cpu"
    """The agent's CPU engine on the device."""
    NNAPI = "nnapi"
    HOST = "host"
    """Eager PyTorch on the host: only for what neither engine of the agent can run."""
    EXECUTORCH = "executorch"
    """A partitioner of ExecuTorch's, with its back end; or ExecuTorch's portable kernels."""
    QNN = "qnn"
    """A Snapdragon's NPU by Qualcomm's compiler: costs are its simulator's, and nothing runs it."""


@dataclass(frozen=True, slots=True)
class TargetKind:
    """The properties that all targets of one engine share."""

    spelling: str
    """Of their keys, for people."""
    pattern: re.Pattern[str]
    """Of their keys."""
    code: int | None = None
    """The engine's number in requests and runtime containers; None where no agent has it."""
    conditions: frozenset[str] = frozenset()
    """Fields of :class:`nnapi_prof.costs.Conditions` that concern it."""


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
"""A kind of target more is an entry more, and a member of :class:`Engine`."""
TARGET_SPELLINGS = tuple(kind.spelling for kind in TARGET_KINDS.values())


def is_target(key: str) -> bool:
    """Whether ``key`` names a target of some kind, in no precision of its own: what cost tables
    have."""
    return any(kind.pattern.fullmatch(key) for kind in TARGET_KINDS.values())


_SUFFIX = re.compile(rf"@({'|'.join(p.value for p in Precision if p is not Precision.FLOAT32)})")


@functools.lru_cache(maxsize=4096)
def _split_key(key: str) -> tuple[str, Precision]:
    """A target's key without its suffix, and the precision that this says."""
    base, mark, word = key.rpartition("@")
    if mark and _SUFFIX.fullmatch(mark + word) and is_target(base):
        return base, Precision(word)
    return key, Precision.FLOAT32


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """A place for a segment: ``cpu``, ``host``, ``nnapi:ACCELERATOR/PREFERENCE``, or in files for
    ExecuTorch ``executorch:PARTITIONER``, by the name that its user gave it. ``cpu`` has as many
    threads as the conditions say, and ``cpu/1`` one.

    Where precision is chosen region by region, ``@relaxed``, ``@float16`` or ``@int8`` follows;
    without, the conditions of the plan say it for all.
    """

    key: str

    @classmethod
    def nnapi(cls, accelerator: str, preference: Preference) -> Target:
        """An accelerator of NNAPI's, or :data:`AUTO`, under a preference."""
        return cls(f"nnapi:{accelerator}/{preference.short}")

    @classmethod
    def parse(cls, key: str) -> Target:
        """Raises ValueError where no kind of target has such a key."""
        if not is_target(_split_key(key)[0]):
            raise ValueError(f"{key!r} is not one of {', '.join(TARGET_SPELLINGS)}")
        return cls(key)

    @property
    def chip(self) -> str | None:
        """``SM8750`` of ``qnn:SM8750/int8``; None of another kind."""
        return self._chip_and_precision[0]

    @property
    def chip_precision(self) -> str | None:
        """``int8`` of ``qnn:SM8750/int8``; None of another kind."""
        return self._chip_and_precision[1]

    @property
    def _chip_and_precision(self) -> tuple[str | None, str | None]:
        engine, _, rest = _split_key(self.key)[0].partition(":")
        chip, _, precision = rest.partition("/")
        return (chip, precision) if engine == Engine.QNN.value else (None, None)

    @property
    def base(self) -> Target:
        """The same in no precision of its own."""
        return Target(_split_key(self.key)[0])

    @property
    def precision(self) -> Precision:
        """Its own; FLOAT32 where the conditions of the plan may say another."""
        return _split_key(self.key)[1]

    def at(self, precision: Precision) -> Target:
        """The same in a precision; float32 is what needs no saying."""
        base = _split_key(self.key)[0]
        return Target(base if precision is Precision.FLOAT32 else f"{base}@{precision.value}")

    @property
    def engine(self) -> Engine:
        """The engine that executes segments on this target."""
        return Engine(re.split("[:/]", _split_key(self.key)[0], maxsplit=1)[0])

    @property
    def has_one_thread(self) -> bool:
        """Whether it is the CPU with one thread, whatever the conditions say."""
        return _split_key(self.key)[0] == CPU_ALONE.key

    @property
    def accelerator(self) -> str | None:
        """Name of the NNAPI device, ``auto``, or None off NNAPI."""
        if self.engine is not Engine.NNAPI:
            return None
        return _split_key(self.key)[0].partition(":")[2].rpartition("/")[0]

    @property
    def lane(self) -> str | None:
        """The processor that it belongs to, under whatever preference: ``cpu``, or the name of an
        accelerator. None of :data:`AUTO`, which may be any, of ``nnapi-reference``, which takes
        the CPU's cores from it, and of the host."""
        if self.engine is Engine.CPU:
            return CPU.key
        return None if self.accelerator in (AUTO, REFERENCE) else self.accelerator

    @property
    def preference(self) -> Preference | None:
        """The preference it is compiled under, None off NNAPI."""
        if self.engine is not Engine.NNAPI:
            return None
        word = _split_key(self.key)[0].rpartition("/")[2]
        return next(p for p in Preference if p.short == word)

    def __str__(self) -> str:
        return self.key


CPU = Target("cpu")
CPU_ALONE = Target("cpu/1")
"""The CPU with one thread, for segments that are too short to wake others for."""
HOST = Target("host")


@dataclass(frozen=True, slots=True)
class Segment:
    """Units that run as one on one target: one NNAPI model, or one CPU stretch.

    ``why`` says why the segment stands where it does: a sentence where the plan was read from a
    file, which has no more. ``measured`` is true when
    ``predicted_ns`` is the latency of this very region, measured whole; ``estimated`` when it
    rests on the static model.
    """

    units: tuple[int, ...]
    target: Target
    predicted_ns: float
    why: Cause | str
    measured: bool = False
    estimated: bool = False
    interval_ns: tuple[float, float] | None = None
    """95 % of what the latency may really be, by the costs that the prediction rests on."""

    @property
    def cause(self) -> str:
        """Why it stands where it does, in a sentence."""
        return str(self.why)


class Rule(enum.Enum):
    """A simple rule that needs no partitioner; begins the name of a baseline."""

    ALL_CPU = "all-cpu"
    BEST_SINGLE = "best-single"
    LARGEST_SUPPORTED = "largest-supported"
    LARGEST_FEW = "largest-3"
    LISTED = "listed"
    GREEDY = "greedy"


@dataclass(frozen=True, slots=True)
class BaselineName:
    """The name of a baseline, in files and tables ``best-single nnapi:NAME/fast``: its rule, and
    the target that it is about, where there is one."""

    rule: Rule
    target: Target | None = None

    def __str__(self) -> str:
        return self.rule.value if self.target is None else f"{self.rule.value} {self.target.key}"

    @classmethod
    def parse(cls, name: str) -> BaselineName | None:
        """Read the name of a plan as files and tables have it; None where it is no baseline's."""
        word, _, key = name.partition(" ")
        if word not in {rule.value for rule in Rule}:
            return None
        return cls(Rule(word), Target(key) if key else None)


class ProofKind(enum.Enum):
    """How it is known that no plan is faster."""

    EXACT = "exact"
    """Every plan was looked at or ruled out by a bound."""
    BOUND_MET = "bound_met"
    """The plan costs what a lower bound of every plan says."""
    GAP = "gap"
    """It is not: the bound lies below the plan."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof about the least latency of all plans within the constraints."""

    kind: ProofKind
    least_ns: float
    """Of the best plan found."""
    bound_ns: float
    """No plan takes less."""
    found_by: str = field(default="", compare=False)
    """The step of the search that found the best plan, as its name in the code."""
    bounded_by: str = field(default="", compare=False)
    """The step that proved the bound."""
    constrained: bool = False
    """Something was asked for that rules plans out, or other than the latency is made least."""
    objective: str = ""
    """What is made least, where that is not the latency, and the unit of a million of it: ``energy
    in mJ``. ``least_ns`` and ``bound_ns`` are of it then."""

    @property
    def gap(self) -> float:
        """How far the best plan can be above the optimum, relative to the bound; 0 if proven."""
        if self.is_optimal or self.least_ns <= self.bound_ns:
            return 0.0
        return self.least_ns / self.bound_ns - 1 if self.bound_ns > 0 else math.inf

    @property
    def is_optimal(self) -> bool:
        """Whether no plan at all is faster than the best one found."""
        return self.kind is not ProofKind.GAP


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered segments that together run every unit once, with the sum of their predictions and of
    conversions between them, less what they spare by running at once."""

    name: str
    """``dp`` or the name of a baseline."""
    segments: tuple[Segment, ...]
    simulated: bool
    remarks: tuple[Fact | str, ...] = ()
    """What there is to say of it, beside its proof; of a plan that was read, sentences."""
    proof: Proof | None = None
    """None for baselines, and for plans of earlier versions."""
    conversions_ns: float = 0.0
    """What values take that are converted between floats and 8 bits, beside the segments."""
    overlapped_ns: float = 0.0
    """What it spares of all that by running segments at once."""
    copies_ns: float = 0.0
    """What it takes to copy the model's inputs and outputs from and to an app's buffers; 0 where
    nothing is copied, nobody knows, or the latency is the model's."""

    @property
    def baseline(self) -> BaselineName | None:
        """The rule and the target of a baseline; None of any other plan."""
        return BaselineName.parse(self.name)

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks as sentences."""
        return tuple(map(str, self.remarks))

    def with_note(self, note: Fact | str) -> Plan:
        """The plan with one more remark."""
        return replace(self, remarks=(*self.remarks, note))

    @property
    def estimated(self) -> bool:
        """Whether a segment's latency rests on the static model."""
        return any(segment.estimated for segment in self.segments)

    @property
    def predicted_ns(self) -> float:
        segments_ns = sum(segment.predicted_ns for segment in self.segments)
        return segments_ns + self.conversions_ns + self.copies_ns - self.overlapped_ns

    def overlapping(self, latency_ns: float) -> Plan:
        """The plan, whose segments run at once as far as makes its latency this."""
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
        """Raises SerializationError where ``text`` is no plan."""
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
