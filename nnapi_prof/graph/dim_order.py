"""Tables of the dim order that each operation requires of its tensors.

Every rank-4 value of floats, quantised integers or truth values may be CONTIGUOUS or
CHANNELS_LAST. An operation

* WANTS channels last: NNAPI's (and XNNPACK's) kernels for it read [N, H, W, C];
* FOLLOWS: works on either, but all its rank-4 tensors must have the same order;
* is a RESHAPE: reads either order where both are the same memory, else contiguous;
* is a REDUCTION without keepdim: reads channels last where the remaining dimensions keep their
  order;
* is a permute between the two orders' shapes: moves nothing where one side is channels last, see
  moves_to_last and moves_from_last;
* is OPAQUE: reads and writes contiguous only, as all operations that are in no table;
* is a CLONE, inserted by assign_dim_order: reads one order and writes the other.
"""

from __future__ import annotations

import enum
import math

import torch
from torch import fx
from torch._ops import OpOverload

from nnapi_prof.graph import DTYPE_BYTES, DimOrder, TensorType
from nnapi_prof.graph.node import bound_args, makes_tensor, type_of
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE, is_weight

aten = torch.ops.aten


class Layout(enum.Enum):
    """Dim orders that an operation requires of its tensors."""

    WANTS = "wants channels last"
    FOLLOWS = "follows"
    RESHAPE = "reshape"
    REDUCTION = "reduction"
    OPAQUE = "contiguous only"
    CLONE = "changes the order"


_WANTS = frozenset(
    {
        aten.convolution.default,
        aten.max_pool2d.default,
        aten.avg_pool2d.default,
        aten.adaptive_avg_pool2d.default,
        aten.adaptive_max_pool2d.default,
        aten.upsample_nearest2d.vec,
        aten.upsample_bilinear2d.vec,
        aten._upsample_nearest_exact2d.vec,
        aten.pixel_shuffle.default,
        aten.pixel_unshuffle.default,
        *(aten.grid_sampler.default, aten.grid_sampler_2d.default),
    }
)
_FOLLOWS = frozenset(
    {
        aten.batch_norm.default,
        aten.instance_norm.default,
        aten.group_norm.default,
        aten.cat.default,
        aten.softmax.int,
        aten.log_softmax.int,
        aten.slice.Tensor,
        aten.constant_pad_nd.default,
        aten.pad.default,
        aten._pad_circular.default,
        aten.reflection_pad2d.default,
        aten.replication_pad2d.default,
        aten.flip.default,
        aten.roll.default,
        aten.repeat.default,
        aten.repeat_interleave.self_int,
        aten.expand.default,
        aten.index_select.default,
        aten.channel_shuffle.default,
        aten.upsample_bicubic2d.vec,
        aten._upsample_bilinear2d_aa.vec,
        aten._upsample_bicubic2d_aa.vec,
        aten._to_copy.default,
        # pointwise, but not tagged so:
        QUANTIZE,
        DEQUANTIZE,
        aten.where.ScalarSelf,
        aten.where.ScalarOther,
        aten.where.Scalar,
        aten.hardswish.default,
        aten.hardsigmoid.default,
        aten.prelu.default,
        aten.glu.default,
        aten.log_sigmoid.default,
        aten.floor_divide.default,
        aten.floor_divide.Scalar,
    }
)
LIES_LAST = "lies_last"
"""Key of ``node.meta``: a placeholder's images are channels last, an output's in either order."""
_FORBIDDEN = 2**32
"""Cost, in bytes, of a change of order that is impossible."""
_RESHAPES = frozenset({aten.view.default, aten.reshape.default})
_REDUCTIONS = frozenset({aten.mean.dim, aten.sum.dim_IntList, aten.amax.default, aten.amin.default})


def can_be_channels_last(value_type: TensorType) -> bool:
    """Returns whether a value may be CHANNELS_LAST at all."""
    return len(value_type.shape) == 4 and (_holds_numbers(value_type) or value_type.dtype == "bool")


def _holds_numbers(value_type: TensorType) -> bool:
    """Returns whether the elements are real numbers, rather than indices or truth values."""
    return value_type.dtype in ("float32", "float16") or value_type.quant is not None


def orders_agree(value_type: TensorType) -> bool:
    """Returns whether both orders of a rank-4 value are the same memory: one channel or pixel."""
    _, c, h, w = value_type.shape
    return c == 1 or h * w == 1


