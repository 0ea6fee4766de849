"""One small model that is the same for all: to see whether a device is as fast as it was, and to
keep it busy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from nnapi_prof.convert.model import ModelBuilder, Operand
from nnapi_prof.convert.region import Region
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.device.protocol.actions import Groups, TensorSource, Timing
from nnapi_prof.device.protocol.request import Request, RequestBuilder
from nnapi_prof.execution.actions import build_action
from nnapi_prof.execution.options import SPIN_NS, WARM_NS, ActionOptions
from nnapi_prof.graph.plan import Target
from nnapi_prof.graph.types import DimOrder, TensorType
from nnapi_prof.nnapi.codes import FuseCode, OperandCode, OperationCode

RUNS, ROUNDS = 25, 5
SIDE, CHANNELS = 28, 32
LEVEL = 27
"""What every NNAPI knows."""
BUSY_TURNS_S = 1.0
"""Processors that are kept busy take turns of about this long."""


def reference() -> Region:
    """A 3x3 convolution of 32 channels on 28x28, 7.2 million multiply-accumulates."""
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


def one_a_processor(targets: Iterable[Target]) -> list[Target]:
    """Picks one target for the CPU and one for each accelerator."""
    chosen: dict[str | None, Target] = {}
    for target in targets:
        chosen.setdefault(target.accelerator, target)
    return list(chosen.values())


def anchor_request(targets: Sequence[Target], conditions: Conditions) -> Request:
    """Runs the reference on each target, in turns."""
    timing = Timing(
        warmup_min=2, warmup_max=50, warmup_ns=100_000_000, warm_ns=WARM_NS, spin_ns=SPIN_NS,
        rounds=ROUNDS, min_runs=RUNS, max_runs=RUNS, budget_ns=0,
    )  # fmt: skip
    return _request(targets, conditions, timing)


def busy_request(targets: Sequence[Target], conditions: Conditions, seconds: float) -> Request:
    """Keeps the processors of all targets busy with the reference, in turns, for so long."""
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
