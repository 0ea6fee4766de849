"""Parse the agent's lines: JSON to the values of :mod:`nnapi_prof.device.protocol`. No I/O here.

PROTOCOL.md, section 5, specifies them. Lines that do not begin with ``{"type":`` are noise of
vendor libraries and become None, as do types of a later protocol; unknown fields are ignored. A
line of ours with a missing field, a field of another type or an impossible number is a
SerializationError. A phone's data is untrusted: its numbers must be possible, and control
characters in its texts, which a terminal would obey, are made visible.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from nnapi_prof.costs.measurement import Round, Status
from nnapi_prof.device.protocol import (
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

T = TypeVar("T")

LONGEST_TEXT = 2000
"""Largest number of characters of a message or name; longer ones are cut."""
MOST_VALUES = 1_000_000
"""Largest number of values of a list."""
MAX_COUNT = (1 << 63) - 1
"""Largest count, of bytes too: the limit of a database's column."""
MAX_INT32 = (1 << 31) - 1
MAX_NS = 10**16
"""Largest time in ns: 116 days, twice the longest watchdog."""
MAX_KHZ = 100_000_000
HEAT_MC = (-273_150, 1_000_000)
"""Range of temperatures in thousandths of a degree Celsius."""


class Fields:
    """A JSON object of the agent's; ``where`` names it in errors (SerializationError)."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise SerializationError(f"the agent's {where}: an object wanted, {_shown(data)} found")
        self._data = data
        self._where = where

    def _take(self, name: str, kind: type[T], default: Any = ...) -> T:
        if name not in self._data and default is not ...:
            return default  # type: ignore[no-any-return]  # the caller's own default
        try:
            value = self._data[name]
        except KeyError:
            raise SerializationError(f"the agent's {self._where} lacks {name!r}") from None
        return self._of_kind(name, value, kind)

    def _of_kind(self, name: str, value: Any, kind: type[T]) -> T:
        # bool is an int to isinstance, but not in JSON.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise SerializationError(
                f"the agent's {self._where}: {name} is {_shown(value)}, {kind.__name__} wanted"
            )
        if isinstance(value, str):
            return escape_untrusted(value, LONGEST_TEXT)  # type: ignore[return-value]  # T is str
        if isinstance(value, list) and len(value) > MOST_VALUES:
            raise SerializationError(
                f"the agent's {self._where}: {name} has {len(value)} values, {MOST_VALUES} at most "
                "are read"
            )
        return value

    def _in_range(self, name: str, value: int, low: int, high: int) -> int:
        if not low <= value <= high:
            raise SerializationError(
                f"the agent's {self._where}: {name} is {_shown(value)}, {low} to {high} wanted"
            )
        return value

    def text(self, name: str) -> str:
        return self._take(name, str)

    def flag(self, name: str) -> bool:
        return self._take(name, bool)

    def number(self, name: str, high: int = MAX_COUNT) -> int:
        """Returns a count: 0 or more."""
        return self._in_range(name, self._take(name, int), 0, high)

    def optional_number(self, name: str, high: int = MAX_COUNT) -> int | None:
        """Returns :meth:`number` of a field that may be null or absent."""
        value = self.optional(name, int)
        return None if value is None else self._in_range(name, value, 0, high)

    def times(self, name: str) -> tuple[int, ...]:
        """Returns a list of ns, empty where absent or null."""
        values = self.many(name, int)
        for index, value in enumerate(values):
            self._in_range(f"{name}[{index}]", value, 0, MAX_NS)
        return values

    def optional(self, name: str, kind: type[T]) -> T | None:
        """Returns a field that may be null or absent."""
        value = self._data.get(name)
        return None if value is None else self._of_kind(name, value, kind)

    def many(self, name: str, kind: type[T]) -> tuple[T, ...]:
        """Returns a list, empty where absent or null."""
        values = self.optional(name, list) or []
        return tuple(self._of_kind(f"{name}[{i}]", v, kind) for i, v in enumerate(values))

    def numbers_or_null(self, name: str) -> tuple[int | None, ...]:
        values = self.optional(name, list) or []
        return tuple(
            None if v is None else self._of_kind(f"{name}[{i}]", v, int)
            for i, v in enumerate(values)
        )

    def readings(self, name: str, low: int, high: int) -> tuple[int | None, ...]:
        """Returns readings of sensors; None for one out of range, as of a broken sensor."""
        return tuple(
            None if value is None or not low <= value <= high else value
            for value in self.numbers_or_null(name)
        )

    def before_after(self, name: str, low: int, high: int) -> tuple[int | None, int | None]:
        """Returns two readings of a sensor; None for one out of range, as of a broken sensor."""
        pair = self.readings(name, low, high)
        if len(pair) not in (0, 2):
            raise SerializationError(
                f"the agent's {self._where}: {name} has {len(pair)} values, 2 wanted"
            )
        return (pair[0], pair[1]) if pair else (None, None)

    def reading(self, name: str, low: int, high: int) -> int | None:
        """Returns a reading of a sensor; None for one out of range, as of a broken sensor."""
        value = self.optional(name, int)
        return None if value is None or not low <= value <= high else value

    def objects(self, name: str, read: Callable[[Fields], T]) -> tuple[T, ...]:
        values = self.optional(name, list) or []
        return tuple(read(Fields(v, f"{self._where}.{name}[{i}]")) for i, v in enumerate(values))

    def inner(self, name: str) -> Fields:
        return Fields(self._take(name, dict), f"{self._where}.{name}")

    def optional_inner(self, name: str) -> Fields | None:
        """Returns an object that may be null or absent; a string there is ignored."""
        value = self._data.get(name)
        return None if value is None or isinstance(value, str) else self.inner(name)

    def lists_of_texts(self, name: str) -> dict[str, tuple[str, ...]]:
        lists = self.optional(name, dict) or {}
        inner = Fields(lists, f"{self._where}.{name}")
        return {escape_untrusted(str(key), 100): inner.many(str(key), str) for key in lists}

    def texts(self, name: str) -> dict[str, str]:
        inner = self._take(name, dict)
        return {
            escape_untrusted(str(k), 100): self._of_kind(
                f"{name}.{escape_untrusted(str(k), 100)}", v, str
            )
            for k, v in inner.items()
        }


def _shown(value: object) -> str:
    """Returns a value for a message. Python refuses to write very long numbers."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    return escape_untrusted(repr(value), 100)


PREFIX = '{"type":'


def parse_line(line: str) -> Event | AgentInfo | Cleaned | None:
    """Returns the event of a line, None for noise. Raises SerializationError."""
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
        None
        if line.optional("accelerators", list) is None
        else line.objects("accelerators", _accelerator),
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
        driver=line.optional("driver", str),
    )


def _driver(line: Fields) -> DriverFacts:
    memory = line.optional("memory", str)
    return DriverFacts(
        line.optional("accelerator", str),
        min(max(line.number("room"), 1), MOST_ROOM),
        memory if memory in MEMORY_KINDS else None,
        line.optional("state", str),
        line.optional_number("lost_ms", MAX_NS) or 0,
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
    if line is None:  # from an older agent
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
        line.optional_number("simulated_ms", MAX_NS) or 0,
    ),
    "error": lambda line: ErrorLine(line.text("message")),
    "info": _info,
    "cleaned": lambda line: Cleaned(
        line.number("files"), line.number("bytes"), line.number("kept_bytes")
    ),
}
