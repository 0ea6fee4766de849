"""Compute the x of every item from the order in its row: straight wires and chains, no overlaps.

U. Brandes and B. Köpf, "Fast and Simple Horizontal Coordinate Assignment" (2001): items are aligned
with the median of their neighbours, four times (from above and from below, to the left and to the
right), each time packed as tightly as the order allows. The mean of the two middle answers is kept,
which preserves every distance that all four preserve. Then lanes move towards the boxes that they
join, and frames close around their content.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

from nnapi_prof.reports.layering import Items, NodeKind, Zone

_LONGEST = (1 << 30, 12, 4, 1)
"""Most items in a straight block, tried in turn while the drawing is too wide: in a graph of only
long wires, blocks push each other aside like stairs."""
_WIDE = 3.0
"""Width, as a multiple of the widest row's, above which a drawing is too wide."""
_PASSES = 3
_STRAIGHT = 0.5
"""Largest sideways offset that counts as straight, in px."""

Separation = Sequence[Sequence[float]]
"""Least distance between the sides of two neighbours in a row, by their kinds."""


def columns(items: Items, rows: Sequence[Sequence[int]], separation: Separation) -> list[float]:
    """Returns the x of each item's middle."""
    conflicts = _conflicts(items, rows)
    aligned = _aligned(items)
    widest = max((_row_width(items, row, separation) for row in rows), default=0.0)
    x: list[float] = []
    for longest in _LONGEST:
        x = _middle(_four(items, rows, aligned, conflicts, separation, longest), items)
        width = max(x, default=0.0) - min(x, default=0.0)
        if width <= _WIDE * widest:
            break
    _tighten(items, rows, x, separation)
    return x


def _row_width(items: Items, row: Sequence[int], separation: Separation) -> float:
    gaps = sum(separation[items.kind[a]][items.kind[b]] for a, b in itertools.pairwise(row))
    return gaps + sum(items.width[item] for item in row)


def _four(
    items: Items,
    rows: Sequence[Sequence[int]],
    aligned: tuple[list[list[int]], list[list[int]]],
    conflicts: set[tuple[int, int]],
    separation: Separation,
    longest: int,
) -> list[list[float]]:
    """Returns four answers: from above to the left and right, from below to the left and right."""
    answers: list[list[float]] = []
    for neighbours, seen in zip(aligned, (rows, rows[::-1]), strict=True):
        for mirrored in (False, True):
            view = [list(row)[::-1] for row in seen] if mirrored else [list(row) for row in seen]
            root = _align(items, view, neighbours, conflicts, longest)
            x = _pack(items, view, root, separation)
            answers.append([-at for at in x] if mirrored else x)
    return answers


def _aligned(items: Items) -> tuple[list[list[int]], list[list[int]]]:
    """Lists for each item the items above and below with which it may be aligned.

    A box is below the nearest item that it reads, and above the box that begins the longest path
    down: chains are straight, and wires that skip some of their boxes go around.
    """
    height = _heights(items)
    nearest = [min((items.age[o] for o in others), default=0) for others in items.up]
    below: list[set[int]] = []
    for item, others in enumerate(items.down):
        boxes = [
            other
            for other in others
            if items.kind[other] is NodeKind.BOX
            and items.kind[item] is not NodeKind.LANE  # a lane continues straight
            and items.age[item] == nearest[other]
        ]
        most = max((height[other] for other in boxes), default=0)
        below.append({other for other in boxes if height[other] == most} or set(others))
    up: list[list[int]] = []
    down: list[list[int]] = [[] for _ in items.down]
    for item, others in enumerate(items.up):
        near = [o for o in others if items.age[o] == nearest[item] and item in below[o]]
        up.append(near)
        for other in near:
            down[other].append(item)
    return up, down


def _heights(items: Items) -> list[int]:
    """Counts the boxes on the longest path down from each item, including itself."""
    heights = [0] * len(items)
    for item in sorted(range(len(items)), key=lambda item: -items.row[item]):
        below = max((heights[other] for other in items.down[item]), default=0)
        heights[item] = below + (items.kind[item] is NodeKind.BOX)
    return heights


def _conflicts(items: Items, rows: Sequence[Sequence[int]]) -> set[tuple[int, int]]:
    """Returns (upper, lower) ends of wires that cross a lane: the lane stays straight."""
    straight = [kind is not NodeKind.BOX for kind in items.kind]
    place = {item: at for row in rows for at, item in enumerate(row)}
    conflicts: set[tuple[int, int]] = set()
    for upper, lower in itertools.pairwise(rows):
        left, scanned = 0, 0
        for at, item in enumerate(lower):
            lane = (
                next((o for o in items.up[item] if straight[o]), None) if straight[item] else None
            )
            if lane is None and at != len(lower) - 1:
                continue
            right = place[lane] if lane is not None else len(upper)
            for other in lower[scanned : at + 1]:
                for above in items.up[other]:
                    crossed = not left <= place[above] <= right
                    if crossed and not (straight[other] and straight[above]):
                        conflicts.add((above, other))
            left, scanned = right if lane is not None else left, at + 1
    return conflicts


