"""Requests to the agent and their bytes: PROTOCOL.md, section 3. No I/O here."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nnapi_prof.convert.model import Blob
from nnapi_prof.convert.region import Region
from nnapi_prof.device.protocol.actions import ActionSpec, TensorSource, check_action, check_group
from nnapi_prof.device.protocol.bundle import ActionModel, action_bundle
from nnapi_prof.device.protocol.results import DriverFacts
from nnapi_prof.errors import SerializationError
from nnapi_prof.nnapi.container import (
    NONE,
    ContainerKind,
    Strings,
    counted,
    listed,
    words,
    write_container,
)

PROTOCOL_VERSION = 5
BUNDLE_ALIGNMENT = 8
"""Bundles in DATA begin at multiples of this, so that the agent may read their words in place."""
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
        head = words(PROTOCOL_VERSION, 0, NONE if wait_ms is None else wait_ms)
        return head + counted([khz or 0 for khz in seen])

    def build(self) -> bytes:
        """The request's bytes. The same additions in the same order give the same bytes."""
        strings = Strings()
        facts = self._patience.drivers
        drivers = listed(
            words(
                NONE if each.accelerator is None else strings.add(each.accelerator),
                each.room,
                _MEMORY_CODES[each.memory],
            )
            for each in facts
        )
        blobs = listed(
            struct.pack("<Q", len(blob.data)) + bytes.fromhex(blob.sha256)
            for _, blob in self._blobs.values()
        )
        data, offsets = bytearray(), dict[bytes, int]()
        actions = bytearray(words(len(self._actions)))
        models = [ActionModel(model, buffers) for model, buffers in self._models]
        sizes = [len(blob.data) for _, blob in self._blobs.values()]
        for action in self._actions.values():
            bundle, weights = action_bundle(action, models, sizes)
            if bundle not in offsets:
                data += bytes(-len(data) % BUNDLE_ALIGNMENT)
                offsets[bundle] = len(data)
                data += bundle
            actions += _schedule(action) + struct.pack("<QQ", offsets[bundle], len(bundle))
            actions += listed(struct.pack("<IQ", *w) for w in weights)
            inputs = [t for t in action.tensors if t.source is not TensorSource.SEGMENT]
            actions += listed(words(t.source, t.value) for t in inputs)
            actions += counted([index for index, t in enumerate(action.tensors) if t.keep])
        return write_container(
            ContainerKind.REQUEST,
            {
                "HEAD": self._head(),
                "BLOB": blobs,
                **({"STRS": strings.section(), "DRVS": drivers} if facts else {}),
                "DATA": bytes(data),
                "ACTN": bytes(actions),
            },
        )


_SCHEDULE = struct.Struct("<IIIIIIIQQQIIIQIII")


def _schedule(action: ActionSpec) -> bytes:
    timing, frames = action.timing, action.frames
    return _SCHEDULE.pack(
        action.id,
        timing.timeout_ms,
        action.all_flags,
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
        0 if frames is None else frames.in_flight,
        0 if frames is None else frames.variants,
    )
