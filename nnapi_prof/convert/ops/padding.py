"""Pads that repeat what is inside: reflected, replicated, circular."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.take import take
from nnapi_prof.convert.registry import Lowering, logical_axes, lowers
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

CIRCULAR = aten._pad_circular.default
MODES = {
    aten.reflection_pad1d.default: "reflect",
    aten.reflection_pad2d.default: "reflect",
    aten.replication_pad1d.default: "replicate",
    aten.replication_pad2d.default: "replicate",
    CIRCULAR: "circular",
}
REFLECT = 0
"""MIRROR_PAD's mode that leaves the edge itself out."""


@lowers(aten.pad.default, *MODES)
def pad(op: Lowering) -> OperandId:
    """Lowers ``pad(x, pad, mode)`` for the modes reflect, replicate and circular.

    MIRROR_PAD (level 7) reflects; else each axis is taken apart and joined: slices and a
    concatenation, or a GATHER. Negative pads cut.
    """
    mode = MODES.get(op.target) or op.arg("mode")
    order, shape = op.out.dim_order, op.type("self").shape
    name = "padding" if op.target in MODES and op.target is not CIRCULAR else "pad"
    listed = [int(size) for size in op.arg(name)]
    pairs = {
        len(shape) - 1 - i: (listed[2 * i], listed[2 * i + 1]) for i in range(len(listed) // 2)
    }
    x = op.tensor("self", order)
    pads = [pairs.get(axis, (0, 0)) for axis in logical_axes(order, len(shape))]
    if not any(map(any, pads)):
        return x
    if mode == "reflect" and op.level >= 7 and min(map(min, pads)) >= 0:
        return op.emit(OperationCode.MIRROR_PAD, [x, np.array(pads, np.int32)], [REFLECT])
    for axis, pair in enumerate(pads):
        x = take(op, x, axis, _positions(mode, op.dims(x)[axis], pair))
    return x


def _positions(mode: str, size: int, pair: Sequence[int]) -> list[int]:
    """Which element of an axis stands at each place of the padded one."""
    places = np.arange(-pair[0], size + pair[1])
    if mode == "circular":  # torch repeats what its negative pads leave
        first = max(0, -pair[0])
        left = size + min(0, pair[1]) - first
        return [int(i) for i in first + (places - first) % left]
    if mode == "replicate":
        return [int(i) for i in places.clip(0, size - 1)]
    period = 2 * (size - 1)
    return [int(i) for i in size - 1 - abs(places % max(period, 1) - (size - 1))]
