"""Lay out the boxes and wires of a layered drawing as plain numbers, without drawing them.

This is K. Sugiyama's method, with groups (a plan's segments) stacked in the order in which they
run:

1. **Rows** (:mod:`nnapi_prof.reports.layering`): each group's boxes by their longest path within
   it, with a limit per row; between groups a row for values that cross the border.
2. **Items.** A value (:class:`ValueNet`) that is read further down gets a lane, one item per row
   that it passes; values that are read very far down are not wired (:class:`Jump`).
3. **Order** in each row, with few crossings (:mod:`nnapi_prof.reports.layering`). Groups stay
   together: nets that bypass a group are to the right of its frame.
4. **Columns** (:mod:`nnapi_prof.reports.coordinates`): chains and lanes straight.

No wire crosses a box: lanes have their own columns in the rows, and only wires are between rows.
The same input gives the same numbers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from nnapi_prof.reports.coordinates import columns
from nnapi_prof.reports.layering import Items, NodeKind, ValueNet, Zone, order, rows_of_nodes
from nnapi_prof.reports.layering import NodeGroup as NodeGroup
from nnapi_prof.reports.layering import Sizes as Sizes


@dataclass(frozen=True, slots=True)
class DrawingRow:
    """A row; ``group`` is None between groups."""

    top: float
    height: float
    group: int | None

    @property
    def bottom(self) -> float:
        return self.top + self.height


@dataclass(frozen=True, slots=True)
class Spot:
    """A box: its row, and the x of its middle."""

    row: int
    x: float


@dataclass(frozen=True, slots=True)
class Link:
    """One piece of a net from ``row`` to the next row. Its ends are boxes if ``start`` or ``stop``
    names one, else lanes. A lane goes straight through the row that it ends in."""

    net: int
    row: int
    x0: float
    x1: float
    start: int | None
    stop: int | None
    crosses: bool
    """The piece is outside of all frames: it moves a value from one group to another."""
    lane_outside: bool
    """The lane that it ends in is outside of all frames."""


@dataclass(frozen=True, slots=True)
class NetLabel:
    """Space for the label of a net's size where it crosses from group to group."""

    net: int
    row: int
    x: float


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of a group: x of its sides, its first and its last row."""

    group: int
    left: float
    right: float
    first_row: int
    last_row: int


@dataclass(frozen=True, slots=True)
class Jump:
    """A net and those of its readers that no wire reaches."""

    net: int
    readers: tuple[int, ...]


@dataclass(frozen=True)
class DrawingLayout:
    """A finished drawing; x grows to the right from 0, y downwards from 0."""

    rows: tuple[DrawingRow, ...]
    spots: tuple[Spot, ...] = field(repr=False)
    """Spot of each node."""
    links: tuple[Link, ...] = field(repr=False)
    chips: tuple[NetLabel, ...] = field(repr=False)
    frames: tuple[Frame, ...] = field(repr=False)
    """One frame for each framed group, in order."""
    jumps: tuple[Jump, ...] = field(repr=False)
    width: float

    @property
    def height(self) -> float:
        return self.rows[-1].bottom if self.rows else 0.0


def lay_out(
    groups: Sequence[NodeGroup], nets: Sequence[ValueNet], sizes: Sizes | None = None
) -> DrawingLayout:
    """Places every node of ``groups``, which together hold 0 ... n - 1, each once.

    Raises ValueError if a net's source is not before its readers: numbers must ascend along every
    net, and groups must be in an order in which they can run.
    """
    sizes = sizes or Sizes()
    group_of = _group_of(groups)
    _check_nets(nets, group_of)
    row_of, groups_of_rows = rows_of_nodes(groups, nets, group_of, sizes)
    items = Items()
    boxes = [items.add(NodeKind.BOX, row_of[node], sizes.box_width) for node in sorted(row_of)]
    chains, jumps = _wire(items, boxes, nets, row_of, groups_of_rows, group_of, sizes)
    _drop_chips(items, sizes.most_chips)
    walls = _walls(items, groups, row_of)
    rows_of_items = order(items, len(groups_of_rows))
    x = columns(items, rows_of_items, _separation(sizes))
    _shift(x, items)
    rows = _heights(groups_of_rows, groups, sizes)
    return DrawingLayout(
        rows=rows,
        spots=tuple(Spot(items.row[item], x[item]) for item in boxes),
        links=tuple(_links(items, x, chains, groups_of_rows, row_of)),
        chips=tuple(
            NetLabel(items.net[item], items.row[item], x[item])
            for item, kind in enumerate(items.kind)
            if kind is NodeKind.CHIP
        ),
        frames=tuple(
            Frame(group, x[left], x[right], items.row[left], items.row[last])
            for group, (left, right, last) in sorted(walls.items())
        ),
        jumps=tuple(jumps),
        width=max((x[i] + items.width[i] / 2 for i in range(len(x))), default=0.0),
    )


def _group_of(groups: Sequence[NodeGroup]) -> dict[int, int]:
    group_of = {node: number for number, group in enumerate(groups) for node in group.nodes}
    if sorted(group_of) != list(range(sum(len(group.nodes) for group in groups))):
        raise ValueError("groups must hold the nodes 0 to n - 1, each once")
    return group_of


def _check_nets(nets: Sequence[ValueNet], group_of: dict[int, int]) -> None:
    for net in nets:
        for reader in net.readers:
            if reader <= net.source or group_of[reader] < group_of[net.source]:
                raise ValueError(f"node {reader} reads node {net.source} before it was made")


def _reach(nets: Sequence[ValueNet], row_of: dict[int, int], sizes: Sizes) -> int:
    """Returns the number of rows that the longest wire may span."""
    spans = Counter(
        row_of[max(net.readers, key=row_of.__getitem__)] - row_of[net.source]
        for net in nets
        if net.readers
    )
    room = max(400, sizes.lanes_per_node * len(row_of))
    reach = 1
    while reach < sizes.longest_lane:
        room -= sum(many for span, many in spans.items() if span > reach)
        if room < 0:
            break
        reach += 1
    return reach


def _wire(
    items: Items,
    boxes: Sequence[int],
    nets: Sequence[ValueNet],
    row_of: dict[int, int],
    groups_of_rows: Sequence[int | None],
    group_of: dict[int, int],
    sizes: Sizes,
) -> tuple[list[tuple[int, int, int]], list[Jump]]:
    """Adds lanes and chips; returns (net, upper item, lower item) of every piece, and the jumps."""
    pieces: list[tuple[int, int, int]] = []
    jumps: list[Jump] = []
    reach = _reach(nets, row_of, sizes)
    for number, net in enumerate(nets):
        top = row_of[net.source]
        near = [r for r in net.readers if row_of[r] - top <= reach]
        if len(near) < len(net.readers):
            jumps.append(Jump(number, tuple(r for r in net.readers if r not in near)))
        if not near:
            continue
        home = group_of[net.source]
        at_home = {home, *(group_of[reader] for reader in near)}
        by_row: dict[int, list[int]] = defaultdict(list)
        for reader in dict.fromkeys(near):
            by_row[row_of[reader]].append(reader)
        above = boxes[net.source]
        for row in range(top + 1, max(by_row) + 1):
            for reader in by_row[row]:
                items.join(above, boxes[reader])
                pieces.append((number, above, boxes[reader]))
            if row == max(by_row):
                break
            group = groups_of_rows[row]
            if group is not None:
                zone = Zone.INSIDE if group in at_home else Zone.RIGHT
                lane = items.add(NodeKind.LANE, row, 0.0, zone, number, row - top)
            elif groups_of_rows[row - 1] == home or groups_of_rows[row + 1] in at_home:
                lane = items.add(
                    NodeKind.CHIP, row, sizes.chip_width, Zone.INSIDE, number, row - top
                )
            else:
                lane = items.add(NodeKind.LANE, row, 0.0, Zone.INSIDE, number, row - top)
            items.join(above, lane)
            pieces.append((number, above, lane))
            above = lane
    return pieces, jumps


def _drop_chips(items: Items, most: int) -> None:
    """Turns the chips of a row that has more than ``most`` into lanes."""
    chips = Counter(items.row[i] for i, kind in enumerate(items.kind) if kind is NodeKind.CHIP)
    for item, kind in enumerate(items.kind):
        if kind is NodeKind.CHIP and chips[items.row[item]] > most:
            items.kind[item], items.width[item] = NodeKind.LANE, 0.0


def _walls(
    items: Items, groups: Sequence[NodeGroup], row_of: dict[int, int]
) -> dict[int, tuple[int, int, int]]:
    """Adds both sides of each frame as items. Returns group -> (left and right in the first row,
    left in the last row)."""
    walls: dict[int, tuple[int, int, int]] = {}
    for number, group in enumerate(groups):
        if not group.framed or not group.nodes:
            continue
        rows = [row_of[node] for node in group.nodes]
        left: list[int] = []
        right: list[int] = []
        for side, zone in ((left, Zone.LEFT_WALL), (right, Zone.RIGHT_WALL)):
            for row in range(min(rows), max(rows) + 1):
                side.append(items.add(NodeKind.WALL, row, 0.0, zone))
                if len(side) > 1:
                    items.join(side[-2], side[-1])
        walls[number] = (left[0], right[0], left[-1])
    return walls


def _separation(sizes: Sizes) -> list[list[float]]:
    """Returns the gaps as a :data:`nnapi_prof.reports.coordinates.Separation`."""
    gaps = [[sizes.lane_gap for _ in NodeKind] for _ in NodeKind]
    gaps[NodeKind.BOX][NodeKind.BOX] = sizes.column_gap
    for kind in NodeKind:
        gaps[NodeKind.WALL][kind] = gaps[kind][NodeKind.WALL] = sizes.frame_pad
    return gaps


def _shift(x: list[float], items: Items) -> None:
    """Moves everything so that the leftmost side is at 0."""
    least = min((x[i] - items.width[i] / 2 for i in range(len(x))), default=0.0)
    for item in range(len(x)):
        x[item] -= least


def _heights(
    groups_of_rows: Sequence[int | None], groups: Sequence[NodeGroup], sizes: Sizes
) -> tuple[DrawingRow, ...]:
    rows: list[DrawingRow] = []
    y = sizes.frame_pad
    for number, group in enumerate(groups_of_rows):
        height = sizes.chip_height if group is None else sizes.box_height
        rows.append(DrawingRow(y, height, group))
        following = groups_of_rows[number + 1] if number + 1 < len(groups_of_rows) else group
        y += height + sizes.row_gap
        if group != following:  # a frame begins or ends here
            framed = group if group is not None else following
            y += sizes.frame_pad if framed is not None and groups[framed].framed else 0.0
    return tuple(rows)


def _links(
    items: Items,
    x: Sequence[float],
    pieces: Sequence[tuple[int, int, int]],
    groups_of_rows: Sequence[int | None],
    row_of: dict[int, int],
) -> list[Link]:
    nodes = len(row_of)  # boxes are the first items

    def outside(item: int) -> bool:
        return groups_of_rows[items.row[item]] is None or items.zone[item] is Zone.RIGHT

    return [
        Link(
            net=net,
            row=items.row[above],
            x0=x[above],
            x1=x[below],
            start=above if above < nodes else None,
            stop=below if below < nodes else None,
            crosses=outside(above) or outside(below),
            lane_outside=outside(below),
        )
        for net, above, below in pieces
    ]
