"""Lower changes of shape and of dim order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from nnapi_prof.convert import OperandId
from nnapi_prof.convert.ops.element_types import moves_bools, moves_elements
from nnapi_prof.convert.ops.slicing import concatenate, take
from nnapi_prof.convert.registry import Lowering, logical_axes, lowers, memory_axis
from nnapi_prof.graph import MAX_RANK, DimOrder
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

aten = torch.ops.aten


@lowers(aten.view.default, aten.reshape.default)
@moves_elements
def view(op: Lowering) -> OperandId:
    """Lowers ``view(x, size)``: elements in logical order under a new shape.

    torch's two spellings differ in whether they may copy, which does not matter to NNAPI. RESHAPE
    takes integers only from level 6 on; below, EXPAND_DIMS adds new axes of size 1.
    """
    rank = max(len(op.out.shape), len(op.type("self").shape))
    if op.out.device_dtype == "int32" and op.level < 6 and rank <= MAX_RANK:
        places = _new_axes(op.type("self").shape, op.out.shape)
        if places is not None:
            return _expanded(op, op.tensor("self"), places)
    return op.relay(op.tensor("self"), op.type("self"), op.out)


def _new_axes(shape: tuple[int, ...], target: tuple[int, ...]) -> list[int] | None:
    """Lists the axes of size 1 that turn ``shape`` into ``target``, ascending; None if none do."""
    places, at = [], 0
    for axis, size in enumerate(target):
        if at < len(shape) and shape[at] == size:
            at += 1
        elif size == 1:
            places.append(axis)
        else:
            return None
    return places if at == len(shape) and places and shape else None


def _expanded(op: Lowering, x: OperandId, places: list[int]) -> OperandId:
    for axis in places:
        dims = op.dims(x)
        shape = (*dims[:axis], 1, *dims[axis:])
        x = op.emit(OperationCode.EXPAND_DIMS, [x], [axis], dims=shape)
    return x


@lowers(aten.permute.default)
@moves_elements
def permute(op: Lowering) -> OperandId:
    """Lowers ``permute(x, dims)``: axis i of the result is axis dims[i] of x."""
    source = op.type("self")
    rank = len(source.shape)
    dims = [axis % rank for axis in op.arg("dims")]
    have = logical_axes(source.dim_order, rank)
    want = logical_axes(op.out.dim_order, rank)
    return op.transpose(op.tensor("self"), [have.index(dims[axis]) for axis in want])


@lowers(aten.clone.default)
@moves_elements
def clone(op: Lowering) -> OperandId:
    """Lowers a change of dim order: ``[N, C, H, W]`` in memory to ``[N, H, W, C]`` or back."""
    return op.tensor("self", op.out.dim_order)


# Repeated elements: expand, repeat, repeat_interleave.


MAX_COPIES = 64
"""Most copies that a CONCATENATION joins where there is no TILE (below level 3)."""


def raised(op: Lowering) -> OperandId:
    """Returns the operand of ``self`` with leading axes of size 1 up to the result's rank, in the
    result's dim order."""
    type_, order = op.type("self"), op.out.dim_order
    x = op.tensor("self")
    missing = len(op.out.shape) - len(type_.shape)
    if missing <= 0:
        return op.reorder(x, type_.shape, type_.dim_order, order)
    x = op.reorder(x, type_.shape, type_.dim_order, DimOrder.CONTIGUOUS)
    shape = (1,) * missing + type_.shape
    if op.operand(x).type is OperandCode.TENSOR_INT32:  # RESHAPE takes no integers below level 6
        while len(op.dims(x)) < len(shape):
            x = op.emit(OperationCode.EXPAND_DIMS, [x], [0], dims=(1, *op.dims(x)))
    else:
        x = op.reshape(x, shape)
    return op.reorder(x, shape, DimOrder.CONTIGUOUS, order)


