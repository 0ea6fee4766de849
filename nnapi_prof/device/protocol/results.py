"""The agent's answers: JSON Lines -> frozen dataclasses (PROTOCOL.md, section 5). No I/O here.

Lines that do not begin with ``{"type":`` are noise of vendor libraries and become None, as do types
of a later protocol; unknown fields are passed over. A line of ours that lacks a field or has one of
another kind, or a number that cannot be, is a SerializationError.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from nnapi_prof.costs.measurement import Round, Status, log_ratios, medians
from nnapi_prof.device.protocol.fields import HEAT_MC, MAX_INT32, MAX_KHZ, MAX_NS, Fields
from nnapi_prof.errors import CostError, SerializationError, visible

PREFIX = '{"type":'


@dataclass(frozen=True, slots=True)
class Hello:
    """The agent begins a request."""

    protocol: int
    agent: str
    actions: int
    simulated: bool
    phone: str | None


@dataclass(frozen=True, slots=True)
class Missing:
    """Blobs (hex names) that must be pushed first."""

    blobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """An action begins."""

    action: int


@dataclass(frozen=True, slots=True)
class Kernels:
    """How many operations of a segment the CPU engine ran on whose kernels."""

    xnnpack: int
    portable: int


@dataclass(frozen=True, slots=True)
class SegmentSamples:
    """Raw times of one segment in ns, one for each recorded run."""

    compile_ns: int | None = None
    samples_ns: tuple[int, ...] = ()
    hardware_ns: tuple[int, ...] = ()
    """On the accelerator itself; empty where the driver does not tell."""
    driver_ns: tuple[int, ...] = ()
    kernels: Kernels | None = None
    """None on NNAPI."""
    memory: str | None = None
    """How its tensors reach the engine: ``shared`` or ``pointers``."""
    alone_ns: tuple[int, ...] = ()
    """Of segments side by side: the runs of one alone, while ``samples_ns`` are those beside the
    others; empty of others, as is ``cpu_ns``."""
    cpu_ns: tuple[int, ...] = ()
    """CPU time that the action's process took for each run alone: what a driver does in other
    processes is not in it."""

    def slowdowns(self, rounds: Sequence[Round]) -> tuple[float, ...]:
        """How many times as long runs took beside the others as alone, by the medians of each round
        that was not throttled; none of a segment that ran side by side with no one."""
        alone, beside = medians(self.alone_ns, rounds), medians(self.samples_ns, rounds)
        return tuple(math.exp(each) for each in log_ratios(alone, beside))


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """A tensor's bytes after the last run, in a file of the work folder."""

    tensor: int
    file: str
    n_bytes: int
    sha256: str


class Outcome(enum.Enum):
    """What became of a frame."""

    SAME = "same"
    """Its outputs are those of its plan run alone, bit by bit."""
    DIFFERS = "differs"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class FrameSample:
    """One frame of many at once; times are ns of the action's clock."""

    plan: int
    """Of the action's."""
    outcome: Outcome
    begin_ns: int
    """It was handed in."""
    end_ns: int
    """Its last segment was done, or failed."""


@dataclass(frozen=True, slots=True)
class SpanSample:
    """When a segment of an action ran for a frame."""

    segment: int
    frame: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class FrameSamples:
    """All frames of an action, in the order in which they were handed in."""

    frames: tuple[FrameSample, ...]
    spans: tuple[SpanSample, ...] = field(repr=False)
    """By segment, and then by frame."""
    failure: str | None
    """Of the first frame that failed."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What became of one action; where not ok it keeps the samples from before the fault."""

    action: int
    status: Status
    stage: str | None
    """``setup``, ``compile`` or ``execute`` where not ok."""
    message: str | None
    code: int | None
    """NNAPI result code."""
    signal: str | None
    clock: str
    """``monotonic`` or ``simulated``."""
    segments: tuple[SegmentSamples, ...]
    total_ns: tuple[int, ...]
    """First segment's start to last one's end, one for each recorded run."""
    first_ns: int | None
    rss_peak_kb: int | None
    cpu_khz: tuple[int | None, int | None]
    """Before and after."""
    thermal_mc: tuple[int | None, int | None]
    """Before and after, thousandths of a degree Celsius."""
    outputs: tuple[KeptOutput, ...] = ()
    rounds: tuple[Round, ...] = ()
    """In the order of the samples."""
    warmup_runs: int | None = None
    warm: bool | None = None
    """The runs' times had become stable before the recorded ones."""
    cpu_mask: str | None = None
    """The affinity kept to, as hex text."""
    frames: FrameSamples | None = None
    """Of an action that runs many at once: then its samples are these, and ``rounds`` tell how many
    of them each has."""

    @property
    def ok(self) -> bool:
        return self.status is Status.OK


