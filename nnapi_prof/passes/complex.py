"""Decompose complex numbers into pairs of real numbers, because NNAPI has no complex type.

A rule expresses an operator in real and imaginary parts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from nnapi_prof.graph.node import (
    TENSOR,
    add_constant,
    calls,
    constant_value,
    describe,
    infer,
    insert_call,
    is_constant,
    makes_tensor,
    type_of,
)
from nnapi_prof.passes import Site, fourier
from nnapi_prof.passes.fourier import ComplexPair, Transform

aten = torch.ops.aten


def is_complex(node: fx.Node) -> bool:
    """Returns whether a node's value is a complex64 tensor."""
    return makes_tensor(node) and type_of(node).dtype == "complex64"


@dataclass(frozen=True)
class Reads:
    """Node that is being rewritten, with the parts of its arguments."""

    site: Site
    part_of: Callable[[Any], ComplexPair]

    def __getitem__(self, name: str) -> ComplexPair:
        return self.part_of(self.site.args[name])

    def call(self, target: OpOverload, *args: Any) -> fx.Node:
        return self.site.call(target, *args)


Rule = Callable[[Reads], ComplexPair | list[ComplexPair] | fx.Node | None]
"""Function that returns the parts of a node's value, or of each of its values. A node replaces a
real value; None leaves the node alone."""


# Operators that read and make complex numbers


def _view_as_complex(reads: Reads) -> ComplexPair:
    source = reads.site.input()
    real, imag = (reads.call(aten.select.int, source, -1, index) for index in (0, 1))
    return ComplexPair(real, imag)


def _complex(reads: Reads) -> ComplexPair | None:
    real, imag = reads.site.input("real"), reads.site.input("imag")
    return ComplexPair(*(_expanded(reads.site, part) for part in (real, imag)))


def _polar(reads: Reads) -> ComplexPair:
    size, angle = reads.site.input("abs"), reads.site.input("angle")
    cos, sin = reads.call(aten.cos.default, angle), reads.call(aten.sin.default, angle)
    size_constant = reads.site.constant("abs")
    if size_constant is not None and bool((size_constant == 1).all()):
        return ComplexPair(*(_expanded(reads.site, part) for part in (cos, sin)))
    return ComplexPair(
        reads.call(aten.mul.Tensor, size, cos), reads.call(aten.mul.Tensor, size, sin)
    )


def _expanded(site: Site, part: fx.Node) -> fx.Node:
    shape = site.type.shape
    if type_of(part).shape == shape:
        return part
    return site.call(aten.expand.default, part, list(shape))


def _view_as_real(reads: Reads) -> fx.Node:
    pair = reads["self"]
    return reads.call(aten.stack.default, [pair.real, fourier.imag_of(reads.site, pair)], -1)


def _abs(reads: Reads) -> fx.Node:
    pair = reads["self"]
    if pair.imag is None:
        return reads.call(aten.abs.default, pair.real)
    squares = [reads.call(aten.mul.Tensor, part, part) for part in (pair.real, pair.imag)]
    return reads.call(aten.sqrt.default, reads.call(aten.add.Tensor, *squares))


def _angle(reads: Reads) -> fx.Node:
    pair = reads["self"]
    return reads.call(aten.atan2.default, fourier.imag_of(reads.site, pair), pair.real)


def _to_real(reads: Reads) -> fx.Node:
    real = reads["self"].real
    assert isinstance(real, fx.Node)
    return real


def _conj(reads: Reads) -> ComplexPair:
    pair = reads["self"]
    return ComplexPair(
        pair.real, None if pair.imag is None else reads.call(aten.neg.default, pair.imag)
    )


def _same(reads: Reads) -> ComplexPair | None:
    """Returns the same parts; a real tensor may become complex."""
    source = reads.site.input()
    if not is_complex(reads.site.node) or type_of(source).dtype not in ("float32", "complex64"):
        return None
    return reads["self"]


