"""The passes that bring a graph to normal form, in order, and the function that runs them.

A pass is a function ``Graph -> int`` that returns the number of its changes. To add one, write it
in the file of its family, add its line to DEFAULT_PASSES with the reason for its position, and add
a case to tests/graph. CONTRIBUTING.md has an example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import fx

from nnapi_prof.errors import FrontendError
from nnapi_prof.graph.node import UNIT, bound_args, calls, type_of
from nnapi_prof.graph.program import verify
from nnapi_prof.graph.quantisation import (
    QUANTIZE,
    annotate_quantisation,
    is_fused_activation,
    quantised_unit,
)
from nnapi_prof.passes import erase_unused
from nnapi_prof.passes.arithmetic import canonicalize_arithmetic, matmul_to_linear
from nnapi_prof.passes.complex import decompose_complex
from nnapi_prof.passes.dim_order import assign_dim_order, cancel_permutes, lift_permutes
from nnapi_prof.passes.movement import canonicalize_movement, drop_expands
from nnapi_prof.passes.overloads import (
    canonicalize_layers,
    canonicalize_overloads,
    drop_unread_getitems,
    fold_batch_norm,
)
from nnapi_prof.passes.promotion import insert_type_promotion
from nnapi_prof.passes.qdq import (
    canonicalize_qdq,
    duplicate_dequantize,
    fold_dequantize,
    propagate_qdq,
    qdq_to_uint8,
)
from nnapi_prof.passes.rank import decompose_high_rank
from nnapi_prof.passes.scatter import decompose_scatter
from nnapi_prof.passes.simplify import (
    drop_noops,
    fold_constants,
    share_constants,
    simplify_constant_gather,
)
from nnapi_prof.passes.spatial_rank import conv1d_to_conv2d, decompose_conv3d
from nnapi_prof.passes.sums import check_terms_for_infinity, sum_of_stack_to_adds
from nnapi_prof.passes.unsupported_qdq import decompose_dynamic_quant, widen_quant_ranges
from nnapi_prof.passes.views import canonicalize_views, merge_views

aten = torch.ops.aten

FUSES = frozenset(
    {
        aten.convolution.default,
        aten.linear.default,
        aten.add.Tensor,
        aten.sub.Tensor,
        aten.mul.Tensor,
        aten.div.Tensor,
        aten.batch_norm.default,
        aten.avg_pool2d.default,
        aten.max_pool2d.default,
    }
)
"""Operations whose NNAPI counterparts take a fuse code (CONV_2D, DEPTHWISE_CONV_2D,
FULLY_CONNECTED, ADD, SUB, MUL, DIV, AVERAGE_POOL_2D, MAX_POOL_2D; batch_norm as MUL, ADD)."""


def fuse_activations(graph: fx.Graph) -> int:
    """Writes into each call's ``meta["unit"]`` the name of the last node of its unit.

    Given:
        %p = constant_pad_nd(%x, [0, 1, 0, 1], 0.0)
        %c = convolution(%p, ...)
        %r = hardtanh(%c, 0.0, 6.0)
        %s = sigmoid(%r)
    Result:
        the same graph; %p, %c and %r have unit %r, %s has unit %s

    NNAPI fuses relu, relu6 and [-1, 1] into the operation of their input, if nothing else reads
    that. A zero pad of H and W joins a convolution, if it is the only reader, as explicit padding.
    An operation between dequantize and quantize nodes of its own is one unit with these. Returns
    the number of nodes that joined another node's unit.
    """
    joined = 0
    for node in calls(graph):
        node.meta[UNIT] = node.name
    for node in calls(graph):
        if is_fused_activation(node):
            producer = node.args[0]
            assert isinstance(producer, fx.Node)
            if _is_alone(producer, node) and producer.target in FUSES:
                producer.meta[UNIT] = node.name
                joined += 1
    for node in calls(graph):
        if node.target is aten.constant_pad_nd.default and len(node.users) == 1:
            reader = next(iter(node.users))
            if reader.target is aten.convolution.default and _pads_for(node, reader):
                node.meta[UNIT] = reader.meta[UNIT]
                joined += 1
    return joined + _join_conversions(graph)


def _join_conversions(graph: fx.Graph) -> int:
    joined = 0
    for node in graph.find_nodes(op="call_function", target=QUANTIZE):
        unit = quantised_unit(node)
        if unit is None:
            continue
        own = set(unit.nodes)
        if any(set(member.users) - own for member in unit.nodes if member is not node):
            continue
        for member in unit.nodes:
            joined += member.meta[UNIT] != node.name
            member.meta[UNIT] = node.name
    return joined


def _is_alone(producer: fx.Node, reader: fx.Node) -> bool:
    same_type = "tensor" in producer.meta and type_of(producer) == type_of(reader)
    return same_type and list(producer.users) == [reader]


def _pads_for(pad: fx.Node, convolution: fx.Node) -> bool:
    args, conv = bound_args(pad), bound_args(convolution)
    sides = list(args["pad"])
    return (
        args["value"] == 0
        and conv["input"] is pad
        and conv["weight"] is not pad
        and not conv["transposed"]
        and len(type_of(pad).shape) == 4
        and len(sides) <= 4
        and all(side >= 0 for side in sides)
        and isinstance(pad.args[0], fx.Node)
        and type_of(pad.args[0]).dim_order is type_of(pad).dim_order
    )


Pass = Callable[[fx.Graph], int]


def run_passes(module: fx.GraphModule, passes: Sequence[Pass]) -> dict[str, int]:
    """Runs ``passes`` over the module's graph and recompiles it.

    Returns the number of changes by pass name, summed where a pass runs more than once. Raises
    FrontendError with the pass after which a rule was broken, and the passes before it.
    """
    changes: dict[str, int] = {}
    done: list[str] = []
    for one in passes:
        name = one.__name__
        try:
            changes[name] = changes.get(name, 0) + one(module.graph)
            erase_unused(module.graph)
            verify(module.graph)
        except (AssertionError, FrontendError, LookupError, RuntimeError, TypeError) as error:
            before = ", ".join(done) or "none"
            raise FrontendError(f"pass {name} failed (passes before it: {before}): {error}") from (
                error
            )
        done.append(name)
    module.recompile()
    return changes


DEFAULT_PASSES: tuple[Pass, ...] = (
    drop_unread_getitems,  # first: rules ask which of several values are read
    drop_noops,  # before any matching: a clone between two nodes hides one from the other
    canonicalize_overloads,  # before the passes that ask for one overload
    decompose_complex,  # before all passes on real numbers; after overloads, which it matches
    check_terms_for_infinity,  # before fold_constants and canonicalize_movement: see its output
    insert_type_promotion,  # before canonicalize_movement, which splits and joins one type
    decompose_scatter,  # before canonicalize_movement, whose spelling it ends in
    canonicalize_qdq,  # before fold_constants: weights stay integers and a scale
    fold_constants,  # a transposed weight must be a constant before any pass reads it
    qdq_to_uint8,  # before propagate_qdq, which needs numbers
    decompose_dynamic_quant,  # after qdq_to_uint8: distinguishes numbers from computed scales
    canonicalize_movement,  # before canonicalize_views and _layers, whose spelling it ends in
    canonicalize_views,
    canonicalize_layers,
    canonicalize_arithmetic,
    fold_constants,  # views and products of constants that the three above wrote
    simplify_constant_gather,  # after folding: needs constant places
    propagate_qdq,  # a transposed weight of integers is a weight to matmul_to_linear
    matmul_to_linear,  # after folding: needs constant matrices
    drop_noops,  # no-ops only in the normal spelling: mul by 1, view to the same shape
    fold_batch_norm,  # after drop_noops: a dropout between layer and norm is gone
    decompose_conv3d,  # after fold_batch_norm, as conv1d_to_conv2d
    conv1d_to_conv2d,  # after fold_batch_norm, where the norm must read the layer itself
    propagate_qdq,  # after the normal spelling of views, before they are merged
    widen_quant_ranges,  # after propagate_qdq, which drops conversions of the same integers
    merge_views,
    drop_expands,  # after the normal spelling of expand
    sum_of_stack_to_adds,  # before decompose_high_rank, which merges the dimension of the stack
    decompose_high_rank,  # after merge_views: a permutation must be seen between its two views
    drop_noops,  # a view of a view that ends where it began hides one permute from another
    lift_permutes,  # after merge_views; before cancel_permutes, which may cancel what it writes
    cancel_permutes,  # before assign_dim_order: a permute and its inverse would force clones
    drop_noops,  # the same between two permutes that were removed
    fold_dequantize,  # after everything that may bring a weight to its quantised operation
    share_constants,  # after all folding, which writes constants
    duplicate_dequantize,  # before annotate_quantisation, which types its nodes
    annotate_quantisation,  # before assign_dim_order: quantised images have an order
    assign_dim_order,  # after everything that adds or drops nodes
    fuse_activations,  # last: units must not cross a clone that assign_dim_order put in
)

__all__ = ["DEFAULT_PASSES", "Pass", "run_passes"]
