"""Where in a graph the regions are that a cost table has measured whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.graph.plan import Target
from nnapi_prof.graph.signature import region_signature
from nnapi_prof.graph.unit import UnitGraph

UnitSet = tuple[int, ...]
"""Indices of units, ascending."""


def chains(graph: UnitGraph, length: int) -> Iterator[UnitSet]:
    """Paths of ``length`` units where each reads the only value of the one before, alone.

    A value that somebody else reads too, or that the model returns, ends a chain: such a region
    would have to give it back, and tell nothing of what joining saves. Only the last value leaves
    a chain, so no unit outside can stand between two of its units.
    """
    joined: dict[int, int] = {}
    for unit in graph.units:
        if len(unit.outputs) != 1 or unit.outputs[0] in graph.outputs:
            continue
        readers = set(graph.readers[unit.outputs[0]])
        if len(readers) == 1:
            joined[unit.index] = readers.pop()
    for unit in graph.units:
        path = [unit.index]
        while len(path) < length and path[-1] in joined:
            path.append(joined[path[-1]])
        if len(path) == length:
            yield tuple(path)


class Locator:
    """Finds measured regions in ``graph``; keeps region signatures, which are not cheap."""

    def __init__(self, graph: UnitGraph) -> None:
        self._graph = graph
        self._signatures: dict[UnitSet, str] = {}
        self._units: dict[str, list[int]] = defaultdict(list)
        for unit in graph.units:
            self._units[unit.signature].append(unit.index)
        self._chains: dict[tuple[str, ...], list[UnitSet]] = defaultdict(list)
        for length in (2, 3):
            for chain in chains(graph, length):
                self._chains[self._members(chain)].append(chain)

    def signature(self, region: Iterable[int]) -> str:
        """The key of a region in the cost table; of a single unit, the unit's own."""
        key = tuple(sorted(region))
        signature = self._signatures.get(key)
        if signature is None:
            single = len(key) == 1
            units = self._graph.units
            signature = units[key[0]].signature if single else region_signature(self._graph, key)
            self._signatures[key] = signature
        return signature

    def places(
        self, rows: Iterable[Measurement], extra: Iterable[UnitSet] = ()
    ) -> dict[tuple[frozenset[int], Target], Measurement]:
        """(units, target) -> the row that measured them whole.

        A row is looked for where its units stand to each other as they did in the model that was
        measured, in every chain, and in ``extra`` regions; the signature decides.
        """
        named: dict[str, list[UnitSet]] = defaultdict(list)
        for region in extra:
            named[self.signature(region)].append(tuple(sorted(region)))
        rows_at: dict[tuple[frozenset[int], Target], Measurement] = {}
        for row in rows:
            for region in {*self._candidates(row), *named.get(row.signature, ())}:
                rows_at[frozenset(region), row.target] = row
        return rows_at

    def _candidates(self, row: Measurement) -> Iterator[UnitSet]:
        n = len(self._graph.units)
        for first in self._units.get(row.members[0], ()) if row.members else ():
            region = tuple(first + offset for offset in row.offsets)
            if region[-1] < n and self._is(region, row):
                yield region
        if row.n_units > 1:
            for chain in self._chains.get(row.members, ()):
                if self._is(chain, row):
                    yield chain

    def _is(self, region: UnitSet, row: Measurement) -> bool:
        return self._members(region) == row.members and self.signature(region) == row.signature

    def _members(self, region: UnitSet) -> tuple[str, ...]:
        return tuple(self._graph.units[index].signature for index in region)
