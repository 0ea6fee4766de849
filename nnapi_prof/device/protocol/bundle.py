"""An action's plans as a bundle: device_agent/library/FORMAT.md, without weights. No I/O here."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nnapi_prof.costs.conditions import Mode
from nnapi_prof.device.protocol.actions import (
    ALL_CORES,
    BIG_CORES,
    ActionSpec,
    SegmentSpec,
    TensorSource,
)
from nnapi_prof.graph.plan import AUTO, TARGET_KINDS
from nnapi_prof.nnapi.container import ContainerKind, write_container

NONE = 0xFFFFFFFF
"""No accelerator named, no preference set; a wait without end."""
WEIGHT_ALIGNMENT = 64
MODEL_ALIGNMENT = 4
_BUNDLE_VERSION = _CONDITIONS_VERSION = _MIXTURE_VERSION = 1
_MODES = {Mode.SYNC: 0, Mode.BURST: 1, Mode.ASYNC: 2}
_ANY, _BIG, _MASK = range(3)


@dataclass(frozen=True, slots=True)
class ActionModel:
    """A serialized model, and the blobs that its numbered buffers are."""

    serialized: bytes
    blobs: tuple[int, ...]


class Strings:
    """Numbers strings in the order of their first use."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Return the string's number."""
        return self._index.setdefault(text, len(self._index))

    def section(self) -> bytes:
        """Return the section of all strings."""
        section = bytearray(u32(len(self._index)))
        for text in self._index:
            raw = text.encode()
            section += u32(len(raw)) + raw + bytes(-len(raw) % 4)
        return bytes(section)


def action_bundle(
    action: ActionSpec, models: Sequence[ActionModel], blob_sizes: Sequence[int]
) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the bundle that an action runs, and its weights: blobs with their offsets."""
    strings = Strings()
    unnamed = strings.add("")
    numbers = list(dict.fromkeys(segment.model for segment in action.segments))
    places = {number: place for place, number in enumerate(numbers)}
    offsets: dict[int, int] = {}
    end = 0
    for blob in dict.fromkeys(blob for number in numbers for blob in models[number].blobs):
        offsets[blob] = end
        end += (blob_sizes[blob] // WEIGHT_ALIGNMENT + 1) * WEIGHT_ALIGNMENT
    data, rows = bytearray(), []
    for number in numbers:
        model = models[number]
        data += bytes(-len(data) % MODEL_ALIGNMENT)
        buffers = [struct.pack("<QQ", offsets[blob], blob_sizes[blob]) for blob in model.blobs]
        rows.append(struct.pack("<QQ", len(data), len(model.serialized)) + _list(buffers))
        data += model.serialized
    frames = action.frames
    plans, rest = [], list(action.segments)
    for n_segments, _ in ((len(rest), 1.0),) if frames is None else frames.plans:
        segments = [_segment(s, places[s.model], strings) for s in rest[:n_segments]]
        plans.append(u32(unnamed) + _list(segments))
        rest = rest[n_segments:]
    sections = {
        "HEAD": struct.pack("<III", _BUNDLE_VERSION, _MODES[action.mode], action.threads),
        "STRS": strings.section(),
        "TENS": _list(
            u32(t.type_code) + u32s(t.dims) + struct.pack("<fi", 0, 0) for t in action.tensors
        ),
        "MODL": _list(rows),
        "PLAN": _list(plans),
        "INPT": _ends(
            unnamed,
            [i for i, t in enumerate(action.tensors) if t.source is not TensorSource.SEGMENT],
        ),
        "OUTP": _ends(unnamed, _outputs(action)),
        "DATA": bytes(data),
        "COND": _conditions(action),
    }
    if frames is not None:
        shares = [struct.pack("<Id", plan, share) for plan, (_, share) in enumerate(frames.plans)]
        sections["MIXT"] = u32(_MIXTURE_VERSION) + _list(shares)
        if frames.overlaps:
            sections["OVLP"] = u32s(range(len(frames.plans)))
    return write_container(ContainerKind.BUNDLE, sections), list(offsets.items())


def _inputs(action: ActionSpec) -> list[int]:
    return [i for i, t in enumerate(action.tensors) if t.source is not TensorSource.SEGMENT]


def _outputs(action: ActionSpec) -> list[int]:
    """Return what segments write and somebody wants: nobody else reads it, or it is kept. Of
    frames, whose plans have tensors of their own, it is what is kept."""
    read = {tensor for segment in action.segments for tensor in segment.inputs}
    return [
        index
        for index, tensor in enumerate(action.tensors)
        if tensor.source is TensorSource.SEGMENT
        and (tensor.keep or (action.frames is None and index not in read))
    ]


def _conditions(action: ActionSpec) -> bytes:
    cores = {ALL_CORES: _ANY, BIG_CORES: _BIG}.get(action.cpu_mask, _MASK)
    mask = action.cpu_mask if cores == _MASK else 0
    no_limit = 0
    return struct.pack(
        "<IIQQQI", _CONDITIONS_VERSION, cores, mask, no_limit, no_limit, action.pointers
    )


def _segment(segment: SegmentSpec, model: int, strings: Strings) -> bytes:
    named = segment.accelerator not in (None, AUTO)
    code = TARGET_KINDS[segment.engine].code
    assert code is not None, f"{segment.engine} is not an engine of a device"
    head = struct.pack(
        "<IIIII",
        code,
        strings.add(str(segment.accelerator)) if named else NONE,
        NONE if segment.preference is None else segment.preference.value,
        segment.flags,
        model,
    )
    return head + _ports(segment.inputs) + _ports(segment.outputs)


def _ports(tensors: Sequence[int]) -> bytes:
    """A count, then each tensor's index and a word of 0."""
    return _list(struct.pack("<II", tensor, 0) for tensor in tensors)


def _ends(name: int, tensors: Sequence[int]) -> bytes:
    return _list(struct.pack("<III", name, tensor, 0) for tensor in tensors)


def _list(rows: Iterable[bytes]) -> bytes:
    rows = list(rows)
    return u32(len(rows)) + b"".join(rows)


def u32(value: int) -> bytes:
    """One word."""
    return struct.pack("<I", value)


def u32s(values: Sequence[int]) -> bytes:
    """A count and that many words."""
    return struct.pack(f"<{len(values) + 1}I", len(values), *values)
