"""Sampling of images at computed places: flow fields and deformable attention."""

from __future__ import annotations

import math

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import Value, constant, floor, relu
from nnapi_prof.convert.ops.gather import EXACT_FLOAT
from nnapi_prof.convert.ops.rounding import rounded
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.graph.types import DimOrder, TensorType
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")

Tap = tuple[Value, Value | None]
"""Pixels along one axis, as floats inside the image, and their weights; None for 1."""


@lowers(aten.grid_sampler.default, aten.grid_sampler_2d.default)
def grid_sampler(op: Lowering) -> OperandId:
    """Lowers ``grid_sampler(image[N, C, H, W], grid[N, H', W', 2]) -> [N, C, H', W']``.

    The pixels' channels are rows of a table. Each place reads one row (nearest) or the four around
    it (bilinear) by GATHER; outside of the image their weights are 0 or the border is read. The
    numbers of rows are computed as floats, which are exact as far as :data:`EXACT_FLOAT`.
    """
    op.require_level(3, "GATHER")
    shape, places = op.type("input").shape, op.type("grid").shape
    op.require(len(shape) == 4, f"an input of rank {len(shape)}, of images it is 4")
    mode, padding = _MODES[op.arg("interpolation_mode")], _PADDINGS[op.arg("padding_mode")]
    op.require(mode != "bicubic", "mode='bicubic', wanted bilinear or nearest")
    op.require(padding != "reflection", "padding_mode='reflection', wanted zeros or border")
    op.require(op.out.dtype == "float32", f"works on {op.out.dtype}, wanted float32")
    n, c, h, w = shape
    op.require(n * h * w <= EXACT_FLOAT, f"{n * h * w} pixels, at most {EXACT_FLOAT} are exact")
    table = op.reshape(op.tensor("input", DimOrder.CHANNELS_LAST), (n * h * w, c))
    count = math.prod(places[:3])
    pairs = op.reshape(op.tensor("grid", DimOrder.CONTIGUOUS), (count, 2))
    columns = op.emit_as([TensorType((count, 1))] * 2, OperationCode.SPLIT, [pairs], [1, 2])
    x, y = (Value(op, column) for column in columns)
    image = np.repeat(np.arange(n, dtype=np.float32) * (h * w), count // n).reshape(count, 1)
    total: Value | None = None
    for row, row_weight in _taps(y, h, mode, padding, op.arg("align_corners")):
        start = row * w + constant(op, image) if n > 1 else row * w
        for column, weight in _taps(x, w, mode, padding, op.arg("align_corners")):
            part = _rows(op, table, start + column)
            for factor in (row_weight, weight):
                part = part if factor is None else part * factor
            total = part if total is None else total + part
    assert total is not None
    result = op.reshape(total.operand, (*places[:3], c))
    return op.reorder(result, op.out.shape, DimOrder.CHANNELS_LAST, op.out.dim_order)


def _rows(op: Lowering, table: OperandId, index: Value) -> Value:
    """The rows ``index[P, 1]`` of ``table[R, C]``: ``[P, C]``."""
    (count, _), (_, channels) = index.dims, op.dims(table)
    where = Value(op, op.reshape(index.operand, (count,))).cast("int32")
    inputs = [table, op.model.scalar(0), where.operand]
    return Value(op, op.emit(OperationCode.GATHER, inputs, dims=(count, channels)))


def _taps(place: Value, size: int, mode: str, padding: str, align_corners: bool) -> list[Tap]:
    """The pixels that a place between -1 and 1 on an axis of ``size`` pixels reads.

    What lies far outside is first brought near: all weights are 0 there as well, and no number is
    too large to be one of a row.
    """
    if align_corners:
        at = (place + 1) * ((size - 1) / 2)
    else:
        at = (place + 1) * (size / 2) - 0.5
    at = _between(at, 0, size - 1) if padding == "border" else _between(at, -2, size + 1)
    if mode == "nearest":
        pixels: list[Tap] = [(rounded(at), None)]
    else:
        first = floor(at)
        second = at - first
        pixels = [(first, 1 - second), (first + 1, second)]
    if padding == "border":
        return [(_between(pixel, 0, size - 1), weight) for pixel, weight in pixels]
    found: list[Tap] = []
    for pixel, weight in pixels:
        inside = _between(pixel + 1, 0, 1) * _between(size - pixel, 0, 1)
        kept = inside if weight is None else weight * inside
        found.append((_between(pixel, 0, size - 1), kept))
    return found


def _between(x: Value, low: float, high: float) -> Value:
    x = relu(x) if low == 0 else x.binary(OperationCode.MAXIMUM, low)
    return x.binary(OperationCode.MINIMUM, high)
