"""Lower activations and normalisations: to one operation where NNAPI has it, else to formulas."""

from __future__ import annotations

import math

import numpy as np
import torch

from nnapi_prof.convert import OperandId
from nnapi_prof.convert.ops.element_types import argument, formula, fuse
from nnapi_prof.convert.ops.formula import (
    FLOATS,
    PLAIN,
    RELU,
    RELU1,
    FormulaValue,
    absolute,
    constant,
    exponential,
    floats,
    negative_part,
    number,
    relu,
    sigmoid,
    tensor,
)
from nnapi_prof.convert.ops.functions import normal_logit
from nnapi_prof.convert.ops.slicing import slice_axis, strided_slice
from nnapi_prof.convert.registry import FloatArray, Lowering, lowers, memory_axis
from nnapi_prof.graph import DimOrder
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

aten = torch.ops.aten

UNARY = {
    aten.sigmoid.default: OperationCode.LOGISTIC,
    aten.tanh.default: OperationCode.TANH,
    aten.floor.default: OperationCode.FLOOR,
    aten.rsqrt.default: OperationCode.RSQRT,
    aten.sqrt.default: OperationCode.SQRT,
}
"""Operators of one float tensor that NNAPI has."""

CLAMPS = {
    (0.0, math.inf): OperationCode.RELU,
    (0.0, 6.0): OperationCode.RELU6,
    (-1.0, 1.0): OperationCode.RELU1,
}
"""Bounds of a clamp that is one operation at every level."""


@lowers(*UNARY)
def unary(op: Lowering) -> OperandId:
    """Lowers ``f(x) -> y`` of one shape and dim order; integers become floats, as in PyTorch."""
    return argument(op, "self").unary(UNARY[op.target]).operand


formula(aten.relu.default)(relu)
formula(aten.abs.default)(absolute)
formula(aten.neg.default)(FormulaValue.__neg__)


@lowers(aten.hardtanh.default)
def hardtanh(op: Lowering) -> OperandId:
    """Lowers ``min(max(x, min_val), max_val)``."""
    return _clamp(op, op.arg("min_val"), op.arg("max_val"))


@lowers(aten.clamp.default)
def clamp(op: Lowering) -> OperandId:
    """Lowers ``min(max(x, min), max)``; either bound may be None."""
    return _clamp(op, op.arg("min"), op.arg("max"))


@lowers(aten.clamp.Tensor)
def clamp_tensor(op: Lowering) -> OperandId:
    """Lowers ``min(max(x, min), max)`` with tensors as bounds; either may be None."""
    result = argument(op, "self")
    if op.arg("min") is not None:
        result = result.binary(OperationCode.MAXIMUM, argument(op, "min"))
    if op.arg("max") is not None:
        result = result.binary(OperationCode.MINIMUM, argument(op, "max"))
    return result.operand


def _clamp(op: Lowering, lower: float | None, upper: float | None) -> OperandId:
    """Clamps by one RELU of some kind where it has these bounds, else by MAXIMUM and MINIMUM, which
    came with level 3. For lower levels, see :func:`_shifted`."""
    low = -math.inf if lower is None else lower
    high = math.inf if upper is None else upper
    x = argument(op, "self")
    if x.dtype in FLOATS and (low, high) in CLAMPS:
        return x.unary(CLAMPS[low, high]).operand
    if op.level < 3 and x.dtype in FLOATS:
        return _shifted(x, low, high).operand
    if low > -math.inf:
        x = x.binary(OperationCode.MAXIMUM, low)
    if high < math.inf:
        x = x.binary(OperationCode.MINIMUM, high)
    return x.operand


def _shifted(x: FormulaValue, low: float, high: float) -> FormulaValue:
    """Clamps by RELUs of level 1: moves (and scales) x to the bounds of a RELU, and back.

    Intermediate roundings are at most 2 ** -22 of the larger bound, or of x where that is larger.
    """
    if low == -math.inf:
        return (x * -1).plus(high, RELU) * -1 + high
    if high == math.inf:
        return x.plus(-low, RELU) + low
    x.op.require(low < high, f"clamps to [{low:g}, {high:g}], which is one number or none")
    middle, half = (low + high) / 2, (high - low) / 2
    if middle == 0:
        return x.times(1 / half, RELU1) * half
    return (x * (1 / half)).plus(-middle / half, RELU1) * half + middle


@formula(aten.threshold.default)
def threshold(x: FormulaValue) -> FormulaValue:
    """Lowers ``x if x > threshold else value``."""
    above = x > float(x.op.arg("threshold"))
    return above.select(x, float(x.op.arg("value")), x.dtype)


