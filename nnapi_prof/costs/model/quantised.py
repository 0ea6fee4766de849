"""Units of a float model in 8 bits: how they map to the quantised graph, and which are alike.

Signatures of quantised units contain the scales of their values, so that two blocks of a network
that are equal in floats differ in 8 bits. Their latencies do not differ, since integers are
multiplied alike at any scale. Units that differ only in scales and zero points share a signature in
:attr:`EightBits.canonical_graph`, and one measurement stands for all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model.fit import RegionMatcher, UnitSet
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import CPU
from nnapi_prof.graph.unit import Unit, UnitGraph, digest

CONVERSION_SIZES = 4
"""Most sizes of values whose conversion is measured each way; others are interpolated."""


class _Program(Protocol):
    @property
    def units(self) -> UnitGraph: ...


class QuantisedSource(Protocol):
    """Part of :class:`nnapi_prof.precision.program.QuantisedProgram` that costs need."""

    @property
    def program(self) -> _Program: ...
    @property
    def unit_of(self) -> Mapping[int, int]: ...
    @property
    def conversions(self) -> Mapping[int, tuple[str, bool]]: ...


@dataclass(frozen=True)
class EightBits:
    """Float graph and the same graph with everything possible in 8 bits."""

    floats: UnitGraph
    graph: UnitGraph
    """The quantised graph, with conversions and the units that stay float."""
    unit_of: Mapping[int, int]
    """Unit of ``floats`` -> its unit in ``graph``."""
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Unit of ``floats`` -> why it has none, as a sentence."""

    @classmethod
    def of(
        cls,
        floats: UnitGraph,
        quantised: QuantisedSource,
        refusals: Mapping[int, str] | None = None,
    ) -> EightBits:
        return cls(floats, quantised.program.units, quantised.unit_of, refusals or {})

    @cached_property
    def float_of(self) -> Mapping[int, int]:
        """Unit of ``graph`` -> the unit of ``floats`` that it computes in 8 bits."""
        return {there: here for here, there in self.unit_of.items()}

    def region(self, units: Iterable[int]) -> frozenset[int] | None:
        """Maps a region of ``floats`` to ``graph``; None where a unit of it has no 8 bits."""
        there = [self.unit_of.get(unit) for unit in units]
        region = frozenset(unit for unit in there if unit is not None)
        return region if len(region) == len(there) else None

    def float_region(self, units: Iterable[int]) -> frozenset[int] | None:
        """Maps a region of ``graph`` to ``floats``; None where it has conversions or floats."""
        here = [self.float_of.get(unit) for unit in units]
        region = frozenset(unit for unit in here if unit is not None)
        return region if len(region) == len(here) else None

    @cached_property
    def stretches(self) -> tuple[UnitSet, ...]:
        """Runs of neighbours in ``floats`` that are all in 8 bits, as units of ``graph``, longest
        first."""
        runs: list[list[int]] = []
        for unit in range(len(self.floats.units)):
            if unit not in self.unit_of:
                continue
            if not runs or unit - 1 not in self.unit_of:
                runs.append([])
            runs[-1].append(self.unit_of[unit])
        return tuple(tuple(sorted(run)) for run in sorted(runs, key=len, reverse=True))

    @cached_property
    def canonical_graph(self) -> UnitGraph:
        """``graph`` with equal signatures for units that differ only in scales."""
        units = tuple(
            replace(unit, signature=self._shared_signature(unit)) for unit in self.graph.units
        )
        values = {name: replace(type_, quant=None) for name, type_ in self.graph.values.items()}
        return UnitGraph(units, values, self.graph.inputs, self.graph.outputs)

    def _shared_signature(self, unit: Unit) -> str:
        """Returns a signature of all that the unit's lowering depends on: not the values of scales,
        but which of them are equal. With weights, whose scale comes between, equality makes no
        difference."""
        of_float = self.float_of.get(unit.index)
        types = [self.graph.values[name] for name in (*unit.inputs, *unit.outputs)]
        compared = () if unit.constant_bytes else types
        numbers: dict[object, int] = {}
        return digest(
            {
                "8 bits of": None if of_float is None else self.floats.units[of_float].signature,
                "label": unit.label,
                "values": [_type_without_scale(type_) for type_ in types],
                "scales": [numbers.setdefault(type_.quant, len(numbers)) for type_ in compared],
                "constants": unit.constant_bytes,
                "work": None if unit.work is None else dataclasses.asdict(unit.work),
            }
        )

    @cached_property
    def matcher(self) -> RegionMatcher:
        """The matcher of ``graph``, whose signatures are those of the cost table."""
        return RegionMatcher(self.graph)

    @cached_property
    def canonical_matcher(self) -> RegionMatcher:
        """The matcher of :attr:`canonical_graph`."""
        return RegionMatcher(self.canonical_graph)

    def shared(self, row: Measurement, region: Iterable[int]) -> Measurement:
        """Returns the row of a region of ``graph``, in terms of :attr:`canonical_graph`."""
        units = tuple(sorted(region))
        return replace(
            row,
            signature=self.canonical_matcher.signature(units),
            members=tuple(self.canonical_graph.units[unit].signature for unit in units),
            offsets=tuple(unit - units[0] for unit in units),
        )

    def shared_rows(self, rows: Iterable[Measurement]) -> list[Measurement]:
        """Returns the rows of regions of ``graph`` that are in 8 bits, in terms of
        :attr:`canonical_graph`."""
        able = frozenset(self.float_of)
        members = {self.graph.units[unit].signature for unit in able}
        own = (row for row in rows if members.issuperset(row.members))
        return [
            self.shared(row, region)
            for (region, _), row in self.matcher.places(own).items()
            if region <= able
        ]