# Arithmetic


def _arithmetic(site: Site, target: OpOverload, a: Any, b: Any) -> Any:
    """Returns ``a + b`` or similar of parts that are nodes or numbers; None is zero."""
    if a is None or b is None:
        if target is aten.mul.Tensor:
            return None
        if b is None:
            return a
        return b if target is aten.add.Tensor else _negative(site, b)
    if not isinstance(a, fx.Node):
        if not isinstance(b, fx.Node):
            return target(torch.tensor(a), torch.tensor(b)).item()
        if target is aten.sub.Tensor:
            return site.call(aten.add.Tensor, _negative(site, b), a)
        a, b = b, a
    return site.call(target, a, b)


def _negative(site: Site, part: Any) -> Any:
    return site.call(aten.neg.default, part) if isinstance(part, fx.Node) else -part


def _sum(target: OpOverload) -> Rule:
    def rule(reads: Reads) -> ComplexPair | None:
        if reads.site.args["alpha"] != 1 or _is_wide(reads, "self", "other"):
            return None
        a, b = reads["self"], reads["other"]
        if isinstance(b.real, float) and a.imag is None and b.imag is not None:
            return None
        parts = (
            _arithmetic(reads.site, target, *of) for of in ((a.real, b.real), (a.imag, b.imag))
        )
        real, imag = parts
        return ComplexPair(*(_filled(reads.site, part) for part in (real, imag)))

    return rule


def _filled(site: Site, part: Any) -> Any:
    """Returns a part in the result's shape, because only one of two operands may have it."""
    return _expanded(site, part) if isinstance(part, fx.Node) else part


def _bilinear(
    site: Site, product: Callable[[Any, Any], Any], a: ComplexPair, b: ComplexPair
) -> ComplexPair:
    """Returns the parts of a product from those of its factors."""

    def times(x: Any, y: Any) -> Any:
        return None if x is None or y is None else product(x, y)

    real = _arithmetic(site, aten.sub.Tensor, times(a.real, b.real), times(a.imag, b.imag))
    imag = _arithmetic(site, aten.add.Tensor, times(a.real, b.imag), times(a.imag, b.real))
    return ComplexPair(real, imag)


def _mul(reads: Reads) -> ComplexPair | None:
    site = reads.site
    if _is_wide(reads, "self", "other"):
        return None

    def product(x: Any, y: Any) -> Any:
        return _arithmetic(site, aten.mul.Tensor, x, y)

    return _bilinear(site, product, reads["self"], reads["other"])


def _is_wide(reads: Reads, *names: str) -> bool:
    """Returns whether a tensor among the arguments is neither float32 nor complex64."""
    nodes = [v for name in names if isinstance(v := reads.site.args[name], fx.Node)]
    return any(type_of(node).dtype not in ("float32", "complex64") for node in nodes)


def _matmul(second: str) -> Rule:
    def rule(reads: Reads) -> ComplexPair | None:
        if _is_wide(reads, "self", second):
            return None
        a, b = reads["self"], reads[second]
        return _bilinear(reads.site, lambda x, y: reads.call(reads.site.target, x, y), a, b)

    return rule


def _einsum(reads: Reads) -> ComplexPair | None:
    tensors = list(reads.site.args["tensors"])
    if len(tensors) > 2:
        return None
    pairs = [reads.part_of(tensor) for tensor in tensors]
    equation = reads.site.args["equation"]

    def product(*parts: Any) -> Any:
        return reads.call(aten.einsum.default, equation, list(parts))

    if len(pairs) == 1:
        (only,) = pairs
        return ComplexPair(product(only.real), None if only.imag is None else product(only.imag))
    return _bilinear(reads.site, product, *pairs)