@formula(aten.hardshrink.default)
def hardshrink(x: FormulaValue) -> FormulaValue:
    """Lowers ``x if |x| > lambd else 0``."""
    return (absolute(x) > float(x.op.arg("lambd"))).select(x, 0, x.dtype)


@lowers(aten.softshrink.default)
def softshrink(op: Lowering) -> OperandId:
    """Lowers ``relu(x - lambd) - relu(-x - lambd)``: ``x`` nearer to 0 by lambd, or 0."""
    x, size = argument(op, "self"), float(op.arg("lambd"))
    return (x.plus(-size, RELU) - (x * -1).plus(-size, RELU)).operand


@formula(aten.hardsigmoid.default)
def hardsigmoid(x: FormulaValue) -> FormulaValue:
    """Lowers ``relu6(x + 3) / 6``."""
    return x.plus(3, FuseCode.RELU6) * (1 / 6)


@formula(aten.hardswish.default)
def hardswish(x: FormulaValue) -> FormulaValue:
    """Lowers ``x * relu6(x + 3) / 6``: one operation from level 4 on, three below."""
    if x.op.level >= 4:
        return x.unary(OperationCode.HARD_SWISH)
    return x.times(hardsigmoid(x), x.op.fuse())


@formula(aten.silu.default)
def silu(x: FormulaValue) -> FormulaValue:
    """Lowers ``x * sigmoid(x)``."""
    return x.times(sigmoid(x), x.op.fuse())


@formula(aten.gelu.default)
def gelu(x: FormulaValue) -> FormulaValue:
    """Lowers ``x * P(x)`` as ``x * sigmoid(logit)``; P is the normal distribution function.

    For approximate="tanh" the logit is PyTorch's cubic, doubled. For "none" it is a polynomial
    (:func:`~nnapi_prof.convert.ops.functions.normal_logit`). Its error is at most 3e-7 * max(1,
    |x|) in float32, for all x.
    """
    if x.op.arg("approximate") == "tanh":
        slope = 2 * math.sqrt(2 / math.pi)
        logit = ((x * x) * (slope * 0.044715) + slope) * x
    else:
        logit = normal_logit(x)
    return x.times(sigmoid(logit), x.op.fuse())


@formula(aten.mish.default)
def mish(x: FormulaValue) -> FormulaValue:
    """Lowers ``x * tanh(log(1 + e ** x))``.

    With ``s = sigmoid(x)`` and ``q = 1 - s`` the second factor is ``s * (1 + q) / (1 + q * q)``, in
    which nothing overflows or cancels.
    """
    s = sigmoid(x)
    q = 1 - s
    return x.times((s * (q + 1)) / (q * q + 1), x.op.fuse())


@lowers(aten.elu.default)
def elu(op: Lowering) -> OperandId:
    """Lowers ``scale * x if x > 0 else scale * alpha * (e ** (input_scale * x) - 1)``."""
    alpha, scale = float(op.arg("alpha")), float(op.arg("scale"))
    return _elu(op, alpha, scale, float(op.arg("input_scale")))


@lowers(aten.selu.default)
def selu(op: Lowering) -> OperandId:
    """Lowers ELU with the two constants of self-normalising networks."""
    return _elu(op, 1.6732632423543772, 1.0507009873554805, 1.0)


@lowers(aten.celu.default)
def celu(op: Lowering) -> OperandId:
    """Lowers ``x if x > 0 else alpha * (e ** (x / alpha) - 1)``."""
    alpha = float(op.arg("alpha"))
    return _elu(op, alpha, 1.0, 1 / alpha)


def _elu(op: Lowering, alpha: float, scale: float, input_scale: float) -> OperandId:
    """Returns ELU where level 4 has it. Otherwise returns ``scale * max(x, 0)`` plus the negative
    part, one of which is 0. EXP takes level 3, its composition level 2. Near 0 the error is 1.2e-7
    * alpha * scale, that of ``e ** x - 1``."""
    x = argument(op, "self")
    if op.level >= 4 and input_scale == 1 and x.dtype == "float32":
        result = x.unary(OperationCode.ELU, alpha)
        return (result if scale == 1 else result.times(scale, op.fuse())).operand
    negative = negative_part(x)
    if input_scale != 1:
        negative = negative * input_scale
    positive = relu(x) if scale == 1 else relu(x) * scale
    return positive.plus((exponential(negative) - 1) * (alpha * scale), op.fuse()).operand


@lowers(aten.leaky_relu.default)
def leaky_relu(op: Lowering) -> OperandId:
    """Lowers ``x if x > 0 else slope * x`` as a PRELU with one slope."""
    x = argument(op, "self")
    return _prelu(x, number(op, op.arg("negative_slope"), x.dtype))


