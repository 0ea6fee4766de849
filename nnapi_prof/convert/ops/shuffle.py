"""The same elements in another order: pixel and channel shuffles, flips, rolls."""

from __future__ import annotations

import math

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.take import take
from nnapi_prof.convert.registry import Lowering, lowers, memory_axis
from nnapi_prof.graph.types import DimOrder
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

PLAIN = DimOrder.CONTIGUOUS


def interleave(op: Lowering, x: OperandId, axis: int, groups: int) -> OperandId:
    """``out[k * groups + g] = x[g * size + k]`` along an axis in memory, where ``size`` is the
    axis's over ``groups``: CHANNEL_SHUFFLE, or before level 3 the transposition that it is."""
    dims = op.dims(x)
    size = dims[axis] // groups
    if groups == 1 or size == 1:
        return x
    if op.level >= 3:
        return op.emit(OperationCode.CHANNEL_SHUFFLE, [x], [groups, axis], dims=dims)
    before, after = math.prod(dims[:axis]), math.prod(dims[axis + 1 :])
    x = op.reshape(x, (before, groups, size, after))
    return op.reshape(op.transpose(x, (0, 2, 1, 3)), dims)


@lowers(aten.channel_shuffle.default)
def channel_shuffle(op: Lowering) -> OperandId:
    """Lowers ``channel_shuffle(x[N, C, ...], groups)``."""
    order = op.out.dim_order
    return interleave(op, op.tensor("self", order), memory_axis(order, 1), op.arg("groups"))


@lowers(aten.pixel_shuffle.default)
def pixel_shuffle(op: Lowering) -> OperandId:
    """Lowers ``pixel_shuffle(x[N, C * r * r, H, W]) -> [N, C, H * r, W * r]``.

    torch's input channel is (c, i, j), that of DEPTH_TO_SPACE (i, j, c): the channels are shuffled
    before, unless C is 1.
    """
    x, factor = op.image("self"), op.arg("upscale_factor")
    if factor == 1:
        return x
    x = interleave(op, x, 3, op.out.shape[1])
    return op.emit(OperationCode.DEPTH_TO_SPACE, [x], [factor])


@lowers(aten.pixel_unshuffle.default)
def pixel_unshuffle(op: Lowering) -> OperandId:
    """Lowers ``pixel_unshuffle(x[N, C, H * r, W * r]) -> [N, C * r * r, H, W]``, the inverse:
    SPACE_TO_DEPTH gives the channels as (i, j, c), torch as (c, i, j)."""
    x, factor = op.image("self"), op.arg("downscale_factor")
    if factor == 1:
        return x
    x = op.emit(OperationCode.SPACE_TO_DEPTH, [x], [factor])
    return interleave(op, x, 3, factor * factor)


@lowers(aten.flip.default)
def flip(op: Lowering) -> OperandId:
    """Lowers ``flip(x, dims)``: REVERSE, one axis at a time, or before level 7 what
    :func:`take` finds."""
    order = op.out.dim_order
    x = op.tensor("self", order)
    rank = len(op.out.shape)
    for dim in op.arg("dims"):
        axis = memory_axis(order, dim % max(rank, 1))
        size = op.dims(x)[axis]
        if size == 1:
            continue
        if op.level >= 7:
            x = op.emit(OperationCode.REVERSE, [x, np.array([axis], np.int32)])
        else:
            x = take(op, x, axis, range(size - 1, -1, -1))
    return x


@lowers(aten.roll.default)
def roll(op: Lowering) -> OperandId:
    """Lowers ``roll(x, shifts, dims)``: two slices swapped on each axis; without dims the
    elements roll as one row."""
    order = op.out.dim_order
    x = op.tensor("self", order)
    dims = list(op.arg("dims"))
    if not dims:
        size = math.prod(op.out.shape)
        row = op.reshape(op.reorder(x, op.out.shape, order, PLAIN), (size,))
        rolled = take(op, row, 0, _rolled(size, op.arg("shifts")[0]))
        return op.reorder(op.reshape(rolled, op.out.shape or (1,)), op.out.shape, PLAIN, order)
    for shift, dim in zip(op.arg("shifts"), dims, strict=True):
        axis = memory_axis(order, dim % len(op.out.shape))
        x = take(op, x, axis, _rolled(op.dims(x)[axis], shift))
    return x


def _rolled(size: int, shift: int) -> list[int]:
    return [(i - shift) % size for i in range(size)]
