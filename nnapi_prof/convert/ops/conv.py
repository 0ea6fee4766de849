"""Convolutions."""

from __future__ import annotations

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.conv_transpose import transposed
from nnapi_prof.convert.ops.convolve import Filters, convolve
from nnapi_prof.convert.registry import Lowering, lowers

aten = torch.ops.aten


@lowers(aten.convolution.default)
def convolution(op: Lowering) -> OperandId:
    """Lowers ``convolution(x[N, C, H, W], w[O, C / groups, kh, kw], b[O]) -> [N, O, H', W']``
    and its transpose, whose weights are ``w[C, O / groups, kh, kw]``.

    NNAPI pads all four sides, so that a pad before the convolution is part of it.
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
