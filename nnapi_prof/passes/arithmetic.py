"""Normal form of arithmetic and activations: one overload each, numbers as Python numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import (
    constant_value,
    describe,
    infer,
    is_constant,
    positive_dim,
    torch_dtype,
    type_of,
)
from nnapi_prof.graph.quantisation import is_weight
from nnapi_prof.passes import Rule, Site, apply_rules
from nnapi_prof.passes.overloads import ALIAS_RULES

aten = torch.ops.aten


def canonicalize_arithmetic(graph: fx.Graph) -> int:
    """Spells sums, products, clamps, activations, softmax and means in one way each.

    Given:
        %a [1, 8] = add(%x, %y, alpha=2)
        %r [1, 8] = rsub(%a, 1)
        %c [1, 8] = clamp(%r, 0, 6)
        %s [1, 8] = _softmax(%c, -1, False)
    Result:
        %m [1, 8] = mul(%y, 2);    %a = add(%x, %m)
        %n [1, 8] = mul(%a, -1);   %r = add(%n, 1)
        %c [1, 8] = hardtanh(%r, 0.0, 6.0)
        %s [1, 8] = softmax(%c, 1)

    A constant operand is second where the operation commutes. A constant of one element becomes a
    number where that does not change the result's type. Returns the number of nodes replaced.
    """
    return apply_rules(graph, _RULES)


def matmul_to_linear(graph: fx.Graph) -> int:
    """Spells a product with a constant matrix as a linear layer.

    Given:
        %w [8, 10] constant
        %y [4, 10] = addmm(%b [10], %x [4, 8], %w)
    Result:
        %y [4, 10] = linear(%x, %w_t [10, 8], %b)

    Returns the number of nodes replaced.
    """
    return apply_rules(graph, _MATMUL_RULES)


def _as_number(value: Any, partner: Any) -> Any:
    """Returns a constant of one element as a Python number, if that changes no shape or type."""
    if not is_constant(value) or not isinstance(partner, fx.Node):
        return value
    constant = constant_value(value)
    if constant.numel() != 1:
        return value
    number = constant.item()
    alone = describe(infer(aten.add.Tensor, (partner, number), {}))
    joined = describe(infer(aten.add.Tensor, (partner, value), {}))
    return number if alone == joined else value


def _commuted(site: Site) -> tuple[Any, Any]:
    """Returns ``self`` and ``other`` of a commuting operation, with a constant second."""
    a, b = site.args["self"], site.args["other"]
    if is_constant(a) and isinstance(b, fx.Node) and not is_constant(b):
        a, b = b, a
    return a, _as_number(b, a)


def _scaled(site: Site, value: Any, factor: Any) -> Any:
    """Returns ``value * factor`` in the result's type, because it might not fit a type of bytes.
    Numbers are multiplied at once, tensors by a node."""
    if factor == 1:
        return value
    if isinstance(value, fx.Node):
        if type_of(value).dtype != site.type.dtype:
            dtype = torch_dtype(site.type.dtype)
            value = site.call(aten._to_copy.default, value, dtype=dtype)
        return site.call(aten.mul.Tensor, value, factor)
    return value * factor


def _minus(site: Site, minuend: Any, subtrahend: Any) -> fx.Node | None:
    """Returns ``minuend - alpha * subtrahend``; ``x * -alpha + n`` for a number as minuend."""
    alpha = site.args.get("alpha", 1)
    minuend, subtrahend = _as_number(minuend, subtrahend), _as_number(subtrahend, minuend)
    if not isinstance(minuend, fx.Node):
        return site.call(aten.add.Tensor, _scaled(site, subtrahend, -alpha), minuend)
    return site.become(aten.sub.Tensor, minuend, _scaled(site, subtrahend, alpha))


def _add(site: Site) -> fx.Node | None:
    alpha = site.args["alpha"]
    if alpha != 1:
        a, b = site.args["self"], site.args["other"]
        return site.call(aten.add.Tensor, a, _scaled(site, _as_number(b, a), alpha))
    return site.become(aten.add.Tensor, *_commuted(site))


def _sub(site: Site) -> fx.Node | None:
    return _minus(site, site.args["self"], site.args["other"])


def _rsub(site: Site) -> fx.Node | None:
    return _minus(site, site.args["other"], site.args["self"])


def _mul(site: Site) -> fx.Node | None:
    return site.become(aten.mul.Tensor, *_commuted(site))


def _div(site: Site) -> fx.Node | None:
    a, b = site.args["self"], site.args["other"]
    return site.become(aten.div.Tensor, a, _as_number(b, a))


def _relu6(site: Site) -> fx.Node | None:
    return site.call(aten.hardtanh.default, site.input(), 0.0, 6.0)


def _bounds(site: Site, low: Any, high: Any) -> fx.Node | None:
    """Returns a clamp to [low, high]; either may be None."""
    source = site.input()
    is_float = torch_dtype(type_of(source).dtype).is_floating_point
    if low == 0 and high is None:
        return site.call(aten.relu.default, source)
    if is_float and (low, high) in ((0, 6), (-1, 1)):
        return site.become(aten.hardtanh.default, source, float(low), float(high))
    if is_float:
        low, high = (None if bound is None else float(bound) for bound in (low, high))
    return site.become(aten.clamp.default, source, low, high)


def _clamp(site: Site) -> fx.Node | None:
    return _bounds(site, site.args["min"], site.args.get("max"))


def _clamp_max(site: Site) -> fx.Node | None:
    return _bounds(site, None, site.args["max"])


def _hardtanh(site: Site) -> fx.Node | None:
    low, high = site.args["min_val"], site.args["max_val"]
    if not torch_dtype(site.type.dtype).is_floating_point:  # unlike a clamp's, it stays an integer
        low, high = int(low), int(high)
    return _bounds(site, low, high)


def _threshold(site: Site) -> fx.Node | None:
    if site.args["threshold"] == 0 and site.args["value"] == 0:
        return site.call(aten.relu.default, site.input())
    return None


def _rrelu(site: Site) -> fx.Node | None:
    """Uses the mean of the bounds as slope, as PyTorch does outside training."""
    arg = site.args
    if arg["training"]:
        return None
    slope = (float(arg["lower"]) + float(arg["upper"])) / 2
    return site.call(aten.leaky_relu.default, site.input(), slope)


def _sigmoid(site: Site) -> fx.Node | None:
    return site.call(aten.sigmoid.default, site.input())


def _softmax_like(target: torch._ops.OpOverload) -> Rule:
    def rule(site: Site) -> fx.Node | None:
        source = site.input()
        source_type = type_of(source)
        if site.type.dtype != source_type.dtype:
            return None
        return site.become(target, source, positive_dim(site.args["dim"], len(source_type.shape)))

    return rule


def _mean(site: Site) -> fx.Node | None:
    """Returns ``mean.dim`` with ascending dims; over H and W with keepdim an average pool."""
    source = site.input()
    source_type = type_of(source)
    if site.type.dtype != source_type.dtype:
        return None
    rank = len(source_type.shape)
    dims = sorted(positive_dim(d, rank) for d in (site.args.get("dim") or range(rank)))
    keepdim = bool(site.args.get("keepdim", False))
    if rank == 4 and dims == [2, 3] and keepdim:
        return site.call(aten.adaptive_avg_pool2d.default, source, [1, 1])
    return site.become(aten.mean.dim, source, dims, keepdim)


def _to(site: Site) -> fx.Node | None:
    """Returns a change of element type; a change to the same type is left to drop_noops."""
    if site.type.dtype == type_of(site.input()).dtype:
        return site.input()
    dtype = torch_dtype(site.type.dtype)
    if site.node.target is aten._to_copy.default and set(site.node.kwargs) == {"dtype"}:
        return None
    return site.call(aten._to_copy.default, site.input(), dtype=dtype)


def _addmm(site: Site) -> fx.Node | None:
    matrix, bias = site.args["mat2"], site.args["self"]
    if not is_weight(matrix) or (site.args["beta"], site.args["alpha"]) != (1, 1):
        return None
    if not is_weight(bias) or type_of(bias).shape != (type_of(matrix).shape[1],):
        return None
    return site.call(aten.linear.default, site.input("mat1"), _transposed(site, matrix), bias)


def _product(site: Site) -> fx.Node | None:
    matrix = site.args["mat2" if "mat2" in site.args else "other"]
    if not is_weight(matrix) or len(type_of(matrix).shape) != 2 or is_weight(site.args["self"]):
        return None
    return site.call(aten.linear.default, site.input(), _transposed(site, matrix), None)


def _transposed(site: Site, matrix: fx.Node) -> fx.Node:
    """Returns a constant matrix transposed; a quantised one by a node (see propagate_qdq)."""
    if not is_constant(matrix):
        return site.call(aten.permute.default, matrix, [1, 0])
    return site.add_constant(constant_value(matrix).t().contiguous(), f"{matrix.target}_t")


def _linear(site: Site) -> fx.Node | None:
    source, weight, bias = site.input("input"), site.input("weight"), site.args["bias"]
    if len(type_of(weight).shape) == 1:
        product = site.call(aten.matmul.default, source, weight)
        return product if bias is None else site.call(aten.add.Tensor, product, bias)
    return site.become(aten.linear.default, source, weight, bias)


_RULES: dict[torch._ops.OpOverload, Rule] = {
    **ALIAS_RULES,
    aten.add.Tensor: _add,
    aten.add.Scalar: _add,
    aten.sub.Tensor: _sub,
    aten.sub.Scalar: _sub,
    aten.subtract.Tensor: _sub,
    aten.rsub.Tensor: _rsub,
    aten.rsub.Scalar: _rsub,
    aten.mul.Tensor: _mul,
    aten.mul.Scalar: _mul,
    aten.multiply.Tensor: _mul,
    aten.div.Tensor: _div,
    aten.div.Scalar: _div,
    aten.divide.Tensor: _div,
    aten.true_divide.Tensor: _div,
    aten.relu6.default: _relu6,
    aten.clamp.default: _clamp,
    aten.clip.default: _clamp,
    aten.clamp_min.default: _clamp,
    aten.clamp_max.default: _clamp_max,
    aten.hardtanh.default: _hardtanh,
    aten.threshold.default: _threshold,
    aten.rrelu.default: _rrelu,
    aten.special_expit.default: _sigmoid,
    aten.softmax.int: _softmax_like(aten.softmax.int),
    aten._softmax.default: _softmax_like(aten.softmax.int),
    aten.log_softmax.int: _softmax_like(aten.log_softmax.int),
    aten._log_softmax.default: _softmax_like(aten.log_softmax.int),
    aten.mean.default: _mean,
    aten.mean.dim: _mean,
    aten._to_copy.default: _to,
    aten.to.dtype: _to,
    aten.to.dtype_layout: _to,
    aten.to.device: _to,
    aten.to.other: _to,
    aten.type_as.default: _to,
}

_MATMUL_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.addmm.default: _addmm,
    aten.mm.default: _product,
    aten.matmul.default: _product,
    aten.linear.default: _linear,
}