def _div(reads: Reads) -> ComplexPair | None:
    """Divides each part by a real divisor; by a complex one, by its conjugate and square."""
    if _is_wide(reads, "self", "other"):
        return None
    site, a, b = reads.site, reads["self"], reads["other"]
    if not isinstance(b.real, fx.Node) and b.imag is not None:
        return None
    if b.imag is None:
        parts = (
            p if p is None else reads.call(aten.div.Tensor, p, b.real) for p in (a.real, a.imag)
        )
        return ComplexPair(*parts)
    squares = [reads.call(aten.mul.Tensor, part, part) for part in (b.real, b.imag)]
    size = reads.call(aten.add.Tensor, *squares)
    inverse = ComplexPair(
        reads.call(aten.div.Tensor, b.real, size),
        _negative(site, reads.call(aten.div.Tensor, b.imag, size)),
    )

    def product(x: Any, y: Any) -> Any:
        return _arithmetic(site, aten.mul.Tensor, x, y)

    return _bilinear(site, product, a, inverse)


def _exp(reads: Reads) -> ComplexPair | None:
    pair = reads["self"]
    if pair.imag is None:
        return ComplexPair(reads.call(aten.exp.default, pair.real), None)
    size = reads.call(aten.exp.default, pair.real)
    turns = [reads.call(f, pair.imag) for f in (aten.cos.default, aten.sin.default)]
    return ComplexPair(*(reads.call(aten.mul.Tensor, size, turn) for turn in turns))


def _power(reads: Reads) -> ComplexPair | fx.Node | None:
    if reads.site.args["exponent"] != 2:
        return None
    pair = reads["self"]
    return _bilinear(reads.site, lambda x, y: reads.call(aten.mul.Tensor, x, y), pair, pair)


# Operators that do the same to both parts


def _on_both(reads: Reads) -> ComplexPair | None:
    """Applies moves, slices, joins and sums to the real and to the imaginary parts, which are zero
    for a real tensor. Integers and truth values are positions."""
    site = reads.site
    sources = site.node.all_input_nodes
    pairs = {n: reads.part_of(n) for n in sources if type_of(n).dtype in ("complex64", "float32")}
    places = [type_of(n).dtype for n in sources if n not in pairs]
    if not set(places) <= {"int64", "int32", "bool"} or (places and site.target in _JOINS):
        return None
    arguments = (site.node.args, dict(site.node.kwargs))
    if any(isinstance(value, torch.dtype) for value in pytree.tree_leaves(arguments)):
        return None

    def call(imaginary: bool) -> fx.Node:
        def part(value: Any) -> Any:
            if isinstance(value, complex):
                return value.imag if imaginary else value.real
            if not isinstance(value, fx.Node) or value not in pairs:
                return value
            return fourier.imag_of(site, pairs[value]) if imaginary else pairs[value].real

        args, kwargs = pytree.tree_map(part, arguments)
        return site.call(site.target, *args, **kwargs)

    has_imaginary = any(pair.imag is not None for pair in pairs.values())
    return ComplexPair(call(False), call(True) if has_imaginary else None)


def _several(reads: Reads) -> list[ComplexPair] | None:
    """Splits with one call for each part."""
    site, pair = reads.site, reads["self"]
    if not all(user.target is operator.getitem for user in site.node.users):
        return None
    halves = []
    for source in (pair.real, fourier.imag_of(site, pair)):
        arguments = (source, *list(site.args.values())[1:])
        with site.graph.inserting_before(site.node):
            call = site.graph.call_function(site.target, arguments)
            results = infer(site.target, arguments, {})
            values = [
                site.graph.call_function(operator.getitem, (call, i)) for i in range(len(results))
            ]
        for value, result in zip(values, results, strict=True):
            value.meta[TENSOR] = describe(result)
        halves.append(values)
    return [ComplexPair(*parts) for parts in zip(*halves, strict=True)]


# Fourier transforms


def _transform(change: Transform) -> Rule:
    def rule(reads: Reads) -> ComplexPair | fx.Node | None:
        pair = reads["self"]
        if isinstance(pair.real, fx.Node) and type_of(pair.real).dtype != "float32":
            return None
        return change(reads.site, pair)

    return rule


