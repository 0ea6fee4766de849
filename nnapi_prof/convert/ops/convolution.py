"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from nnapi_prof.convert import OperandId
from nnapi_prof.convert.ops.slicing import concatenate, pad_constant, slice_axis, strided_slice
from nnapi_prof.convert.registry import FloatArray, Lowering, lowers
from nnapi_prof.graph import TensorType
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten


@lowers(aten.convolution.default)
def convolution(op: Lowering) -> OperandId:
    """Lowers ``convolution(x[N, C, H, W], w[O, C / groups, kh, kw], b[O]) -> [N, O, H', W']`` and
    its transpose, whose weights are ``w[C, O / groups, kh, kw]``.

    NNAPI pads all four sides, so a pad before the convolution can be part of it.
    """
    weight = op.array("weight")
    rank = len(op.type("input").shape)
    op.require(
        rank == 4,
        f"a {rank - 2}-d convolution (input of rank {rank}), NNAPI has 2-d ones only (rank 4); a "
        "3-d one is made of these where it is not transposed and its weight is a float constant",
    )
    x = op.image("input")
    bias = op.optional_array("bias")
    if op.arg("transposed"):
        return transposed(op, x, weight, bias)
    if bias is None:
        bias = np.zeros(weight.shape[0], np.float32)
    pad_h, pad_w = op.pair("padding")
    left, right, top, bottom = op.pad
    filters = Filters(
        weight,
        bias,
        ((pad_h + top, pad_h + bottom), (pad_w + left, pad_w + right)),
        op.pair("stride"),
        op.pair("dilation"),
        op.arg("groups"),
    )
    return convolve(op, x, filters, op.fuse())


# One convolution of an image at any level, with any groups, dilation and pads.


OHWI = (0, 2, 3, 1)
"""torch's [out, in / groups, kh, kw] -> NNAPI's [out, kh, kw, in / groups]."""
IHWO = (1, 2, 3, 0)
"""torch's depthwise [in * multiplier, 1, kh, kw] -> NNAPI's [1, kh, kw, in * multiplier]."""
MAX_SPLIT_GROUPS = 64
"""Most groups that become separate convolutions where there is no suitable GROUPED_CONV_2D."""


@dataclass(frozen=True)
class Filters:
    """Weights and geometry of a convolution.

    ``weight`` is torch's [out, in / groups, kh, kw], ``bias`` [out]. Pairs are (height, width);
    each of ``pads`` is (before, after).
    """

    weight: FloatArray
    bias: FloatArray
    pads: tuple[tuple[int, int], tuple[int, int]]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def reach(self) -> tuple[int, int]:
        """Pixels from a window's first to its last, inclusive, along each axis."""
        h, w = (d * (k - 1) + 1 for d, k in zip(self.dilation, self.weight.shape[2:], strict=True))
        return h, w

    def dims(self, image: Sequence[int]) -> tuple[int, int, int, int]:
        """Returns the result's [N, H', W', O] for an image [N, H, W, C]."""
        h, w = (
            (size + sum(pads) - reach) // stride + 1
            for size, pads, reach, stride in zip(
                image[1:3], self.pads, self.reach, self.stride, strict=True
            )
        )
        return (image[0], h, w, self.weight.shape[0])


def convolve(op: Lowering, x: OperandId, filters: Filters, fuse: int) -> OperandId:
    """Convolves ``x[N, H, W, C] -> [N, H', W', O]``.

    One group is CONV_2D, a group for each input channel DEPTHWISE_CONV_2D, other counts
    GROUPED_CONV_2D. Where the latter does not exist (below level 3, or with a dilation), each group
    is a CONV_2D between slices and a concatenation. Below level 3, which brought dilations, a
    dilated convolution runs on the image's phases as a batch (SPACE_TO_BATCH_ND). NNAPI refuses
    pads that contain a whole window; these become a separate PAD.
    """
    outside = [
        tuple(size if size < 0 or size >= reach else 0 for size in pads)
        for pads, reach in zip(filters.pads, filters.reach, strict=True)
    ]
    if any(map(any, outside)):
        (top, bottom), (left, right) = outside
        x = pad_constant(op, x, [(0, 0), (top, bottom), (left, right), (0, 0)])
        inside = [
            (pads[0] - out[0], pads[1] - out[1])
            for pads, out in zip(filters.pads, outside, strict=True)
        ]
        filters = replace(filters, pads=(inside[0], inside[1]))
    if filters.dilation != (1, 1) and op.level < 3:
        return _by_phases(op, x, filters, fuse)
    return _direct(op, x, filters, fuse)


