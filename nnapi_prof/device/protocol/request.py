"""Requests to the agent and their bytes: PROTOCOL.md, section 3. No I/O here."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nnapi_prof.convert.pool import Blob
from nnapi_prof.convert.region import Region
from nnapi_prof.device.protocol.actions import (
    ActionSpec,
    check_action,
    check_group,
)
from nnapi_prof.device.protocol.results import DriverFacts
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import AUTO, TARGET_KINDS
from nnapi_prof.nnapi.container import ContainerKind, write_container

PROTOCOL_VERSION = 4
NONE = 0xFFFFFFFF
"""No accelerator named, no preference set; a wait without end."""
MODEL_ALIGNMENT = 8
"""Models in DATA begin at multiples of this, so that the agent may read their words in place."""
_RELAXED = 1  # a segment's only flag
_MEMORY_CODES = {None: 0, "ashmem": 1, "file": 2, "memfd": 3, "pointers": 4}


@dataclass(frozen=True, slots=True)
class Patience:
    """The limits of a request that follow from earlier ones."""

    wait_ms: int | None = None
    """All groups together may wait for a hot device for so long; None: each as long as its
    ``cooldown_ms`` says."""
    seen_khz: tuple[int | None, ...] = ()
    """The highest ``scaling_max_freq`` of each CPU that was seen."""
    drivers: tuple[DriverFacts, ...] = ()


@dataclass(frozen=True)
class Request:
    """A request to the agent."""

    content: bytes = field(repr=False)
    blobs: Mapping[str, bytes] = field(repr=False)
    """Name (hex SHA-256) -> bytes of every blob that it names."""
    silence_s: float
    """For how long the agent may say nothing over it: the longest of its groups."""


class RequestBuilder:
    """Collects blobs, models and actions; equal blobs and equal models are stored once."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._blobs: dict[str, tuple[int, Blob]] = {}
        self._models: dict[tuple[bytes, tuple[int, ...]], int] = {}
        self._actions: dict[int, ActionSpec] = {}

    @property
    def blobs(self) -> Mapping[str, bytes]:
        """Name (hex SHA-256) -> bytes of every blob of the request."""
        return {name: blob.data for name, (_, blob) in self._blobs.items()}

    def add_blob(self, data: bytes) -> int:
        """The index of a blob with these bytes."""
        return self._add(Blob(data))

    def _add(self, blob: Blob) -> int:
        return self._blobs.setdefault(blob.sha256, (len(self._blobs), blob))[0]

    def add_model(self, serialized: bytes, buffers: Sequence[bytes]) -> int:
        """The index of a serialized model whose numbered buffers are ``buffers``."""
        return self._add_model(serialized, map(Blob, buffers))

    def _add_model(self, serialized: bytes, blobs: Iterable[Blob]) -> int:
        key = (serialized, tuple(map(self._add, blobs)))
        return self._models.setdefault(key, len(self._models))

    def add_region(self, region: Region) -> int:
        """The index of a converted region's model."""
        return self._add_model(region.serialized, region.blobs)

    def add_action(self, action: ActionSpec) -> None:
        """Raises SerializationError where the action breaks a rule of the protocol."""
        if action.id in self._actions:
            raise SerializationError(f"action id {action.id} is used twice in a request")
        check_action(action, len(self._blobs), len(self._models))
        check_group(action, tuple(self._actions.values()))
        self._actions[action.id] = action

    def request(self) -> Request:
        return Request(self.build(), self.blobs, self._silence_ms() / 1000)

    def _silence_ms(self) -> int:
        """A group may time out once for each action, and cool down once."""
        alone, groups, wait_ms = 0, dict[int, int](), self._patience.wait_ms
        for action in self._actions.values():
            timing = action.timing
            cooldown_ms = timing.cooldown_ms
            cooldown_ms = cooldown_ms if wait_ms is None else min(cooldown_ms, wait_ms)
            if action.group == 0:
                alone = max(alone, timing.timeout_ms + cooldown_ms)
            else:
                silence_ms = groups.get(action.group, cooldown_ms)
                groups[action.group] = silence_ms + timing.timeout_ms
        return max(alone, *groups.values(), 0)

    def _head(self) -> bytes:
        wait_ms, seen = self._patience.wait_ms, self._patience.seen_khz
        head = struct.pack("<III", PROTOCOL_VERSION, 0, NONE if wait_ms is None else wait_ms)
        return head + _u32s([khz or 0 for khz in seen])

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
        facts = self._patience.drivers
        drivers = _u32(len(facts)) + b"".join(
            struct.pack(
                "<III",
                NONE if each.accelerator is None else strings.add(each.accelerator),
                each.room,
                _MEMORY_CODES[each.memory],
            )
            for each in facts
        )
        blobs = _u32(len(self._blobs)) + b"".join(
            struct.pack("<Q", len(blob.data)) + bytes.fromhex(blob.sha256)
            for _, blob in self._blobs.values()
        )
        return write_container(
            ContainerKind.REQUEST,
            {
                "HEAD": self._head(),
                "BLOB": blobs,
                "STRS": strings.section(),
                **({"DRVS": drivers} if facts else {}),
                "DATA": bytes(data),
                "MODL": bytes(models),
                "ACTN": actions,
            },
        )


_HEAD = struct.Struct("<IIIIQIIIIQQQIIIQI")
"""An action up to its tensors."""


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
    out = bytearray(_head(action))
    out += _u32(len(action.tensors))
    for tensor in action.tensors:
        out += _u32(tensor.type_code) + _u32s(tensor.dims)
        out += struct.pack("<III", tensor.source, tensor.value, tensor.keep)
    out += _u32(len(action.segments))
    for segment in action.segments:
        named = segment.accelerator not in (None, AUTO)
        out += struct.pack(
            "<IIIII",
            TARGET_KINDS[segment.engine].code,
            strings.add(str(segment.accelerator)) if named else NONE,
            NONE if segment.preference is None else segment.preference.value,
            _RELAXED if segment.relaxed else 0,
            segment.model,
        )
        out += _ports(segment.inputs) + _ports(segment.outputs)
    if action.frames is not None:
        frames = action.frames
        out += struct.pack("<III", frames.in_flight, frames.variants, len(frames.plans))
        out += b"".join(
            struct.pack("<IId", n_segments, frames.overlaps, share)
            for n_segments, share in frames.plans
        )
    return bytes(out)


def _head(action: ActionSpec) -> bytes:
    timing = action.timing
    return _HEAD.pack(
        action.id,
        timing.timeout_ms,
        action.all_flags,
        action.threads,
        action.cpu_mask,
        action.memory_kb,
        action.group,
        timing.warmup_min,
        timing.warmup_max,
        timing.warmup_ns,
        timing.warm_ns,
        timing.spin_ns,
        timing.rounds,
        timing.min_runs,
        timing.max_runs,
        timing.budget_ns,
        timing.cooldown_ms,
    )


def _ports(tensors: Sequence[int]) -> bytes:
    """A count, then each tensor's index and a word of 0."""
    return _u32(len(tensors)) + b"".join(struct.pack("<II", tensor, 0) for tensor in tensors)


def _u32(value: int) -> bytes:
    return struct.pack("<I", value)


def _u32s(values: Sequence[int]) -> bytes:
    """A count and that many words."""
    return struct.pack(f"<{len(values) + 1}I", len(values), *values)
