"""What a layout is made of: nets between nodes, nodes in groups, and sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Net:
    """One value: who makes it, who reads it."""

    source: int
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that stand together, ascending. ``framed`` where a frame is drawn around them."""

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
    """Between two lanes, or a lane and its neighbour."""
    frame_pad: float = 9.0
    chip_width: float = 62.0
    chip_height: float = 16.0
    per_row: int = 4
    """Boxes in one row at most."""
    longest_lane: int = 60
    """A reader more rows below than this is not wired."""
    lanes_per_node: int = 3
    """Where wires would pass more rows than this times the nodes, the longest are left out."""
    most_chips: int = 8
    """Where more nets cross from group to group, none has room for a label."""