_BOTH = (
    *(aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.permute.default),
    *(aten.transpose.int, aten.t.default, aten.slice.Tensor, aten.select.int, aten.narrow.default),
    *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default),
    *(aten.expand.default, aten.expand_as.default, aten.flatten.using_ints, aten.unflatten.int),
    *(aten.cat.default, aten.stack.default, aten.index.Tensor, aten.index_select.default),
    *(aten.gather.default, aten.repeat.default, aten.tile.default, aten.flip.default),
    *(aten.roll.default, aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim),
    *(aten.neg.default, aten.cumsum.default, aten.constant_pad_nd.default, aten.movedim.int),
    *(aten.movedim.intlist, aten.swapaxes.default, aten.slice_scatter.default, aten.copy.default),
    *(aten.select_scatter.default, aten.index_put.default, aten.index_add.default),
    *(aten.where.self, aten.masked_fill.Scalar, aten.view_as.default, aten.reshape_as.default),
    *(aten.diagonal.default, aten.tril.default, aten.triu.default, aten.mT.default),
)
_JOINS = (aten.cat.default, aten.stack.default, aten.slice_scatter.default, aten.copy.default)
"""Those without positions among their arguments: an integer tensor would be a value."""
_COPIES = (
    *(aten.clone.default, aten.contiguous.default, aten.alias.default, aten.detach.default),
    *(aten.lift_fresh_copy.default, aten.resolve_conj.default, aten.resolve_neg.default),
    *(aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout, aten.to.device),
)
_SPLITS = (
    *(aten.split.Tensor, aten.split_with_sizes.default, aten.split.sizes, aten.chunk.default),
    *(aten.unbind.int, aten.tensor_split.sections, aten.tensor_split.indices),
)
TRANSFORMS: dict[OpOverload, Rule] = {
    target: _transform(change) for target, change in fourier.TRANSFORMS.items()
}
RULES: dict[OpOverload, Rule] = {
    **dict.fromkeys(_BOTH, _on_both),
    **dict.fromkeys(_COPIES, _same),
    **dict.fromkeys(_SPLITS, _several),
    **TRANSFORMS,
    aten.view_as_complex.default: _view_as_complex,
    aten.complex.default: _complex,
    aten.polar.default: _polar,
    aten.view_as_real.default: _view_as_real,
    aten.real.default: _to_real,
    aten.imag.default: lambda reads: fourier.imag_of(reads.site, reads["self"]),
    aten.abs.default: _abs,
    aten.angle.default: _angle,
    aten.conj.default: _conj,
    aten._conj.default: _conj,
    aten.conj_physical.default: _conj,
    aten.add.Tensor: _sum(aten.add.Tensor),
    aten.add.Scalar: _sum(aten.add.Tensor),
    aten.sub.Tensor: _sum(aten.sub.Tensor),
    aten.sub.Scalar: _sum(aten.sub.Tensor),
    aten.mul.Tensor: _mul,
    aten.mul.Scalar: _mul,
    aten.div.Tensor: _div,
    aten.div.Scalar: _div,
    aten.mm.default: _matmul("mat2"),
    aten.bmm.default: _matmul("mat2"),
    aten.matmul.default: _matmul("other"),
    aten.einsum.default: _einsum,
    aten.exp.default: _exp,
    aten.pow.Tensor_Scalar: _power,
    aten.square.default: lambda reads: _bilinear(
        reads.site, lambda x, y: reads.call(aten.mul.Tensor, x, y), reads["self"], reads["self"]
    ),
}
"""Rules for the operators that read or make complex numbers."""