@lowers(aten.prelu.default)
def prelu(op: Lowering) -> OperandId:
    """Lowers ``x[N, C, ...] if x > 0 else w[C] * x``; a single slope is for all channels."""
    x = argument(op, "self")
    slopes = op.any_array("weight").reshape(-1)
    if slopes.size > 1 and op.out.dim_order is DimOrder.CONTIGUOUS:
        slopes = slopes.reshape((-1,) + (1,) * (len(op.out.shape) - 2))
    return _prelu(x, constant(op, slopes))


def _prelu(x: FormulaValue, slopes: FormulaValue) -> OperandId:
    """Returns PRELU from level 3 on; below, ``relu(x) - slope * relu(-x)``, one of which is 0."""
    if x.op.level >= 3:
        return x.binary(OperationCode.PRELU, slopes).operand
    assert slopes.array is not None
    return (relu(x) + relu(x * -1) * constant(x.op, np.negative(slopes.array))).operand


@lowers(aten.glu.default)
def glu(op: Lowering) -> OperandId:
    """Lowers ``a * sigmoid(b)``, where a and b are the halves of x along ``dim``."""
    order = op.out.dim_order
    x = op.tensor("self", order)
    dims = op.dims(x)
    axis = memory_axis(order, op.arg("dim") % len(dims))
    middle, end = dims[axis] // 2, dims[axis]
    a, b = (
        FormulaValue(op, slice_axis(op, x, axis, first, last))
        for first, last in ((0, middle), (middle, end))
    )
    return a.times(sigmoid(b), fuse(op)).operand


@lowers(aten.layer_norm.default)
def layer_norm(op: Lowering) -> OperandId:
    """Lowers ``(x - mean) / sqrt(var + eps) * w + b`` over the last axes, as rows of a matrix."""
    length = math.prod(op.arg("normalized_shape"))
    x = standardised(_input(op, PLAIN), length, float(op.arg("eps")))
    return _affine(x, op.optional_array("weight"), op.optional_array("bias"))


