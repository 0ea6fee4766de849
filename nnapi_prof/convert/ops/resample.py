"""Resizing that NNAPI's operations do not say: each axis multiplied by a constant matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import FloatArray, Lowering
from nnapi_prof.graph.types import DimOrder
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

MAX_PRODUCTS = 2**29
"""Multiplications at most, those of a large convolution: a few tenths of a second on one core."""

Resize = Callable[[Tensor, list[int]], Tensor]
"""What torch computes: image [1, C, h, w] -> [1, C, h', w'], the wanted size second. It must be
linear and treat height and width on their own."""


def _axis_matrix(resize: Resize, size: int, out: int, axis: int) -> FloatArray:
    """The matrix [out, size] by which ``resize`` works along height (axis 0) or width (1): its
    results for each unit vector.

    The other axis has two alike pixels: images of one column are resized wrongly by torch 2.13
    where it smooths (antialias=True).
    """
    unit = torch.eye(size).reshape(1, size, size, 1).repeat(1, 1, 1, 2)
    wanted = [out, 2]
    if axis == 1:
        unit, wanted = unit.transpose(2, 3).contiguous(), wanted[::-1]
    results = resize(unit, wanted).select(3 - axis, 0).reshape(size, out)
    matrix: FloatArray = results.t().contiguous().numpy()
    return matrix


def resample(op: Lowering, name: str, resize: Resize) -> OperandId:
    """``resize`` of the image argument ``name``, as ``out[n, c] = rows x[n, c] columns^T`` with
    constants ``rows[H', H]`` and ``columns[W', W]``.

    A product along the axis behind the batch is a CONV_2D whose kernel covers that axis, on an
    image of one channel; its result stands last. Two of them give [N, C, H', W'] from either dim
    order: from [N, H, W, C] by way of [N, W, C, H'], from [N, C, H, W] with the channels as part
    of the batch. Level 1 has no TRANSPOSE back: there the channels are multiplied by the identity
    in the same way, which puts them last. (An infinity makes NaN of the zeros in its row.)
    """
    known = op.type(name)
    op.require(known.dtype != "float16", "a resampling of float16, float32 is wanted here")
    n, c, h, w = known.shape
    new_h, new_w = op.out.shape[2:]
    turns = op.level < 2 and op.out.dim_order is DimOrder.CHANNELS_LAST
    products = n * c * new_h * (h * w + w * new_w + turns * c * new_w)
    op.require(
        products <= MAX_PRODUCTS,
        f"from {h}x{w} to {new_h}x{new_w} by matrix products takes {products} multiplications, at "
        f"most {MAX_PRODUCTS} are accepted",
    )
    rows, columns = _axis_matrix(resize, h, new_h, 0), _axis_matrix(resize, w, new_w, 1)
    x = op.tensor(name)
    if known.dim_order is DimOrder.CHANNELS_LAST:
        x = _along_first(op, x, (n, h, w * c), rows, int(FuseCode.NONE))
        x = _along_first(op, x, (n, w, c * new_h), columns, op.fuse())
    else:
        x = _along_first(op, x, (n * c, h, w), rows, int(FuseCode.NONE))
        x = _along_first(op, x, (n * c, w, new_h), columns, op.fuse())
    if turns:
        x = _along_first(op, x, (n, c, new_h * new_w), np.eye(c, dtype=np.float32), op.fuse())
        return op.reshape(x, (n, new_h, new_w, c))
    shape = (n, c, new_h, new_w)
    return op.reorder(op.reshape(x, shape), shape, DimOrder.CONTIGUOUS, op.out.dim_order)


def _along_first(
    op: Lowering, x: OperandId, shape: tuple[int, int, int], matrix: FloatArray, fuse: int
) -> OperandId:
    """``x[batch, size, rest] -> [batch, 1, rest, out]`` by ``matrix[out, size]``."""
    batch, size, rest = shape
    out = matrix.shape[0]
    return op.emit(
        OperationCode.CONV_2D,
        [
            op.reshape(x, (batch, size, rest, 1)),
            matrix.reshape(out, size, 1, 1),
            np.zeros(out, np.float32),
        ],
        [0, 0, 0, 0, 1, 1, fuse],
        dims=(batch, 1, rest, out),
    )
