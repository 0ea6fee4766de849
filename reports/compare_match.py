"""Which units of several models are the same: matched by signature, in order where they can be."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from nnapi_prof.graph.unit import UnitGraph


@dataclass(frozen=True, slots=True)
class Column:
    """One unit as the sides of a comparison have it."""

    signature: str
    units: tuple[int | None, ...]
    """Its index in the graph of each side; None where that has no such unit."""

    @property
    def everywhere(self) -> bool:
        return None not in self.units


def match_units(graphs: Sequence[UnitGraph]) -> tuple[Column, ...]:
    """Every unit of every graph in one column each, in the order of the graphs.

    Phases, for one graph after another:
    1. Stretches of equal signatures in equal order are matched.
    2. What is left is matched by signature alone, first with first: the same operation at another
       place of the model.
    3. What is still left gets a column of its own, behind the unit it follows; all of it at the
       end where nothing is matched.
    """
    columns: list[tuple[str, list[int | None]]] = []
    for side, graph in enumerate(graphs):
        columns = _joined(columns, [unit.signature for unit in graph.units], side)
    return tuple(Column(signature, tuple(units)) for signature, units in columns)


def _joined(
    columns: list[tuple[str, list[int | None]]], signatures: list[str], side: int
) -> list[tuple[str, list[int | None]]]:
    """The columns with one more side, whose units have these signatures."""
    known = [signature for signature, _ in columns]
    matcher = SequenceMatcher(None, known, signatures, autojunk=False)
    place: dict[int, int] = {}  # unit -> its column
    for block in matcher.get_matching_blocks():
        place.update((block.b + i, block.a + i) for i in range(block.size))
    free: defaultdict[str, deque[int]] = defaultdict(deque)
    for at in sorted(set(range(len(known))) - set(place.values())):
        free[known[at]].append(at)
    for unit, signature in enumerate(signatures):
        if unit not in place and free[signature]:
            place[unit] = free[signature].popleft()
    taken = {at: unit for unit, at in place.items()}
    new: defaultdict[int, list[int]] = defaultdict(list)  # column -> new units behind it
    last = -1 if place else len(known) - 1
    for unit in range(len(signatures)):
        last = place.get(unit, last)
        if unit not in place:
            new[last].append(unit)
    nobody: list[int | None] = [None] * side
    found: list[tuple[str, list[int | None]]] = []
    for at in range(-1, len(known)):
        if at >= 0:
            found.append((known[at], [*columns[at][1], taken.get(at)]))
        found += [(signatures[unit], [*nobody, unit]) for unit in new[at]]
    return found
