"""Pooling."""

from __future__ import annotations

import math

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.resize import resample
from nnapi_prof.convert.ops.slicing import pad_constant, slice_axis
from nnapi_prof.convert.registry import FloatArray, Lowering, lowers
from nnapi_prof.nnapi.codes import FuseCode, OperationCode
from nnapi_prof.passes.canonicalize.movement import equal_windows

aten = torch.ops.aten

MAX_SLICES = 32
"""Slices at most, of both axes, in place of a dilated pooling."""


@lowers(aten.max_pool2d.default)
def max_pool2d(op: Lowering) -> OperandId:
    """Lowers ``max_pool2d(x[N, C, H, W]) -> [N, C, H', W']``.

    There is no dilation in NNAPI: with one, the maximum over each axis of the window is that of as
    many slices.
    """
    x = op.image("self")
    padding, dilation = op.pair("padding"), op.pair("dilation")
    if dilation == (1, 1):
        return op.emit(OperationCode.MAX_POOL_2D, [x], [*_window(op, padding), op.fuse()])
    kernel, stride = _kernel_and_stride(op)
    op.require(
        sum(kernel) <= MAX_SLICES,
        f"dilation {dilation} by slices for a kernel {kernel}, at most {MAX_SLICES} are made",
    )
    op.require_level(3, f"dilation {dilation} (by MAXIMUM of slices)")
    x = _pad_lowest(op, x, padding, kernel, stride, dilation)
    for axis in (0, 1):
        reach = (op.out.shape[2 + axis] - 1) * stride[axis] + 1
        parts = [
            slice_axis(op, x, 1 + axis, start, start + reach, stride[axis])
            for start in range(0, kernel[axis] * dilation[axis], dilation[axis])
        ]
        x, *rest = parts
        for part in rest:
            x = op.emit(OperationCode.MAXIMUM, [x, part], dims=op.dims(x))
    return x


def _pad_lowest(
    op: Lowering,
    x: OperandId,
    padding: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> OperandId:
    """The image padded by minus infinity, behind as far as the last window reaches (ceil_mode)."""
    dims = op.dims(x)
    pads = [(0, 0) for _ in dims]
    for axis in (0, 1):
        reach = (op.out.shape[2 + axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1)
        after = max(0, reach + 1 - padding[axis] - dims[1 + axis])
        pads[1 + axis] = (padding[axis], after)
    return pad_constant(op, x, pads, -math.inf)


@lowers(aten.avg_pool2d.default)
def avg_pool2d(op: Lowering) -> OperandId:
    """Lowers ``avg_pool2d(x[N, C, H, W]) -> [N, C, H', W']``.

    NNAPI leaves padding out of the divisor. Where torch counts it in, the padding is a PAD of its
    own; below level 2, which has no PAD, and under a divisor_override, NNAPI's averages are
    multiplied by (elements counted by NNAPI) / (torch's divisor), known for each position.
    """
    x = op.image("self")
    padding = op.pair("padding")
    divisor = op.arg("divisor_override")
    counts_padding = op.arg("count_include_pad") and padding != (0, 0)
    if divisor is None and counts_padding and op.level >= 2:
        pad_h, pad_w = padding
        x = pad_constant(op, x, [(0, 0), (pad_h, pad_h), (pad_w, pad_w), (0, 0)])
        window = _window(op, padding, padded=True)
        return op.emit(OperationCode.AVERAGE_POOL_2D, [x], [*window, op.fuse()])

    window = _window(op, padding)
    if divisor is None and not counts_padding:
        return op.emit(OperationCode.AVERAGE_POOL_2D, [x], [*window, op.fuse()])
    op.require(op.out.dtype != "float16", "float16 with a divisor of its own, float32 is wanted")
    averages = op.emit(OperationCode.AVERAGE_POOL_2D, [x], [*window, int(FuseCode.NONE)])
    return op.emit(OperationCode.MUL, [averages, _divisor_ratio(op)], [op.fuse()])


@lowers(aten.adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(op: Lowering) -> OperandId:
    """Lowers ``adaptive_avg_pool2d(x[N, C, H, W]) -> [N, C, H', W']``: one AVERAGE_POOL_2D where
    all windows are alike, else a product with a matrix along each axis."""
    _, _, h, w = op.type("self").shape
    _, _, out_h, out_w = op.out.shape
    rows, columns = equal_windows(h, out_h), equal_windows(w, out_w)
    if rows is not None and columns is not None:
        scalars = [0, 0, 0, 0, columns[1], rows[1], columns[0], rows[0], op.fuse()]
        return op.emit(OperationCode.AVERAGE_POOL_2D, [op.image("self")], scalars)
    return resample(op, "self", aten.adaptive_avg_pool2d.default)


def _kernel_and_stride(op: Lowering) -> tuple[tuple[int, int], tuple[int, int]]:
    kernel = op.pair("kernel_size")
    return kernel, op.pair("stride") if op.arg("stride") else kernel


def _window(op: Lowering, padding: tuple[int, int], padded: bool = False) -> list[int]:
    """Pads (left, right, top, bottom), strides and filter sizes (width first).

    With ``padded`` the input carries ``padding`` already. ceil_mode is padding at the end, as far
    as the last window reaches beyond: NNAPI counts it in neither the maximum nor the divisor, as
    torch does.
    """
    kernel, stride = _kernel_and_stride(op)
    pads = []
    for axis in (0, 1):
        size = op.type("self").shape[2 + axis] + 2 * padding[axis]
        reach = (op.out.shape[2 + axis] - 1) * stride[axis] + kernel[axis]
        own = 0 if padded else padding[axis]
        pads.append((own, own + max(0, reach - size)))
    (top, bottom), (left, right) = pads
    return [left, right, top, bottom, stride[1], stride[0], kernel[1], kernel[0]]


def _divisor_ratio(op: Lowering) -> FloatArray:
    """(elements in the window) / (torch's divisor) as [1, H', W', 1]."""
    kernel, stride = _kernel_and_stride(op)
    padding = op.pair("padding")
    real, counted = [], []
    for axis in (0, 1):
        size = op.type("self").shape[2 + axis]
        start = np.arange(op.out.shape[2 + axis]) * stride[axis] - padding[axis]
        # torch's divisor ends with the stated padding, also where ceil_mode lets a window go on
        stop = np.minimum(start + kernel[axis], size + padding[axis])
        counted.append(stop - start)
        real.append(np.minimum(stop, size) - np.maximum(start, 0))
    elements = np.outer(real[0], real[1])
    override = op.arg("divisor_override")
    divisors = np.outer(counted[0], counted[1]) if override is None else override
    ratio: FloatArray = (elements / divisors).astype(np.float32)[None, :, :, None]
    return ratio
