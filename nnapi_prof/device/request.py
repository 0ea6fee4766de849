"""Requests to the agent as data, and their bytes: PROTOCOL.md, section 3. No I/O here."""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nnapi_prof.convert.converted import ConvertedRegion
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import AUTO, Engine, Preference, Target
from nnapi_prof.nnapi.container import ContainerKind, read_container, write_container

PROTOCOL_VERSION = 1
NONE = 0xFFFFFFFF
"""No accelerator named, no preference set."""
MAX_RUNS = 100_000
MODEL_ALIGNMENT = 8
"""Models in DATA begin at multiples of this, so that the agent may read their words in place."""
_U32_MAX = 0xFFFFFFFF
_U64_MAX = 0xFFFFFFFFFFFFFFFF


class Source(enum.IntEnum):
    """Where a tensor's bytes come from."""

    SEGMENT = 0
    BLOB = 1
    RANDOM = 2
    ZERO = 3


class ActionFlag(enum.IntFlag):
    """Bits of an action's flags."""

    BURST = 1
    UNTIMED = 2


_RELAXED = 1  # a segment's only flag
_ENGINE_CODES = {Engine.CPU: 0, Engine.NNAPI: 1}


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes that live on the device under their hash."""

    sha256: str
    """Lowercase hex."""
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, data: bytes) -> Blob:
        return cls(hashlib.sha256(data).hexdigest(), data)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of an action. ``dims`` are as it lies in memory."""

    type_code: int
    """NNAPI operand code."""
    dims: tuple[int, ...]
    source: Source = Source.SEGMENT
    value: int = 0
    """Blob index (BLOB) or seed (RANDOM)."""
    keep: bool = False
    """Its bytes are written to the work folder after the last run."""


@dataclass(frozen=True, slots=True)
class SegmentSpec:
    """One model on one engine. ``inputs`` and ``outputs`` are tensor indices, in the model's order.

    ``accelerator`` is None (or ``auto``) where NNAPI chooses; ``model`` comes from
    :meth:`RequestBuilder.add_model`.
    """

    engine: Engine
    model: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    accelerator: str | None = None
    preference: Preference | None = None
    relaxed: bool = False

    @classmethod
    def on(
        cls,
        target: Target,
        model: int,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        relaxed: bool = False,
    ) -> SegmentSpec:
        """A segment on a plan's target."""
        return cls(
            target.engine, model, inputs, outputs, target.accelerator, target.preference, relaxed
        )


@dataclass(frozen=True, slots=True)
class Timing:
    """How an action is repeated. Recorded runs: at least ``min_runs``, at most ``max_runs``, and
    no more once they have taken ``budget_ns``."""

    warmup_runs: int
    min_runs: int
    max_runs: int
    budget_ns: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """Segments that run in order, measured together. A unit is one segment, a plan several."""

    id: int
    tensors: tuple[TensorSpec, ...]
    segments: tuple[SegmentSpec, ...]
    timeout_ms: int = 60_000
    warmup_runs: int = 2
    min_runs: int = 5
    max_runs: int = 50
    budget_ns: int = 500_000_000
    flags: ActionFlag = ActionFlag(0)
    threads: int = 1
    cpu_mask: int = 0


class RequestBuilder:
    """Collects blobs, models and actions; equal blobs and equal models are stored once."""

    def __init__(self) -> None:
        self._blobs: dict[str, tuple[int, Blob]] = {}
        self._models: dict[tuple[bytes, tuple[int, ...]], int] = {}
        self._actions: dict[int, ActionSpec] = {}

    @property
    def blobs(self) -> Mapping[str, bytes]:
        """Name (hex SHA-256) -> bytes of every blob of the request."""
        return {name: blob.data for name, (_, blob) in self._blobs.items()}

    def add_blob(self, data: bytes) -> int:
        """The index of a blob with these bytes."""
        blob = Blob.of(data)
        return self._blobs.setdefault(blob.sha256, (len(self._blobs), blob))[0]

    def add_model(self, serialized: bytes, buffers: Sequence[bytes]) -> int:
        """The index of a serialized model whose numbered buffers are ``buffers``."""
        key = (serialized, tuple(self.add_blob(buffer) for buffer in buffers))
        return self._models.setdefault(key, len(self._models))

    def add_region(self, region: ConvertedRegion) -> int:
        """The index of a converted region's model."""
        return self.add_model(region.serialized, region.buffers)

    def add_action(self, action: ActionSpec) -> None:
        """Raises SerializationError where the action breaks a rule of the protocol."""
        if action.id in self._actions:
            raise SerializationError(f"action id {action.id} is used twice in a request")
        _check(action, len(self._blobs), len(self._models))
        self._actions[action.id] = action

    def build(self) -> bytes:
        """The request's bytes. The same additions in the same order give the same bytes."""
        strings = _Strings()
        actions = _u32(len(self._actions)) + b"".join(
            _action(action, strings) for action in self._actions.values()
        )
        data, models = bytearray(), bytearray(_u32(len(self._models)))
        for serialized, buffers in self._models:
            data += bytes(-len(data) % MODEL_ALIGNMENT)
            models += struct.pack("<QQ", len(data), len(serialized)) + _u32s(buffers)
            data += serialized
        blobs = _u32(len(self._blobs)) + b"".join(
            struct.pack("<Q", len(blob.data)) + bytes.fromhex(blob.sha256)
            for _, blob in self._blobs.values()
        )
        return write_container(
            ContainerKind.REQUEST,
            {
                "HEAD": struct.pack("<II", PROTOCOL_VERSION, 0),
                "BLOB": blobs,
                "STRS": strings.section(),
                "DATA": bytes(data),
                "MODL": bytes(models),
                "ACTN": actions,
            },
        )