@dataclass(frozen=True, slots=True)
class End:
    """The request was carried out."""

    actions: int
    ok: int
    failed: int


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """The agent gives up on the whole request."""

    message: str


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An NNAPI device."""

    name: str
    type: str
    version: str
    feature_level: int


class Door(Enum):
    """How a library has NNAPI's functions; only behind NNAPI's own is there a runtime that chooses
    among accelerators."""

    NNAPI = "nnapi"
    SUPPORT_LIBRARY = "support library"
    NEURON_ADAPTER = "neuron adapter"


@dataclass(frozen=True, slots=True)
class NnapiInfo:
    """What libneuralnetworks.so, or a library in its place, offers on the device."""

    library: str | None
    error: str | None
    missing: tuple[str, ...]
    """Names of functions this version lacks."""
    accelerators: tuple[Accelerator, ...]
    """Behind another door than NNAPI's they are called NAME@FILE, after the library's file."""
    door: Door = Door.NNAPI


@dataclass(frozen=True, slots=True)
class Readings:
    """Of all CPUs, when ``agent info`` was asked; None where the device does not tell."""

    cpu_khz: int | None = None
    thermal_mc: int | None = None
    """Of the hottest zone; the temperature of a simulated phone."""
    throttled: bool | None = None


@dataclass(frozen=True)
class AgentInfo:
    """What ``agent info`` tells about a device."""

    protocol: int
    agent: str
    abi: str
    os: str
    properties: Mapping[str, str] = field(repr=False)
    api_level: int | None
    cpus: int
    cpu_max_khz: tuple[int | None, ...]
    memory_kb: int | None
    simulated: bool
    phone: str | None
    identity: str
    """Identifies a simulated phone's description; empty for real devices."""
    nnapi: NnapiInfo
    engines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Engine -> whose kernels it has, the preferred ones first."""
    big_cores: str | None = None
    """Affinity mask of the cores with the highest clock rate, as hex text."""
    threads_max: int | None = None
    readings: Readings = Readings()


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What ``agent clean`` deleted, and what it left."""

    files: int
    n_bytes: int
    kept_bytes: int


Event = Hello | Missing | Start | ActionResult | End | ErrorLine
"""What ``agent run`` may say."""


def parse_line(line: str) -> Event | AgentInfo | Cleaned | None:
    """The event of a line, None for noise. Raises SerializationError."""
    line = line.strip()
    if not line.startswith(PREFIX):
        return None
    try:
        data = json.loads(line)
    except ValueError as error:
        words = f"the agent's line is not JSON ({error}): {visible(line, 200)}"
        raise SerializationError(words) from error
    except RecursionError:
        words = f"the agent's line is nested too deeply: {visible(line, 60)}"
        raise SerializationError(words) from None
    kind = data["type"]
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    return None if reader is None else reader(Fields(data, str(kind)))


def _status(line: Fields) -> Status:
    word = line.text("status")
    try:
        return Status(word)
    except ValueError:
        raise SerializationError(
            f"the agent's result: status is {word!r}, one of "
            f"{', '.join(s.value for s in Status)} wanted"
        ) from None


def _hello(line: Fields) -> Hello:
    return Hello(
        line.number("protocol"),
        line.text("agent"),
        line.number("actions"),
        line.flag("simulated"),
        line.optional("phone", str),
    )


def _segment(line: Fields) -> SegmentSamples:
    return SegmentSamples(
        line.optional_number("compile_ns", MAX_NS),
        line.times("samples_ns"),
        line.times("hardware_ns"),
        line.times("driver_ns"),
        _kernels(line),
        line.optional("memory", str),
        line.times("alone_ns"),
        line.times("cpu_ns"),
    )


def _kernels(line: Fields) -> Kernels | None:
    kernels = line.optional_inner("kernels")
    return (
        None if kernels is None else Kernels(kernels.number("xnnpack"), kernels.number("portable"))
    )


def _round(line: Fields) -> Round:
    return Round(
        line.number("runs"),
        line.before_after("cpu_khz", 0, MAX_KHZ),
        line.before_after("thermal_mc", *HEAT_MC),
        line.optional("throttled", bool),
        line.optional_number("repeats"),
    )


def _output(line: Fields) -> KeptOutput:
    return KeptOutput(
        line.number("tensor"), line.text("file"), line.number("n_bytes"), line.text("sha256")
    )


