"""Build actions for the agent from models and targets.

A small reference model, the same for all devices, shows whether a device is as fast as before, and
keeps it busy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from nnapi_prof.bundle import Bundle
from nnapi_prof.convert import ModelBuilder, Operand
from nnapi_prof.convert.region import Region, operand_of
from nnapi_prof.costs import Conditions
from nnapi_prof.device.protocol.actions import (
    ActionFlag,
    ActionSpec,
    FramesSpec,
    Groups,
    SegmentSpec,
    TensorSource,
    TensorSpec,
    Timing,
    cpu_mask,
)
from nnapi_prof.device.protocol.request import Request, RequestBuilder
from nnapi_prof.execution import SPIN_NS, WARM_NS, ActionOptions
from nnapi_prof.graph import DimOrder, Quantisation, TensorType
from nnapi_prof.graph.plan import Engine, Plan, Segment, Target
from nnapi_prof.nnapi.codes import FuseCode, OperandCode, OperationCode

Feed = Callable[[str], tuple[TensorSource, int]]
"""Name of a value that enters an action -> the source of its bytes, and the blob's index or the
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
    """Returns the values that these segments read, and the outputs of the graph."""
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
    """Returns the action that runs models on their targets, one after the other or side by side.

    ``feed`` is called for every value that no model computes; the values in ``keep`` return to the
    host after the last run. ``number`` is the action's id in ``request``. With ``frames`` the
    models are those of several plans, and values in ``keep`` are compared on the device instead.
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
        if options.corun:
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
    flags = ActionFlag.CORUN if options.corun else ActionFlag(0)
    if options.copies and not (options.corun or options.untimed or frames):
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


RUNS, ROUNDS = 25, 5
SIDE, CHANNELS = 28, 32
LEVEL = 27
"""Feature level of the first NNAPI, which all later ones support."""
BUSY_TURNS_S = 1.0
"""Approximate length of a processor's turn when a device is kept busy."""


def reference() -> Region:
    """Returns a 3x3 convolution of 32 channels on 28x28, 7.2 million multiply-accumulates."""
    builder = ModelBuilder(LEVEL)
    shape = (1, SIDE, SIDE, CHANNELS)
    data = builder.input(Operand(OperandCode.TENSOR_FLOAT32, shape))
    random = np.random.default_rng(1)
    weights = random.standard_normal((CHANNELS, 3, 3, CHANNELS), dtype=np.float32) / 17
    arguments = [data, builder.constant(weights), builder.constant(np.zeros(CHANNELS, np.float32))]
    same_padding, stride, fuse = 1, 1, FuseCode.RELU.value
    arguments += [builder.scalar(each) for each in (same_padding, stride, stride, fuse)]
    result = builder.add(OperationCode.CONV_2D, arguments, shape)
    type_ = TensorType((1, CHANNELS, SIDE, SIDE), dim_order=DimOrder.CHANNELS_LAST)
    blobs = tuple(builder.blobs)
    return Region(builder.finish([result]), blobs, ("in",), ("out",), (type_,), (type_,), LEVEL)


_ADDED = (
    ("float32", None, 27),
    ("uint8", Quantisation(0.05, 128), 27),
    ("float16", None, 29),
    ("int8", Quantisation(0.05, 0), 30),
)
"""Data types that drivers compute in, and the feature level that introduced each."""


def small_models(level: int) -> list[Region]:
    """Returns small models, at least one of which runs on any working driver of this level: the
    reference, and an addition in each data type."""
    additions = []
    for dtype, quant, first_level in _ADDED:
        if first_level > level:
            continue
        type_ = TensorType((1, CHANNELS), dtype, quant=quant)
        operand = operand_of(type_)
        assert operand is not None
        builder = ModelBuilder(first_level)
        arguments = [builder.input(operand), builder.input(operand), builder.scalar(0)]
        result = builder.add(OperationCode.ADD, arguments, operand.dims)
        model, blobs = builder.finish([result]), tuple(builder.blobs)
        names, types = ("left", "right"), (type_, type_)
        additions.append(Region(model, blobs, names, ("sum",), types, (type_,), first_level))
    return [*additions, reference()]


def one_a_processor(targets: Iterable[Target]) -> list[Target]:
    """Picks one target for the CPU and one for each accelerator."""
    chosen: dict[str | None, Target] = {}
    for target in targets:
        chosen.setdefault(target.accelerator, target)
    return list(chosen.values())


def anchor_request(targets: Sequence[Target], conditions: Conditions) -> Request:
    """Returns a request that runs the reference on each target, in turns."""
    timing = Timing(
        warmup_min=2, warmup_max=50, warmup_ns=100_000_000, warm_ns=WARM_NS, spin_ns=SPIN_NS,
        rounds=ROUNDS, min_runs=RUNS, max_runs=RUNS, budget_ns=0,
    )  # fmt: skip
    return _request(targets, conditions, timing)


def trial_request(target: Target, level: int, conditions: Conditions) -> Request:
    """Returns a request that runs each of the small models on a target once."""
    timing = Timing(warmup_min=0, warmup_max=0, rounds=1, min_runs=1, max_runs=1, budget_ns=0)
    request, own = RequestBuilder(), ActionOptions(conditions.on(target), 0, 0)
    for number, region in enumerate(small_models(level)):
        action = build_action(
            number, [(target, region)], lambda _: (TensorSource.RANDOM, 1), request, timing, own
        )
        request.add_action(action.spec)
    return request.request()


def busy_request(targets: Sequence[Target], conditions: Conditions, seconds: float) -> Request:
    """Returns a request that keeps all targets' processors busy with the reference, in turns."""
    rounds = max(1, min(1000, round(seconds / BUSY_TURNS_S)))
    timing = Timing(
        warmup_min=0, warmup_max=0, rounds=rounds, min_runs=1, max_runs=100_000,
        budget_ns=round(seconds / len(targets) * 1e9), timeout_ms=60_000 + round(seconds * 1000),
    )  # fmt: skip
    return _request(targets, conditions, timing)


def _request(targets: Sequence[Target], conditions: Conditions, timing: Timing) -> Request:
    request, groups, region = RequestBuilder(), Groups(), reference()
    for number, target in enumerate(targets):
        own = ActionOptions(conditions.on(target), 0, groups.number("reference", 0))
        action = build_action(
            number, [(target, region)], lambda _: (TensorSource.RANDOM, 1), request, timing, own
        )
        request.add_action(action.spec)
    return request.request()
