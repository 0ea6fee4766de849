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
    from nnapi_prof.api.start_up import StartUp
    from nnapi_prof.partition import CurvePoint

MOST_ROWS = 8
WORTH = 0.01
"""A latency that falls by less than this is no row of its own."""
LITTLE = 0.001
"""Of the latency: what the fastest plan saves at least where it is spoken of."""


def show_curve(console: Console, found: Found, chosen: bool, unit: str) -> None:
    """Nothing where plans of fewer segments are as fast, and none of more is faster; ``chosen``
    says that the fastest was asked for."""
    few, many = found.default, found.best
    if not found.curve or few.predicted_ns <= 0:
        return
    gain = 1 - many.predicted_ns / few.predicted_ns
    is_wide = found.curve[0].ns > few.predicted_ns * (1 + WORTH)
    if not is_wide and gain < LITTLE:
        return
    title = f"Latency by number of segments, predicted, in {unit}"
    heads = ["segments", "latency", "against the best", "compile", "first run", "shared MB"]
    table = boxed(title, [], heads, "")
    for point in worth_showing(found.curve, len(few.segments)):
        more = point.ns / many.predicted_ns - 1 if many.predicted_ns > 0 else 0.0
        cells = (str(point.n_segments), ms(point.ns), f"{more:+.1%}")
        table.add_row(*cells, *_start_up(found.start_ups.get(point.n_segments)), proven(point))
    console.print(table)
    if gain >= LITTLE:
        line(
            console,
            f"({len(many.segments)} segments instead of {len(few.segments)} "
            f"{'save' if chosen else 'would save'} {gain:.1%}: {ms(many.predicted_ns)} instead of "
            f"{ms(few.predicted_ns)} {unit}{'' if chosen else '; --best chooses them'})",
        )


def _start_up(known: StartUp | None) -> tuple[str, str, str]:
    if known is None:
        return "", "", ""
    compiling = "" if known.compile_ns is None else ms(known.compile_ns)
    return compiling, ms(known.first_run_ns), f"{known.shared_bytes / 1e6:.2f}"


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
