"""Plans -> actions for the agent: which segments run together, and which tensors they share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.convert.region import operand_of
from nnapi_prof.costs.conditions import Conditions, Precision
from nnapi_prof.device.protocol.actions import (
    MODE_FLAGS,
    ActionSpec,
    SegmentSpec,
    Source,
    TensorSpec,
    Timing,
    cpu_mask,
)
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.graph.plan import Engine, Plan, Segment


@dataclass(frozen=True, slots=True)
class Stretch:
    """Segments of a plan that follow each other on one side: all on the device, or one on the host.

    ``numbers`` are their indices in the plan.
    """

    numbers: tuple[int, ...]
    on_host: bool


@dataclass(frozen=True, slots=True)
class PreparedAction:
    """An action and the graph's values behind its tensors."""

    spec: ActionSpec
    tensors: dict[str, int]
    """Value name -> tensor index."""


@dataclass(frozen=True, slots=True)
class ActionOptions:
    """How an action runs, beside its timing."""

    conditions: Conditions
    memory_kb: int = 0
    group: int = 0


def stretches(plan: Plan) -> tuple[Stretch, ...]:
    """Cuts a plan where it changes between device and host."""
    cut: list[Stretch] = []
    for number, segment in enumerate(plan.segments):
        on_host = segment.target.engine is Engine.HOST
        if cut and not on_host and not cut[-1].on_host:
            cut[-1] = Stretch((*cut[-1].numbers, number), False)
        else:
            cut.append(Stretch((number,), on_host))
    return tuple(cut)


def read_later(bundle: Bundle, segments: Iterable[Segment]) -> set[str]:
    """The values that some segments read, and the outputs of the graph."""
    wanted = set(bundle.graph.outputs)
    for segment in segments:
        wanted.update(bundle.graph.boundary(segment.units)[0])
    return wanted


def prepare_action(
    number: int,
    bundle: Bundle,
    segments: Iterable[Segment],
    value_bytes: Callable[[str], bytes],
    keep: Collection[str],
    request: RequestBuilder,
    timing: Timing,
    options: ActionOptions,
) -> PreparedAction:
    """The action that runs some consecutive device segments of a plan.

    ``value_bytes`` gives the bytes (in memory order) of a value that no segment here makes; the
    values in ``keep`` come home after the last run.
    """
    tensors: list[TensorSpec] = []
    index: dict[str, int] = {}
    specs: list[SegmentSpec] = []

    def tensor(name: str, source: Source) -> int:
        if name not in index:
            known = bundle.graph.values[name]
            blob = request.add_blob(value_bytes(name)) if source is Source.BLOB else 0
            index[name] = len(tensors)
            kept = source is Source.SEGMENT and name in keep
            operand = operand_of(known)
            assert operand is not None, f"{name} crosses to a device as {known}"
            tensors.append(TensorSpec(operand.type, operand.dims, source, blob, kept))
        return index[name]

    for segment in segments:
        region = bundle.region(segment.units, segment.target)
        inputs = tuple(tensor(name, Source.BLOB) for name in region.inputs)
        outputs = tuple(tensor(name, Source.SEGMENT) for name in region.outputs)
        model = request.add_region(region)
        relaxed = options.conditions.on(segment.target.engine).precision is Precision.RELAXED
        specs.append(SegmentSpec.on(segment.target, model, inputs, outputs, relaxed))
    spec = ActionSpec(
        id=number,
        tensors=tuple(tensors),
        segments=tuple(specs),
        timing=timing,
        flags=MODE_FLAGS[options.conditions.mode],
        threads=options.conditions.threads,
        cpu_mask=cpu_mask(options.conditions.cpus),
        memory_kb=options.memory_kb,
        group=options.group,
    )
    return PreparedAction(spec, index)
