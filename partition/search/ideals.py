"""Sets of units as Python ints whose bit u is unit u.

A plan that runs segments one after another is a chain of ideals (downward-closed sets of the DAG),
empty set to all units; the segments are the differences, and each difference of two ideals is
convex.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def mask(units: Iterable[int]) -> int:
    """A set of units as bits."""
    bits = 0
    for u in units:
        bits |= 1 << u
    return bits


def members(bits: int) -> tuple[int, ...]:
    """Bits as units, ascending."""
    units = []
    while bits:
        low = bits & -bits
        units.append(low.bit_length() - 1)
        bits ^= low
    return tuple(units)


def all_ideals(predecessors: Sequence[Sequence[int]], most: int) -> set[int] | None:
    """Every ideal, as bits; None where there are more than ``most``. ``predecessors`` are those of
    units in topological order."""
    needs = [mask(p) for p in predecessors]
    ideals = {0}
    waiting = [0]
    while waiting:
        ideal = waiting.pop()
        for u, need in enumerate(needs):
            larger = ideal | 1 << u
            if larger not in ideals and not need & ~ideal:
                ideals.add(larger)
                waiting.append(larger)
        if len(ideals) > most:
            return None
    return ideals


def convex_sets(predecessors: Sequence[Sequence[int]], most: int) -> set[int] | None:
    """Every convex set of units but the empty one, as bits; None where there are more than
    ``most``, of them or of ideals."""
    ideals = all_ideals(predecessors, most)
    if ideals is None:
        return None
    sets: set[int] = set()
    for larger in ideals:
        sets.update(larger & ~smaller for smaller in ideals if not smaller & ~larger)
        if len(sets) > most:
            return None
    sets.discard(0)
    return sets