def _align(
    items: Items,
    rows: Sequence[Sequence[int]],
    neighbours: Sequence[Sequence[int]],
    conflicts: set[tuple[int, int]],
    longest: int,
) -> list[int]:
    """Returns item -> the first item of its block. The items of a block share one x; a block has at
    most ``longest`` of them, except for frames' sides."""
    n = len(items)
    root = list(range(n))
    length = [1] * n
    place = [0] * n
    for row in rows:
        for at, item in enumerate(row):
            place[item] = at
    for row in rows:
        reached = -1
        for item in row:
            others = sorted(neighbours[item], key=place.__getitem__)
            count = len(others)
            for middle in {(count - 1) // 2: 0, count // 2: 0} if count else ():
                other = others[middle]
                free = (other, item) not in conflicts and (item, other) not in conflicts
                short = length[root[other]] < longest or items.kind[item] is NodeKind.WALL
                if root[item] == item and free and short and reached < place[other]:
                    root[item] = root[other]
                    length[root[other]] += 1
                    reached = place[other]
    return root


def _pack(
    items: Items, rows: Sequence[Sequence[int]], root: Sequence[int], separation: Separation
) -> list[float]:
    """Moves blocks as far left as possible, then right as far as no other block has to move."""
    after: dict[int, dict[int, float]] = defaultdict(dict)
    before: dict[int, int] = defaultdict(int)
    for row in rows:
        for a, b in itertools.pairwise(row):
            gap = (items.width[a] + items.width[b]) / 2 + separation[items.kind[a]][items.kind[b]]
            u, v = root[a], root[b]
            if v not in after[u]:
                before[v] += 1
            after[u][v] = max(gap, after[u].get(v, 0.0))
    blocks = sorted({root[item] for row in rows for item in row})
    x = dict.fromkeys(blocks, 0.0)
    sequence = [block for block in blocks if not before[block]]
    for block in sequence:
        for other, gap in after[block].items():
            x[other] = max(x[other], x[block] + gap)
            before[other] -= 1
            if not before[other]:
                sequence.append(other)
    for block in reversed(sequence):
        if after[block]:
            x[block] = max(x[block], min(x[other] - gap for other, gap in after[block].items()))
    return [x[root[item]] for item in range(len(items))]


def _middle(answers: Sequence[Sequence[float]], items: Items) -> list[float]:
    """Moves each answer to the left side of the narrowest one (mirrored answers to the right side),
    then returns the mean of the two middle ones."""
    if not len(items):
        return []
    half = [width / 2 for width in items.width]
    sides = [
        (
            min(at - h for at, h in zip(x, half, strict=True)),
            max(at + h for at, h in zip(x, half, strict=True)),
        )
        for x in answers
    ]
    left, right = min(sides, key=lambda side: side[1] - side[0])
    moved = []
    for number, (x, side) in enumerate(zip(answers, sides, strict=True)):
        shift = right - side[1] if number % 2 else left - side[0]
        moved.append([at + shift for at in x])
    return [sum(sorted(four)[1:3]) / 2 for four in zip(*moved, strict=True)]


def _tighten(
    items: Items, rows: Sequence[Sequence[int]], x: list[float], separation: Separation
) -> None:
    """Moves each straight lane and each side of a frame as a whole within the space between its
    neighbours: lanes towards their ends, sides towards the frame's content."""
    runs = _runs(items, x)
    place = {item: at for row in rows for at, item in enumerate(row)}

    def gap(a: int, b: int) -> float:
        return (items.width[a] + items.width[b]) / 2 + separation[items.kind[a]][items.kind[b]]

    for _ in range(_PASSES):
        for run in sorted(runs, key=lambda run: (x[run[0]], run)):
            least, most = -math.inf, math.inf
            for item in run:
                row, at = rows[items.row[item]], place[item]
                if at:
                    least = max(least, x[row[at - 1]] + gap(row[at - 1], item))
                if at + 1 < len(row):
                    most = min(most, x[row[at + 1]] - gap(item, row[at + 1]))
            aim = _aim(items, run, x, least, most)
            at_last = min(max(aim, least), most)
            if math.isfinite(at_last):
                for item in run:
                    x[item] = at_last


def _runs(items: Items, x: Sequence[float]) -> list[list[int]]:
    """Returns runs of lanes and walls that continue straight down."""
    follows: set[int] = set()
    runs = []
    for item in sorted(range(len(items)), key=lambda item: items.row[item]):
        if items.kind[item] is NodeKind.BOX or item in follows:
            continue
        run = [item]
        while True:
            more = [
                other
                for other in items.down[run[-1]]
                if items.kind[other] is not NodeKind.BOX and abs(x[other] - x[item]) < _STRAIGHT
            ]
            if not more:
                break
            run.append(more[0])
            follows.add(more[0])
        runs.append(run)
    return runs


def _aim(items: Items, run: Sequence[int], x: Sequence[float], least: float, most: float) -> float:
    """Returns the x that a run would have with unlimited space."""
    zone = items.zone[run[0]]
    if zone is Zone.LEFT_WALL:
        return most
    if zone is Zone.RIGHT_WALL:
        return least
    ends = {*items.up[run[0]], *(other for item in run for other in items.down[item])} - {*run}
    boxes = [x[other] for other in sorted(ends) if items.kind[other] is NodeKind.BOX]
    targets = boxes or [x[other] for other in sorted(ends)]
    return sum(targets) / len(targets) if targets else x[run[0]]