def _frames(line: Fields | None) -> FrameSamples | None:
    if line is None:
        return None
    begins, ends = line.times("begin_ns"), line.times("end_ns")
    plans, outcomes = line.times("plan"), line.many("outcome", str)
    spans = line.many("spans", list)
    words = {outcome.value: outcome for outcome in Outcome}
    fits = len(begins) == len(ends) == len(plans) == len(outcomes) and words.keys() >= set(outcomes)
    whole = all(
        len(row) % 3 == 0 and all(type(n) is int and 0 <= n <= MAX_NS for n in row) for row in spans
    )
    if not fits or not whole or any(n >= len(begins) for row in spans for n in row[::3]):
        raise SerializationError("the agent's result: its frames and spans do not fit together")
    return FrameSamples(
        tuple(
            FrameSample(plan, words[outcome], begin, end)
            for plan, outcome, begin, end in zip(plans, outcomes, begins, ends, strict=True)
        ),
        tuple(
            SpanSample(segment, *row[i : i + 3])
            for segment, row in enumerate(spans)
            for i in range(0, len(row), 3)
        ),
        line.optional("failure", str),
    )


def _result(line: Fields) -> ActionResult:
    return ActionResult(
        action=line.number("action"),
        status=_status(line),
        stage=line.optional("stage", str),
        message=line.optional("message", str),
        code=line.optional("code", int),
        signal=line.optional("signal", str),
        clock=line.text("clock"),
        segments=line.objects("segments", _segment),
        total_ns=line.times("total_ns"),
        first_ns=line.optional_number("first_ns", MAX_NS),
        rss_peak_kb=line.optional_number("rss_peak_kb", MAX_INT32),
        cpu_khz=line.before_after("cpu_khz", 0, MAX_KHZ),
        thermal_mc=line.before_after("thermal_mc", *HEAT_MC),
        outputs=line.objects("outputs", _output),
        rounds=line.objects("rounds", _round),
        warmup_runs=line.optional_number("warmup_runs", MAX_INT32),
        warm=line.optional("warm", bool),
        cpu_mask=line.optional("cpu_mask", str),
        frames=_frames(line.optional_inner("frames")),
    )


def _accelerator(line: Fields) -> Accelerator:
    return Accelerator(
        line.text("name"), line.text("type"), line.text("version"), line.number("feature_level")
    )


def _door(word: str | None) -> Door:
    if word is None:
        return Door.NNAPI
    try:
        return Door(word)
    except ValueError as error:
        raise SerializationError(
            f"the agent's info: nnapi.door is {visible(word, 40)!r}, none of "
            + ", ".join(repr(door.value) for door in Door)
        ) from error


def _readings(line: Fields | None) -> Readings:
    if line is None:  # of an agent from before there were any
        return Readings()
    khz, heat = line.reading("cpu_khz", 0, MAX_KHZ), line.reading("thermal_mc", *HEAT_MC)
    return Readings(khz, heat, line.optional("throttled", bool))


def _info(line: Fields) -> AgentInfo:
    nnapi = line.inner("nnapi")
    return AgentInfo(
        protocol=line.number("protocol"),
        agent=line.text("agent"),
        abi=line.text("abi"),
        os=line.text("os"),
        properties=line.texts("properties"),
        api_level=line.optional_number("api_level", MAX_INT32),
        cpus=line.number("cpus"),
        cpu_max_khz=line.numbers_or_null("cpu_max_khz"),
        memory_kb=line.optional_number("memory_kb"),
        simulated=line.flag("simulated"),
        phone=line.optional("phone", str),
        identity=line.optional("identity", str) or "",
        nnapi=NnapiInfo(
            nnapi.optional("library", str),
            nnapi.optional("error", str),
            nnapi.many("missing", str),
            nnapi.objects("accelerators", _accelerator),
            _door(nnapi.optional("door", str)),
        ),
        engines=line.lists_of_texts("engines"),
        big_cores=line.optional("big_cores", str),
        threads_max=line.optional_number("threads_max", MAX_INT32),
        readings=_readings(line.optional_inner("readings")),
    )


_READERS: dict[str, Callable[[Fields], Event | AgentInfo | Cleaned]] = {
    "hello": _hello,
    "missing": lambda line: Missing(line.many("blobs", str)),
    "start": lambda line: Start(line.number("action")),
    "result": _result,
    "end": lambda line: End(line.number("actions"), line.number("ok"), line.number("failed")),
    "error": lambda line: ErrorLine(line.text("message")),
    "info": _info,
    "cleaned": lambda line: Cleaned(
        line.number("files"), line.number("bytes"), line.number("kept_bytes")
    ),
}


