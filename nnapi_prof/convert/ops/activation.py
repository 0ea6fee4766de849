"""Activations: one operation each where NNAPI has it, short chains where it has not."""

from __future__ import annotations

import math

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

aten = torch.ops.aten

UNARY = {
    aten.relu.default: OperationCode.RELU,
    aten.sigmoid.default: OperationCode.LOGISTIC,
    aten.tanh.default: OperationCode.TANH,
    aten.floor.default: OperationCode.FLOOR,
    aten.abs.default: OperationCode.ABS,
    aten.exp.default: OperationCode.EXP,
    aten.log.default: OperationCode.LOG,
    aten.neg.default: OperationCode.NEG,
    aten.rsqrt.default: OperationCode.RSQRT,
    aten.sin.default: OperationCode.SIN,
    aten.sqrt.default: OperationCode.SQRT,
}
"""Operators of one tensor that NNAPI has as they are."""

CLAMPS = {
    (0.0, math.inf): OperationCode.RELU,
    (0.0, 6.0): OperationCode.RELU6,
    (-1.0, 1.0): OperationCode.RELU1,
}
"""Bounds that are one operation at every level."""


@lowers(*UNARY)
def unary(op: Lowering) -> OperandId:
    """Lowers ``f(x) -> y`` of one shape and dim order."""
    return op.emit(UNARY[op.target], [op.tensor("self", op.out.dim_order)])


@lowers(aten.hardtanh.default)
def hardtanh(op: Lowering) -> OperandId:
    """Lowers ``min(max(x, min_val), max_val)``."""
    return _clamp(op, op.arg("min_val"), op.arg("max_val"))


@lowers(aten.clamp.default)
def clamp(op: Lowering) -> OperandId:
    """Lowers ``min(max(x, min), max)``; either bound may be None."""
    return _clamp(op, op.arg("min"), op.arg("max"))


def _clamp(op: Lowering, lower: float | None, upper: float | None) -> OperandId:
    """Bounds that no RELU has take MAXIMUM and MINIMUM, which came with level 3."""
    low = -math.inf if lower is None else float(lower)
    high = math.inf if upper is None else float(upper)
    result = op.tensor("self", op.out.dim_order)
    if (low, high) in CLAMPS:
        return op.emit(CLAMPS[low, high], [result])
    op.require_level(3, f"clamping to [{low:g}, {high:g}] (not [0, inf], [0, 6] or [-1, 1])")
    if low > -math.inf:
        result = op.emit(OperationCode.MAXIMUM, [result, np.array([low], np.float32)])
    if high < math.inf:
        result = op.emit(OperationCode.MINIMUM, [result, np.array([high], np.float32)])
    return result


@lowers(aten.hardsigmoid.default)
def hardsigmoid(op: Lowering) -> OperandId:
    """Lowers ``relu6(x + 3) / 6``."""
    return _times_sixth(op, _relu6_of_plus_3(op))


@lowers(aten.hardswish.default)
def hardswish(op: Lowering) -> OperandId:
    """Lowers ``x * relu6(x + 3) / 6``: one operation from level 4 on, three before."""
    x = op.tensor("self", op.out.dim_order)
    if op.level >= 4:
        return op.emit(OperationCode.HARD_SWISH, [x])
    gate = _times_sixth(op, _relu6_of_plus_3(op))
    return op.emit(OperationCode.MUL, [x, gate], [op.fuse()])


def _relu6_of_plus_3(op: Lowering) -> OperandId:
    x = op.tensor("self", op.out.dim_order)
    three = np.array([3], np.float32)
    return op.emit(OperationCode.ADD, [x, three], [int(FuseCode.RELU6)])


def _times_sixth(op: Lowering, x: OperandId) -> OperandId:
    sixth = np.array([1 / 6], np.float32)
    return op.emit(OperationCode.MUL, [x, sixth], [int(FuseCode.NONE)])


@lowers(aten.silu.default)
def silu(op: Lowering) -> OperandId:
    """Lowers ``x * sigmoid(x)``."""
    x = op.tensor("self", op.out.dim_order)
    gate = op.emit(OperationCode.LOGISTIC, [x])
    return op.emit(OperationCode.MUL, [x, gate], [op.fuse()])


@lowers(aten.elu.default)
def elu(op: Lowering) -> OperandId:
    """Lowers ``x if x > 0 else alpha * (exp(x) - 1)``."""
    for name in ("scale", "input_scale"):
        op.require(op.arg(name) == 1, f"{name}={op.arg(name)}, ELU has none (1)")
    x = op.tensor("self", op.out.dim_order)
    return op.emit(OperationCode.ELU, [x], [float(op.arg("alpha"))])


@lowers(aten.leaky_relu.default)
def leaky_relu(op: Lowering) -> OperandId:
    """Lowers ``x if x > 0 else slope * x`` as a PRELU with one slope."""
    x = op.tensor("self", op.out.dim_order)
    slope = np.array([op.arg("negative_slope")], np.float32)
    return op.emit(OperationCode.PRELU, [x, slope])
