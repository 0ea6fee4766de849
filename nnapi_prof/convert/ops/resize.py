"""Resizing of images."""

from __future__ import annotations

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten


@lowers(aten.upsample_nearest2d.vec)
def upsample_nearest2d(op: Lowering) -> OperandId:
    """Lowers ``upsample_nearest2d(x[N, C, H, W]) -> [N, C, H', W']``.

    NNAPI reads pixel ``floor(i * in / out)``; so does torch, unless it was given a scale that is
    not out / in.
    """
    x = op.image("input")
    _require_own_scale(op)
    _, _, out_h, out_w = op.out.shape
    return op.emit(OperationCode.RESIZE_NEAREST_NEIGHBOR, [x], [out_w, out_h, False])


@lowers(aten.upsample_bilinear2d.vec)
def upsample_bilinear2d(op: Lowering) -> OperandId:
    """Lowers ``upsample_bilinear2d(x[N, C, H, W]) -> [N, C, H', W']``.

    align_corners=False is NNAPI's half_pixel_centers. Both flags came with level 4; before, pixel
    ``i`` reads at ``i * in / out``, which is the same only for an axis that keeps its size, has
    one pixel, or has one result and aligned corners.
    """
    x = op.image("input")
    align = bool(op.arg("align_corners"))
    _, _, h, w = op.type("input").shape
    _, _, out_h, out_w = op.out.shape
    if not align:
        _require_own_scale(op)
    if op.level >= 4:
        flags = [False, align, not align]  # layout, align_corners, half_pixel_centers
        return op.emit(OperationCode.RESIZE_BILINEAR, [x], [out_w, out_h, *flags])
    for size, out in ((h, out_h), (w, out_w)):
        if size != out and size != 1 and not (align and out == 1):
            op.require_level(4, f"bilinear from {h}x{w} to {out_h}x{out_w}, align_corners={align},")
    return op.emit(OperationCode.RESIZE_BILINEAR, [x], [out_w, out_h])


def _require_own_scale(op: Lowering) -> None:
    """torch computes positions with a given scale, NNAPI with the ratio of sizes."""
    scales = op.arg("scale_factors")
    if scales is None:
        return
    for size, out, scale in zip(op.type("input").shape[2:], op.out.shape[2:], scales, strict=True):
        op.require(
            bool(np.isclose(size * scale, out, rtol=1e-6, atol=0)),
            f"scale factor {scale} from {size} to {out}, NNAPI scales by {out}/{size}",
        )
