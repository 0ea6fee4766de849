"""The layers of a drawing: nets between nodes, the row of each node, and the order within rows.

A box's row is its longest path from above within its group; groups are stacked. Sweeps down and up
sort each row by barycentres, for few crossings.
"""

from __future__ import annotations

import enum
from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ValueNet:
    """One value: the node that makes it and those that read it."""

    source: int
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that are drawn together, ascending. ``framed`` draws a frame around them."""

    nodes: tuple[int, ...]
    framed: bool = True


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths in CSS pixels, and limits."""

    box_width: float = 180.0
    box_height: float = 33.0
    row_gap: float = 15.0
    column_gap: float = 14.0
    lane_gap: float = 9.0
    """Gap between two lanes, or a lane and its neighbour."""
    frame_pad: float = 9.0
    chip_width: float = 62.0
    chip_height: float = 16.0
    per_row: int = 4
    """Most boxes in one row."""
    longest_lane: int = 60
    """Most rows that a wire may span; readers further down are not wired."""
    lanes_per_node: int = 3
    """Most rows that all wires may pass, per node; beyond it the longest wires are left out."""
    most_chips: int = 8
    """Most labelled nets in a row between groups; if more cross, none has room for a label."""


# ---- items of the rows: boxes, lanes, labels, the sides of frames --------------------------------


class NodeKind(enum.IntEnum):
    BOX = 0
    LANE = 1
    """A net that passes through a row."""
    CHIP = 2
    """A lane with a label, between two groups."""
    WALL = 3
    """One side of a frame in one row."""


class Zone(enum.IntEnum):
    """Zones of a row from left to right; items may only change places within a zone."""

    LEFT_WALL = 0
    INSIDE = 1
    RIGHT_WALL = 2
    RIGHT = 3
    """Nets that bypass a group."""


@dataclass
class Items:
    """Items by number, as parallel lists; ``up`` and ``down`` are neighbours in the next rows."""

    kind: list[NodeKind] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    width: list[float] = field(default_factory=list)
    zone: list[Zone] = field(default_factory=list)
    net: list[int] = field(default_factory=list)
    age: list[int] = field(default_factory=list)
    """Rows below the node that makes the net; 0 for boxes."""
    up: list[list[int]] = field(default_factory=list)
    down: list[list[int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kind)

    def add(
        self,
        kind: NodeKind,
        row: int,
        width: float,
        zone: Zone = Zone.INSIDE,
        net: int = -1,
        age: int = 0,
    ) -> int:
        """Adds an item and returns its number."""
        self.kind.append(kind)
        self.row.append(row)
        self.width.append(width)
        self.zone.append(zone)
        self.net.append(net)
        self.age.append(age)
        self.up.append([])
        self.down.append([])
        return len(self.kind) - 1

    def join(self, above: int, below: int) -> None:
        """Connects two items in consecutive rows."""
        self.down[above].append(below)
        self.up[below].append(above)


# ---- rows ----------------------------------------------------------------------------------------


def rows_of_nodes(
    groups: Sequence[NodeGroup], nets: Sequence[ValueNet], group_of: dict[int, int], sizes: Sizes
) -> tuple[dict[int, int], list[int | None]]:
    """Returns node -> row, and row -> group (None between groups)."""
    row_of: dict[int, int] = {}
    groups_of_rows: list[int | None] = []
    inside: list[list[ValueNet]] = [[] for _ in groups]
    for net in nets:
        home = group_of[net.source]
        for number in {group_of[reader] for reader in net.readers} | {home}:
            readers = tuple(reader for reader in net.readers if group_of[reader] == number)
            inside[number].append(ValueNet(net.source if number == home else -1, readers))
    for number, group in enumerate(groups):
        if number:
            groups_of_rows.append(None)
        local = _rows_within(group.nodes, inside[number], sizes.per_row)
        first = len(groups_of_rows)
        row_of |= {node: first + row for node, row in local.items()}
        groups_of_rows += [number] * (max(local.values(), default=-1) + 1)
    return row_of, groups_of_rows


def _rows_within(nodes: Sequence[int], nets: Sequence[ValueNet], per_row: int) -> dict[int, int]:
    """Assigns rows by the longest path from above, with at most ``per_row`` nodes in each; then
    moves nodes down if that shortens wires.

    Nets from outside have the source -1.
    """
    reads: dict[int, list[ValueNet]] = defaultdict(list)
    makes: dict[int, list[ValueNet]] = defaultdict(list)
    for net in nets:
        makes[net.source].append(net)
        for reader in net.readers:
            reads[reader].append(net)
    rows: dict[int, int] = {}
    widths: Counter[int] = Counter()
    for node in nodes:
        row = max((rows[net.source] + 1 for net in reads[node] if net.source >= 0), default=0)
        while widths[row] >= per_row:
            row += 1
        rows[node] = row
        widths[row] += 1
    for node in reversed(nodes):
        below = [rows[reader] for net in makes[node] for reader in net.readers]
        if not below:
            continue
        row = min(below) - 1
        others = [
            max((rows[reader] for reader in net.readers if reader != node), default=rows[node])
            for net in reads[node]
        ]
        longer = sum(max(0, row - max(deepest, rows[node])) for deepest in others)
        shorter = (row - rows[node]) * sum(bool(net.readers) for net in makes[node])
        if row > rows[node] and longer < shorter and widths[row] < per_row:
            widths[rows[node]] -= 1
            widths[row] += 1
            rows[node] = row
    used = {row: place for place, row in enumerate(sorted(set(rows.values())))}
    return {node: used[row] for node, row in rows.items()}


# ---- the order within rows -----------------------------------------------------------------------


_SWEEPS = 12
_PATIENCE = 4
"""Sweeps without an improvement after which the search ends."""


def order(items: Items, n_rows: int) -> list[list[int]]:
    """Returns the rows of item numbers from left to right, zones in their order."""
    rows = _walk(items, n_rows)
    place = [0] * len(items)
    for row in rows:
        _number_places(row, place)
    best, fewest, waited = [list(row) for row in rows], crossings(items, rows, place), 0
    for sweep in range(_SWEEPS):
        if fewest == 0 or waited >= _PATIENCE:
            break
        down = sweep % 2 == 0
        neighbours = items.up if down else items.down
        for number in range(1, n_rows) if down else range(n_rows - 2, -1, -1):
            _sort(rows[number], items, neighbours, place)
        count = crossings(items, rows, place)
        waited += 1
        if count < fewest:
            best, fewest, waited = [list(row) for row in rows], count, 0
    return _swapped(items, best, place)


def crossings(items: Items, rows: Sequence[Sequence[int]], place: Sequence[int]) -> int:
    """Counts the pairs of wires that cross between consecutive rows."""
    count = 0
    for row in rows:
        if len(row) < 2:
            continue
        seen: list[int] = []
        for item in row:
            below = sorted(place[other] for other in items.down[item])
            for at in below:
                count += len(seen) - bisect_right(seen, at)
            for at in below:
                insort(seen, at)
    return count


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
            below = sorted(
                items.down[item], key=lambda other: items.kind[other] is not NodeKind.BOX
            )
            stack += reversed(below)
    for row in rows:
        row.sort(key=lambda item: items.zone[item])
    return rows


def _number_places(row: Sequence[int], place: list[int]) -> None:
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
    _number_places(row, place)


def _swapped(items: Items, rows: list[list[int]], place: list[int]) -> list[list[int]]:
    """Swaps neighbours that cross less the other way round, until none do or passes run out."""
    for row in rows:
        _number_places(row, place)
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