def _type_without_scale(type_: TensorType) -> list[object]:
    return [list(type_.shape), type_.dtype, type_.dim_order.value, type_.quant is not None]


# ---- conversions between floats and 8 bits ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conversion:
    """Unit that converts a value from floats to 8 bits or back, and can be measured."""

    unit: int
    signature: str
    to_int8: bool
    n_bytes: int
    """Bytes of the value in floats."""


def conversions_of(floats: UnitGraph, quantised: QuantisedSource) -> tuple[Conversion, ...]:
    """Returns conversions of a quantised program to measure: each way, one for each of at most
    :data:`CONVERSION_SIZES` sizes, spread from the smallest to the largest."""
    graph = quantised.program.units
    by_size: dict[tuple[bool, int], Conversion] = {}
    for unit, (value, to_int8) in sorted(quantised.conversions.items()):
        n_bytes = floats.values[value].n_bytes
        signature = graph.units[unit].signature
        by_size.setdefault((to_int8, n_bytes), Conversion(unit, signature, to_int8, n_bytes))
    chosen: list[Conversion] = []
    for way in (True, False):
        sizes = sorted(n_bytes for to_int8, n_bytes in by_size if to_int8 == way)
        chosen += [by_size[way, n_bytes] for n_bytes in _sizes_to_measure(sizes)]
    return tuple(chosen)


def _sizes_to_measure(sizes: Sequence[int]) -> Sequence[int]:
    """Returns at most :data:`CONVERSION_SIZES` of ascending sizes, spread by their logarithms."""
    if len(sizes) <= CONVERSION_SIZES:
        return sizes
    steps = np.geomspace(sizes[0], sizes[-1], CONVERSION_SIZES)
    nearest = (min(sizes, key=lambda size: abs(np.log(size / step))) for step in steps)
    return sorted(set(nearest))


def converting_units(floats: UnitGraph, able: Collection[int]) -> frozenset[int]:
    """Returns units that, when only they are in 8 bits, need conversions of several sizes."""
    chosen: set[int] = set()
    by_size: dict[int, list[int]] = {}
    for unit in sorted(able):
        for value in floats.units[unit].inputs:
            by_size.setdefault(floats.values[value].n_bytes, []).append(unit)
    for size in _sizes_to_measure(sorted(by_size)):
        near = [set(_neighbours(floats, unit)) for unit in by_size[size]]
        apart = [u for u, around in zip(by_size[size], near, strict=True) if not around & chosen]
        chosen.add((apart or by_size[size])[0])
    return frozenset(chosen)


def _neighbours(graph: UnitGraph, unit: int) -> Iterator[int]:
    yield from graph.predecessors(unit)
    for value in graph.units[unit].outputs:
        yield from graph.readers[value]


@dataclass(frozen=True)
class ConversionLine:
    """Cost of converting a value by its bytes in floats, interpolated between measured sizes."""

    points: tuple[tuple[int, float], ...]
    """(bytes, ns), ascending."""

    @classmethod
    def of(cls, measured: Iterable[tuple[int, float]]) -> ConversionLine:
        return cls(tuple(sorted(dict(measured).items())))

    def ns(self, n_bytes: int) -> float:
        """Returns the ns for a size. Beyond the measured sizes the nearest line continues; with a
        single measured size, costs are in proportion."""
        if not self.points:
            return 0.0
        sizes, costs = zip(*self.points, strict=True)
        if len(sizes) == 1:
            return float(costs[0] * n_bytes / sizes[0])
        last = len(sizes) - 1
        at = min(max(int(np.searchsorted(sizes, n_bytes)), 1), last)
        slope = (costs[at] - costs[at - 1]) / (sizes[at] - sizes[at - 1])
        return max(0.0, float(costs[at] + slope * (n_bytes - sizes[at])))


@dataclass(frozen=True)
class ConversionCosts:
    """Costs of conversions on the CPU, by the sizes of values."""

    to_int8: ConversionLine
    to_float: ConversionLine

    @classmethod
    def of(cls, conversions: Iterable[Conversion], rows: Iterable[Measurement]) -> ConversionCosts:
        """Fits the costs to the rows of conversions that ran on the CPU."""
        on_cpu = {row.signature: row for row in rows if row.target == CPU and row.usable}
        points: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
        for one in conversions:
            if one.signature in on_cpu:
                ns = on_cpu[one.signature].latency_ns
                points[one.to_int8].append((one.n_bytes, ns))
        return cls(ConversionLine.of(points[True]), ConversionLine.of(points[False]))