def _direct(op: Lowering, x: OperandId, filters: Filters, fuse: int) -> OperandId:
    """Convolves by NNAPI's own operation (plain, depthwise or grouped) where there is one."""
    (top, bottom), (left, right) = filters.pads
    window = [left, right, top, bottom, filters.stride[1], filters.stride[0]]
    dilated = filters.dilation != (1, 1)
    # Dilations follow the layout flag (false: channels last); all three are optional.
    tail: list[bool | int] = [False, *filters.dilation[::-1]] if dilated else []
    weight, bias, groups = filters.weight, filters.bias, filters.groups
    dims = filters.dims(op.dims(x))
    channels = op.dims(x)[3]
    if groups == 1:
        return op.emit(
            OperationCode.CONV_2D,
            [x, weight.transpose(OHWI), bias],
            [*window, fuse, *tail],
            dims=dims,
        )
    if groups == channels:
        multiplier = weight.shape[0] // channels
        return op.emit(
            OperationCode.DEPTHWISE_CONV_2D,
            [x, weight.transpose(IHWO), bias],
            [*window, multiplier, fuse, *tail],
            dims=dims,
        )
    if op.level >= 3 and not dilated:
        return op.emit(
            OperationCode.GROUPED_CONV_2D,
            [x, weight.transpose(OHWI), bias],
            [*window, groups, fuse, False],
            dims=dims,
        )
    return _group_by_group(op, x, filters, [*window, fuse, *tail])


