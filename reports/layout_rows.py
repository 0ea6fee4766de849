"""The row of every box: its longest path from above within its group, groups below each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from nnapi_prof.reports.layout_nets import Group, Net, Sizes


def rows_of_nodes(
    groups: Sequence[Group], nets: Sequence[Net], group_of: dict[int, int], sizes: Sizes
) -> tuple[dict[int, int], list[int | None]]:
    """Node -> row, and row -> group (None between groups)."""
    row_of: dict[int, int] = {}
    groups_of_rows: list[int | None] = []
    inside: list[list[Net]] = [[] for _ in groups]
    for net in nets:
        home = group_of[net.source]
        for number in {group_of[reader] for reader in net.readers} | {home}:
            readers = tuple(reader for reader in net.readers if group_of[reader] == number)
            inside[number].append(Net(net.source if number == home else -1, readers))
    for number, group in enumerate(groups):
        if number:
            groups_of_rows.append(None)
        local = _rows_within(group.nodes, inside[number], sizes.per_row)
        first = len(groups_of_rows)
        row_of |= {node: first + row for node, row in local.items()}
        groups_of_rows += [number] * (max(local.values(), default=-1) + 1)
    return row_of, groups_of_rows


def _rows_within(nodes: Sequence[int], nets: Sequence[Net], per_row: int) -> dict[int, int]:
    """Longest path from above, with at most ``per_row`` in a row; then down where wires shorten.

    Nets from outside have the source -1.
    """
    reads: dict[int, list[Net]] = defaultdict(list)
    makes: dict[int, list[Net]] = defaultdict(list)
    for net in nets:
        makes[net.source].append(net)
        for reader in net.readers:
            reads[reader].append(net)
    rows: dict[int, int] = {}
    taken: Counter[int] = Counter()
    for node in nodes:
        row = max((rows[net.source] + 1 for net in reads[node] if net.source >= 0), default=0)
        while taken[row] >= per_row:
            row += 1
        rows[node] = row
        taken[row] += 1
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
        if row > rows[node] and longer < shorter and taken[row] < per_row:
            taken[rows[node]] -= 1
            taken[row] += 1
            rows[node] = row
    used = {row: place for place, row in enumerate(sorted(set(rows.values())))}
    return {node: used[row] for node, row in rows.items()}