def longest_timeout_s(request: bytes) -> float:
    """The longest watchdog of a request's actions: for how long its agent may say nothing.

    Raises SerializationError where ``request`` is no request.
    """
    section = read_container(request, ContainerKind.REQUEST).get("ACTN", b"")
    longest_ms = 0
    try:
        (n_actions,) = struct.unpack_from("<I", section)
        at = 4
        for _ in range(n_actions):
            (timeout_ms,) = struct.unpack_from("<I", section, at + 4)
            longest_ms = max(longest_ms, timeout_ms)
            at = _action_end(section, at)
    except struct.error as error:
        raise SerializationError(f"the request's actions are cut off: {error}") from error
    return longest_ms / 1000


_FIXED = struct.Struct("<IIIIIQIIQ")  # an action up to its tensors


def _action_end(section: bytes, at: int) -> int:
    """Where the action that begins at ``at`` ends."""

    def word(index: int) -> int:
        found: int = struct.unpack_from("<I", section, index)[0]
        return found

    at += _FIXED.size
    n_tensors = word(at)
    at += 4
    for _ in range(n_tensors):
        at += 4 * (2 + word(at + 4) + 3)
    n_segments = word(at)
    at += 4
    for _ in range(n_segments):
        at += 5 * 4
        for _ in range(2):
            at += 4 * (1 + word(at))
    return at


class _Strings:
    """Numbers strings in the order of their first use."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        return self._index.setdefault(text, len(self._index))

    def section(self) -> bytes:
        section = bytearray(_u32(len(self._index)))
        for text in self._index:
            raw = text.encode()
            section += _u32(len(raw)) + raw + bytes(-len(raw) % 4)
        return bytes(section)


def _action(action: ActionSpec, strings: _Strings) -> bytes:
    out = bytearray(
        _FIXED.pack(
            action.id,
            action.timeout_ms,
            action.warmup_runs,
            action.min_runs,
            action.max_runs,
            action.budget_ns,
            action.flags,
            action.threads,
            action.cpu_mask,
        )
    )
    out += _u32(len(action.tensors))
    for tensor in action.tensors:
        out += _u32(tensor.type_code) + _u32s(tensor.dims)
        out += struct.pack("<III", tensor.source, tensor.value, tensor.keep)
    out += _u32(len(action.segments))
    for segment in action.segments:
        named = segment.accelerator not in (None, AUTO)
        out += struct.pack(
            "<IIIII",
            _ENGINE_CODES[segment.engine],
            strings.add(str(segment.accelerator)) if named else NONE,
            NONE if segment.preference is None else segment.preference.value,
            _RELAXED if segment.relaxed else 0,
            segment.model,
        )
        out += _u32s(segment.inputs) + _u32s(segment.outputs)
    return bytes(out)


def _check(action: ActionSpec, n_blobs: int, n_models: int) -> None:
    def require(holds: bool, rule: str) -> None:
        if not holds:
            raise SerializationError(f"action {action.id}: {rule}")

    require(0 <= action.id <= _U32_MAX, "the id does not fit 32 bits")
    require(0 < action.timeout_ms <= _U32_MAX, f"timeout of {action.timeout_ms} ms")
    require(0 <= action.warmup_runs <= MAX_RUNS, f"{action.warmup_runs} warm-up runs")
    require(
        1 <= action.min_runs <= action.max_runs <= MAX_RUNS,
        f"runs from {action.min_runs} to {action.max_runs}, 1 <= min <= max <= {MAX_RUNS} wanted",
    )
    require(0 <= action.budget_ns <= _U64_MAX, f"budget of {action.budget_ns} ns")
    require(0 <= action.threads <= _U32_MAX, f"{action.threads} threads")
    require(0 <= action.cpu_mask <= _U64_MAX, "the CPU mask does not fit 64 bits")
    require(
        ActionFlag.UNTIMED not in action.flags or action.max_runs == 1,
        f"up to {action.max_runs} runs without timing, 1 wanted",
    )
    require(bool(action.segments), "no segments")

    for index, tensor in enumerate(action.tensors):
        what = f"tensor {index}"
        require(0 <= tensor.type_code <= _U32_MAX, f"{what} has type {tensor.type_code}")
        require(all(0 <= dim <= _U32_MAX for dim in tensor.dims), f"{what} has dims {tensor.dims}")
        require(0 <= tensor.value <= _U32_MAX, f"{what} has the value {tensor.value}")
        require(
            tensor.source is not Source.BLOB or tensor.value < n_blobs,
            f"{what} is blob {tensor.value}, there are {n_blobs}",
        )

    ready = {i for i, t in enumerate(action.tensors) if t.source is not Source.SEGMENT}
    for index, segment in enumerate(action.segments):
        what = f"segment {index}"
        require(segment.engine in _ENGINE_CODES, f"{what} runs on {segment.engine.value}")
        require(0 <= segment.model < n_models, f"{what} has model {segment.model} of {n_models}")
        for tensor_index in (*segment.inputs, *segment.outputs):
            require(
                0 <= tensor_index < len(action.tensors),
                f"{what} names tensor {tensor_index}, there are {len(action.tensors)}",
            )
        for tensor_index in segment.inputs:
            require(
                tensor_index in ready, f"{what} reads tensor {tensor_index} before it is written"
            )
        for tensor_index in segment.outputs:
            require(tensor_index not in ready, f"{what} writes tensor {tensor_index} a second time")
            ready.add(tensor_index)


def _u32(value: int) -> bytes:
    return struct.pack("<I", value)


def _u32s(values: Sequence[int]) -> bytes:
    """A count and that many words."""
    return struct.pack(f"<{len(values) + 1}I", len(values), *values)
