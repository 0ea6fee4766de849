"""Units: the smallest groups of nodes that lower, are measured and are placed together.

A :class:`UnitGraph` is the model as every stage after the front end sees it: plain data, no torch.
Units stand in topological order; an edge is a value that one unit makes and another reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from nnapi_prof.graph.types import TensorType
from nnapi_prof.graph.work import Work


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit. ``inputs`` and ``outputs`` name values; constants are not values.

    ``signature`` is the key under which its cost is stored (see :mod:`nnapi_prof.graph.signature`);
    ``macs`` counts multiply-accumulates, ``constant_bytes`` the weights that travel with it.
    """

    index: int
    name: str
    """Name of the fx node that gives the unit its result: unique in the graph."""
    label: str
    """For people: ``conv2d+relu6 3x3/2 32x112x112``."""
    nodes: tuple[str, ...]
    """Names of the fx nodes, in graph order."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    signature: str
    macs: int = 0
    constant_bytes: int = 0
    work: Work | None = None
    """What it computes and moves; None where the graph was stored without."""


@dataclass(frozen=True)
class UnitGraph:
    """All units of a model, the types of the values between them, and its inputs and outputs."""

    units: tuple[Unit, ...]
    values: Mapping[str, TensorType] = field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def producer(self) -> dict[str, int]:
        """Value name -> index of the unit that makes it; graph inputs are absent."""
        return {value: unit.index for unit in self.units for value in unit.outputs}

    @cached_property
    def readers(self) -> dict[str, tuple[int, ...]]:
        """Value name -> indices of the units that read it."""
        found: dict[str, list[int]] = {value: [] for value in self.values}
        for unit in self.units:
            for value in unit.inputs:
                found[value].append(unit.index)
        return {value: tuple(units) for value, units in found.items()}

    def predecessors(self, index: int) -> tuple[int, ...]:
        """Indices of the units whose values unit ``index`` reads, ascending."""
        made = {self.producer[v] for v in self.units[index].inputs if v in self.producer}
        return tuple(sorted(made))

    def label(self, region: Iterable[int]) -> str:
        """``conv2d 3x3``, or ``conv2d 3x3 … linear`` for the first and last of several units."""
        inside = tuple(region)
        first, last = self.units[min(inside)].label, self.units[max(inside)].label
        return first if len(inside) == 1 else f"{first} … {last}"

    def boundary(self, region: Iterable[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The values that enter and that leave a set of units, each in order of first mention.

        A value leaves if a unit outside reads it or if it is an output of the graph.
        """
        inside = frozenset(region)
        entering: dict[str, None] = {}
        leaving: dict[str, None] = {}
        for index in sorted(inside):
            for value in self.units[index].inputs:
                if self.producer.get(value) not in inside:
                    entering[value] = None
        for index in sorted(inside):
            for value in self.units[index].outputs:
                if value in self.outputs or any(r not in inside for r in self.readers[value]):
                    leaving[value] = None
        return tuple(entering), tuple(leaving)
