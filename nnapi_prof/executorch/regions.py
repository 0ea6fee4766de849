"""Regions of a model as programs of their own, lowered through any partitioner of ExecuTorch's, and
put together again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from nnapi_prof.errors import NnapiProfError, escape_untrusted
from nnapi_prof.executorch.aot import Partitioner, silence, to_edge_transform_and_lower
from nnapi_prof.executorch.placement import computes_nothing, region_module
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.unit import Unit, UnitGraph


class NotLowered(NnapiProfError):
    """A partitioner or its back end does not take a program; says why."""


@dataclass(frozen=True)
class RegionProgram:
    """Some units as a program of their own."""

    exported: ExportedProgram
    inputs: tuple[str, ...]
    """Values of the model's graph that it takes, in order ..."""
    outputs: tuple[str, ...]
    """... and returns."""


def without_layout(program: Program) -> Program:
    """A program without the units that change dim orders alone: ExecuTorch's values are all
    contiguous. What read their values reads what these read."""
    graph = program.units
    alias: dict[str, str] = {}
    units: list[Unit] = []
    for unit in graph.units:
        inputs = tuple(alias.get(name, name) for name in unit.inputs)
        if computes_nothing(program, unit):
            alias |= dict.fromkeys(unit.outputs, inputs[0])
        else:
            units.append(replace(unit, index=len(units), inputs=inputs))
    outputs = tuple(alias.get(name, name) for name in graph.outputs)
    values = {name: type_ for name, type_ in graph.values.items() if name not in alias}
    return replace(program, units=UnitGraph(tuple(units), values, graph.inputs, outputs))


class _Recorder(fx.Interpreter):
    """Runs a module and keeps some of its values."""

    def __init__(self, module: fx.GraphModule, names: Iterable[str]) -> None:
        super().__init__(module)
        self._names = frozenset(names)
        self.values: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self._names:
            self.values[n.name] = value.detach().contiguous()
        return value


def values_of(program: Program, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """The values between the units of a program, in eager PyTorch."""
    recorder = _Recorder(program.module, program.units.values)
    with torch.no_grad():
        recorder.run(*inputs)
    return recorder.values


def region_program(
    program: Program, units: Iterable[int], values: dict[str, Tensor]
) -> RegionProgram:
    """Units as a program; ``values`` are those between units. Raises NotLowered where they have no
    form for ExecuTorch."""
    try:
        module, inputs, outputs = region_module(program, units)
        with silence():
            examples = tuple(values[name] for name in inputs)
            exported = torch.export.export(module, examples, strict=False)
    except Exception as error:  # whatever PyTorch raises of a graph that it cannot export
        raise NotLowered(f"it cannot be exported: {error_line(error)}") from error
    return RegionProgram(exported, inputs, outputs)


def lower_program(exported: ExportedProgram, partitioners: Sequence[Partitioner]) -> Any:
    """A program through partitioners in list order, as ExecuTorch does it: its EdgeProgramManager.

    Raises NotLowered with the words of whoever failed.
    """
    try:
        with silence():
            return to_edge_transform_and_lower(exported, partitioner=list(partitioners))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a partitioner is anybody's code
        raise NotLowered(error_line(error)) from error


def file_of(manager: Any) -> bytes:
    """The bytes of the ``.pte`` of an EdgeProgramManager. Raises NotLowered."""
    try:
        with silence():
            return bytes(manager.to_executorch().buffer)
    except Exception as error:  # a partitioner left what no kernel takes
        raise NotLowered(error_line(error)) from error


def delegates(exported: ExportedProgram) -> dict[str, int]:
    """Name of each back end -> calls of it in a program that was lowered."""
    counts: dict[str, int] = {}
    for module in exported.graph_module._modules.values():
        backend = getattr(module, "backend_id", None)
        if backend is not None:
            counts[backend] = counts.get(backend, 0) + 1
    return counts


def error_line(error: BaseException) -> str:
    """The first line of an error that says something, with the error's name."""
    lines = (line.strip() for line in str(error).split("\n"))
    words = escape_untrusted(next((line for line in lines if line), ""), 300)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
