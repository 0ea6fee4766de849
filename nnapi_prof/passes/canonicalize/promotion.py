"""Changes of element type that operators make on the way, written out.

NNAPI's operations give the type that they read. PyTorch's concatenation brings its tensors to one
type, its reductions and softmax take a type to compute in, and ``any`` and ``all`` read numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import torch_dtype, type_of
from nnapi_prof.graph.quantisation import DEQUANTIZE, MOVES, RANGES
from nnapi_prof.passes.rewrite import Rule, Site, apply_rules

aten = torch.ops.aten

EXACT_FLOAT = 2**24
"""Sums of truth values up to here are exact in float32."""


def insert_type_promotion(graph: fx.Graph) -> int:
    """Puts changes of element type in front of operators, and behind sums of truth values.

    Given:
        %c [4, 3]  = cat([%x [2, 3], %n int64[2, 3]], 0)
        %p [2, 3]  = softmax(%n, 1, torch.float32)
        %a bool[2] = any.dim(%x, 1)
        %s int64[] = sum(%m bool[2, 3])
        %f [2, 3]  = _to_copy(%image uint8[2, 3], dtype=torch.float32)
    Result:
        %c = cat([%x, _to_copy(%n, dtype=torch.float32)], 0)
        %p = softmax(_to_copy(%n, dtype=torch.float32), 1)
        %a = any.dim(ne(%x, 0), 1)
        %s = _to_copy(sum(_to_copy(%m, dtype=torch.float32)), dtype=torch.int64)
        %f = dequantize_per_tensor(%image, 1.0, 0, 0, 255, torch.uint8)

    The last for inputs of the model and what they are moved to: bytes as NNAPI has them. Returns
    the nodes replaced.
    """
    return apply_rules(graph, _RULES)


def _as(site: Site, node: fx.Node, dtype: str) -> fx.Node:
    if type_of(node).dtype == dtype:
        return node
    return site.call(aten._to_copy.default, node, dtype=torch_dtype(dtype))


def _cat(site: Site) -> fx.Node | None:
    tensors: list[fx.Node] = list(site.args["tensors"])
    if {type_of(t).dtype for t in tensors} == {site.type.dtype}:
        return None
    alike = [_as(site, t, site.type.dtype) for t in tensors]
    return site.call(site.target, alike, site.args["dim"])


def _computed_in(*others: str) -> Rule:
    """An operator whose argument ``dtype`` says what to compute in; ``others`` are its arguments
    between the tensor and the type."""

    def rule(site: Site) -> fx.Node | None:
        source = site.input()
        if site.type.dtype != "float32" or type_of(source).dtype == "float32":
            return None
        other_args = [site.args[name] for name in others]
        return site.call(site.target, _as(site, source, "float32"), *other_args)

    return rule


def _sum(*others: str) -> Rule:
    plain = _computed_in(*others)

    def rule(site: Site) -> fx.Node | None:
        source = site.input()
        counts = type_of(source).dtype == "bool" and site.type.dtype in ("int64", "int32")
        if not counts or type_of(source).n_elements > EXACT_FLOAT:
            return plain(site)
        other_args = [site.args[name] for name in others]
        total = site.call(site.target, _as(site, source, "float32"), *other_args)
        return _as(site, total, site.type.dtype)

    return rule


def _truth(site: Site) -> fx.Node | None:
    """``any`` or ``all`` of numbers: of which are not 0."""
    source = site.input()
    if type_of(source).dtype == "bool" or site.type.dtype != "bool":
        return None
    other_args = [value for name, value in site.args.items() if name != "self"]
    return site.call(site.target, site.call(aten.ne.Scalar, source, 0), *other_args)


def _count_nonzero(site: Site) -> fx.Node | None:
    source, dims = site.input(), site.args["dim"]
    if type_of(source).n_elements > EXACT_FLOAT:
        return None
    mask = site.call(aten.ne.Scalar, source, 0) if type_of(source).dtype != "bool" else source
    floats = _as(site, mask, "float32")
    listed = [dims] if isinstance(dims, int) else dims or []
    total = site.call(aten.sum.dim_IntList, floats, listed, False)
    return _as(site, total, "int64")


def _bytes(site: Site) -> fx.Node | None:
    """Floats of the model's bytes: scale 1, zero point 0."""
    source = site.input()
    if site.type.dtype != "float32" or not _are_bytes(source):
        return None
    return _floats(site, source)


def _of_bytes(site: Site) -> fx.Node | None:
    """Arithmetic of the model's bytes that gives floats."""
    bytes_ = [node for node in site.node.all_input_nodes if _are_bytes(node)]
    if site.type.dtype != "float32" or not bytes_:
        return None
    floats = {node: _floats(site, node) for node in bytes_}
    return site.call_on(floats)


def _floats(site: Site, source: fx.Node) -> fx.Node:
    dtype = type_of(source).dtype
    return site.call(DEQUANTIZE, source, 1.0, 0, *RANGES[dtype], torch_dtype(dtype))


def _are_bytes(node: fx.Node) -> bool:
    return type_of(node).dtype in RANGES and _is_input(node)


def _is_input(node: Any) -> bool:
    """Whether a value is an input of the model, moved perhaps."""
    if not isinstance(node, fx.Node):
        return False
    return node.op == "placeholder" or (node.target in MOVES and _is_input(node.args[0]))


_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.cat.default: _cat,
    aten.concat.default: _cat,
    aten.stack.default: _cat,
    aten.softmax.int: _computed_in("dim"),
    aten.log_softmax.int: _computed_in("dim"),
    aten.mean.default: _computed_in(),
    aten.mean.dim: _computed_in("dim", "keepdim"),
    aten.prod.default: _computed_in(),
    aten.prod.dim_int: _computed_in("dim", "keepdim"),
    aten.sum.default: _sum(),
    aten.sum.dim_IntList: _sum("dim", "keepdim"),
    **dict.fromkeys(
        (aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim),
        _truth,
    ),
    aten.all.dims: _truth,
    aten.count_nonzero.default: _count_nonzero,
    aten.count_nonzero.dim_IntList: _count_nonzero,
    **dict.fromkeys(
        (
            aten._to_copy.default,
            aten.to.dtype,
            aten.to.dtype_layout,
            aten.to.device,
            aten.to.other,
            aten.type_as.default,
        ),
        _bytes,
    ),
    **dict.fromkeys(
        (
            *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.div.Scalar),
            *(aten.rsub.Scalar, aten.rsub.Tensor),
        ),
        _of_bytes,
    ),
}
