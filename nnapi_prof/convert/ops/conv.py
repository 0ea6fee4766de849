"""Convolutions."""

from __future__ import annotations

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.slicing import strided_slice
from nnapi_prof.convert.registry import FloatArray, Lowering, lowers
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

OHWI = (0, 2, 3, 1)
"""torch's [out, in / groups, kh, kw] -> NNAPI's [out, kh, kw, in / groups]."""
IHWO = (1, 2, 3, 0)
"""torch's depthwise [in * multiplier, 1, kh, kw] -> NNAPI's [1, kh, kw, in * multiplier]."""


@lowers(aten.convolution.default)
def convolution(op: Lowering) -> OperandId:
    """Lowers ``convolution(x[N, C, H, W], w[O, C / groups, kh, kw], b[O]) -> [N, O, H', W']``.

    One group is CONV_2D, a group for each input channel DEPTHWISE_CONV_2D, other counts
    GROUPED_CONV_2D; where that does not exist (below level 3, or with a dilation) one CONV_2D per
    group between slices and a concatenation. NNAPI pads all four sides, so that a pad before the
    convolution is part of it.
    """
    op.require(not op.arg("transposed"), "transposed=True, only plain convolutions are lowered")
    rank = len(op.type("input").shape)
    op.require(rank == 4, f"a {rank - 2}-d convolution, NNAPI has 2-d ones only (input of rank 4)")
    x = op.image("input")
    weight = op.array("weight")
    bias = op.optional_array("bias")
    if bias is None:
        bias = np.zeros(weight.shape[0], np.float32)
    dilation_h, dilation_w = op.pair("dilation")
    dilated = (dilation_h, dilation_w) != (1, 1)
    if dilated:
        op.require_level(3, f"dilation ({dilation_h}, {dilation_w})")

    pad_h, pad_w = op.pair("padding")
    left, right, top, bottom = op.pad
    stride_h, stride_w = op.pair("stride")
    window = [pad_w + left, pad_w + right, pad_h + top, pad_h + bottom, stride_w, stride_h]
    # The dilations come after the layout flag (false: channels last), all three optional.
    tail: list[bool | int] = [False, dilation_w, dilation_h] if dilated else []

    groups = op.arg("groups")
    channels = op.type("input").shape[1]
    fuse = op.fuse()
    if groups == 1:
        filters = weight.transpose(OHWI)
        return op.emit(OperationCode.CONV_2D, [x, filters, bias], [*window, fuse, *tail])
    if groups == channels:
        multiplier = weight.shape[0] // channels
        return op.emit(
            OperationCode.DEPTHWISE_CONV_2D,
            [x, weight.transpose(IHWO), bias],
            [*window, multiplier, fuse, *tail],
        )
    if op.level >= 3 and not dilated:
        return op.emit(
            OperationCode.GROUPED_CONV_2D,
            [x, weight.transpose(OHWI), bias],
            [*window, groups, fuse, False],
        )
    return _group_by_group(op, x, weight, bias, [*window, fuse, *tail])


def _group_by_group(
    op: Lowering, x: OperandId, weight: FloatArray, bias: FloatArray, scalars: list[bool | int]
) -> OperandId:
    """One CONV_2D per group: slices of the channels in, concatenation of the channels out."""
    groups = op.arg("groups")
    op.require_level(2, f"groups={groups} by slices (STRIDED_SLICE)")
    n, h, w, channels = op.dims(x)
    size = channels // groups
    *out_nhw, out_channels = op.out.memory_shape
    dims = (*out_nhw, out_channels // groups)
    parts = [
        op.emit(
            OperationCode.CONV_2D,
            [
                strided_slice(op, x, (0, 0, 0, i * size), (n, h, w, (i + 1) * size)),
                filters.transpose(OHWI),
                biases,
            ],
            scalars,
            dims=dims,
        )
        for i, (filters, biases) in enumerate(
            zip(np.split(weight, groups), np.split(bias, groups), strict=True)
        )
    ]
    return op.emit(OperationCode.CONCATENATION, parts, [3])
