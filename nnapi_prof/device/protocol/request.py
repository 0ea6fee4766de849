"""Build requests to the agent and their bytes. No I/O here.

PROTOCOL.md, section 3, specifies a request; an action's plans in it are a bundle without weights,
as device_agent/library/FORMAT.md specifies it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nnapi_prof.convert import Blob
from nnapi_prof.convert.region import Region
from nnapi_prof.costs import Mode
from nnapi_prof.device.protocol import DriverFacts
from nnapi_prof.device.protocol.actions import (
    ALL_CORES,
    BIG_CORES,
    ActionSpec,
    SegmentSpec,
    TensorSource,
    check_action,
    check_group,
)
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import AUTO, TARGET_KINDS
from nnapi_prof.nnapi import container
from nnapi_prof.nnapi.container import (
    NONE,
    WEIGHT_ALIGNMENT,
    ContainerKind,
    Models,
    Strings,
    counted,
    listed,
    words,
    write_container,
)


@dataclass(frozen=True, slots=True)
class ActionModel:
    """A serialized model, and the blobs that its numbered buffers are."""

    serialized: bytes
    blobs: tuple[int, ...]


def action_bundle(
    action: ActionSpec, models: Sequence[ActionModel], blob_sizes: Sequence[int]
) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the bundle that an action runs, and its weights: blobs with their offsets."""
    strings, stored = Strings(), Models()
    unnamed = strings.add("")
    numbers = list(dict.fromkeys(segment.model for segment in action.segments))
    offsets: dict[int, int] = {}
    end = 0
    for blob in dict.fromkeys(blob for number in numbers for blob in models[number].blobs):
        offsets[blob] = end
        end += (blob_sizes[blob] // WEIGHT_ALIGNMENT + 1) * WEIGHT_ALIGNMENT
    places = {
        number: stored.add(
            models[number].serialized,
            [(offsets[blob], blob_sizes[blob]) for blob in models[number].blobs],
        )
        for number in numbers
    }
    frames = action.frames
    plans, rest = [], list(action.segments)
    for n_segments, _ in ((len(rest), 1.0),) if frames is None else frames.plans:
        rows = [_segment(s, places[s.model], strings) for s in rest[:n_segments]]
        plans.append(words(unnamed) + listed(rows))
        rest = rest[n_segments:]
    content = {
        "HEAD": words(container.BUNDLE_VERSION, action.mode.code, action.threads),
        "STRS": strings.section(),
        "TENS": listed(container.tensor(t.type_code, t.dims) for t in action.tensors),
        "PLAN": listed(plans),
        "INPT": listed(words(unnamed, tensor, 0) for tensor in _inputs(action)),
        "OUTP": listed(words(unnamed, tensor, 0) for tensor in _outputs(action)),
        "COND": _conditions(action),
        **stored.sections(),
    }
    if frames is not None:
        content["MIXT"] = container.mixture(
            (plan, share) for plan, (_, share) in enumerate(frames.plans)
        )
        if frames.overlaps:
            content["OVLP"] = counted(range(len(frames.plans)))
    return write_container(ContainerKind.BUNDLE, content), list(offsets.items())


def _inputs(action: ActionSpec) -> list[int]:
    return [i for i, t in enumerate(action.tensors) if t.source is not TensorSource.SEGMENT]


def _outputs(action: ActionSpec) -> list[int]:
    """Return the tensors that segments write, if they are kept or no segment reads them. For
    frames, whose plans have tensors of their own, only the kept ones."""
    read = {tensor for segment in action.segments for tensor in segment.inputs}
    return [
        index
        for index, tensor in enumerate(action.tensors)
        if tensor.source is TensorSource.SEGMENT
        and (tensor.keep or (action.frames is None and index not in read))
    ]


def _conditions(action: ActionSpec) -> bytes:
    cores = {ALL_CORES: container.ANY_CORES, BIG_CORES: container.BIG_CORES}
    kind = cores.get(action.cpu_mask, container.MASKED_CORES)
    mask = action.cpu_mask if kind == container.MASKED_CORES else 0
    pointers = action.pointers or action.mode is Mode.POINTERS
    return container.conditions(kind, mask, 0, 0, pointers)  # without limits


def _segment(segment: SegmentSpec, model: int, strings: Strings) -> bytes:
    named = segment.accelerator not in (None, AUTO)
    code = TARGET_KINDS[segment.engine].code
    assert code is not None, f"{segment.engine} is not an engine of a device"
    return container.segment(
        code,
        strings.add(str(segment.accelerator)) if named else None,
        None if segment.preference is None else segment.preference.value,
        segment.flags,
        model,
        segment.inputs,
        segment.outputs,
    )


PROTOCOL_VERSION = 5
BUNDLE_ALIGNMENT = 8
"""Alignment of bundles in DATA, with which the agent may read their words in place."""
_MEMORY_CODES = {None: 0, "ashmem": 1, "file": 2, "memfd": 3, "pointers": 4}


@dataclass(frozen=True, slots=True)
class Patience:
    """The limits of a request that follow from earlier ones."""

    wait_ms: int | None = None
    """Longest wait of all groups together for a hot device; None: each as long as its
    ``cooldown_ms``."""
    seen_khz: tuple[int | None, ...] = ()
    """The highest ``scaling_max_freq`` seen of each CPU."""
    drivers: tuple[DriverFacts, ...] = ()


@dataclass(frozen=True)
class Request:
    """A request to the agent."""

    content: bytes = field(repr=False)
    blobs: Mapping[str, bytes] = field(repr=False)
    """Name (hex SHA-256) -> bytes of every blob that it names."""
    silence_s: float
    """Longest time that the agent may say nothing: that of the longest of its groups."""


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
        """Adds a blob with these bytes; returns its index."""
        return self._add(Blob(data))

    def _add(self, blob: Blob) -> int:
        return self._blobs.setdefault(blob.sha256, (len(self._blobs), blob))[0]

    def add_model(self, serialized: bytes, buffers: Sequence[bytes]) -> int:
        """Adds a serialized model whose numbered buffers are ``buffers``; returns its index."""
        return self._add_model(serialized, map(Blob, buffers))

    def _add_model(self, serialized: bytes, blobs: Iterable[Blob]) -> int:
        key = (serialized, tuple(map(self._add, blobs)))
        return self._models.setdefault(key, len(self._models))

    def add_region(self, region: Region) -> int:
        """Adds a converted region's model; returns its index."""
        return self._add_model(region.serialized, region.blobs)

    def add_action(self, action: ActionSpec) -> None:
        """Adds an action. Raises SerializationError where it breaks a rule of the protocol."""
        if action.id in self._actions:
            raise SerializationError(f"action id {action.id} is used twice in a request")
        check_action(action, len(self._blobs), len(self._models))
        check_group(action, tuple(self._actions.values()))
        self._actions[action.id] = action

    def request(self) -> Request:
        return Request(self.build(), self.blobs, self._silence_ms() / 1000)

    def _silence_ms(self) -> int:
        """Returns the longest silence: a timeout for each action of a group, and one cool-down."""
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
        """Returns the request's bytes. The same additions in the same order give the same bytes."""
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