def tile(op: Lowering, x: OperandId, copies: Sequence[int]) -> OperandId:
    """Returns ``x`` repeated on every axis in memory, by TILE, or below level 3 by one
    CONCATENATION of ``x`` with itself for each axis."""
    if all(n == 1 for n in copies):
        return x
    op.require(0 not in copies, "no copy gives an empty tensor, NNAPI has none")
    if op.level >= 3:
        dims = [size * n for size, n in zip(op.dims(x), copies, strict=True)]
        return op.emit(OperationCode.TILE, [x, np.array(copies, np.int32)], dims=dims)
    for axis, n in enumerate(copies):
        op.require(
            n <= MAX_COPIES,
            f"{n} copies without TILE (level 3), at most {MAX_COPIES} are concatenated",
        )
        x = concatenate(op, [x] * n, axis)
    return x


@lowers(aten.expand.default)
@moves_bools
def expand(op: Lowering) -> OperandId:
    """Lowers ``expand(x, size)``: repeats axes of size 1 and adds new ones in front."""
    x = raised(op)
    copies = [want // have for want, have in zip(op.out.memory_shape, op.dims(x), strict=True)]
    return tile(op, x, copies)


@lowers(aten.repeat.default)
@moves_bools
def repeat(op: Lowering) -> OperandId:
    """Lowers ``repeat(x, repeats)``: repeats each axis, and adds new ones in front."""
    repeats = [int(n) for n in op.arg("repeats")]
    axes = logical_axes(op.out.dim_order, len(repeats))
    return tile(op, raised(op), [repeats[axis] for axis in axes])


@lowers(aten.repeat_interleave.self_int)
def repeat_interleave(op: Lowering) -> OperandId:
    """Lowers ``repeat_interleave(x, n, dim)``: each element n times in a row."""
    order, copies = op.out.dim_order, op.arg("repeats")
    shape = op.type("self").shape
    if op.arg("dim") is None:
        x = op.reshape(op.tensor("self", DimOrder.CONTIGUOUS), (op.type("self").n_elements,))
        return take(op, x, 0, [i // copies for i in range(op.out.n_elements)])
    axis = op.arg("dim") % len(shape)
    indices = [i // copies for i in range(shape[axis] * copies)]
    return take(op, op.tensor("self", order), memory_axis(order, axis), indices)


# Reordered elements: pixel and channel shuffles, flips, rolls.


PLAIN = DimOrder.CONTIGUOUS


def interleave(op: Lowering, x: OperandId, axis: int, groups: int) -> OperandId:
    """Returns ``out[k * groups + g] = x[g * size + k]`` along an axis in memory, where ``size`` is
    the axis's size over ``groups``: CHANNEL_SHUFFLE, or below level 3 a transposition."""
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

    torch orders input channels as (c, i, j), DEPTH_TO_SPACE as (i, j, c). Unless C is 1, the
    channels are shuffled first.
    """
    x, factor = op.image("self"), op.arg("upscale_factor")
    if factor == 1:
        return x
    x = interleave(op, x, 3, op.out.shape[1])
    return op.emit(OperationCode.DEPTH_TO_SPACE, [x], [factor])


@lowers(aten.pixel_unshuffle.default)
def pixel_unshuffle(op: Lowering) -> OperandId:
    """Lowers ``pixel_unshuffle(x[N, C, H * r, W * r]) -> [N, C * r * r, H, W]``, the inverse.
    SPACE_TO_DEPTH orders the channels as (i, j, c), torch as (c, i, j)."""
    x, factor = op.image("self"), op.arg("downscale_factor")
    if factor == 1:
        return x
    x = op.emit(OperationCode.SPACE_TO_DEPTH, [x], [factor])
    return interleave(op, x, 3, factor * factor)


@lowers(aten.flip.default)
@moves_bools
def flip(op: Lowering) -> OperandId:
    """Lowers ``flip(x, dims)``: REVERSE, one axis at a time, or below level 7 :func:`take`."""
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
@moves_elements
def roll(op: Lowering) -> OperandId:
    """Lowers ``roll(x, shifts, dims)``: swaps two slices on each axis, or rolls all elements."""
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
