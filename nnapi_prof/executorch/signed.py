"""Write quantised values as XNNPACK's delegate takes them where ExecuTorch computes.

It takes all of them for signed ones: it does not load a file with zero points above 127, and reads
other values wrongly. Between the units of a plan they are unsigned, as NNAPI has them. A value less
128 is the same byte with its highest bit flipped. Nor does it load a file that joins values of
several scales.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.quantisation import DEQUANTIZE, MOVES, QUANTIZE

aten = torch.ops.aten
BIT = 128


def sign_bytes(module: fx.GraphModule) -> None:
    """Quantises and dequantises in signed bytes, also what operators move between the two.

    Given:
        %q = quantize_per_tensor(%x, 0.05, 128, 0, 255, torch.uint8)
        %v = reshape(%q, [1, 192])
        %f = dequantize_per_tensor(%v, 0.05, 128, 0, 255, torch.uint8)
    Result:
        the same with 0.05, 0, -128, 127, torch.int8

    Whatever else reads or gives such a value, as a delegated call does, has unsigned bytes as
    before, by ``bitwise_xor`` and a cast, which XNNPACK leaves alone. What is joined gets the scale
    of the result first. All results are the same.
    """
    _join_in_one_scale(module.graph)
    signing = _Signing(module)
    nodes = list(module.graph.nodes)
    for node in nodes:
        if node.target is QUANTIZE and node.args[5] is torch.uint8:
            signing.quantize(node)
        elif node.target is DEQUANTIZE and node.args[5] is torch.uint8:
            signing.dequantize(node)
    replaced = {*nodes, *signing.casts}
    for node in reversed(list(module.graph.nodes)):
        if not node.users and node in replaced and node.target in _ERASED:
            module.graph.erase_node(node)
    module.recompile()


def _join_in_one_scale(graph: fx.Graph) -> None:
    """Quantises what ``cat`` joins as its result is quantised, which rounds each value the same."""
    for node in list(graph.nodes):
        joined, scheme = (node.args[0], node.args[1:]) if node.target is QUANTIZE else (None, ())
        if not isinstance(joined, fx.Node) or joined.target is not aten.cat.default:
            continue
        for source in joined.all_input_nodes:
            if source.target is DEQUANTIZE and source.args[1:] != scheme:
                with graph.inserting_before(joined):
                    quantised = graph.call_function(QUANTIZE, (source, *scheme))
                    scaled = graph.call_function(DEQUANTIZE, (quantised, *scheme))
                joined.replace_input_with(source, scaled)


_ERASED = MOVES | {QUANTIZE, aten.bitwise_xor.Scalar, aten._to_copy.default}


class _Signing:
    """The graph while it is rewritten, from its first node to the last."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._module, self._graph = module, module.graph
        self._signed: dict[fx.Node, fx.Node] = {}
        """Node of unsigned bytes -> node of the same values in signed bytes."""
        self.casts: list[fx.Node] = []

    def quantize(self, node: fx.Node) -> None:
        with self._graph.inserting_before(node):
            signed = self._graph.call_function(QUANTIZE, _in_signed(node.args))
            cast = self._cast(signed, torch.uint8)
            unsigned = self._flip(cast)
        node.replace_all_uses_with(unsigned)
        self._signed[unsigned] = signed

    def dequantize(self, node: fx.Node) -> None:
        with self._graph.inserting_before(node):
            value, *scheme = _in_signed(node.args)
            node.args = (self._of(value), *scheme)

    def _of(self, node: fx.Node) -> fx.Node:
        """Returns the node of the same values in signed bytes; makes it where there is none."""
        if node not in self._signed:
            if self._is_constant(node):
                signed = self._constant(node)
            elif self._is_moved(node):
                signed = self._graph.node_copy(node, self._of)
            else:
                signed = self._cast(self._flip(node), torch.int8)
            self._signed[node] = signed
        return self._signed[node]

    def _is_moved(self, node: fx.Node) -> bool:
        """Returns whether a node moves values that are there in signed bytes, or can be."""
        if node in self._signed or self._is_constant(node):
            return True
        return node.target in MOVES and all(map(self._is_moved, node.all_input_nodes))

    def _is_constant(self, node: fx.Node) -> bool:
        if node.op != "get_attr":
            return False
        return self._module.get_buffer(str(node.target)).dtype is torch.uint8

    def _constant(self, node: fx.Node) -> fx.Node:
        name = f"{node.target}_signed"
        value = self._module.get_buffer(str(node.target))
        self._module.register_buffer(name, (value ^ BIT).to(torch.int8))
        return self._graph.get_attr(name)

    def _flip(self, node: fx.Node) -> fx.Node:
        self.casts.append(self._graph.call_function(aten.bitwise_xor.Scalar, (node, BIT)))
        return self.casts[-1]

    def _cast(self, node: fx.Node, dtype: torch.dtype) -> fx.Node:
        cast = self._graph.call_function(aten._to_copy.default, (node,), {"dtype": dtype})
        self.casts.append(cast)
        return cast


def _in_signed(arguments: Any) -> tuple[Any, ...]:
    """Returns the arguments of a conversion from or to unsigned bytes, for signed ones."""
    value, scale, zero_point, least, largest, _ = arguments
    return value, scale, zero_point - BIT, least - BIT, largest - BIT, torch.int8
