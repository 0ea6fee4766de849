"""A program as text, for errors, tests and ``--dump``."""

from __future__ import annotations

from nnapi_prof.graph.unit import Unit, UnitGraph


def draw(graph: UnitGraph) -> str:
    """One line a unit: index, label, values read and made with their types.

    0  conv2d+relu6 3x3/2 3->32 112x112   x: float32[1x3x224x224] -> relu: float32[...]
    """
    lines = [f"inputs: {_values(graph, graph.inputs)}"]
    width = max((len(unit.label) for unit in graph.units), default=0)
    lines += [_line(graph, unit, width) for unit in graph.units]
    lines.append(f"outputs: {_values(graph, graph.outputs)}")
    return "\n".join(lines)


def _line(graph: UnitGraph, unit: Unit, width: int) -> str:
    read, made = _values(graph, unit.inputs), _values(graph, unit.outputs)
    return f"{unit.index:4d}  {unit.label:{width}}  {read} -> {made}"


def _values(graph: UnitGraph, names: tuple[str, ...]) -> str:
    return ", ".join(f"{name}: {graph.values[name]}" for name in names)
