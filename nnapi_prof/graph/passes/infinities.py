"""What is asked of a sum's infinities is asked of its terms: on phones NNAPI's sums are finite.

An attention that was taken apart before it was saved asks its masked scores which rows are minus
infinity throughout. A mask has that from a constant, an input or a choice: there it can be asked.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import torch
from torch import fx

from nnapi_prof.graph.node import bound_args, constant_value, is_constant, type_of
from nnapi_prof.graph.passes.rewrite import Rule, Site, apply_rules

aten = torch.ops.aten

ARITHMETIC = frozenset(
    {
        *(aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.sub.Tensor),
        *(aten.bmm.default, aten.mm.default, aten.matmul.default, aten.baddbmm.default),
        *(aten.addmm.default, aten.linear.default, aten.convolution.default),
    }
)
"""Operators whose results, on phones, are finite."""
VIEWS = frozenset(
    {
        *(aten.view.default, aten.reshape.default, aten._unsafe_view.default),
        *(aten.expand.default, aten.permute.default, aten.transpose.int, aten.clone.default),
        *(aten.unsqueeze.default, aten.squeeze.dim, aten.slice.Tensor, aten.select.int),
    }
)
"""Operators that give elements of their first argument."""


def ask_the_terms(graph: fx.Graph) -> int:
    """Compares the terms of a sum with infinity instead of the sum.

    Given:
        %s [2, 4, 4] = add(%scores, %mask)            %scores a product, %mask [4, 4]
        %h [2, 4, 4] = eq(%s, -inf)
    Result:
        %s [2, 4, 4] = add(%scores, %mask)
        %e [4, 4] = eq(%mask, -inf)
        %h [2, 4, 4] = logical_or(%e, false [2, 1, 1])

    Terms that arithmetic makes are left out. Returns the number of comparisons changed.
    """
    return apply_rules(graph, RULES)


def _eq(site: Site) -> fx.Node | None:
    value, source = site.args["other"], site.input()
    if not isinstance(value, float) or not math.isinf(value) or not _is_sum(source):
        return None
    terms = [term for term in _terms(source) if _may_be_infinite(term)]
    if not terms:
        return None
    first, *rest = [site.call(aten.eq.Scalar, term, value) for term in terms]
    found = functools.reduce(lambda a, b: site.call(aten.logical_or.default, a, b), rest, first)
    shape, have = site.type.shape, type_of(found).shape
    if have == shape:
        return found
    have = (1,) * (len(shape) - len(have)) + have
    wide = [1 if a == b else b for a, b in zip(have, shape, strict=True)]
    nothing = site.add_constant(torch.zeros(wide, dtype=torch.bool), "nothing_else")
    return site.call(aten.logical_or.default, found, nothing)


RULES: dict[torch._ops.OpOverload, Rule] = {aten.eq.Scalar: _eq}


def _is_sum(node: fx.Node) -> bool:
    return node.target is aten.add.Tensor and bound_args(node)["alpha"] == 1


def _terms(node: fx.Node) -> Iterator[fx.Node]:
    """The tensors that a sum adds up, sums among them taken apart."""
    for name in ("self", "other"):
        term = bound_args(node)[name]
        if isinstance(term, fx.Node):
            yield from _terms(term) if _is_sum(term) else (term,)


def _may_be_infinite(node: fx.Node) -> bool:
    if is_constant(node):
        return bool(constant_value(node).isinf().any())
    if node.target in VIEWS:
        return _may_be_infinite(node.all_input_nodes[0])
    return node.target not in ARITHMETIC
