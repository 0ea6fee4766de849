"""Lower pooling and the resizing of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from nnapi_prof.convert import OperandId
from nnapi_prof.convert.ops.formula import FormulaValue, constant, floor, relu
from nnapi_prof.convert.ops.functions import rounded
from nnapi_prof.convert.ops.gather import EXACT_FLOAT
from nnapi_prof.convert.ops.shape import MAX_COPIES
from nnapi_prof.convert.ops.slicing import concatenate, pad_constant, slice_axis, take
from nnapi_prof.convert.registry import FloatArray, Lowering, lowers
from nnapi_prof.graph import DimOrder, TensorType
from nnapi_prof.nnapi.codes import FuseCode, OperationCode
from nnapi_prof.passes.movement import equal_windows

aten = torch.ops.aten

HEIGHT, WIDTH = 1, 2
"""Axes of an image in memory."""


@lowers(aten.upsample_nearest2d.vec, aten._upsample_nearest_exact2d.vec)
def upsample_nearest2d(op: Lowering) -> OperandId:
    """Lowers ``upsample_nearest2d(x[N, C, H, W]) -> [N, C, H', W']`` and ``nearest-exact``.

    NNAPI reads pixel ``floor(i * in / out)``, or with half_pixel_centers (level 4) ``floor((i + 1 /
    2) * in / out)``. Where torch reads others (a scale that is not out / in), or the level lacks
    the operation, rows and columns are picked; whole multiples are copies at every level.
    """
    x = op.image("input")
    sizes, target_sizes = op.type("input").shape[2:], op.out.shape[2:]
    places = [_nearest_pixels(op, axis) for axis in (0, 1)]
    for level, centre in ((3, 0.0), (4, 0.5)):
        own = [_nnapi_pixels(*pair, centre) for pair in zip(sizes, target_sizes, strict=True)]
        if op.level >= level and places == own:
            flags = [False, False, True] if centre else [False]
            scalars = [target_sizes[1], target_sizes[0], *flags]
            return op.emit(OperationCode.RESIZE_NEAREST_NEIGHBOR, [x], scalars)
    for axis, pixels in zip((HEIGHT, WIDTH), places, strict=True):
        x = _pick(op, x, axis, pixels)
    return x


@lowers(aten.upsample_bilinear2d.vec)
def upsample_bilinear2d(op: Lowering) -> OperandId:
    """Lowers ``upsample_bilinear2d(x[N, C, H, W]) -> [N, C, H', W']``.

    align_corners=False is NNAPI's half_pixel_centers. Both flags came with level 4. Below, pixel
    ``i`` reads at ``i * in / out``. This is the same only for an axis that keeps its size, has one
    pixel, or has one result and aligned corners. All others, and scales that are not out / in, are
    matrix products.
    """
    align = bool(op.arg("align_corners"))
    sizes, target_sizes = op.type("input").shape[2:], op.out.shape[2:]
    size = [target_sizes[1], target_sizes[0]]
    if align or _scales_by_sizes(op):
        if op.level >= 4:
            flags = [False, align, not align]  # layout, align_corners, half_pixel_centers
            return op.emit(OperationCode.RESIZE_BILINEAR, [op.image("input")], [*size, *flags])
        if all(
            before in (after, 1) or (align and after == 1)
            for before, after in zip(sizes, target_sizes, strict=True)
        ):
            return op.emit(OperationCode.RESIZE_BILINEAR, [op.image("input")], size)
    return _by_matrices(op)


@lowers(
    aten.upsample_bicubic2d.vec,
    aten._upsample_bilinear2d_aa.vec,
    aten._upsample_bicubic2d_aa.vec,
)
def upsample_smooth2d(op: Lowering) -> OperandId:
    """Lowers ``upsample_bicubic2d(x[N, C, H, W]) -> [N, C, H', W']`` and resizing with
    antialiasing; NNAPI has neither."""
    op.require(
        op.target is aten.upsample_bicubic2d.vec or op.out.shape[3] > 1,
        "smoothed to a width of 1, which PyTorch itself (2.13) computes from the wrong rows",
    )
    return _by_matrices(op)


def _by_matrices(op: Lowering) -> OperandId:
    """Lowers resizing that is linear along each axis, by the two matrices that torch applies."""
    return resample(op, "input", lambda image, size: _by_torch(op, image, size))


def _by_torch(op: Lowering, image: Tensor, size: list[int]) -> Tensor:
    """Returns torch's own result for the node's arguments, of another image and size."""
    scales = op.arg("scale_factors")
    names = {argument.name for argument in op.target._schema.arguments}
    corners = [op.arg("align_corners")] if "align_corners" in names else []
    result: Tensor = op.target.overloadpacket.default(
        image, size, *corners, *([None, None] if scales is None else scales)
    )
    return result


def _nearest_pixels(op: Lowering, axis: int) -> list[int]:
    """Lists the pixel of an axis (0: height) that torch reads for each pixel of the result."""
    size, target_size = op.type("input").shape[2 + axis], op.out.shape[2 + axis]
    numbers = torch.arange(size, dtype=torch.float32)
    image = numbers.reshape((1, 1, size, 1) if axis == 0 else (1, 1, 1, size))
    pixels = _by_torch(op, image, [target_size, 1] if axis == 0 else [1, target_size])
    return [int(pixel) for pixel in pixels.flatten()]


def _nnapi_pixels(size: int, target_size: int, centre: float) -> list[int]:
    """Lists the pixels that RESIZE_NEAREST_NEIGHBOR reads, in float32 as Android computes them."""
    scale = np.float32(size) / np.float32(target_size)
    places = (np.arange(target_size, dtype=np.float32) + np.float32(centre)) * scale
    return [min(int(place), size - 1) for place in places]


def _pick(op: Lowering, x: OperandId, axis: int, pixels: Sequence[int]) -> OperandId:
    """Returns the rows or columns ``pixels`` of an image [N, H, W, C]."""
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
    """Returns whether every given scale is out / in, the ratio that NNAPI computes with."""
    scales = op.arg("scale_factors") or [None, None]
    sizes, target_sizes = op.type("input").shape[2:], op.out.shape[2:]
    return all(
        scale is None or bool(np.isclose(size * scale, out, rtol=1e-6, atol=0))
        for size, out, scale in zip(sizes, target_sizes, scales, strict=True)
    )


# Resizing that NNAPI's operations cannot express: each axis is multiplied by a constant matrix.


MAX_PRODUCTS = 2**29
"""Most multiplications, as in a large convolution: a few tenths of a second on one core."""

Resize = Callable[[Tensor, list[int]], Tensor]
"""torch's resizing of an image [1, C, h, w] to a size, giving [1, C, h', w']. It must be linear and
treat height and width separately."""


def _axis_matrix(resize: Resize, size: int, out: int, axis: int) -> FloatArray:
    """Returns the matrix [out, size] of ``resize`` along height (0) or width (1).

    The other axis has two equal pixels, because torch 2.13 resizes images of one column wrongly
    where it smooths (antialias=True).
    """
    unit = torch.eye(size).reshape(1, size, size, 1).repeat(1, 1, 1, 2)
    target = [out, 2]
    if axis == 1:
        unit, target = unit.transpose(2, 3).contiguous(), target[::-1]
    results = resize(unit, target).select(3 - axis, 0).reshape(size, out)
    matrix: FloatArray = results.t().contiguous().numpy()
    return matrix


def resample(op: Lowering, name: str, resize: Resize) -> OperandId:
    """Returns ``resize`` of the image argument ``name``, as ``out[n, c] = rows x[n, c] columns^T``
    with constants ``rows[H', H]`` and ``columns[W', W]``.

    A product along the axis after the batch is a CONV_2D whose kernel covers that axis, on an image
    of one channel; its result becomes the last axis. Two of them give [N, C, H', W'] from either
    dim order: from [N, H, W, C] through [N, W, C, H'], from [N, C, H, W] with the channels as part
    of the batch. Level 1 has no TRANSPOSE to move the channels last, so they are multiplied by the
    identity in the same way. (An infinity turns the zeros of its row into NaN.)
    """
    type_ = op.type(name)
    op.require(type_.dtype != "float16", "a resampling of float16, float32 is required here")
    n, c, h, w = type_.shape
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
    if type_.dim_order is DimOrder.CHANNELS_LAST:
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
    """Returns ``x[batch, size, rest] -> [batch, 1, rest, out]`` by ``matrix[out, size]``."""
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


# Sampling of images at computed places: flow fields and deformable attention.


_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")

Tap = tuple[FormulaValue, FormulaValue | None]
"""Pixels along one axis, as floats inside the image, with their weights; None for weights of 1."""


@lowers(aten.grid_sampler.default, aten.grid_sampler_2d.default)
def grid_sampler(op: Lowering) -> OperandId:
    """Lowers ``grid_sampler(image[N, C, H, W], grid[N, H', W', 2]) -> [N, C, H', W']``.

    Each pixel's channels are a row of a table. Each place reads one row (nearest) or the four
    around it (bilinear) by GATHER; outside the image the weights are 0, or the border is read. Row
    numbers are computed as floats, which are exact up to :data:`EXACT_FLOAT`.
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
    x, y = (FormulaValue(op, column) for column in columns)
    image = np.repeat(np.arange(n, dtype=np.float32) * (h * w), count // n).reshape(count, 1)
    total: FormulaValue | None = None
    for row, row_weight in _taps(y, h, mode, padding, op.arg("align_corners")):
        start = row * w + constant(op, image) if n > 1 else row * w
        for column, weight in _taps(x, w, mode, padding, op.arg("align_corners")):
            part = _gather_rows(op, table, start + column)
            for factor in (row_weight, weight):
                part = part if factor is None else part * factor
            total = part if total is None else total + part
    assert total is not None
    result = op.reshape(total.operand, (*places[:3], c))
    return op.reorder(result, op.out.shape, DimOrder.CHANNELS_LAST, op.out.dim_order)


def _gather_rows(op: Lowering, table: OperandId, index: FormulaValue) -> FormulaValue:
    """Returns the rows ``index[P, 1]`` of ``table[R, C]`` as ``[P, C]``."""
    (count, _), (_, channels) = index.dims, op.dims(table)
    where = FormulaValue(op, op.reshape(index.operand, (count,))).cast("int32")
    inputs = [table, op.model.scalar(0), where.operand]
    return FormulaValue(op, op.emit(OperationCode.GATHER, inputs, dims=(count, channels)))


def _taps(
    place: FormulaValue, size: int, mode: str, padding: str, align_corners: bool
) -> list[Tap]:
    """Returns the pixels that a place between -1 and 1 on an axis of ``size`` pixels reads.

    Places far outside are first moved near, where weights are 0 too and no row number is too large.
    """
    at = (place + 1) * ((size - 1) / 2) if align_corners else (place + 1) * (size / 2) - 0.5
    at = _between(at, 0, size - 1) if padding == "border" else _between(at, -2, size + 1)
    if mode == "nearest":
        pixels: list[Tap] = [(rounded(at), None)]
    else:
        first = floor(at)
        second = at - first
        pixels = [(first, 1 - second), (first + 1, second)]
    if padding == "border":
        return [(_between(pixel, 0, size - 1), weight) for pixel, weight in pixels]
    inside_taps: list[Tap] = []
    for pixel, weight in pixels:
        inside = _between(pixel + 1, 0, 1) * _between(size - pixel, 0, 1)
        tap_weight = inside if weight is None else weight * inside
        inside_taps.append((_between(pixel, 0, size - 1), tap_weight))
    return inside_taps


def _between(x: FormulaValue, low: float, high: float) -> FormulaValue:
    x = relu(x) if low == 0 else x.binary(OperationCode.MAXIMUM, low)
    return x.binary(OperationCode.MINIMUM, high)


MAX_SLICES = 32
"""Most slices of a dilated pooling, over both axes."""


@lowers(aten.max_pool2d.default)
def max_pool2d(op: Lowering) -> OperandId:
    """Lowers ``max_pool2d(x[N, C, H, W]) -> [N, C, H', W']``.

    NNAPI has no dilation. A dilated window is a maximum over as many slices along each axis.
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
    """Returns the image padded by minus infinity, at the end up to the last window (ceil_mode)."""
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

    NNAPI does not count padding in the divisor. Where torch counts it, the padding is a separate
    PAD. Below level 2, which has no PAD, and with a divisor_override, NNAPI's averages are
    multiplied by (elements counted by NNAPI) / (torch's divisor), a constant for each position.
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
    op.require(op.out.dtype != "float16", "float16 with a divisor of its own, float32 is required")
    averages = op.emit(OperationCode.AVERAGE_POOL_2D, [x], [*window, int(FuseCode.NONE)])
    return op.emit(OperationCode.MUL, [averages, _divisor_ratio(op)], [op.fuse()])


@lowers(aten.adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(op: Lowering) -> OperandId:
    """Lowers ``adaptive_avg_pool2d(x[N, C, H, W]) -> [N, C, H', W']``: one AVERAGE_POOL_2D if all
    windows have the same size, else a product with a matrix along each axis."""
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
    """Returns pads (left, right, top, bottom), strides and filter sizes (width first).

    ``padded`` means that the input already includes ``padding``. ceil_mode is padding at the end,
    up to the last window, which neither NNAPI nor torch counts in the maximum or the divisor.
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
    """Returns (elements in the window) / (torch's divisor) as [1, H', W', 1]."""
    kernel, stride = _kernel_and_stride(op)
    padding = op.pair("padding")
    real, counted = [], []
    for axis in (0, 1):
        size = op.type("self").shape[2 + axis]
        start = np.arange(op.out.shape[2 + axis]) * stride[axis] - padding[axis]
        # torch's divisor ends with the stated padding, even if ceil_mode extends a window
        stop = np.minimum(start + kernel[axis], size + padding[axis])
        counted.append(stop - start)
        real.append(np.minimum(stop, size) - np.maximum(start, 0))
    elements = np.outer(real[0], real[1])
    override = op.arg("divisor_override")
    divisors = np.outer(counted[0], counted[1]) if override is None else override
    ratio: FloatArray = (elements / divisors).astype(np.float32)[None, :, :, None]
    return ratio
