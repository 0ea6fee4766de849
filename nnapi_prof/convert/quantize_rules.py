"""Check quant8 operations by the rules of NNAPI, and compose operators of several of them.

Scales and zero points are checked against tables, and constants are written as integers by these
rules. A float lowering may compose an operator of several operations. In 8 bits each of them
rounds, so such lowerings are refused, except the compositions in this module. Here the intermediate
scales are known, and with them how far all roundings together move a result. A composition is
refused if that is a step of the result's scale or more.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch._ops import OpOverload

from nnapi_prof.convert import ChannelScales, ModelBuilder, Operand, OperandId
from nnapi_prof.convert.region import quantised_operand
from nnapi_prof.convert.registry import Lowering, Scalars, Tensors
from nnapi_prof.graph import Quantisation
from nnapi_prof.graph.quantisation import Scheme
from nnapi_prof.nnapi import level_name
from nnapi_prof.nnapi.codes import FuseCode, OperandCode, OperationCode
from nnapi_prof.nnapi.codes import OperationCode as Op

SAME_AS_INPUT = frozenset(
    {
        Op.AVERAGE_POOL_2D,
        Op.BATCH_TO_SPACE_ND,
        Op.CHANNEL_SHUFFLE,
        Op.DEPTH_TO_SPACE,
        Op.EXPAND_DIMS,
        Op.GATHER,
        Op.MAX_POOL_2D,
        Op.MEAN,
        Op.MIRROR_PAD,
        Op.PAD,
        Op.PAD_V2,
        Op.REDUCE_MAX,
        Op.REDUCE_MIN,
        Op.RELU,
        Op.RELU1,
        Op.RELU6,
        Op.RESHAPE,
        Op.RESIZE_BILINEAR,
        Op.RESIZE_NEAREST_NEIGHBOR,
        Op.REVERSE,
        Op.SLICE,
        Op.SPACE_TO_BATCH_ND,
        Op.SPACE_TO_DEPTH,
        Op.SPLIT,
        Op.SQUEEZE,
        Op.STRIDED_SLICE,
        Op.TILE,
        Op.TRANSPOSE,
    }
)
"""Operations whose result has the scale and zero point of the data."""

FIXED = {
    Op.LOGISTIC: Quantisation(1 / 256, 0),
    Op.SOFTMAX: Quantisation(1 / 256, 0),
    Op.TANH: Quantisation(1 / 128, 128),
    Op.L2_NORMALIZATION: Quantisation(1 / 128, 128),
}
"""Scale and zero point of the result for TENSOR_QUANT8_ASYMM; 128 less for signed zero points."""

FREE = frozenset(
    {
        Op.ADD,
        Op.CONCATENATION,
        Op.CONV_2D,
        Op.DEPTHWISE_CONV_2D,
        Op.FULLY_CONNECTED,
        Op.GROUPED_CONV_2D,
        Op.HARD_SWISH,
        Op.MAXIMUM,
        Op.MINIMUM,
        Op.MUL,
        Op.PRELU,
        Op.SUB,
        Op.TRANSPOSE_CONV_2D,
    }
)
"""Operations whose result may have any scale and zero point, within quantize_lower.py's limits."""

WEIGHTED = {
    Op.CONV_2D: 0,
    Op.DEPTHWISE_CONV_2D: 3,
    Op.FULLY_CONNECTED: 0,
    Op.GROUPED_CONV_2D: 0,
    Op.TRANSPOSE_CONV_2D: 0,
}
"""Operation of (data, filter, bias, ...) -> the dimension of the filter's output channels."""

CHOOSES = frozenset({Op.CONCATENATION, Op.MAXIMUM, Op.MINIMUM})
"""Operations of FREE whose results are elements of their inputs, if all scales are equal."""

ROUNDS = frozenset({Op.AVERAGE_POOL_2D, Op.MEAN, Op.RESIZE_BILINEAR, *FREE, *FIXED})
"""Operations that compute and round their results to the scale; the others move integers."""

ZERO_PADS = frozenset({Op.PAD, Op.SPACE_TO_BATCH_ND})
"""Operations that pad by the integer 0 below level 3, whatever the zero point."""


@dataclass(frozen=True)
class Constant:
    """Float constant that becomes integers once its reader is known."""

    array: NDArray[Any]
    scheme: Scheme | None


