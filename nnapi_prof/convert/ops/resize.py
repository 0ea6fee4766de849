"""Resizing of images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.resample import resample
from nnapi_prof.convert.ops.slicing import concatenate
from nnapi_prof.convert.ops.take import take
from nnapi_prof.convert.ops.tiling import MAX_COPIES
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

HEIGHT, WIDTH = 1, 2
"""Axes of an image in memory."""


@lowers(aten.upsample_nearest2d.vec, aten._upsample_nearest_exact2d.vec)
def upsample_nearest2d(op: Lowering) -> OperandId:
    """Lowers ``upsample_nearest2d(x[N, C, H, W]) -> [N, C, H', W']`` and ``nearest-exact``.

    NNAPI reads pixel ``floor(i * in / out)``, or with half_pixel_centers (level 4)
    ``floor((i + 1 / 2) * in / out)``. Where torch's pixels are neither, as with a scale that is
    not out / in, or at levels without the operation, rows and columns are taken one by one; whole
    multiples are copies side by side, which every level has.
    """
    x = op.image("input")
    sizes, wanted = op.type("input").shape[2:], op.out.shape[2:]
    places = [_nearest_pixels(op, axis) for axis in (0, 1)]
    for level, centre in ((3, 0.0), (4, 0.5)):
        own = [_nnapi_pixels(*pair, centre) for pair in zip(sizes, wanted, strict=True)]
        if op.level >= level and places == own:
            flags = [False, False, True] if centre else [False]
            scalars = [wanted[1], wanted[0], *flags]
            return op.emit(OperationCode.RESIZE_NEAREST_NEIGHBOR, [x], scalars)
    for axis, pixels in zip((HEIGHT, WIDTH), places, strict=True):
        x = _pick(op, x, axis, pixels)
    return x


@lowers(aten.upsample_bilinear2d.vec)
def upsample_bilinear2d(op: Lowering) -> OperandId:
    """Lowers ``upsample_bilinear2d(x[N, C, H, W]) -> [N, C, H', W']``.

    align_corners=False is NNAPI's half_pixel_centers. Both flags came with level 4; before, pixel
    ``i`` reads at ``i * in / out``, which is the same only for an axis that keeps its size, has
    one pixel, or has one result and aligned corners. The others, and scales that are not out / in,
    are matrix products.
    """
    align = bool(op.arg("align_corners"))
    sizes, wanted = op.type("input").shape[2:], op.out.shape[2:]
    size = [wanted[1], wanted[0]]
    if align or _scales_by_sizes(op):
        if op.level >= 4:
            flags = [False, align, not align]  # layout, align_corners, half_pixel_centers
            return op.emit(OperationCode.RESIZE_BILINEAR, [op.image("input")], [*size, *flags])
        if all(
            before in (after, 1) or (align and after == 1)
            for before, after in zip(sizes, wanted, strict=True)
        ):
            return op.emit(OperationCode.RESIZE_BILINEAR, [op.image("input")], size)
    return _by_matrices(op)


@lowers(
    aten.upsample_bicubic2d.vec,
    aten._upsample_bilinear2d_aa.vec,
    aten._upsample_bicubic2d_aa.vec,
)
def upsample_smooth2d(op: Lowering) -> OperandId:
    """Lowers ``upsample_bicubic2d(x[N, C, H, W]) -> [N, C, H', W']`` and the resizings with
    antialiasing, of which NNAPI has none."""
    op.require(
        op.target is aten.upsample_bicubic2d.vec or op.out.shape[3] > 1,
        "smoothed to a width of 1, which PyTorch itself (2.13) computes from the wrong rows",
    )
    return _by_matrices(op)


def _by_matrices(op: Lowering) -> OperandId:
    """Resizing that is linear along each axis, by the two matrices that torch applies."""
    return resample(op, "input", lambda image, size: _by_torch(op, image, size))


def _by_torch(op: Lowering, image: Tensor, size: list[int]) -> Tensor:
    """torch's own result for the node's arguments, of another image and size."""
    scales = op.arg("scale_factors")
    names = {argument.name for argument in op.target._schema.arguments}
    corners = [op.arg("align_corners")] if "align_corners" in names else []
    result: Tensor = op.target.overloadpacket.default(
        image, size, *corners, *([None, None] if scales is None else scales)
    )
    return result


def _nearest_pixels(op: Lowering, axis: int) -> list[int]:
    """Which pixel of an axis (0: height) torch reads for each of the result."""
    size, wanted = op.type("input").shape[2 + axis], op.out.shape[2 + axis]
    numbers = torch.arange(size, dtype=torch.float32)
    image = numbers.reshape((1, 1, size, 1) if axis == 0 else (1, 1, 1, size))
    picked = _by_torch(op, image, [wanted, 1] if axis == 0 else [1, wanted])
    return [int(pixel) for pixel in picked.flatten()]


def _nnapi_pixels(size: int, wanted: int, centre: float) -> list[int]:
    """The same for RESIZE_NEAREST_NEIGHBOR, in float32 as Android computes it."""
    scale = np.float32(size) / np.float32(wanted)
    places = (np.arange(wanted, dtype=np.float32) + np.float32(centre)) * scale
    return [min(int(place), size - 1) for place in places]


def _pick(op: Lowering, x: OperandId, axis: int, pixels: Sequence[int]) -> OperandId:
    """Rows or columns ``pixels`` of an image [N, H, W, C]."""
    size = op.dims(x)[axis]
    copies, rest = divmod(len(pixels), size)
    doubled = rest == 0 and list(pixels) == [i // copies for i in range(len(pixels))]
    if op.level >= 3 or not doubled or copies > MAX_COPIES:
        return take(op, x, axis, pixels)
    dims = list(op.dims(x))
    before, after = math.prod(dims[: axis + 1]), math.prod(dims[axis + 1 :])
    x = concatenate(op, [op.reshape(x, (before, 1, after))] * copies, 1)
    dims[axis] *= copies
    return op.reshape(x, dims)


def _scales_by_sizes(op: Lowering) -> bool:
    """Whether a scale that was given says out / in, the ratio by which NNAPI computes positions."""
    scales = op.arg("scale_factors") or [None, None]
    sizes, wanted = op.type("input").shape[2:], op.out.shape[2:]
    return all(
        scale is None or bool(np.isclose(size * scale, out, rtol=1e-6, atol=0))
        for size, out, scale in zip(sizes, wanted, scales, strict=True)
    )