@lowers(aten.rms_norm.default)
def rms_norm(op: Lowering) -> OperandId:
    """Lowers ``x / sqrt(mean(x^2) + eps) * w`` over the last axes, as rows of a matrix."""
    length = math.prod(op.arg("normalized_shape"))
    x = _input(op, PLAIN).reshaped((op.out.n_elements // length, length))
    dtype = op.arg("eps")
    eps = float(np.finfo(np.float32).eps) if dtype is None else float(dtype)
    return _affine(_scaled_to_one(x, eps), op.optional_array("weight"), None)


@lowers(aten.group_norm.default)
def group_norm(op: Lowering) -> OperandId:
    """Lowers ``group_norm(x[N, C, ...], groups)``: standardises each group of channels of each
    image as a row. Weights and biases are one number a channel."""
    n, channels, *_ = op.type("input").shape
    groups, eps = int(op.arg("num_groups")), float(op.arg("eps"))
    if op.out.dim_order is DimOrder.CHANNELS_LAST and op.level >= 3:
        weight, bias = op.optional_array("weight"), op.optional_array("bias")
        return _times_plus(_standardised_groups(op, groups, eps), weight, bias).operand
    x = standardised(_input(op, PLAIN), op.out.n_elements // (n * groups), eps)
    return _affine_channels(x, channels)


def _standardised_groups(op: Lowering, groups: int, eps: float) -> FormulaValue:
    """Returns ``(x - mean) / sqrt(var + eps)`` of each group of channels of a channels_last image,
    as [N, H * W, groups, C / groups]: no element moves."""
    x = _input(op, op.out.dim_order)
    n, h, w, channels = x.dims
    x = x.reshaped((n, h * w, groups, channels // groups))
    x = x - x.mean([1, 3])
    spread = (x * x).mean([1, 3]) + eps
    return (x * spread.unary(OperationCode.RSQRT)).reshaped(op.out.memory_shape)


@lowers(aten.instance_norm.default)
def instance_norm(op: Lowering) -> OperandId:
    """Lowers ``instance_norm(x[N, C, ...])`` with statistics of its own input; a channels_last
    image becomes one INSTANCE_NORMALIZATION."""
    op.require(
        bool(op.arg("use_input_stats")),
        "use_input_stats=False, statistics of the input are required (else it is a batch norm)",
    )
    n, channels, *_ = op.type("input").shape
    eps = float(op.arg("eps"))
    if op.out.dim_order is DimOrder.CHANNELS_LAST and op.level >= 3:
        x = _instances(_input(op, op.out.dim_order), eps)
        return _times_plus(x, op.optional_array("weight"), op.optional_array("bias")).operand
    x = standardised(_input(op, PLAIN), op.out.n_elements // (n * channels), eps)
    return _affine_channels(x, channels)


def standardised(x: FormulaValue, length: int, eps: float) -> FormulaValue:
    """Returns ``(x - mean) / sqrt(var + eps)`` of each ``length`` elements in memory, in any shape.

    From level 3 on this is INSTANCE_NORMALIZATION of images of ``length`` x 1 pixels and one
    channel. For lower levels, see :func:`_scaled_to_one`.
    """
    rows = math.prod(x.dims) // length
    if x.op.level < 3:
        x = x.reshaped((rows, length))
        return _scaled_to_one(x - x.mean([1]), eps)
    return _instances(x.reshaped((rows, length, 1, 1)), eps)


def _instances(x: FormulaValue, eps: float) -> FormulaValue:
    """Returns INSTANCE_NORMALIZATION of ``x[N, H, W, C]``.

    Android 10 computes the variance as ``mean(x^2) - mean(x)^2``, whose error grows with the square
    of mean / deviation. At level 3 the mean is therefore subtracted first.
    """
    if x.op.level == 3:
        x = x - x.mean([1, 2])
    scalars = [1.0, 0.0, eps, False]  # gamma, beta, epsilon, layout: channels last
    return x.unary(OperationCode.INSTANCE_NORMALIZATION, *scalars)


def _scaled_to_one(x: FormulaValue, eps: float) -> FormulaValue:
    """Returns ``x / sqrt(mean(x^2) + eps)`` of each row of ``x[M, N]``.

    Levels 1 and 2 have a root only in L2_NORMALIZATION. Its norm includes eps as one more column:
    ``|(x, sqrt(N eps))| = sqrt(N) sqrt(mean(x^2) + eps)``.
    """
    op, (rows, length) = x.op, x.dims
    if op.level >= 3:
        spread = (x * x).mean([1]) + eps
        return x * spread.unary(OperationCode.RSQRT)
    op.require(eps > 0, f"eps={eps:g} below level 3: a number above 0 is required")
    column = np.full((rows, 1), math.sqrt(length * eps), np.float32)
    dims = (rows, length + 1)
    wide = FormulaValue(
        op, op.emit(OperationCode.CONCATENATION, [x.operand, column], [1], dims=dims)
    )
    wide = wide.reshaped((rows, 1, 1, length + 1))  # below level 3 it takes rank 4 only
    wide = wide.unary(OperationCode.L2_NORMALIZATION).reshaped(dims)
    return FormulaValue(op, strided_slice(op, wide.operand, (0, 0), (rows, length))) * math.sqrt(
        length
    )


def _input(op: Lowering, order: DimOrder) -> FormulaValue:
    return floats(op, "input", "a norm", order)


def _affine(x: FormulaValue, weight: FloatArray | None, bias: FloatArray | None) -> OperandId:
    """Returns ``x * weight + bias`` in the node's shape and order; ``x`` may have any shape."""
    return _times_plus(x.reshaped(x.op.out.shape), weight, bias).laid_out()


def _affine_channels(x: FormulaValue, channels: int) -> OperandId:
    """Returns :func:`_affine` with one weight and one bias for each channel."""
    shape = (channels, *[1] * (len(x.op.out.shape) - 2))
    weight, bias = (x.op.optional_array(name) for name in ("weight", "bias"))
    return _affine(x, *(None if a is None else a.reshape(shape) for a in (weight, bias)))


def _times_plus(
    x: FormulaValue, weight: FloatArray | None, bias: FloatArray | None
) -> FormulaValue:
    if weight is not None:
        x = x * constant(x.op, weight)
    return x if bias is None else x + constant(x.op, bias)


@lowers(aten.batch_norm.default)
def batch_norm(op: Lowering) -> OperandId:
    """Lowers ``batch_norm(x[N, C, ...])`` in eval mode as ``x * scale[C] + shift[C]``."""
    op.require(not op.arg("training"), "training=True, its statistics come from the input")
    mean, variance = op.array("running_mean"), op.array("running_var")
    weight, bias = op.optional_array("weight"), op.optional_array("bias")
    # float64, so that folding four constants into two rounds only once
    scale = 1 / np.sqrt(variance.astype(np.float64) + op.arg("eps"))
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale
    if bias is not None:
        shift = shift + bias

    channels_last = op.out.dim_order is DimOrder.CHANNELS_LAST
    after = 0 if channels_last else len(op.out.shape) - 2
    shape = (mean.size,) + (1,) * after
    factor, summand = (a.astype(np.float32).reshape(shape) for a in (scale, shift))
    x = tensor(op, "input", op.out.dim_order) * constant(op, factor)
    return x.plus(constant(op, summand), op.fuse()).operand
