"""The order of items in their rows, with few crossings: barycentres, swept down and up.

The start is a depth-first walk, boxes before lanes; then each sweep sorts every row by the mean
place of its neighbours in the row before. The best order seen is kept.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

from nnapi_prof.reports.layout_items import Items, Kind

_SWEEPS = 12
_PATIENCE = 4
"""Sweeps without fewer crossings before the search ends."""


def order(items: Items, n_rows: int) -> list[list[int]]:
    """Rows of item numbers from left to right; zones stand in their order."""
    rows = _walk(items, n_rows)
    place = [0] * len(items)
    for row in rows:
        _number(row, place)
    best, fewest, waited = [list(row) for row in rows], crossings(items, rows, place), 0
    for sweep in range(_SWEEPS):
        if fewest == 0 or waited >= _PATIENCE:
            break
        down = sweep % 2 == 0
        neighbours = items.up if down else items.down
        for number in range(1, n_rows) if down else range(n_rows - 2, -1, -1):
            _sort(rows[number], items, neighbours, place)
        found = crossings(items, rows, place)
        waited += 1
        if found < fewest:
            best, fewest, waited = [list(row) for row in rows], found, 0
    return _swapped(items, best, place)


def crossings(items: Items, rows: Sequence[Sequence[int]], place: Sequence[int]) -> int:
    """How many pairs of wires cross, over all pairs of neighbouring rows."""
    found = 0
    for row in rows:
        if len(row) < 2:
            continue
        seen: list[int] = []
        for item in row:
            below = sorted(place[other] for other in items.down[item])
            for at in below:
                found += len(seen) - bisect_right(seen, at)
            for at in below:
                insort(seen, at)
    return found


def _walk(items: Items, n_rows: int) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(n_rows)]
    seen = [False] * len(items)
    starts = sorted(range(len(items)), key=lambda item: (items.row[item], item))
    for start in starts:
        stack = [start]
        while stack:
            item = stack.pop()
            if seen[item]:
                continue
            seen[item] = True
            rows[items.row[item]].append(item)
            below = sorted(items.down[item], key=lambda other: items.kind[other] is not Kind.BOX)
            stack += reversed(below)
    for row in rows:
        row.sort(key=lambda item: items.zone[item])
    return rows


def _number(row: Sequence[int], place: list[int]) -> None:
    for at, item in enumerate(row):
        place[item] = at


def _sort(
    row: list[int], items: Items, neighbours: Sequence[Sequence[int]], place: list[int]
) -> None:
    if len(row) < 2:
        return

    def key(item: int) -> tuple[int, float]:
        others = neighbours[item]
        mean = sum(place[o] for o in others) / len(others) if others else float(place[item])
        return items.zone[item], mean

    row.sort(key=key)
    _number(row, place)


def _swapped(items: Items, rows: list[list[int]], place: list[int]) -> list[list[int]]:
    """Neighbours change places where that alone saves crossings; until nothing does."""
    for row in rows:
        _number(row, place)
    for _ in range(_PATIENCE):
        changed = False
        for row in rows:
            for at in range(len(row) - 1):
                a, b = row[at], row[at + 1]
                if items.zone[a] == items.zone[b] and _saves(items, place, a, b):
                    row[at], row[at + 1] = b, a
                    place[a], place[b] = at + 1, at
                    changed = True
        if not changed:
            break
    return rows


def _saves(items: Items, place: Sequence[int], a: int, b: int) -> bool:
    now = later = 0
    for neighbours in (items.up, items.down):
        for x in neighbours[a]:
            for y in neighbours[b]:
                now += place[x] > place[y]
                later += place[x] < place[y]
    return later < now
