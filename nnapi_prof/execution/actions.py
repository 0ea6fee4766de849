"""Models and targets -> one action for the agent: what runs together, which tensors are shared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.convert.region import Region, operand_of
from nnapi_prof.device.protocol.actions import (
    ActionFlag,
    ActionSpec,
    FramesSpec,
    SegmentSpec,
    TensorSource,
    TensorSpec,
    Timing,
    cpu_mask,
)
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.execution.options import ActionOptions
from nnapi_prof.graph.plan import Engine, Plan, Segment, Target
from nnapi_prof.graph.types import TensorType

Feed = Callable[[str], tuple[TensorSource, int]]
"""Name of a value that enters an action -> where its bytes come from, and the blob's index or the
seed (:class:`TensorSpec`)."""


@dataclass(frozen=True, slots=True)
class PlanStage:
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


def stages_of(plan: Plan) -> tuple[PlanStage, ...]:
    """Cuts a plan where it changes between device and host."""
    stages: list[PlanStage] = []
    for number, segment in enumerate(plan.segments):
        on_host = segment.target.engine is Engine.HOST
        if stages and not on_host and not stages[-1].on_host:
            stages[-1] = PlanStage((*stages[-1].numbers, number), False)
        else:
            stages.append(PlanStage((number,), on_host))
    return tuple(stages)


def read_later(bundle: Bundle, segments: Iterable[Segment]) -> set[str]:
    """The values that some segments read, and the outputs of the graph."""
    names = set(bundle.graph.outputs)
    for segment in segments:
        names.update(bundle.graph.boundary(segment.units)[0])
    return names


def build_action(
    number: int,
    models: Iterable[tuple[Target, Region]],
    feed: Feed,
    request: RequestBuilder,
    timing: Timing,
    options: ActionOptions,
    keep: Collection[str] = (),
    frames: FramesSpec | None = None,
) -> PreparedAction:
    """The action that runs some models, each on its target: one after the other, or side by side.

    ``feed`` is asked for every value that none of them makes; the values in ``keep`` come home
    after the last run. ``number`` is the action's id in ``request``. With ``frames`` the models are
    those of several plans, and what is kept is compared and stays there.
    """
    tensors: list[TensorSpec] = []
    index: dict[str, int] = {}
    segments: list[SegmentSpec] = []

    def add(
        name: str, tensor_type: TensorType, source: TensorSource, value: int, keeps: bool
    ) -> None:
        operand = operand_of(tensor_type)
        assert operand is not None, f"{name} crosses to a device as {tensor_type}"
        index[name] = len(tensors)
        tensors.append(TensorSpec(operand.type, operand.dims, source, value, keeps))

    for target, region in models:
        if options.beside:
            index.clear()
        for name, tensor_type in zip(region.inputs, region.input_types, strict=True):
            if name not in index:
                add(name, tensor_type, *feed(name), False)
        for name, tensor_type in zip(region.outputs, region.output_types, strict=True):
            if frames is None or name not in index:
                add(name, tensor_type, TensorSource.SEGMENT, 0, name in keep)
        segments.append(
            SegmentSpec.on(
                target,
                request.add_region(region),
                tuple(index[name] for name in region.inputs),
                tuple(index[name] for name in region.outputs),
                options.conditions.flags_of(target),
            )
        )
    flags = ActionFlag.BESIDE if options.beside else ActionFlag(0)
    if options.copies and not (options.beside or options.untimed or frames):
        flags = ActionFlag.COPIES
    spec = ActionSpec(
        id=number,
        tensors=tuple(tensors),
        segments=tuple(segments),
        timing=timing,
        flags=flags | ActionFlag.UNTIMED if options.untimed else flags,
        mode=options.conditions.mode,
        threads=options.conditions.threads,
        cpu_mask=cpu_mask(options.conditions.cpus),
        memory_kb=options.memory_kb,
        group=options.group,
        frames=frames,
    )
    return PreparedAction(spec, index)
