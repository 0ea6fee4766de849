"""An action's plans as a bundle: device_agent/library/FORMAT.md, without weights. No I/O here."""

from __future__ import annotations

from collections.abc import Sequence
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
from nnapi_prof.nnapi import container
from nnapi_prof.nnapi.container import (
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
