"""What stands in the rows of a layout: boxes, lanes, labels and the sides of frames."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Kind(enum.IntEnum):
    BOX = 0
    LANE = 1
    """A net on its way through a row."""
    CHIP = 2
    """The same with a label, between two groups."""
    WALL = 3
    """One side of a frame in one row."""


class Zone(enum.IntEnum):
    """From left to right; within a zone items may change places."""

    LEFT_WALL = 0
    INSIDE = 1
    RIGHT_WALL = 2
    RIGHT = 3
    """Nets that pass a group by."""


@dataclass
class Items:
    """Items by number, as parallel lists; ``up`` and ``down`` are neighbours in the next rows."""

    kind: list[Kind] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    width: list[float] = field(default_factory=list)
    zone: list[Zone] = field(default_factory=list)
    net: list[int] = field(default_factory=list)
    age: list[int] = field(default_factory=list)
    """Rows from where the net was made; of boxes 0."""
    up: list[list[int]] = field(default_factory=list)
    down: list[list[int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kind)

    def add(
        self,
        kind: Kind,
        row: int,
        width: float,
        zone: Zone = Zone.INSIDE,
        net: int = -1,
        age: int = 0,
    ) -> int:
        """Gives the new item's number."""
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
        """Makes two items of neighbouring rows neighbours."""
        self.down[above].append(below)
        self.up[below].append(above)
