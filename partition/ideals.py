"""Sets of units as Python ints whose bit u is unit u.

A plan that runs segments one after another is a chain of ideals (downward-closed sets of the DAG),
empty set to all units; the segments are the differences, and each difference of two ideals is
convex.
"""

from __future__ import annotations

from collections.abc import Iterable


def mask(units: Iterable[int]) -> int:
    """A set of units as bits."""
    bits = 0
    for u in units:
        bits |= 1 << u
    return bits


def members(bits: int) -> tuple[int, ...]:
    """Bits as units, ascending."""
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return tuple(found)
