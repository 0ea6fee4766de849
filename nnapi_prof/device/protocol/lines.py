"""The agent's lines: JSON Lines -> what :mod:`.results` has (PROTOCOL.md, section 5). No I/O here.

Lines that do not begin with ``{"type":`` are noise of vendor libraries and become None, as do types
of a later protocol; unknown fields are passed over. A line of ours that lacks a field or has one of
another kind, or a number that cannot be, is a SerializationError.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from nnapi_prof.costs.measurement import Status
from nnapi_prof.costs.samples import Round
from nnapi_prof.device.protocol.fields import HEAT_MC, MAX_INT32, MAX_KHZ, MAX_NS, Fields
from nnapi_prof.device.protocol.results import (
    MEMORY_KINDS,
    MOST_ROOM,
    Accelerator,
    ActionResult,
    AgentInfo,
    Cleaned,
    DriverFacts,
    End,
    ErrorLine,
    Event,
    FrameSample,
    FrameSamples,
    HalfArithmetic,
    Hello,
    KeptOutput,
    Kernels,
    Missing,
    NnapiEntryPoint,
    NnapiInfo,
    Outcome,
    Readings,
    SegmentSamples,
    SpanSample,
    Start,
    Wait,
)
from nnapi_prof.errors import SerializationError, escape_untrusted

PREFIX = '{"type":'


def parse_line(line: str) -> Event | AgentInfo | Cleaned | None:
    """The event of a line, None for noise. Raises SerializationError."""
    line = line.strip()
    if not line.startswith(PREFIX):
        return None
    try:
        data = json.loads(line)
    except ValueError as error:
        words = f"the agent's line is not JSON ({error}): {escape_untrusted(line, 200)}"
        raise SerializationError(words) from error
    except RecursionError:
        words = f"the agent's line is nested too deeply: {escape_untrusted(line, 60)}"
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
        line.optional("moved", bool),
        line.optional("cpus", str),
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
        copies_ns=line.times("copies_ns"),
        attempts=line.optional_number("attempts", MAX_INT32),
        words=line.optional("words", str),
    )


def _driver(line: Fields) -> DriverFacts:
    memory = line.optional("memory", str)
    return DriverFacts(
        line.optional("accelerator", str),
        min(max(line.number("room"), 1), MOST_ROOM),
        memory if memory in MEMORY_KINDS else None,
    )


def _accelerator(line: Fields) -> Accelerator:
    return Accelerator(
        line.text("name"), line.text("type"), line.text("version"), line.number("feature_level")
    )


def _half(word: str | None) -> HalfArithmetic:
    if word is None:
        return HalfArithmetic.NONE
    try:
        return HalfArithmetic(word)
    except ValueError as error:
        names = ", ".join(repr(half.value) for half in HalfArithmetic)
        raise SerializationError(
            f"the agent's info: cpu_float16 is {escape_untrusted(word, 40)!r}, none of {names}"
        ) from error


def _door(word: str | None) -> NnapiEntryPoint:
    if word is None:
        return NnapiEntryPoint.NNAPI
    try:
        return NnapiEntryPoint(word)
    except ValueError as error:
        raise SerializationError(
            f"the agent's info: nnapi.door is {escape_untrusted(word, 40)!r}, none of "
            + ", ".join(repr(door.value) for door in NnapiEntryPoint)
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
            nnapi.optional("stalled", bool) or False,
        ),
        engines=line.lists_of_texts("engines"),
        big_cores=line.optional("big_cores", str),
        threads_max=line.optional_number("threads_max", MAX_INT32),
        cpu_float16=_half(line.optional("cpu_float16", str)),
        readings=_readings(line.optional_inner("readings")),
    )


_READERS: dict[str, Callable[[Fields], Event | AgentInfo | Cleaned]] = {
    "hello": _hello,
    "missing": lambda line: Missing(line.many("blobs", str)),
    "start": lambda line: Start(line.number("action")),
    "wait": lambda line: Wait(line.number("action"), line.number("ms")),
    "result": _result,
    "end": lambda line: End(
        line.number("actions"),
        line.number("ok"),
        line.number("failed"),
        line.optional_number("waited_ms", MAX_NS) or 0,
        line.optional("fruitless", bool) or False,
        line.readings("allowed_khz", 0, MAX_KHZ),
        line.objects("drivers", _driver),
    ),
    "error": lambda line: ErrorLine(line.text("message")),
    "info": _info,
    "cleaned": lambda line: Cleaned(
        line.number("files"), line.number("bytes"), line.number("kept_bytes")
    ),
}
