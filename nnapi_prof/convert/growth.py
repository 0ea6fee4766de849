"""Models that grow when they are converted: a recurrence that is written out step by step, rows of
attention, volumes as slices. Each NNAPI operation is compiled, and takes room in the file."""

from __future__ import annotations

from collections.abc import Iterable

from nnapi_prof.graph.unit import UnitGraph

MANY, TIMES = 200, 4
"""NNAPI operations that are worth a word, where they are so many times the model's own."""
VERY_MANY = 1000
"""Worth a word in any case: drivers have limits, and compile each one."""


def growth_note(
    graph: UnitGraph, converted: Iterable[tuple[Iterable[int], int]], where: str = "the model"
) -> str | None:
    """What to tell of converted regions, each given by its units and its NNAPI operations; None
    where they hardly grew. ``where`` names what they are of."""
    units: list[int] = []
    n_operations = 0
    for region, count in converted:
        units += region
        n_operations += count
    n_nodes = sum(len(graph.units[unit].nodes) for unit in units)
    grew = n_operations >= MANY and n_operations >= TIMES * n_nodes
    if not grew and n_operations < VERY_MANY:
        return None
    kinds = dict.fromkeys(graph.units[unit].label.partition(" ")[0] for unit in units)
    some = f" ({', '.join(kinds)})" if len(kinds) <= 3 else ""
    return (
        f"{where} becomes {n_operations:,} NNAPI operations, for {n_nodes:,} of its own{some}: "
        "compiling, first runs and files grow with them, and a driver may refuse so many"
    )
