"""Transposed convolutions."""

from __future__ import annotations

import numpy as np

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.convolve import Filters, convolve
from nnapi_prof.convert.ops.slicing import pad_constant
from nnapi_prof.convert.registry import FloatArray, Lowering
from nnapi_prof.nnapi.codes import OperationCode

OHWI = (1, 2, 3, 0)
"""torch's transposed [in, out, kh, kw] -> NNAPI's [out, kh, kw, in]."""


def transposed(
    op: Lowering, x: OperandId, weight: FloatArray, bias: FloatArray | None
) -> OperandId:
    """``x[N, H, W, C] -> [N, H', W', O]`` with ``weight[C, O / groups, kh, kw]``, where
    ``H' = (H - 1) * stride - 2 * padding + dilation * (kh - 1) + output_padding + 1``.

    TRANSPOSE_CONV_2D for one group without dilation from level 3 on; else a plain convolution of
    the image with zeros between its pixels.
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
    """TRANSPOSE_CONV_2D crops ``padding`` before and ``padding - output_padding`` after; where
    that is negative, zeros at the end of the kernel make the result longer."""
    pads, grown = [], []
    for padding, extra in zip(op.pair("padding"), op.pair("output_padding"), strict=True):
        grown.append(max(0, extra - padding))
        pads.append((padding, padding - extra + grown[-1]))
    weight = np.pad(weight, ((0, 0), (0, 0), (0, grown[0]), (0, grown[1])))
    (top, bottom), (left, right) = pads
    stride_h, stride_w = op.pair("stride")
    return op.emit(
        OperationCode.TRANSPOSE_CONV_2D,
        [x, weight.transpose(OHWI), bias],
        [left, right, top, bottom, stride_w, stride_h, op.fuse(), False],
    )


def _spread_and_convolve(
    op: Lowering, x: OperandId, weight: FloatArray, bias: FloatArray
) -> OperandId:
    """The textbook identity: zeros between the pixels, the kernel turned by 180 degrees, and what
    the kernel reaches over beyond the padding as padding."""
    groups = op.arg("groups")
    channels, out, *kernel = weight.shape
    turned = weight.reshape(groups, channels // groups, out, *kernel).swapaxes(1, 2)
    turned = turned.reshape(groups * out, channels // groups, *kernel)[:, :, ::-1, ::-1]
    dilation, stride = op.pair("dilation"), op.pair("stride")
    pads = []
    for axis in (0, 1):
        before = dilation[axis] * (kernel[axis] - 1) - op.pair("padding")[axis]
        # the zeros behind the last pixel are there already
        after = before + op.pair("output_padding")[axis] - (stride[axis] - 1)
        pads.append((before, after))
    filters = Filters(turned, bias, (pads[0], pads[1]), dilation=dilation, groups=groups)
    return convolve(op, _spread(op, x, stride), filters, op.fuse())


def _spread(op: Lowering, x: OperandId, stride: tuple[int, int]) -> OperandId:
    """``[N, H, W, C] -> [N, H * sh, W * sw, C]``: each pixel followed by zeros on its right and
    below, by PAD along an axis of size 1."""
    n, h, w, c = op.dims(x)
    stride_h, stride_w = stride
    if stride_w > 1:
        x = op.reshape(x, (n * h, w, 1, c))
        x = pad_constant(op, x, [(0, 0), (0, 0), (0, stride_w - 1), (0, 0)])
    if stride_h > 1:
        x = op.reshape(x, (n, h, 1, w * stride_w * c))
        x = pad_constant(op, x, [(0, 0), (0, 0), (0, stride_h - 1), (0, 0)])
    return op.reshape(x, (n, h * stride_h, w * stride_w, c))
