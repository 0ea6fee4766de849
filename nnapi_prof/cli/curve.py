"""What each segment more is worth: a table, and the fastest plan against the one to ship."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnapi_prof.cli.options import ms
from nnapi_prof.cli.tables import boxed, line

if TYPE_CHECKING:
    from rich.console import Console

    from nnapi_prof.api.found import Found
    from nnapi_prof.partition import CurvePoint

MOST_ROWS = 8
WORTH = 0.01
"""A latency that falls by less than this is no row of its own."""


def show_curve(console: Console, found: Found, chosen: bool, unit: str) -> None:
    """Nothing where the fastest plan has no more segments than the default; ``chosen`` says that
    the fastest was asked for."""
    few, many = found.default, found.best
    if len(many.segments) <= len(few.segments) or not found.curve:
        return
    title = f"Latency by number of segments, predicted, in {unit}"
    table = boxed(title, [], ["segments", "latency", "against the best"], "")
    for point in worth_showing(found.curve, len(few.segments)):
        more = point.ns / many.predicted_ns - 1 if many.predicted_ns > 0 else 0.0
        table.add_row(str(point.n_segments), ms(point.ns), f"{more:+.1%}", proven(point))
    console.print(table)
    save = "save" if chosen else "would save"
    gain = 1 - many.predicted_ns / few.predicted_ns if few.predicted_ns > 0 else 0.0
    words = (
        f"{len(many.segments)} segments instead of {len(few.segments)} {save} {gain:.1%}:"
        f" {ms(many.predicted_ns)} instead of {ms(few.predicted_ns)} {unit}"
    )
    if found.compile_ns is not None:
        compile_few, compile_many = found.compile_ns
        words += f"; they compile in {ms(compile_many)} instead of {ms(compile_few)} {unit}"
    line(console, f"({words}{'' if chosen else '; --best chooses them'})")


def worth_showing(curve: Sequence[CurvePoint], default: int) -> list[CurvePoint]:
    """The ends, the default's number, and where latency falls; of many the deepest falls."""
    ends = {curve[0].n_segments, curve[-1].n_segments, default}
    falls: dict[int, float] = {}
    last = curve[0].ns
    for point in curve:
        fall = 1 - point.ns / last if last > 0 else 0.0
        if fall > WORTH:
            falls[point.n_segments] = fall
            last = point.ns
    deepest = sorted(falls.keys() - ends, key=lambda count: -falls[count])
    shown = ends.union(deepest[: MOST_ROWS - len(ends)])
    return [point for point in curve if point.n_segments in shown]


def proven(point: CurvePoint) -> str:
    """What is known of a point, in words."""
    if point.exact:
        return "optimal for its number"
    return (
        f"at most {point.gap:.1%} above the optimum"
        if math.isfinite(point.gap)
        else "no bound known"
    )
