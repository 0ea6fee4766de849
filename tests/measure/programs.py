"""Programs made by hand: chains and forks of elementwise operations, one unit a node."""

from typing import Any

import torch
from torch import fx

from nnapi_prof.graph import TensorType
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.unit import Unit, UnitGraph, unit_signature

aten = torch.ops.aten
OPS: dict[str, Any] = {
    "relu": aten.relu.default,
    "sigmoid": aten.sigmoid.default,
    "tanh": aten.tanh.default,
    "floor": aten.floor.default,
    "erf": aten.special_erf.default,  # nothing lowers it
}
TYPE = TensorType((1, 64))


def chain(*names: str) -> Program:
    """Operations one after the other on float32[1x64]; ``erf`` is what nobody can lower."""
    graph = fx.Graph()
    last = graph.placeholder("x")
    last.meta["tensor"] = TYPE
    units = []
    for index, operation in enumerate(names):
        name = f"{operation}_{index}"
        node = graph.create_node("call_function", OPS[operation], (last,), name=name)
        node.meta["tensor"] = TYPE
        described = {"op": str(OPS[operation]), "args": {"self": {"input": 0}}}
        signature = unit_signature([described], [TYPE], [TYPE])
        own, reads = (node.name,), (last.name,)
        units.append(Unit(index, node.name, operation, own, reads, own, signature, sizes="64"))
        last = node
    graph.output((last,))
    values = {node.name: TYPE for node in graph.nodes if node.op != "output"}
    unit_graph = UnitGraph(tuple(units), values, ("x",), (last.name,))
    module = fx.GraphModule(torch.nn.Module(), graph)
    return Program(module, unit_graph, "chain", (torch.zeros(1, 64),))
