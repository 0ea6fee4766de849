"""Checks scales and zero points by the rules of NNAPI's quant8 operations, from tables, and writes
constants as integers by these rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.convert.model import ChannelScales, ModelBuilder, Operand, OperandId
from nnapi_prof.convert.region import quantised_operand
from nnapi_prof.graph.quantisation import Scheme
from nnapi_prof.graph.types import Quantisation
from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from nnapi_prof.nnapi.codes import OperationCode as Op
from nnapi_prof.nnapi.facts import level_name

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
"""The result has the scale and zero point of the data."""

FIXED = {
    Op.LOGISTIC: Quantisation(1 / 256, 0),
    Op.SOFTMAX: Quantisation(1 / 256, 0),
    Op.TANH: Quantisation(1 / 128, 128),
    Op.L2_NORMALIZATION: Quantisation(1 / 128, 128),
}
"""The result's scale and zero point for TENSOR_QUANT8_ASYMM; the signed zero point is 128 less."""

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
"""The result's scale and zero point are the model's choice; quantised.py has what limits it."""

WEIGHTED = {
    Op.CONV_2D: 0,
    Op.DEPTHWISE_CONV_2D: 3,
    Op.FULLY_CONNECTED: 0,
    Op.GROUPED_CONV_2D: 0,
    Op.TRANSPOSE_CONV_2D: 0,
}
"""Operations of (data, filter, bias, ...) -> the dimension of the filter's output channels."""

CHOOSES = frozenset({Op.CONCATENATION, Op.MAXIMUM, Op.MINIMUM})
"""Operations of FREE whose results are elements of what they read, unless its scales differ."""

ROUNDS = frozenset({Op.AVERAGE_POOL_2D, Op.MEAN, Op.RESIZE_BILINEAR, *FREE, *FIXED})
"""Operations that compute, and so round their results to the scale; the others move integers."""

ZERO_PADS = frozenset({Op.PAD, Op.SPACE_TO_BATCH_ND})
"""Below level 3 these pad by the integer 0, whatever the zero point."""


@dataclass(frozen=True)
class Constant:
    """Numbers that become integers once it is known what reads them."""

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
        """A constant as integers of the data's type: by its own scheme, or one number for all,
        which CONCATENATION, MAXIMUM and MINIMUM take in the data's own scale if they can."""
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
        if scheme is None:  # a lowering may have taken its array apart
            scheme = next((s for s in self._schemes if s.axis is None), None)
        if scheme is None or scheme.axis is not None:
            self.refuse("a float constant of several values, quantised ones are wanted here")
        return self._by_scheme(scheme, like.type, numbers)

    def _integers(self, code: OperandCode, quant: Quantisation, numbers: NDArray[Any]) -> OperandId:
        dtype = np.uint8 if code is OperandCode.TENSOR_QUANT8_ASYMM else np.int8
        operand = quantised_operand(code, numbers.shape, quant)
        return self._model.quantised_constant(operand, numbers.astype(dtype))

    def filter_and_bias(
        self, code: OperationCode, data: Operand, weight: Constant, bias: Constant
    ) -> tuple[OperandId, OperandId]:
        """Filter and bias as integers: the bias's scale is that of the input times the filter's."""
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
        """A filter with a scale for each output channel, which came with level 3."""
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
    """The integers less their zero point, exact to float32's rounding."""
    integers: NDArray[Any] = numbers.astype(np.float64) / scale
    return integers
