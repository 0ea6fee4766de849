"""Operators that are several quant8 operations, where the roundings on the way stay within a step.

A lowering for floats may compose an operation of others. In 8 bits each of them rounds, so that
such a lowering is refused; here are those for which the scale of what lies between is known, and
with it how far all roundings together move a result: less than a step of its scale, or they are
refused as others are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch._ops import OpOverload

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.quantize.rules import FIXED, limits
from nnapi_prof.convert.registry import Lowering, Scalars, Tensors
from nnapi_prof.graph.types import Quantisation
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

aten = torch.ops.aten


class ComposingLowering(Lowering, ABC):
    """The interface of a lowering to quant8 operations that compositions use."""

    @abstractmethod
    def emit_between(
        self, code: OperationCode, tensors: Tensors, scalars: Scalars, quant: Quantisation
    ) -> OperandId:
        """Adds an operation whose result, of the first tensor's shape, has this scale and zero
        point for unsigned integers, and may be rounded again: the caller has asked
        :meth:`require_within_step`."""

    @abstractmethod
    def require_within_step(self, error: float) -> None:
        """Checks that roundings on the way move no result by a step or more."""


Composition = Callable[[ComposingLowering], OperandId]


def composition(target: object) -> Composition | None:
    """How an operator is composed of quant8 operations, if here is how. It is refused where what
    lies between moves results by a step or more."""
    compose = _COMPOSITIONS.get(target)  # type: ignore[call-overload]
    if compose is None:
        return None

    def run(op: ComposingLowering) -> OperandId:
        if op.target in _INEXACT:
            operand = op.model.operand(op.tensor("self"))
            least, most = (end - operand.zero_point for end in limits(operand.type))
            low, high = least * operand.scale, most * operand.scale
            op.require_within_step(error_on_the_way(op.target, op.level, low, high))
        result: OperandId = compose(op)
        return result

    return run


def error_on_the_way(target: object, level: int, low: float, high: float) -> float:
    """How far the roundings of a composition move its results at the most, where its input lies
    from ``low`` to ``high``; ``level`` is the feature level (1, 2, ...).

    A sigmoid in steps of 1/256 ends at 255/256, which moves the largest result by 1/256 of it; and
    where it is rounded to 0 or 1/256, it moves no result by more than there. What gelu computes
    before its sigmoid adds 0.008 around 1, and nothing far from it. The others: half a step of what
    lies between.
    """
    if target is aten.silu.default:
        return max(high, min(-low, math.log(511)) / 2) / 256
    if target is aten.gelu.default:
        return max(high / 256, 0.012)
    if target is aten.hardsigmoid.default:
        return 0.5 / 255
    if target is aten.hardswish.default and level < 4:
        return max(high, min(-low, 3.0)) * 0.5 / 255
    return 0.0


def _silu(op: ComposingLowering) -> OperandId:
    """``x * sigmoid(x)``."""
    x = op.tensor("self")
    gate = op.emit_between(OperationCode.LOGISTIC, [x], (), FIXED[OperationCode.LOGISTIC])
    return op.emit(OperationCode.MUL, [x, gate], [op.fuse()])


def _gelu(op: ComposingLowering) -> OperandId:
    """``x * sigmoid(x * (1.5958 + 0.07135 * x * x))``, PyTorch's own with tanh; the other is within
    0.0005 of it (Hendrycks and Gimpel, arXiv 1606.08415)."""
    x, scalars = op.tensor("self"), [int(FuseCode.NONE)]
    slope = 2 * math.sqrt(2 / math.pi)
    cube = np.array([slope * 0.044715], np.float32)
    step = op.model.operand(x).scale
    squares = _above_product(_SQUARE, step * step)
    square = op.emit_between(OperationCode.MUL, [x, x], scalars, squares)
    scaled = replace(squares, scale=squares.scale * float(cube[0]))
    square = op.emit_between(OperationCode.MUL, [square, cube], scalars, scaled)
    factor = op.emit_between(
        OperationCode.ADD, [square, np.array([slope], np.float32)], scalars, _FACTOR
    )
    logits = _above_product(_LOGIT, _FACTOR.scale * step)
    logit = op.emit_between(OperationCode.MUL, [factor, x], scalars, logits)
    gate = op.emit_between(OperationCode.LOGISTIC, [logit], (), FIXED[OperationCode.LOGISTIC])
    return op.emit(OperationCode.MUL, [x, gate], [op.fuse()])


def _above_product(quant: Quantisation, product: float) -> Quantisation:
    """``quant``, its steps so large that MUL takes factors of this product of scales."""
    return replace(quant, scale=max(quant.scale, product * 1.001))


def _hardsigmoid(op: ComposingLowering) -> OperandId:
    """``relu6(x + 3) / 6``: the sum in steps of 6/255, the quotient exact but for its own scale."""
    return op.emit(OperationCode.MUL, [_above(op), np.array([1 / 6], np.float32)], [op.fuse()])


def _hardswish(op: ComposingLowering) -> OperandId:
    """One operation from level 4 on; before, ``x * (relu6(x + 3) / 6)``."""
    x = op.tensor("self")
    if op.level >= 4:
        return op.emit(OperationCode.HARD_SWISH, [x])
    sixth = np.array([1 / 6], np.float32)
    scalars = [int(FuseCode.NONE)]
    gate = op.emit_between(OperationCode.MUL, [_above(op), sixth], scalars, _UNIT)
    return op.emit(OperationCode.MUL, [x, gate], [op.fuse()])


def _above(op: ComposingLowering) -> OperandId:
    """``relu6(x + 3)`` of a node's input."""
    three = np.array([3], np.float32)
    scalars = [int(FuseCode.RELU6)]
    return op.emit_between(OperationCode.ADD, [op.tensor("self"), three], scalars, _SIX)


def _neg(op: ComposingLowering) -> OperandId:
    """``x * -1``."""
    minus = np.array([-1], np.float32)
    return op.emit(OperationCode.MUL, [op.tensor("self"), minus], [op.fuse()])


def _div(op: ComposingLowering) -> OperandId:
    """``x * (1 / number)``: NNAPI divides no 8 bits."""
    x, divisor = op.tensor("self"), op.broadcast_array("other")
    op.require(divisor is not None, "DIV by a computed value has no quant8 form")
    assert divisor is not None
    op.require(bool((divisor != 0).all()), "DIV by 0 has no quant8 form")
    factor = (1 / divisor.astype(np.float64)).astype(np.float32)
    return op.emit(OperationCode.MUL, [x, factor], [op.fuse()])


_SIX, _UNIT = Quantisation(6 / 255, 0), Quantisation(1 / 255, 0)
"""From 0 to 6 and to 1, for unsigned integers."""

_SQUARE, _FACTOR = Quantisation(11 / 255, 0), Quantisation(2.4 / 255, 0)
_LOGIT = Quantisation(12.5 / 255, 128)
"""Of gelu: beyond a square of 11 the sigmoid is 0 or 1 to 8 bits, and so beyond 6.25 either way."""

_INEXACT = frozenset(
    {aten.gelu.default, aten.silu.default, aten.hardsigmoid.default, aten.hardswish.default}
)
_COMPOSITIONS: dict[OpOverload, Composition] = {
    aten.gelu.default: _gelu,
    aten.silu.default: _silu,
    aten.hardsigmoid.default: _hardsigmoid,
    aten.hardswish.default: _hardswish,
    aten.neg.default: _neg,
    aten.div.Tensor: _div,
}
