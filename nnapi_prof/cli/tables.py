"""Tables and lines on standard output, as wide as a terminal is and never cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from nnapi_prof.cli.options import ms

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from nnapi_prof.graph.plan import Plan, Segment
    from nnapi_prof.graph.unit import UnitGraph

NOISE = 0.02
"""Relative difference within which two latencies count as equal."""
WIDE = 110
"""Columns of a terminal that has room for all of a table's."""
_WHOLE = ("target", "device", "serial")
"""Columns of names that options take."""


def boxed(title: str, left: Sequence[str], right: Sequence[str] = (), *last: str) -> Table:
    """An empty table: columns of words, of numbers, and of words again. Words that are too long for
    their column go on in the next line."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in left:
        table.add_column(name, overflow="fold", no_wrap=name in _WHOLE)
    for name in right:
        table.add_column(name, justify="right", overflow="fold")
    for name in last:
        table.add_column(name, overflow="fold")
    return table


def plain(left: Sequence[str], right: Sequence[str] = (), *last: str, title: str = "") -> Table:
    """:func:`boxed` without lines, for lists that other programs may cut into columns."""
    table = boxed(title, left, right, *last)
    table.box, table.pad_edge = None, False
    return table


def is_wide(console: Console) -> bool:
    """Whether there is room for every column; a pipe has it always."""
    return not console.is_terminal or console.width >= WIDE


def line(console: Console, text: str) -> None:
    """A sentence: broken between words on a terminal, one line in a pipe."""
    console.print(text, soft_wrap=not console.is_terminal)


def listed(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Sentences that belong to the rows of a table above, by what these begin with."""
    from rich.table import Table

    if not console.is_terminal:
        console.print(title)
        for head, text in rows:
            console.print(f"{head:>3}  {text}", soft_wrap=True)
        return
    grid = Table(box=None, show_header=False, pad_edge=False, title=title, title_justify="left")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    console.print(grid)


def units_of(graph: UnitGraph, segment: Segment) -> str:
    """A segment's units: the label of one, first and last of several."""
    label = graph.label(segment.units)
    return label if len(segment.units) == 1 else f"{len(segment.units)}: {label}"


def show_segments(
    console: Console,
    title: str,
    graph: UnitGraph,
    plan: Plan,
    doubt: tuple[str, Callable[[Segment], str]],
    mark: Callable[[Segment], str] = lambda _: "",
) -> None:
    """A plan's segments, and why each stands where it does. ``doubt`` is the name of a column and
    what it says of a segment's latency, ``mark`` is put behind the latency."""
    head, of = doubt
    table = boxed(title, ["#", "target", "units"], ["latency", head])
    for number, each in enumerate(plan.segments):
        latency = f"{ms(each.predicted_ns)}{mark(each)}"
        table.add_row(str(number), each.target.key, units_of(graph, each), latency, of(each))
    console.print(table)
    listed(console, "Why", ((str(i), each.cause) for i, each in enumerate(plan.segments)))


def show_plans(
    console: Console,
    title: str,
    plans: Sequence[Plan],
    doubt: tuple[str, Callable[[Plan], str]] | None = None,
) -> None:
    """Plan and baselines, each latency against the first one's, and what the plan gains over the
    fastest of them."""
    heads = [] if doubt is None else [doubt[0]]
    table = boxed(title, ["plan"], ["segments", "latency", *heads, "against the plan"])
    best = plans[0].predicted_ns
    for plan in plans:
        cells = [] if doubt is None else [doubt[1](plan)]
        ratio = plan.predicted_ns / best if best else 1.0
        latency = ms(plan.predicted_ns)
        table.add_row(plan.name, str(len(plan.segments)), latency, *cells, f"{ratio:.2f}x")
    console.print(table)
    if plans[1:] and best:
        rule = min(plans[1:], key=lambda plan: plan.predicted_ns)
        line(console, f"({_against_rule(rule, rule.predicted_ns / best)})")


def _against_rule(rule: Plan, ratio: float) -> str:
    """``1.17 times as fast as the fastest rule that needs no partitioner, greedy``."""
    name = f"the fastest rule that needs no partitioner, {rule.name}"
    if ratio > 1 + NOISE:
        return f"{ratio:.2f} times as fast as {name}"
    if ratio < 1 - NOISE:
        return f"{1 / ratio - 1:.0%} slower than {name}"
    return f"no faster than {name}"
