"""Turn a plan's model into shapes with coordinates, which :mod:`nnapi_prof.reports.picture` draws.

Boxes are units, frames the plan's segments, one below the other in the order in which they run. A
long drawing is cut into strips that are side by side if there is room, else one below the other, so
that the text keeps its size on a phone and on paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from nnapi_prof.graph.plan import Plan
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.reports.layering import ValueNet
from nnapi_prof.reports.layout import DrawingLayout, DrawingRow, NodeGroup, Sizes, lay_out

GUTTER = 128.0
"""Width for a segment's name, left of its frame."""
MARGIN = 6.0
STRIP_HEIGHT = 1200.0
"""Largest height of a strip that stays legible when scaled down to an A4 page."""
_EDGE = 12.0
"""Distance from a strip's first or last row to its edge; less than the gap between two rows."""
_TEXT = 62.0
"""Height of the text beside a frame."""
_PORT = 14.0
"""Smallest distance of wires from the corners of boxes."""
_APART = 9.0


@dataclass(frozen=True, slots=True)
class Box:
    """A box; ``unit`` is None for an input or output of the model, ``name`` is then the value's."""

    x: float
    """Position of its left side."""
    y: float
    unit: int | None
    name: str


@dataclass(frozen=True, slots=True)
class Wire:
    """A net in one strip as SVG path data; ``crosses`` if it leads from one segment to another."""

    net: int
    path: str
    crosses: bool


@dataclass(frozen=True, slots=True)
class Label:
    """A label: bytes that cross, or where an unwired value goes to or comes from."""

    x: float
    y: float
    net: int
    others: tuple[str, ...] = ()
    """Units' numbers, or names of the model's inputs and outputs."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a segment's frame in a strip; the frame may continue above or below."""

    segment: int
    x: float
    y: float
    width: float
    height: float
    begins: bool
    text_y: float


@dataclass
class Strip:
    """Rows ``first`` to ``last``, between ``top`` and ``bottom``."""

    first: int
    last: int
    top: float
    bottom: float
    boxes: list[Box] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    tips: list[tuple[float, float]] = field(default_factory=list)
    """Points at which wires end at boxes."""
    chips: list[Label] = field(default_factory=list)
    comes_from: list[Label] = field(default_factory=list)
    goes_to: list[Label] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    @property
    def height(self) -> float:
        return self.bottom - self.top


@dataclass(frozen=True)
class Scene:
    """The whole drawing; ``values`` names the value of each net."""

    strips: tuple[Strip, ...]
    values: tuple[str, ...]
    width: float
    sizes: Sizes


def scene(graph: UnitGraph, plan: Plan, strip_height: float = STRIP_HEIGHT) -> Scene:
    """Returns the drawing of ``graph`` as ``plan`` places it."""
    nodes = _Nodes(graph)
    groups = [
        NodeGroup(tuple(range(nodes.first_unit)), framed=False),
        *(NodeGroup(tuple(sorted(nodes.first_unit + u for u in s.units))) for s in plan.segments),
        NodeGroup(tuple(range(nodes.first_output, nodes.count)), framed=False),
    ]
    sizes = Sizes()
    layout = lay_out(groups, nodes.nets, sizes)
    strips = [_strip(layout, first, last) for first, last in cut(layout, strip_height)]
    _add_boxes(strips, layout, nodes, sizes)
    _add_wires(strips, layout, sizes)
    _add_labels(strips, layout, nodes, sizes)
    _add_frames(strips, layout, sizes)
    return Scene(tuple(strips), nodes.values, GUTTER + layout.width + MARGIN, sizes)


class _Nodes:
    """Numbers of the drawing's nodes: the model's inputs, its units, its outputs."""

    def __init__(self, graph: UnitGraph) -> None:
        self.graph = graph
        self.first_unit = len(graph.inputs)
        self.first_output = self.first_unit + len(graph.units)
        self.count = self.first_output + len(graph.outputs)
        source = {value: number for number, value in enumerate(graph.inputs)}
        source |= {value: self.first_unit + unit for value, unit in graph.producer.items()}
        ends = defaultdict(list)
        for number, value in enumerate(graph.outputs):
            ends[value].append(self.first_output + number)
        readers = graph.readers
        wired = [
            (value, (*(self.first_unit + unit for unit in readers[value]), *ends[value]))
            for value in source
        ]
        self.values = tuple(value for value, read in wired if read)
        self.nets = tuple(
            ValueNet(source[value], tuple(dict.fromkeys(r))) for value, r in wired if r
        )

    def unit(self, node: int) -> int | None:
        inside = self.first_unit <= node < self.first_output
        return node - self.first_unit if inside else None

    def short(self, node: int) -> str:
        """Returns the number of a unit, or the name of an input or output."""
        unit = self.unit(node)
        return self.name(node) if unit is None else str(unit)

    def name(self, node: int) -> str:
        if node < self.first_unit:
            return self.graph.inputs[node]
        if node >= self.first_output:
            return self.graph.outputs[node - self.first_output]
        return self.graph.units[node - self.first_unit].name


