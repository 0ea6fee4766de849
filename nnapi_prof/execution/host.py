"""Eager PyTorch on this host: reference outputs, units that no engine of the agent can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import fx

from nnapi_prof.errors import NnapiProfError
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.graph.node import constant_value, is_constant, torch_dtype
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.types import DimOrder, TensorType


def to_memory(value: torch.Tensor, tensor_type: TensorType) -> bytes:
    """The bytes of a logical tensor as the device holds it, in its dim order and element type.

    Raises NnapiProfError where a value does not fit the device's type.
    """
    dtype = torch_dtype(tensor_type.device_dtype)
    narrow = value.detach().to(dtype)
    if narrow.dtype != value.dtype and not torch.equal(narrow.to(value.dtype), value):
        raise NnapiProfError(
            f"a {tensor_type} has values beyond {tensor_type.device_dtype}, which is what the "
            "device holds"
        )
    value = narrow
    if tensor_type.dim_order is DimOrder.CHANNELS_LAST:
        value = value.permute(0, 2, 3, 1)
    return value.contiguous().numpy().tobytes()


def from_memory(data: bytes, tensor_type: TensorType) -> torch.Tensor:
    """The logical tensor of some bytes from the device; the opposite of :func:`to_memory`."""
    dtype = torch_dtype(tensor_type.device_dtype)
    value = torch.frombuffer(bytearray(data), dtype=dtype).to(torch_dtype(tensor_type.dtype))
    if tensor_type.dim_order is DimOrder.CHANNELS_LAST:
        return value.reshape(tensor_type.memory_shape).permute(0, 3, 1, 2)
    return value.reshape(tensor_type.shape)


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
                values[n.name] = result
            return result

    values: dict[str, torch.Tensor] = {}
    with torch.inference_mode():
        Collect(program.module).run(*inputs)
    return values


def run_units(
    program: Program, units: Iterable[int], values: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Runs units in eager PyTorch from the values they read; returns the values they make."""
    interpreter = fx.Interpreter(program.module)
    nodes = {node.name: node for node in program.module.graph.nodes}
    interpreter.env = {nodes[name]: value for name, value in values.items()}
    results: dict[str, torch.Tensor] = {}
    with torch.inference_mode():
        for index in sorted(units):
            unit = program.units.units[index]
            for name in unit.nodes:
                for argument in nodes[name].all_input_nodes:
                    if argument.op == "get_attr":
                        interpreter.env[argument] = interpreter.run_node(argument)
                interpreter.env[nodes[name]] = interpreter.run_node(nodes[name])
            for name in unit.outputs:
                results[name] = interpreter.env[nodes[name]]
    return results


def choose_inputs(program: Program, seed: int | None) -> tuple[torch.Tensor, ...]:
    """The inputs to run with: the program's examples (bundled ones where the file has them), or
    with a seed new ones of the same shapes: normal floats, integers and truth values kept."""
    if seed is None:
        return program.example_inputs
    random = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(value.shape, generator=random).to(value.dtype)
        if value.dtype.is_floating_point
        else value
        for value in program.example_inputs
    )


# ---- quantised models whose outputs move far when one rounding goes the other way ----------------


NUDGE = 1 / 512
"""Half a step of 8 bits, of each input's values."""


def allow_unsteady(
    checks: Sequence[OutputCheck],
    program: Program,
    inputs: Sequence[torch.Tensor],
    steps: Sequence[float],
) -> tuple[tuple[OutputCheck, ...], list[str]]:
    """The checks, those of quantised outputs that failed with a tolerance as large as eager PyTorch
    itself moves them when the inputs move by NUDGE; and what to tell of these.

    ``steps`` has :func:`~nnapi_prof.execution.compare.last_step` of each output.
    """
    doubtful = [not c.ok and step > 0 for c, step in zip(checks, steps, strict=True)]
    if not any(doubtful):
        return tuple(checks), []
    with torch.inference_mode():
        exact = program.module(*inputs)
        moved = [program.module(*_nudged(inputs, sign * NUDGE)) for sign in (1, -1)]
    allowed, notes = [], []
    for index, (check, doubt) in enumerate(zip(checks, doubtful, strict=True)):
        jump = max(_relative(outputs[index], exact[index]) for outputs in moved) if doubt else 0.0
        if jump > check.tolerance:
            check = replace(check, tolerance=jump)
            notes.append(
                f"{check.name} is quantised and unsteady: in eager PyTorch, too, it moves by "
                f"{jump:.0%} of its largest value when the inputs move by {NUDGE:.1%} of themselves"
            )
        allowed.append(check)
    return tuple(allowed), notes


def _nudged(inputs: Sequence[torch.Tensor], nudge: float) -> list[torch.Tensor]:
    return [value * (1 + nudge) if value.is_floating_point() else value for value in inputs]


def _relative(moved: torch.Tensor, exact: torch.Tensor) -> float:
    largest = exact.double().abs().max().item() if exact.numel() else 0.0
    apart = (moved.double() - exact.double()).abs()
    return apart.max().item() / largest if largest > 0 else 0.0
