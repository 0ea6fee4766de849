"""Arithmetic of two tensors, or of a tensor and a number."""

from __future__ import annotations

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

aten = torch.ops.aten

BINARY = {
    aten.maximum.default: OperationCode.MAXIMUM,
    aten.minimum.default: OperationCode.MINIMUM,
}
"""Operators of two tensors that NNAPI has as they are, without a fuse code."""


@lowers(*BINARY)
def binary(op: Lowering) -> OperandId:
    """Lowers ``f(x, y) -> z`` with PyTorch's broadcasting."""
    return op.emit(BINARY[op.target], [op.broadcast("self"), op.broadcast("other")])


@lowers(aten.add.Tensor)
def add(op: Lowering) -> OperandId:
    """Lowers ``self + other``."""
    _require_no_alpha(op)
    return op.emit(OperationCode.ADD, [op.broadcast("self"), op.broadcast("other")], [op.fuse()])


@lowers(aten.mul.Tensor)
def mul(op: Lowering) -> OperandId:
    """Lowers ``self * other``."""
    return op.emit(OperationCode.MUL, [op.broadcast("self"), op.broadcast("other")], [op.fuse()])


@lowers(aten.sub.Tensor)
def sub(op: Lowering) -> OperandId:
    """Lowers ``self - other``; below level 2, which has SUB, as ``self + -1 * other``."""
    _require_no_alpha(op)
    left, right = op.broadcast("self"), op.broadcast("other")
    if op.level >= 2:
        return op.emit(OperationCode.SUB, [left, right], [op.fuse()])
    minus = np.array([-1], np.float32)
    right = op.emit(OperationCode.MUL, [right, minus], [int(FuseCode.NONE)], dims=op.dims(right))
    return op.emit(OperationCode.ADD, [left, right], [op.fuse()])


@lowers(aten.div.Tensor)
def div(op: Lowering) -> OperandId:
    """Lowers ``self / other``; below level 2, which has DIV, as a product with the reciprocal of
    a constant ``other``."""
    left = op.broadcast("self")
    if op.level >= 2:
        return op.emit(OperationCode.DIV, [left, op.broadcast("other")], [op.fuse()])
    divisor = op.broadcast_array("other")
    if divisor is None:
        op.refuse(
            "dividing by a computed tensor needs DIV of level 2 (API 28), the device has "
            "level 1 (API 27)"
        )
    return op.emit(OperationCode.MUL, [left, np.reciprocal(divisor)], [op.fuse()])


@lowers(aten.reciprocal.default)
def reciprocal(op: Lowering) -> OperandId:
    """Lowers ``1 / self``."""
    one = np.array([1], np.float32)
    return op.emit(OperationCode.DIV, [one, op.broadcast("self")], [op.fuse()])


@lowers(aten.pow.Tensor_Scalar)
def pow_scalar(op: Lowering) -> OperandId:
    """Lowers ``self ** exponent``; a square is a product at every level."""
    x, exponent = op.broadcast("self"), float(op.arg("exponent"))
    if exponent == 2:
        return op.emit(OperationCode.MUL, [x, x], [op.fuse()])
    return op.emit(OperationCode.POW, [x, np.array([exponent], np.float32)])


def _require_no_alpha(op: Lowering) -> None:
    op.require(op.arg("alpha") == 1, f"alpha={op.arg('alpha')}, only 1 is lowered")
