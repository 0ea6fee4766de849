"""Normalisation layers whose statistics come from the input."""

from __future__ import annotations

import math

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.pieces import add, averaged, mul, sub, unary
from nnapi_prof.convert.ops.slicing import strided_slice
from nnapi_prof.convert.registry import FloatArray, Lowering, lowers
from nnapi_prof.graph.types import DimOrder
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

aten = torch.ops.aten

_PLAIN = DimOrder.CONTIGUOUS


@lowers(aten.layer_norm.default)
def layer_norm(op: Lowering) -> OperandId:
    """Lowers ``(x - mean) / sqrt(var + eps) * w + b`` over the last axes: rows of a matrix."""
    length = math.prod(op.arg("normalized_shape"))
    x = standardised(op, _input(op, _PLAIN), length, float(op.arg("eps")))
    return _affine(op, x, op.optional_array("weight"), op.optional_array("bias"))


@lowers(aten.rms_norm.default)
def rms_norm(op: Lowering) -> OperandId:
    """Lowers ``x / sqrt(mean(x^2) + eps) * w`` over the last axes: rows of a matrix."""
    length = math.prod(op.arg("normalized_shape"))
    x = op.reshape(_input(op, _PLAIN), (op.out.n_elements // length, length))
    dtype = op.arg("eps")
    eps = float(np.finfo(np.float32).eps) if dtype is None else float(dtype)
    return _affine(op, _scaled_to_one(op, x, eps), op.optional_array("weight"), None)


@lowers(aten.group_norm.default)
def group_norm(op: Lowering) -> OperandId:
    """Lowers ``group_norm(x[N, C, ...], groups)``: each group of channels of each image is a row
    to standardise; weights and biases are one number a channel."""
    n, channels, *_ = op.type("input").shape
    groups, eps = int(op.arg("num_groups")), float(op.arg("eps"))
    if op.out.dim_order is DimOrder.CHANNELS_LAST and op.level >= 3:
        weight, bias = op.optional_array("weight"), op.optional_array("bias")
        return _times_plus(op, _standardised_groups(op, groups, eps), weight, bias)
    x = standardised(op, _input(op, _PLAIN), op.out.n_elements // (n * groups), eps)
    return _affine_channels(op, x, channels)


def _standardised_groups(op: Lowering, groups: int, eps: float) -> OperandId:
    """``(x - mean) / sqrt(var + eps)`` of each group of channels of an image that lies channels
    last, as [N, H * W, groups, C / groups]: nothing moves."""
    x = _input(op, op.out.dim_order)
    n, h, w, channels = op.dims(x)
    x = op.reshape(x, (n, h * w, groups, channels // groups))
    x = sub(op, x, averaged(op, x, [1, 3]))
    spread = add(op, averaged(op, mul(op, x, x), [1, 3]), eps)
    x = mul(op, x, unary(op, OperationCode.RSQRT, spread))
    return op.reshape(x, op.out.memory_shape)


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
        x = _instances(op, _input(op, op.out.dim_order), eps)
        return _times_plus(op, x, op.optional_array("weight"), op.optional_array("bias"))
    x = standardised(op, _input(op, _PLAIN), op.out.n_elements // (n * channels), eps)
    return _affine_channels(op, x, channels)


def standardised(op: Lowering, x: OperandId, length: int, eps: float) -> OperandId:
    """``(x - mean) / sqrt(var + eps)`` of each ``length`` elements in memory, in any shape.

    From level 3 on that is the INSTANCE_NORMALIZATION of images of ``length`` x 1 pixels and one
    channel; before, see :func:`_scaled_to_one`.
    """
    rows = math.prod(op.dims(x)) // length
    if op.level < 3:
        x = op.reshape(x, (rows, length))
        return _scaled_to_one(op, sub(op, x, averaged(op, x, [1])), eps)
    return _instances(op, op.reshape(x, (rows, length, 1, 1)), eps)


def _instances(op: Lowering, x: OperandId, eps: float) -> OperandId:
    """INSTANCE_NORMALIZATION of ``x[N, H, W, C]``.

    Android 10 computes the variance as ``mean(x^2) - mean(x)^2``, whose error grows with the square
    of mean / deviation: at level 3 the mean is subtracted before.
    """
    if op.level == 3:
        x = sub(op, x, averaged(op, x, [1, 2]))
    scalars = [1.0, 0.0, eps, False]  # gamma, beta, epsilon, layout: channels last
    return op.emit(OperationCode.INSTANCE_NORMALIZATION, [x], scalars, dims=op.dims(x))


def _scaled_to_one(op: Lowering, x: OperandId, eps: float) -> OperandId:
    """``x / sqrt(mean(x^2) + eps)`` of each row of ``x[M, N]``.

    Levels 1 and 2 have no root but in L2_NORMALIZATION, whose norm gets the eps as one more
    column: ``|(x, sqrt(N eps))| = sqrt(N) sqrt(mean(x^2) + eps)``.
    """
    rows, length = op.dims(x)
    if op.level >= 3:
        spread = add(op, averaged(op, mul(op, x, x), [1]), eps)
        return mul(op, x, unary(op, OperationCode.RSQRT, spread))
    op.require(eps > 0, f"eps={eps:g} below level 3: a number above 0 is wanted")
    column = np.full((rows, 1), math.sqrt(length * eps), np.float32)
    dims = (rows, length + 1)
    wide = op.emit(OperationCode.CONCATENATION, [x, column], [1], dims=dims)
    wide = op.reshape(wide, (rows, 1, 1, length + 1))  # below level 3 rank 4 is wanted
    wide = op.emit(OperationCode.L2_NORMALIZATION, [wide], dims=op.dims(wide))
    cut = strided_slice(op, op.reshape(wide, dims), (0, 0), (rows, length))
    return mul(op, cut, math.sqrt(length))


def _input(op: Lowering, order: DimOrder) -> OperandId:
    eps_argument = op.type("input").dtype
    op.require(eps_argument == "float32", f"a norm of {eps_argument}, float32 is wanted")
    return op.tensor("input", order)


def _affine(
    op: Lowering, x: OperandId, weight: FloatArray | None, bias: FloatArray | None
) -> OperandId:
    """``x * weight + bias`` in the node's shape and order; ``x`` in any shape."""
    result = _times_plus(op, op.reshape(x, op.out.shape), weight, bias)
    return op.reorder(result, op.out.shape, _PLAIN, op.out.dim_order)


def _affine_channels(op: Lowering, x: OperandId, channels: int) -> OperandId:
    """The same with one weight and one bias for each channel."""
    shape = (channels, *[1] * (len(op.out.shape) - 2))
    weight, bias = op.optional_array("weight"), op.optional_array("bias")
    return _affine(op, x, *(None if a is None else a.reshape(shape) for a in (weight, bias)))


def _times_plus(
    op: Lowering, x: OperandId, weight: FloatArray | None, bias: FloatArray | None
) -> OperandId:
    if weight is not None:
        x = mul(op, x, op.constant(weight))
    return x if bias is None else add(op, x, op.constant(bias))


# Normalisation layers that could not be folded into a convolution.


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
    x = op.tensor("input", op.out.dim_order)
    x = op.emit(
        OperationCode.MUL, [x, scale.astype(np.float32).reshape(shape)], [int(FuseCode.NONE)]
    )
    return op.emit(OperationCode.ADD, [x, shift.astype(np.float32).reshape(shape)], [op.fuse()])
