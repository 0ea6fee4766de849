"""What runs on the host: the eager reference, and units that no engine of the agent can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import fx

from nnapi_prof.graph.node import constant_value, is_constant
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.types import DimOrder, TensorType


def to_memory(value: torch.Tensor, tensor_type: TensorType) -> bytes:
    """The bytes of a logical tensor as the device holds it, in its dim order."""
    if tensor_type.dim_order is DimOrder.CHANNELS_LAST:
        value = value.permute(0, 2, 3, 1)
    return value.detach().contiguous().numpy().tobytes()


def from_memory(data: bytes, tensor_type: TensorType) -> torch.Tensor:
    """The logical tensor of some bytes from the device; the opposite of :func:`to_memory`."""
    dtype: torch.dtype = getattr(torch, tensor_type.dtype)
    value = torch.frombuffer(bytearray(data), dtype=dtype).reshape(tensor_type.memory_shape)
    if tensor_type.dim_order is DimOrder.CHANNELS_LAST:
        value = value.permute(0, 3, 1, 2)
    return value


def constant_outputs(program: Program) -> dict[str, torch.Tensor]:
    """The outputs of the graph that are constants: no unit makes them, they are known at once."""
    outputs = set(program.units.outputs)
    return {
        node.name: constant_value(node).detach()
        for node in program.module.graph.nodes
        if node.name in outputs and is_constant(node)
    }


def all_values(program: Program, inputs: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Every value between units for these inputs, from the normalised graph in eager PyTorch."""

    class Collect(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            result = super().run_node(n)
            if n.name in program.units.values and isinstance(result, torch.Tensor):
                found[n.name] = result
            return result

    found: dict[str, torch.Tensor] = {}
    with torch.inference_mode():
        Collect(program.module).run(*inputs)
    return found


def run_units(
    program: Program, units: Iterable[int], values: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Runs units in eager PyTorch from the values they read; returns the values they make."""
    interpreter = fx.Interpreter(program.module)
    nodes = {node.name: node for node in program.module.graph.nodes}
    interpreter.env = {nodes[name]: value for name, value in values.items()}
    made: dict[str, torch.Tensor] = {}
    with torch.inference_mode():
        for index in sorted(units):
            unit = program.units.units[index]
            for name in unit.nodes:
                for argument in nodes[name].all_input_nodes:
                    if argument.op == "get_attr":
                        interpreter.env[argument] = interpreter.run_node(argument)
                interpreter.env[nodes[name]] = interpreter.run_node(nodes[name])
            for name in unit.outputs:
                made[name] = interpreter.env[nodes[name]]
    return made