def layout_of(node: fx.Node) -> Layout:
    """Returns the layout that ``node``, a call, requires."""
    if not isinstance(node.target, OpOverload) or not makes_tensor(node):
        return Layout.OPAQUE
    if node.target in _RESHAPES:
        return Layout.RESHAPE
    if node.target is aten.clone.default:
        return Layout.CLONE
    if node.target in _REDUCTIONS and not bound_args(node)["keepdim"]:
        return Layout.REDUCTION
    if not can_be_channels_last(type_of(node)):
        return Layout.OPAQUE
    if node.target in _WANTS:
        return Layout.WANTS
    if node.target in _FOLLOWS | _REDUCTIONS or torch.Tag.pointwise in node.target.tags:
        return Layout.FOLLOWS if _inputs_can_follow(node) else Layout.OPAQUE
    return Layout.OPAQUE


def _inputs_can_follow(node: fx.Node) -> bool:
    """Returns whether all inputs may be in either order. Indices have only one order, and so does
    a mask of lower rank, as nothing reshapes it to rank 4."""
    moving = [type_of(source) for source in node.all_input_nodes if not is_weight(source)]
    return all(
        _holds_numbers(source_type) or can_be_channels_last(source_type) for source_type in moving
    )


def reads_either(node: fx.Node, source: TensorType) -> bool:
    """Returns whether a RESHAPE or REDUCTION reads a rank-4 ``source`` in either order for free."""
    layout = layout_of(node)
    if layout is Layout.RESHAPE:
        return orders_agree(source)
    if layout is not Layout.REDUCTION:
        return False
    dims = bound_args(node)["dim"]
    reduced = {dim % 4 for dim in ([dims] if isinstance(dims, int) else dims)} or set(range(4))
    remaining = [dim for dim in (0, 2, 3, 1) if dim not in reduced and source.shape[dim] != 1]
    return remaining == sorted(remaining)


def moves_from_last(node: fx.Node) -> bool:
    """Returns whether ``node`` permutes ``[N, C, H, W]`` to ``[N, H, W, C]``, which moves no
    element of a channels-last image, but all of another one."""
    dims = _permuted(node)
    return dims is not None and dims == [axis for axis in (0, 2, 3, 1) if axis in dims]


def moves_to_last(node: fx.Node) -> bool:
    """Returns whether ``node`` permutes ``[N, H, W, C]`` to ``[N, C, H, W]``, which moves no
    element where its result is channels last."""
    dims = _permuted(node, (0, 2, 3, 1))
    return dims is not None and dims == sorted(dims) and not moves_from_last(node)


def _permuted(node: fx.Node, axes: tuple[int, ...] = (0, 1, 2, 3)) -> list[int] | None:
    """Returns the axes of an image that become the ``axes`` of its permutation, without those of
    size 1; None for other nodes."""
    if node.target is not aten.permute.default or not can_be_channels_last(type_of(node)):
        return None
    args = bound_args(node)
    shape = type_of(args["self"]).shape
    return [args["dims"][axis] for axis in axes if shape[args["dims"][axis]] != 1]


def is_plain_input(node: fx.Node, source: fx.Node) -> bool:
    """Returns whether ``node``, which may read images channels last, reads ``source`` as something
    else (the grid of a sampler)."""
    samples = node.target in (aten.grid_sampler.default, aten.grid_sampler_2d.default)
    return samples and bound_args(node)["grid"] is source


def wanted_order(node: fx.Node, source: fx.Node) -> DimOrder | None:
    """Returns the order in which ``node`` reads ``source``, a rank-4 value; None for either."""
    if node.op == "output":
        return None if LIES_LAST in node.meta else DimOrder.CONTIGUOUS
    if reads_either(node, type_of(source)) or moves_from_last(node):
        return None
    if layout_of(node) in (Layout.WANTS, Layout.FOLLOWS) and not is_plain_input(node, source):
        return type_of(node).dim_order
    return DimOrder.CONTIGUOUS


def writes_either(node: fx.Node) -> bool:
    """Returns whether the result of ``node`` may be CHANNELS_LAST at no cost, for any inputs."""
    result_type = type_of(node)
    free = layout_of(node) is Layout.RESHAPE and can_be_channels_last(result_type)
    return free and orders_agree(result_type)


def transposed_bytes(value_type: TensorType) -> int:
    """Returns the cost of changing the order of a value, in bytes read and written.

    A constant is the fixed cost of a transposition; it only decides between few large and many
    small ones. 16 KiB is about as much as moves in the time of one kernel launch on a CPU (one to
    two us at some GB/s). NNAPI does not transpose truth values, so any alternative is cheaper.
    """
    if value_type.dtype == "bool":
        return 0 if orders_agree(value_type) else _FORBIDDEN
    n_bytes = math.prod(value_type.shape) * DTYPE_BYTES[value_type.dtype]
    moved = 0 if orders_agree(value_type) else 2 * n_bytes
    return moved + 16384
