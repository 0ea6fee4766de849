"""Normalisation layers."""

from __future__ import annotations

import math

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import PLAIN, FormulaValue, constant, floats, tensor
from nnapi_prof.convert.ops.slicing import strided_slice
from nnapi_prof.convert.registry import FloatArray, Lowering, lowers
from nnapi_prof.graph import DimOrder
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten


@lowers(aten.layer_norm.default)
def layer_norm(op: Lowering) -> OperandId:
    """Lowers ``(x - mean) / sqrt(var + eps) * w + b`` over the last axes: rows of a matrix."""
    length = math.prod(op.arg("normalized_shape"))
    x = standardised(_input(op, PLAIN), length, float(op.arg("eps")))
    return _affine(x, op.optional_array("weight"), op.optional_array("bias"))


@lowers(aten.rms_norm.default)
def rms_norm(op: Lowering) -> OperandId:
    """Lowers ``x / sqrt(mean(x^2) + eps) * w`` over the last axes: rows of a matrix."""
    length = math.prod(op.arg("normalized_shape"))
    x = _input(op, PLAIN).reshaped((op.out.n_elements // length, length))
    dtype = op.arg("eps")
    eps = float(np.finfo(np.float32).eps) if dtype is None else float(dtype)
    return _affine(_scaled_to_one(x, eps), op.optional_array("weight"), None)


@lowers(aten.group_norm.default)
def group_norm(op: Lowering) -> OperandId:
    """Lowers ``group_norm(x[N, C, ...], groups)``: each group of channels of each image is a row
    to standardise; weights and biases are one number a channel."""
    n, channels, *_ = op.type("input").shape
    groups, eps = int(op.arg("num_groups")), float(op.arg("eps"))
    if op.out.dim_order is DimOrder.CHANNELS_LAST and op.level >= 3:
        weight, bias = op.optional_array("weight"), op.optional_array("bias")
        return _times_plus(_standardised_groups(op, groups, eps), weight, bias).operand
    x = standardised(_input(op, PLAIN), op.out.n_elements // (n * groups), eps)
    return _affine_channels(x, channels)


def _standardised_groups(op: Lowering, groups: int, eps: float) -> FormulaValue:
    """``(x - mean) / sqrt(var + eps)`` of each group of channels of an image that lies channels
    last, as [N, H * W, groups, C / groups]: nothing moves."""
    x = _input(op, op.out.dim_order)
    n, h, w, channels = x.dims
    x = x.reshaped((n, h * w, groups, channels // groups))
    x = x - x.mean([1, 3])
    spread = (x * x).mean([1, 3]) + eps
    return (x * spread.unary(OperationCode.RSQRT)).reshaped(op.out.memory_shape)


@lowers(aten.instance_norm.default)
def instance_norm(op: Lowering) -> OperandId:
    """Lowers ``instance_norm(x[N, C, ...])`` with statistics of its own input; an image that lies
    channels last is INSTANCE_NORMALIZATION as it is."""
    op.require(
        bool(op.arg("use_input_stats")),
        "use_input_stats=False, statistics of the input are wanted (else it is a batch norm)",
    )
    n, channels, *_ = op.type("input").shape
    eps = float(op.arg("eps"))
    if op.out.dim_order is DimOrder.CHANNELS_LAST and op.level >= 3:
        x = _instances(_input(op, op.out.dim_order), eps)
        return _times_plus(x, op.optional_array("weight"), op.optional_array("bias")).operand
    x = standardised(_input(op, PLAIN), op.out.n_elements // (n * channels), eps)
    return _affine_channels(x, channels)


def standardised(x: FormulaValue, length: int, eps: float) -> FormulaValue:
    """``(x - mean) / sqrt(var + eps)`` of each ``length`` elements in memory, in any shape.

    From level 3 on that is the INSTANCE_NORMALIZATION of images of ``length`` x 1 pixels and one
    channel; before, see :func:`_scaled_to_one`.
    """
    rows = math.prod(x.dims) // length
    if x.op.level < 3:
        x = x.reshaped((rows, length))
        return _scaled_to_one(x - x.mean([1]), eps)
    return _instances(x.reshaped((rows, length, 1, 1)), eps)


def _instances(x: FormulaValue, eps: float) -> FormulaValue:
    """INSTANCE_NORMALIZATION of ``x[N, H, W, C]``.

    Android 10 computes the variance as ``mean(x^2) - mean(x)^2``, whose error grows with the square
    of mean / deviation: at level 3 the mean is subtracted before.
    """
    if x.op.level == 3:
        x = x - x.mean([1, 2])
    scalars = [1.0, 0.0, eps, False]  # gamma, beta, epsilon, layout: channels last
    return x.unary(OperationCode.INSTANCE_NORMALIZATION, *scalars)


def _scaled_to_one(x: FormulaValue, eps: float) -> FormulaValue:
    """``x / sqrt(mean(x^2) + eps)`` of each row of ``x[M, N]``.

    Levels 1 and 2 have no root but in L2_NORMALIZATION, whose norm gets the eps as one more
    column: ``|(x, sqrt(N eps))| = sqrt(N) sqrt(mean(x^2) + eps)``.
    """
    op, (rows, length) = x.op, x.dims
    if op.level >= 3:
        spread = (x * x).mean([1]) + eps
        return x * spread.unary(OperationCode.RSQRT)
    op.require(eps > 0, f"eps={eps:g} below level 3: a number above 0 is wanted")
    column = np.full((rows, 1), math.sqrt(length * eps), np.float32)
    dims = (rows, length + 1)
    wide = FormulaValue(
        op, op.emit(OperationCode.CONCATENATION, [x.operand, column], [1], dims=dims)
    )
    wide = wide.reshaped((rows, 1, 1, length + 1))  # below level 3 rank 4 is wanted
    wide = wide.unary(OperationCode.L2_NORMALIZATION).reshaped(dims)
    return FormulaValue(op, strided_slice(op, wide.operand, (0, 0), (rows, length))) * math.sqrt(
        length
    )


def _input(op: Lowering, order: DimOrder) -> FormulaValue:
    return floats(op, "input", "a norm", order)


def _affine(x: FormulaValue, weight: FloatArray | None, bias: FloatArray | None) -> OperandId:
    """``x * weight + bias`` in the node's shape and order; ``x`` in any shape."""
    return _times_plus(x.reshaped(x.op.out.shape), weight, bias).laid_out()


def _affine_channels(x: FormulaValue, channels: int) -> OperandId:
    """The same with one weight and one bias for each channel."""
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
    # float64, so that folding the four constants into two rounds once
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