def _group_by_group(
    op: Lowering, x: OperandId, filters: Filters, scalars: list[bool | int]
) -> OperandId:
    """Convolves by one CONV_2D per group, between slices of the channels and a concatenation."""
    groups = filters.groups
    op.require_level(2, f"groups={groups} by slices (STRIDED_SLICE)")
    op.require(
        groups <= MAX_SPLIT_GROUPS,
        f"groups={groups} without GROUPED_CONV_2D (level 3, no dilation), "
        f"at most {MAX_SPLIT_GROUPS} become convolutions of their own",
    )
    n, h, w, channels = op.dims(x)
    size = channels // groups
    if op.level >= 3:
        part = TensorType((n, h, w, size), op.out.dtype)
        cuts = op.emit_as([part] * groups, OperationCode.SPLIT, [x], [3, groups])
    else:
        cuts = tuple(slice_axis(op, x, 3, i * size, (i + 1) * size) for i in range(groups))
    *image, out_channels = filters.dims(op.dims(x))
    parts = [
        op.emit(
            OperationCode.CONV_2D,
            [cut, weight.transpose(OHWI), bias],
            scalars,
            dims=(*image, out_channels // groups),
        )
        for cut, weight, bias in zip(
            cuts,
            np.split(filters.weight, groups),
            np.split(filters.bias, groups),
            strict=True,
        )
    ]
    return concatenate(op, parts, 3)


def _by_phases(op: Lowering, x: OperandId, filters: Filters, fuse: int) -> OperandId:
    """Returns a dilated convolution without dilations: every ``dilation``-th pixel forms an image.

    The phases are images of the batch. Zeros extend the image to whole phases. Their results are
    cut off at the end, together with the pixels that a stride skips.
    """
    op.require_level(2, f"dilation {filters.dilation} (by SPACE_TO_BATCH_ND; itself from level 3)")
    n, *size, channels = op.dims(x)
    dims = filters.dims(op.dims(x))
    pads = [
        (before, after + -(total + before + after) % d)
        for total, (before, after), d in zip(size, filters.pads, filters.dilation, strict=True)
    ]
    block = np.array(filters.dilation, np.int32)
    phases = int(block.prod())
    small = [
        (total + sum(pair)) // d
        for total, pair, d in zip(size, pads, filters.dilation, strict=True)
    ]
    batch = op.emit(
        OperationCode.SPACE_TO_BATCH_ND,
        [x, block, np.array(pads, np.int32)],
        dims=(n * phases, *small, channels),
    )
    plain = replace(filters, pads=((0, 0), (0, 0)), stride=(1, 1), dilation=(1, 1))
    batch = _direct(op, batch, plain, fuse)
    _, h, w, out_channels = op.dims(batch)
    whole = op.emit(
        OperationCode.BATCH_TO_SPACE_ND,
        [batch, block],
        dims=(n, h * int(block[0]), w * int(block[1]), out_channels),
    )
    steps = [1, *filters.stride, 1]
    ends = [(count - 1) * step + 1 for count, step in zip(dims, steps, strict=True)]
    return strided_slice(op, whole, [0] * 4, ends, steps)


# Transposed convolutions.


OHWI_OF_TRANSPOSED = (1, 2, 3, 0)
"""torch's transposed [in, out, kh, kw] -> NNAPI's [out, kh, kw, in]."""


def transposed(
    op: Lowering, x: OperandId, weight: FloatArray, bias: FloatArray | None
) -> OperandId:
    """Convolves ``x[N, H, W, C] -> [N, H', W', O]`` with ``weight[C, O / groups, kh, kw]``,
    transposed: ``H' = (H - 1) * stride - 2 * padding + dilation * (kh - 1) + output_padding + 1``.

    From level 3 on, one group without dilation is TRANSPOSE_CONV_2D. Everything else is a plain
    convolution of the image with zeros between its pixels.
    """
    left, right, top, bottom = op.pad
    x = pad_constant(op, x, [(0, 0), (top, bottom), (left, right), (0, 0)])
    groups = op.arg("groups")
    if bias is None:
        bias = np.zeros(weight.shape[1] * groups, np.float32)
    if op.level >= 3 and groups == 1 and op.pair("dilation") == (1, 1):
        return _transpose_conv(op, x, weight, bias)
    return _spread_and_convolve(op, x, weight, bias)


def _transpose_conv(op: Lowering, x: OperandId, weight: FloatArray, bias: FloatArray) -> OperandId:
    """Adds a TRANSPOSE_CONV_2D, which crops ``padding`` before and ``padding - output_padding``
    after. Where the latter is negative, zeros at the end of the kernel make the result longer."""
    pads, extras = [], []
    for padding, extra in zip(op.pair("padding"), op.pair("output_padding"), strict=True):
        extras.append(max(0, extra - padding))
        pads.append((padding, padding - extra + extras[-1]))
    weight = np.pad(weight, ((0, 0), (0, 0), (0, extras[0]), (0, extras[1])))
    (top, bottom), (left, right) = pads
    stride_h, stride_w = op.pair("stride")
    return op.emit(
        OperationCode.TRANSPOSE_CONV_2D,
        [x, weight.transpose(OHWI_OF_TRANSPOSED), bias],
        [left, right, top, bottom, stride_w, stride_h, op.fuse(), False],
    )


def _spread_and_convolve(
    op: Lowering, x: OperandId, weight: FloatArray, bias: FloatArray
) -> OperandId:
    """Returns the textbook identity: zeros between the pixels, the kernel turned by 180 degrees,
    and padding for the kernel's reach beyond the original padding."""
    groups = op.arg("groups")
    channels, out, *kernel = weight.shape
    kernels = weight.reshape(groups, channels // groups, out, *kernel).swapaxes(1, 2)
    kernels = kernels.reshape(groups * out, channels // groups, *kernel)[:, :, ::-1, ::-1]
    dilation, stride = op.pair("dilation"), op.pair("stride")
    pads = []
    for axis in (0, 1):
        before = dilation[axis] * (kernel[axis] - 1) - op.pair("padding")[axis]
        # the zeros after the last pixel already exist
        after = before + op.pair("output_padding")[axis] - (stride[axis] - 1)
        pads.append((before, after))
    filters = Filters(kernels, bias, (pads[0], pads[1]), dilation=dilation, groups=groups)
    return convolve(op, _insert_zeros(op, x, stride), filters, op.fuse())


def _insert_zeros(op: Lowering, x: OperandId, stride: tuple[int, int]) -> OperandId:
    """Inserts zeros after each pixel, to its right and below, by PAD along an axis of size 1: ``[N,
    H, W, C] -> [N, H * sh, W * sw, C]``."""
    n, h, w, c = op.dims(x)
    stride_h, stride_w = stride
    if stride_w > 1:
        x = op.reshape(x, (n * h, w, 1, c))
        x = pad_constant(op, x, [(0, 0), (0, 0), (0, stride_w - 1), (0, 0)])
    if stride_h > 1:
        x = op.reshape(x, (n, h, 1, w * stride_w * c))
        x = pad_constant(op, x, [(0, 0), (0, 0), (0, stride_h - 1), (0, 0)])
    return op.reshape(x, (n, h * stride_h, w * stride_w, c))