def decompose_complex(graph: fx.Graph) -> int:
    """Replaces computation in complex numbers by computation in real and imaginary parts.

    Given:
        %c complex64[1, 8, 4] = view_as_complex(%x [1, 8, 4, 2])
        %m complex64[1, 8, 4] = mul(%c, %rotation complex64[8, 4])
        %y [1, 8, 4, 2]       = view_as_real(%m)
    Result:
        %a, %b = select(%x, -1, 0), select(%x, -1, 1)
        %y     = stack([sub(mul(%a, %cos), mul(%b, %sin)),
                        add(mul(%a, %sin), mul(%b, %cos))], -1)

    Fourier transforms become products with constant matrices (see fourier.py). Operators without a
    rule are unchanged and read ``complex(%re, %im)``, as do the graph's outputs. complex128 is left
    alone. Returns the number of nodes replaced.
    """
    pairs = _Pairs(graph)
    changed = 0
    for node in calls(graph):
        reads = any(map(is_complex, node.all_input_nodes))
        if isinstance(node.target, OpOverload) and (reads or _makes_complex(node)):
            changed += pairs.rewrite(node)
        elif reads and node.target is not operator.getitem:
            pairs.restore(node)
    pairs.restore(graph.output_node())
    return changed


def _makes_complex(node: fx.Node) -> bool:
    return is_complex(node) or node.target in TRANSFORMS


class _Pairs:
    """Parts of each complex value of a graph, made when they are needed."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._parts: dict[fx.Node, ComplexPair] = {}
        self._decomposed: set[fx.Node] = set()
        self._whole: dict[fx.Node, fx.Node] = {}

    def rewrite(self, node: fx.Node) -> int:
        """Rewrites one node by its rule; without one, makes it read whole complex numbers."""
        site = Site(node)
        rule = RULES.get(site.target)
        result = None if rule is None else rule(Reads(site, lambda v: self._of(site, v)))
        if result is None:
            self.restore(node)
            return 0
        if isinstance(result, fx.Node):
            node.replace_all_uses_with(result)
        elif isinstance(result, list):
            self._decompose({user: result[user.args[1]] for user in node.users})  # type: ignore[index]
        else:
            self._decompose({node: result})
        return 1

    def _decompose(self, parts: dict[fx.Node, ComplexPair]) -> None:
        self._parts |= parts
        self._decomposed |= parts.keys()

    def _of(self, site: Site, value: Any) -> ComplexPair:
        """Returns the parts of an argument: of a complex or real tensor, or of a number."""
        if not isinstance(value, fx.Node):
            number = complex(value)
            return ComplexPair(number.real, number.imag or None)
        if not is_complex(value):
            return ComplexPair(value, None)
        if value not in self._parts:
            self._parts[value] = self._read(site, value)
        return self._parts[value]

    def _read(self, site: Site, value: fx.Node) -> ComplexPair:
        if not is_constant(value):  # an input, or the value of an operator without a rule
            return ComplexPair(
                site.call(aten.real.default, value), site.call(aten.imag.default, value)
            )
        tensor, name = constant_value(value), str(value.target)
        with self._graph.inserting_before(value):
            real = add_constant(self._graph, tensor.real.contiguous(), f"{name}_real")
            if not bool(tensor.imag.any()):
                return ComplexPair(real, None)
            return ComplexPair(
                real, add_constant(self._graph, tensor.imag.contiguous(), f"{name}_imag")
            )

    def restore(self, node: fx.Node) -> None:
        """Makes a node read whole complex numbers where they were decomposed."""
        for source in [n for n in node.all_input_nodes if n in self._decomposed]:
            if source not in self._whole:
                with self._graph.inserting_before(node):
                    self._whole[source] = self._joined(source)
            node.replace_input_with(source, self._whole[source])

    def _joined(self, source: fx.Node) -> fx.Node:
        pair = self._parts[source]
        imag = pair.imag
        if imag is None:
            imag = add_constant(self._graph, torch.zeros(type_of(source).shape), "zeros")
        return insert_call(self._graph, aten.complex.default, (pair.real, imag))
