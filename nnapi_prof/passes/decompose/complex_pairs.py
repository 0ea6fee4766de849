"""Complex numbers as pairs of reals, which NNAPI has no other way to hold."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from nnapi_prof.graph.node import (
    add_constant,
    calls,
    constant_value,
    insert_call,
    is_constant,
    type_of,
)
from nnapi_prof.passes.decompose.complex_rules import RULES, TRANSFORMS, Reads, is_complex
from nnapi_prof.passes.decompose.fourier import ComplexPair
from nnapi_prof.passes.rewrite import Site

aten = torch.ops.aten


def decompose_complex(graph: fx.Graph) -> int:
    """Computes with real and imaginary parts what is in complex numbers.

    Given:
        %c complex64[1, 8, 4] = view_as_complex(%x [1, 8, 4, 2])
        %m complex64[1, 8, 4] = mul(%c, %rotation complex64[8, 4])
        %y [1, 8, 4, 2]       = view_as_real(%m)
    Result:
        %a, %b = select(%x, -1, 0), select(%x, -1, 1)
        %y     = stack([sub(mul(%a, %cos), mul(%b, %sin)),
                        add(mul(%a, %sin), mul(%b, %cos))], -1)

    Fourier transforms become products with constant matrices (see fourier.py). An operator without
    a rule reads ``complex(%re, %im)`` and stays as it is, and so does what leaves the graph.
    complex128 stays. Returns the nodes replaced.
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
    """The parts of each complex value of a graph, made as they are needed."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._parts: dict[fx.Node, ComplexPair] = {}
        self._decomposed: set[fx.Node] = set()
        self._whole: dict[fx.Node, fx.Node] = {}

    def rewrite(self, node: fx.Node) -> int:
        """Rewrites one node by its rule; without one, gives it whole numbers to read."""
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
        """The parts of an argument: of a complex or a real tensor, or of a number."""
        if not isinstance(value, fx.Node):
            number = complex(value)
            return ComplexPair(number.real, number.imag or None)
        if not is_complex(value):
            return ComplexPair(value, None)
        if value not in self._parts:
            self._parts[value] = self._read(site, value)
        return self._parts[value]

    def _read(self, site: Site, value: fx.Node) -> ComplexPair:
        if not is_constant(value):  # of an operator without a rule, or an input
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
        """Has a node read complex numbers where they were decomposed."""
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