class Integers:
    """Writes constants into a model as integers. ``schemes`` are those of the operation's quantised
    weights; ``refuse`` ends the attempt with the rule that a constant breaks."""

    def __init__(
        self, model: ModelBuilder, schemes: Sequence[Scheme], refuse: Callable[[str], NoReturn]
    ) -> None:
        self._model = model
        self._schemes = schemes
        self.refuse = refuse

    def _require(self, condition: bool, reason: str) -> None:
        if not condition:
            self.refuse(reason)

    def data(self, code: OperationCode, like: Operand, constant: Constant) -> OperandId:
        """Adds a constant as integers of the data's type, by its own scheme. One number throughout
        gets a scale to suit; CONCATENATION, MAXIMUM and MINIMUM use the data's scale if it is
        exact."""
        low, high = limits(like.type)
        numbers = constant.array
        scheme = constant.scheme
        if scheme is None and np.isfinite(numbers).all() and np.ptp(numbers) == 0:
            number = float(numbers.flat[0])
            whole = number / like.scale + like.zero_point
            exact = low <= whole <= high and abs(whole - round(whole)) < 1e-3
            if code in CHOOSES and exact:
                own = Quantisation(like.scale, like.zero_point)
                return self._integers(like.type, own, np.full(numbers.shape, round(whole)))
            quant = Quantisation(abs(number) / 255 or 1.0, high if number < 0 else low)
            extremes = np.full(numbers.shape, low if number <= 0 else high)
            return self._integers(like.type, quant, extremes)
        if scheme is None:  # a lowering may have split its array
            scheme = next((s for s in self._schemes if s.axis is None), None)
        if scheme is None or scheme.axis is not None:
            self.refuse("a float constant of several values, quantised ones are required here")
        return self._by_scheme(scheme, like.type, numbers)

    def _integers(self, code: OperandCode, quant: Quantisation, numbers: NDArray[Any]) -> OperandId:
        dtype = np.uint8 if code is OperandCode.TENSOR_QUANT8_ASYMM else np.int8
        operand = quantised_operand(code, numbers.shape, quant)
        return self._model.quantised_constant(operand, numbers.astype(dtype))

    def filter_and_bias(
        self, code: OperationCode, data: Operand, weight: Constant, bias: Constant
    ) -> tuple[OperandId, OperandId]:
        """Adds filter and bias as integers; the bias's scale is the input's times the filter's."""
        scheme = self._schemes[0]
        numbers = weight.array
        if scheme.axis is None:
            filter_id = self._by_scheme(scheme, data.type, numbers)
            scales: NDArray[Any] = np.array([self._model.operand(filter_id).scale], np.float32)
        else:
            filter_id = self._channel_filter(code, scheme, numbers)
            scales = np.array(scheme.scales, np.float32)
        bias_scales = np.float32(data.scale) * scales
        integers = np.rint(bias.array.astype(np.float64) / bias_scales)
        self._require(
            bool((np.abs(integers) < 2**31).all()),
            f"the bias goes to {np.abs(integers).max():.3g} in steps of input x filter scale, "
            "INT32 is what NNAPI takes",
        )
        scale = float(bias_scales[0]) if scheme.axis is None else 0.0
        operand = Operand(OperandCode.TENSOR_INT32, integers.shape, scale)
        return filter_id, self._model.quantised_constant(operand, integers.astype(np.int32))

    def _by_scheme(self, scheme: Scheme, code: OperandCode, numbers: NDArray[Any]) -> OperandId:
        quant = Quantisation(scheme.scales[0], scheme.zero_points[0] + shift(scheme.dtype, code))
        integers = _recovered(numbers, scheme.scales[0]) + quant.zero_point
        self._require_held(integers, code)
        return self._integers(code, quant, integers)

    def _channel_filter(
        self, code: OperationCode, scheme: Scheme, numbers: NDArray[Any]
    ) -> OperandId:
        """Adds a filter with a scale for each output channel, which takes level 3."""
        level = self._model.level_number
        self._require(
            not self._model.for_stock,
            "a filter with a scale for each channel, which the format of stock PyTorch's runtime "
            "cannot say",
        )
        self._require(
            level >= 3,
            f"a filter with a scale for each channel needs {level_name(3)}, the device has "
            f"{level_name(level)}",
        )
        self._require(
            not any(scheme.zero_points),
            f"a filter with zero points {sorted(set(scheme.zero_points))} for its channels, "
            "NNAPI's are 0",
        )
        dim = WEIGHTED[code]
        self._require(
            numbers.shape[dim] == len(scheme.scales),
            f"{len(scheme.scales)} scales along axis {scheme.axis} of the weights, NNAPI wants "
            f"one for each of {numbers.shape[dim]} output channels",
        )
        shape = [1] * numbers.ndim
        shape[dim] = -1
        integers = _recovered(numbers, np.array(scheme.scales).reshape(shape))
        self._require_held(integers, OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL)
        channels = ChannelScales(dim, tuple(float(np.float32(s)) for s in scheme.scales))
        kind = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL
        operand = Operand(kind, numbers.shape, channels=channels)
        return self._model.quantised_constant(operand, integers.astype(np.int8))

    def _require_held(self, integers: NDArray[Any], code: OperandCode) -> None:
        low, high = limits(code)
        exact = np.rint(integers)
        self._require(
            bool((np.abs(integers - exact) < 1e-2).all() and low <= exact.min())
            and bool(exact.max() <= high),
            "its constants are no multiples of their scale within 8 bits",
        )
        integers[...] = exact