FINGERPRINT_LENGTH = 16

_FINGERPRINT_PROPERTIES = (
    "ro.product.manufacturer",
    "ro.product.model",
    "ro.build.fingerprint",
    "ro.board.platform",
    "ro.hardware",
)


def device_fingerprint(info: AgentInfo) -> str:
    """Names what a measurement depends on: the same phone with the same system and drivers.

    A hash over manufacturer, model, build, platform, ABI, API level, accelerators with their
    versions, and a simulated phone's description. A Linux machine has no such names: memory and
    clock rates stand in for them. The agent's own version is not part of it.
    """
    facts: dict[str, Any] = {
        "properties": {name: info.properties.get(name) for name in _FINGERPRINT_PROPERTIES},
        "abi": info.abi,
        "os": info.os,
        "api_level": info.api_level,
        "cpus": info.cpus,
        "simulated": info.simulated,
        "identity": info.identity,
        "accelerators": sorted(
            (a.name, a.type, a.version, a.feature_level) for a in info.nnapi.accelerators
        ),
    }
    if not info.properties and not info.simulated:
        facts |= {"memory_kb": info.memory_kb, "cpu_max_khz": info.cpu_max_khz}
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_LENGTH]


def description_of(info: AgentInfo) -> dict[str, object]:
    """What the table of devices keeps of an agent's info."""
    return {
        "phone": info.phone,
        "abi": info.abi,
        "os": info.os,
        "api_level": info.api_level,
        "cpus": info.cpus,
        "cpu_max_khz": list(info.cpu_max_khz),
        "memory_kb": info.memory_kb,
        "properties": dict(info.properties),
        "nnapi_library": info.nnapi.library,
        "nnapi_door": info.nnapi.door.value,
        "accelerators": [
            {
                "name": a.name,
                "type": a.type,
                "version": a.version,
                "feature_level": a.feature_level,
            }
            for a in info.nnapi.accelerators
        ],
    }


def described_info(description: Mapping[str, Any], simulated: bool) -> AgentInfo:
    """The info of a device that a table describes (:func:`description_of`), as far as it says.

    Raises CostError where the description is not one.
    """
    try:
        library = description.get("nnapi_library")
        level = description.get("api_level")
        return AgentInfo(
            protocol=0,
            agent="",
            abi=str(description["abi"]),
            os=str(description["os"]),
            properties={str(k): str(v) for k, v in description["properties"].items()},
            api_level=None if level is None else int(level),
            cpus=int(description.get("cpus") or 1),
            cpu_max_khz=(),
            memory_kb=None,
            simulated=simulated,
            phone=description.get("phone"),
            identity="",
            nnapi=NnapiInfo(
                library=None if library is None else str(library),
                error=None,
                missing=(),
                accelerators=tuple(
                    Accelerator(
                        str(a["name"]), str(a["type"]), str(a["version"]), int(a["feature_level"])
                    )
                    for a in description["accelerators"]
                ),
                door=Door(description.get("nnapi_door", Door.NNAPI.value)),
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CostError(
            f"the table's description of a device lacks {visible(str(error), 100)}: profile a"
            " model on that device again"
        ) from error


def describe(info: AgentInfo) -> str:
    """One line: model, system, accelerators; says so where the phone is simulated."""
    parts = [
        info.properties.get("ro.product.manufacturer"),
        info.properties.get("ro.product.model"),
    ]
    name = " ".join(part for part in parts if part) or info.phone or f"{info.os} machine"
    if info.api_level is None:
        system = info.os
    else:
        release = info.properties.get("ro.build.version.release")
        system = f"Android {release}, API {info.api_level}" if release else f"API {info.api_level}"
    kind = "simulated phone, " if info.simulated else ""
    if info.nnapi.accelerators:
        nnapi = "NNAPI: " + ", ".join(a.name for a in info.nnapi.accelerators)
    elif info.nnapi.library is not None and info.nnapi.error is None:
        nnapi = "NNAPI without names of accelerators"
    else:
        nnapi = f"no NNAPI ({info.nnapi.error or 'no library'})"
    return f"{name} ({kind}{system}, {info.abi}; {nnapi})"


def description_parts(described: str) -> tuple[str, str]:
    """What :func:`describe` put together: the device's name, and what stood behind it in brackets,
    its system and drivers."""
    name, _, details = described.partition(" (")
    return name, details.removesuffix(")")


def device_name(described: str) -> str:
    """The device's name alone, of what :func:`describe` put together."""
    return description_parts(described)[0]