def cut(layout: DrawingLayout, strip_height: float) -> list[tuple[int, int]]:
    """Returns the first and last row of each strip: of similar height, cut where few wires pass."""
    rows = layout.rows
    if not rows:
        return []
    passing = [0] * len(rows)
    """Wires from a row to the next."""
    for link in layout.links:
        passing[link.row] += 1
    count = max(1, -(-int(layout.height) // int(strip_height)))
    pieces: list[tuple[int, int]] = []
    first = 0
    while first < len(rows):
        left = rows[-1].bottom - rows[first].top
        remaining = max(1, count - len(pieces))
        aim = left / remaining
        fits = [
            row
            for row in range(first, len(rows))
            if rows[row].bottom - rows[first].top <= strip_height
        ] or [first]
        if fits[-1] == len(rows) - 1 and (remaining == 1 or aim < 80):
            last = fits[-1]
        else:
            last = min(
                fits,
                key=lambda row: (
                    40 * min(passing[row], 8)
                    + (60 if _tears(rows, row) else 0)
                    + (0 if rows[row + 1 : row + 2] and rows[row + 1].group is None else 60)
                    + abs(rows[row].bottom - rows[first].top - aim),
                    row,
                ),
            )
        pieces.append((first, last))
        first = last + 1
    return pieces


def _tears(rows: Sequence[DrawingRow], row: int) -> bool:
    """Returns whether a cut after ``row`` separates a label from its wire, or a segment's first
    row, which is beside its name, from the second."""
    if row + 1 >= len(rows):
        return False
    group = rows[row].group
    begins = row == 0 or rows[row - 1].group != group
    return group is None or (begins and rows[row + 1].group == group)


def _strip(layout: DrawingLayout, first: int, last: int) -> Strip:
    """Returns an empty strip with room for the text beside a frame that begins in its last row."""
    rows = layout.rows
    begins = any(frame.first_row == last for frame in layout.frames)
    bottom = max(rows[last].bottom + _EDGE, rows[last].top + _TEXT if begins else 0.0)
    return Strip(first, last, rows[first].top - _EDGE, bottom)


def _at(strips: Sequence[Strip], row: int) -> Strip:
    return next(strip for strip in strips if row <= strip.last)


def _add_boxes(strips: Sequence[Strip], layout: DrawingLayout, nodes: _Nodes, sizes: Sizes) -> None:
    for node, spot in enumerate(layout.spots):
        left = GUTTER + spot.x - sizes.box_width / 2
        box = Box(left, layout.rows[spot.row].top, nodes.unit(node), nodes.name(node))
        _at(strips, spot.row).boxes.append(box)


def _add_wires(strips: Sequence[Strip], layout: DrawingLayout, sizes: Sizes) -> None:
    strip_of = [number for number, s in enumerate(strips) for _ in range(s.first, s.last + 1)]
    enters, leaves = _ports(layout, sizes)
    paths: dict[tuple[int, int, bool], list[str]] = defaultdict(list)
    for number, link in enumerate(layout.links):
        upper, lower = layout.rows[link.row], layout.rows[link.row + 1]
        x0, x1 = GUTTER + leaves[number], GUTTER + enters[number]
        above, below = strip_of[link.row], strip_of[link.row + 1]
        y0, y1 = upper.bottom, lower.top
        if above == below:
            paths[above, link.net, link.crosses].append(_curve(x0, y0, x1, y1))
        else:
            paths[above, link.net, link.crosses].append(f"M{x0:g} {y0:g}V{strips[above].bottom:g}")
            paths[below, link.net, link.crosses].append(f"M{x1:g} {strips[below].top:g}V{y1:g}")
        if link.stop is None:
            key = below, link.net, link.lane_outside
            paths[key].append(f"M{x1:g} {y1:g}V{lower.bottom:g}")
        else:
            strips[below].tips.append((x1, y1))
    for (strip, net, crosses), pieces in sorted(paths.items()):
        strips[strip].wires.append(Wire(net, "".join(pieces), crosses))


def _curve(x0: float, y0: float, x1: float, y1: float) -> str:
    if abs(x0 - x1) < 0.5:
        return f"M{x0:g} {y0:g}V{y1:g}"
    bend = 0.55 * (y1 - y0)
    return f"M{x0:g} {y0:g}C{x0:g} {y0 + bend:g} {x1:g} {y1 - bend:g} {x1:g} {y1:g}"


def _ports(layout: DrawingLayout, sizes: Sizes) -> tuple[list[float], list[float]]:
    """Returns for each link the x where it enters the item below and where it leaves the one above.

    A wire meets a box vertically below or above its other end if the box is wide enough."""
    enters = [link.x1 for link in layout.links]
    leaves = [link.x0 for link in layout.links]
    by_stop: dict[int, list[int]] = defaultdict(list)
    by_start: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, link in enumerate(layout.links):
        if link.stop is not None:
            by_stop[link.stop].append(number)
        if link.start is not None:
            by_start[link.start, link.net].append(number)
    room = sizes.box_width / 2 - _PORT
    for numbers in by_stop.values():
        _spread_links(numbers, enters, leaves, room)
    for numbers in by_start.values():
        _spread_links(numbers, leaves, enters, room)
    return enters, leaves


def _spread_links(
    numbers: Sequence[int], own: list[float], other: Sequence[float], room: float
) -> None:
    """Sets ``own`` of the links that meet at one box: near ``other``, with space between them."""
    middle = own[numbers[0]]
    ordered = sorted(numbers, key=lambda number: other[number])
    targets = [min(max(other[n], middle - room), middle + room) for n in ordered]
    for at in range(1, len(targets)):
        targets[at] = max(targets[at], targets[at - 1] + _APART)
    over = targets[-1] - (middle + room)
    if over > 0:  # move the rightmost ones back
        targets[-1] -= over
        for at in range(len(targets) - 2, -1, -1):
            targets[at] = min(targets[at], targets[at + 1] - _APART)
    for number, x in zip(ordered, targets, strict=True):
        own[number] = x


def _add_labels(
    strips: Sequence[Strip], layout: DrawingLayout, nodes: _Nodes, sizes: Sizes
) -> None:
    for chip in layout.chips:
        row = layout.rows[chip.row]
        _at(strips, chip.row).chips.append(
            Label(GUTTER + chip.x, row.top + row.height / 2, chip.net)
        )
    arrives: dict[tuple[int, int], list[int]] = defaultdict(list)
    for jump in layout.jumps:
        spot = layout.spots[nodes.nets[jump.net].source]
        x, y = GUTTER + spot.x + sizes.box_width / 2, layout.rows[spot.row].bottom
        others = tuple(nodes.short(reader) for reader in jump.readers)
        _at(strips, spot.row).goes_to.append(Label(x, y, jump.net, others))
        for reader in jump.readers:
            arrives[reader, jump.net].append(nodes.nets[jump.net].source)
    for (reader, net), sources in arrives.items():
        spot = layout.spots[reader]
        x, y = GUTTER + spot.x + sizes.box_width / 2, layout.rows[spot.row].top
        others = tuple(nodes.short(source) for source in sources)
        _at(strips, spot.row).comes_from.append(Label(x, y, net, others))


def _add_frames(strips: Sequence[Strip], layout: DrawingLayout, sizes: Sizes) -> None:
    for frame in layout.frames:
        for strip in strips:
            first, last = max(frame.first_row, strip.first), min(frame.last_row, strip.last)
            if first > last:
                continue
            begins, ends = first == frame.first_row, last == frame.last_row
            top = layout.rows[first].top - (sizes.frame_pad if begins else 2 * _EDGE)
            bottom = layout.rows[last].bottom + sizes.frame_pad if ends else strip.bottom + _EDGE
            strip.pieces.append(
                Piece(
                    segment=frame.group - 1,  # the first group holds the model's inputs
                    x=GUTTER + frame.left,
                    y=top,
                    width=frame.right - frame.left,
                    height=bottom - top,
                    begins=begins,
                    text_y=layout.rows[first].top,
                )
            )