def limits(code: OperandCode) -> tuple[int, int]:
    return (0, 255) if code is OperandCode.TENSOR_QUANT8_ASYMM else (-128, 127)


def shift(dtype: str, code: OperandCode) -> int:
    """Returns the offset that turns integers of ``dtype`` into operands of ``code``."""
    signed = code is not OperandCode.TENSOR_QUANT8_ASYMM
    return {(False, "int8"): 128, (True, "uint8"): -128}.get((signed, dtype), 0)


def _recovered(numbers: NDArray[Any], scale: Any) -> NDArray[Any]:
    """Returns the integers less their zero point; only float32's rounding is left in them."""
    integers: NDArray[Any] = numbers.astype(np.float64) / scale
    return integers


aten = torch.ops.aten


class ComposingLowering(Lowering, ABC):
    """Interface of a lowering to quant8 operations that compositions use."""

    @abstractmethod
    def emit_between(
        self, code: OperationCode, tensors: Tensors, scalars: Scalars, quant: Quantisation
    ) -> OperandId:
        """Adds an operation whose result, of the first tensor's shape, has this scale and zero
        point (for unsigned integers). Later operations may round the result again, because the
        caller has called :meth:`require_within_step`."""

    @abstractmethod
    def require_within_step(self, error: float) -> None:
        """Refuses roundings that together move a result by ``error``, if that is a step or more."""


Composition = Callable[[ComposingLowering], OperandId]


def composition(target: object) -> Composition | None:
    """Returns the composition of an operator of quant8 operations; None where there is none. It
    refuses the operator where its roundings move results by a step or more."""
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
    """Returns how far a composition's roundings move its results at most, for inputs from ``low``
    to ``high``; ``level`` is the feature level (1, 2, ...).

    A sigmoid in steps of 1/256 ends at 255/256, which moves the largest result by 1/256 of it.
    Where the sigmoid is rounded to 0 or 1/256, it moves no result by more than that. gelu's
    operations before the sigmoid add 0.008 around 1, and nothing far from it. For the others it is
    half a step of the intermediate result.
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
    """``x * sigmoid(x * (1.5958 + 0.07135 * x * x))``, PyTorch's tanh form; the exact one is within
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
    """Returns ``quant`` with steps large enough for MUL of factors with this product of scales."""
    return replace(quant, scale=max(quant.scale, product * 1.001))


def _hardsigmoid(op: ComposingLowering) -> OperandId:
    """``relu6(x + 3) / 6``: the sum in steps of 6/255, the quotient in those of its scale."""
    return op.emit(OperationCode.MUL, [_above(op), np.array([1 / 6], np.float32)], [op.fuse()])


def _hardswish(op: ComposingLowering) -> OperandId:
    """Returns HARD_SWISH from level 4 on; below, ``x * (relu6(x + 3) / 6)``."""
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
    """``x * (1 / number)``: NNAPI has no 8-bit division."""
    x, divisor = op.tensor("self"), op.broadcast_array("other")
    op.require(divisor is not None, "DIV by a computed value has no quant8 form")
    assert divisor is not None
    op.require(bool((divisor != 0).all()), "DIV by 0 has no quant8 form")
    factor = (1 / divisor.astype(np.float64)).astype(np.float32)
    return op.emit(OperationCode.MUL, [x, factor], [op.fuse()])


_SIX, _UNIT = Quantisation(6 / 255, 0), Quantisation(1 / 255, 0)
"""Ranges from 0 to 6 and from 0 to 1, for unsigned integers."""

_SQUARE, _FACTOR = Quantisation(11 / 255, 0), Quantisation(2.4 / 255, 0)
_LOGIT = Quantisation(12.5 / 255, 128)
"""Ranges in gelu. For squares above 11, and logits beyond 6.25, the sigmoid is 0 or 1 to 8 bits."""

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
