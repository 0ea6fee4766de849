"""Write a comparison for people: sentences and tables as a page or Markdown, and JUnit cases."""

from __future__ import annotations

import itertools
import statistics
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from nnapi_prof.costs.diff import CONFIDENCE, DiffVerdict
from nnapi_prof.errors import UsageError
from nnapi_prof.reports import format_of, write_whole
from nnapi_prof.reports.comparison import Compared, Row, Side, by_target
from nnapi_prof.reports.drawings import ToDraw, draw
from nnapi_prof.reports.frames import NS_PER_MS, all_targets
from nnapi_prof.reports.html import template
from nnapi_prof.reports.markdown import table as markdown_table
from nnapi_prof.reports.markdown import text
from nnapi_prof.reports.style import FAINT, INK, ON_COLOUR, PAGE, STYLE, WIDE, colours, new_figure
from nnapi_prof.reports.style import title as figure_title
from nnapi_prof.reports.words import (
    DASH,
    LatencySource,
    count,
    format_change,
    format_ms,
    ms_unit,
    plan_words,
    target_words,
)

_EXPECTED = ("last measured", "run at", "latencies")
"""Facts that differ whenever two things are compared."""
_SHOWN = 4
_MOST_ROWS = 100
"""Most rows of a table; the JSON document has all."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the page and of the Markdown."""

    id: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sentences(compared: Compared) -> tuple[str, ...]:
    """Say what changed, the most important first."""
    parts = _speed(compared), *_outcomes(compared), *_differences(compared)
    return tuple(filter(None, parts))


def _speed(compared: Compared) -> str:
    mark = ""
    if compared.base.simulated == compared.new.simulated:
        mark = " (simulated)" if compared.simulated else ""
    elif compared.plan is not None:
        mark = " (one of them simulated: this says little)"
    if compared.plan is not None and compared.plan.ratio is not None:
        return f"The plan takes {ratio_words(compared.plan)}, measured end to end{mark}."
    one, two = compared.base.predicted_ns, compared.new.predicted_ns
    if one and two:
        return f"The plan takes {two / one:.3f} × as long, as predicted{mark}."
    return ""


def _outcomes(compared: Compared) -> list[str]:
    lines = [
        f"The plan of {side.name} did not run to its end: {side.error}"
        for side in compared.sides
        if side.error is not None
    ]
    verdicts = [side.outputs or "not compared" for side in compared.sides]
    if "differ" in verdicts and len(set(verdicts)) > 1:
        lines.append(f"Outputs against eager PyTorch: {verdicts[0]}, then {verdicts[1]}.")
    return lines


def _differences(compared: Compared) -> list[str]:
    lines = []
    both = compared.base.data is not None and compared.new.data is not None
    n_moved = sum(len(move.base_units) for move in compared.moves)
    if both and not compared.matched:
        lines.append("The models have no unit in common.")
    elif both and n_moved:
        verb = "runs" if n_moved == 1 else "run"
        lines.append(f"{n_moved} of {len(compared.matched)} units {verb} elsewhere.")
    elif both:
        lines.append(f"All {len(compared.matched)} units in common run on the same targets.")
    rows = [row for row in compared.rows if row.target is not None and row.ratio is not None]
    if rows:
        slower, faster = (
            sum(row.verdict is verdict for row in rows)
            for verdict in (DiffVerdict.SLOWER, DiffVerdict.FASTER)
        )
        changed = f"{slower} became slower, {faster} faster" if slower + faster else "none"
        middle = statistics.median(row.ratio or 1.0 for row in rows)
        lines.append(
            f"Of {count(len(rows), 'latency', 'latencies')} of units and regions measured on"
            f" both sides, {changed} beyond noise; median ratio {middle:.3f}."
        )
    elif compared.latencies.same_row:
        lines.append("No unit was measured again.")
    for n, side in (
        (compared.latencies.only_first, "base"),
        (compared.latencies.only_second, "new"),
    ):
        if n:
            lines.append(f"{count(n, 'measurement')} only on the {side} side.")
    if compared.refusals:
        units = len({each.unit for each in compared.refusals})
        targets = sorted({target_words(each.target) for each in compared.refusals})
        lines.append(f"Refusals differ for {count(units, 'unit')}: {_first_names(targets)}.")
    names = [fact.name for fact in compared.facts if fact.name not in _EXPECTED]
    if names:
        lines.append(f"Conditions, versions and facts that differ: {_first_names(names)}.")
    return lines


def ratio_words(row: Row) -> str:
    """Describe a ratio: ``1.053 × as long, 99 % interval 1.048 to 1.058: slower``."""
    interval = ""
    if row.low is not None and row.high is not None:
        interval = f", {100 * CONFIDENCE:.0f} % interval {row.low:.3f} to {row.high:.3f}"
    return f"{row.ratio:.3f} × as long{interval}: {row.verdict.value}"


def _first_names(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def tables(compared: Compared) -> tuple[Table, ...]:
    """Return the tables that have rows."""
    both = ("base", "new")
    moves = [
        (f"{_unit_range(move.base_units)}: {move.label}",
         *(f"{target_words(s.target.key)}: {s.cause}" for s in (move.base, move.new)))
        for move in compared.moves
    ]  # fmt: skip
    targets = [
        (target_words(key), str(len(rows)), *(str(sum(row.verdict is verdict for row in rows))
         for verdict in (DiffVerdict.SLOWER, DiffVerdict.FASTER)),
         f"{statistics.median(row.ratio or 1.0 for row in rows):.3f} ×")
        for key, rows in by_target(compared.rows).items()
    ]  # fmt: skip
    changed = [_latency_cells(row) for row in compared.rows if row.target and row.changed]
    refused = [
        (f"{each.unit}: {each.label}", target_words(each.target),
         *(reason or "not refused" for reason in (each.base, each.new)))
        for each in compared.refusals
    ]  # fmt: skip
    facts = [(fact.name, fact.base or DASH, fact.new or DASH) for fact in compared.facts]
    interval = f"{100 * CONFIDENCE:.0f} % interval"
    all_tables = (
        Table("numbers", "In numbers", ("quantity", *both), tuple(_main_numbers(compared))),
        Table("placement", "Units that run elsewhere", ("units", *both), tuple(moves)),
        Table(
            "targets",
            "Latencies by target",
            ("target", "compared", "slower", "faster", "median, new by base"),
            tuple(targets),
        ),
        Table(
            "latencies",
            f"Latencies that changed by {100 * compared.threshold:.1f} % or more, beyond noise",
            ("unit or region", "target", *both, "new by base", interval, "verdict"),
            tuple(changed),
        ),
        Table("refusals", "Refusals that differ", ("unit", "target", *both), tuple(refused)),
        Table("conditions", "What else differs", ("fact", *both), tuple(facts)),
    )
    return tuple(each for each in all_tables if each.rows)


def _main_numbers(compared: Compared) -> Iterator[tuple[str, str, str]]:
    """Yield the most important numbers that at least one side has."""

    def latency(ns: float | None, simulated: bool) -> str:
        return (
            DASH
            if ns is None
            else f"{format_ms(ns / NS_PER_MS)} {ms_unit(LatencySource.of(simulated))}"
        )

    def cells(side: Side) -> dict[str, str]:
        data, rival = side.data, side.fastest_baseline
        ran = data.run_of_plan if data else None
        planned = data.costs_simulated if data else False
        timed = data.run_simulated if data else side.simulated
        measured, predicted = side.median_ns, side.predicted_ns
        error = (predicted - measured) / measured if predicted and measured else None
        return {
            "model": side.model,
            "device": side.device,
            "latency, measured": "failed" if side.error else latency(measured, timed),
            "95 % of the runs within": latency(side.p95_ns, timed),
            "latency, predicted": latency(predicted, planned),
            "prediction error": format_change(error),
            "against the fastest baseline": f"{rival[1]:.2f} × as fast as {plan_words(rival[0])}"
            if rival
            else DASH,
            "segments": DASH if side.segments is None else str(side.segments),
            "outputs against eager PyTorch": side.outputs or DASH,
            "first run, cold": latency(ran.first_ns if ran else None, timed),
        }

    one, two = cells(compared.base), cells(compared.new)
    for name in one:
        if {one[name], two[name]} - {DASH, ""}:
            yield name, one[name] or DASH, two[name] or DASH


def _latency_cells(row: Row) -> tuple[str, ...]:
    unit = ms_unit(LatencySource.of(row.simulated))
    times = (
        DASH if ns is None else f"{format_ms(ns / NS_PER_MS)} {unit}"
        for ns in (row.base_ns, row.new_ns)
    )
    return (row.name, target_words(row.target or ""), *times, *ratio_cells(row), row.verdict.value)


def ratio_cells(row: Row) -> tuple[str, str]:
    """Return the ratio and its interval."""
    ratio = DASH if row.ratio is None else f"{row.ratio:.3f}"
    known = row.low is not None and row.high is not None
    return ratio, f"{row.low:.3f} to {row.high:.3f}" if known else DASH


def _unit_range(units: Sequence[int]) -> str:
    """List units: ``3``, ``3 to 17``, or ``3, 5, 9``."""
    if len(units) > 2 and list(units) == list(range(units[0], units[-1] + 1)):
        return f"{units[0]} to {units[-1]}"
    return ", ".join(map(str, units))


def write(compared: Compared, path: Path) -> Path:
    """Write the comparison as ``.html`` or ``.md`` and return the path. Raises UsageError for other
    endings, and if it cannot be written."""
    form = format_of(path)
    if form not in ("html", "md"):
        raise UsageError(f"{path}: a comparison is .html or .md", "name it so")
    write_whole(path, lambda: markdown(compared) if form == "md" else html(compared))
    return path


def markdown(compared: Compared) -> str:
    """Render the comparison as Markdown."""
    lines = [f"# {text(compared.base.name)} against {text(compared.new.name)}", ""]
    lines += [*(f"- {text(sentence)}" for sentence in sentences(compared)), ""]
    for each in tables(compared):
        lines += [f"## {text(each.title)}", "", *markdown_table(each.heads, each.rows[:_MOST_ROWS])]
        if len(each.rows) > _MOST_ROWS:
            lines += [f"{len(each.rows) - _MOST_ROWS} more are in the JSON document.", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def html(compared: Compared) -> str:
    """Render the comparison as one page that fetches nothing."""
    return template("compare.html").render(
        compared=compared,
        sentences=sentences(compared),
        tables=tables(compared),
        most_rows=_MOST_ROWS,
        figure=draw(_figures(compared)),
        notes=[(side.name, side.notes) for side in compared.sides if side.notes],
    )


def _figures(compared: Compared) -> Iterator[ToDraw]:
    targets = [row.target for row in compared.rows if row.target]
    data = [side.data for side in compared.sides if side.data]
    every = [t for each in data for t in all_targets(each.cost_model)]
    every += [s.target for each in data for s in each.plan.segments]
    every += [m.target for side in compared.sides for m in side.measurements]
    palette = colours(every)
    if len(data) == 2:
        yield (
            "strips",
            "Where each plan runs each unit",
            f"A strip for each side, units in order. {len(compared.moves)} stretches of units do "
            "not run on the same target; the table has them.",
            lambda width: placement_strips(compared, palette, width),
        )
    if targets:
        medians = ", ".join(
            f"{target_words(key)} {statistics.median(row.ratio or 1.0 for row in rows):.3f}"
            for key, rows in by_target(compared.rows).items()
        )
        yield (
            "ratios",
            "Latencies of units and regions, new by base",
            f"Dots in a row for each target, filled where the latency changed. Medians: {medians}.",
            lambda width: ratio_dots(compared, palette, width),
        )


@mpl.rc_context(STYLE)
def placement_strips(compared: Compared, palette: Mapping[str, str], width: float = WIDE) -> Figure:
    """Draw a row for each side: its units in order, coloured by target, with marks under units that
    run elsewhere on the other side. White lines separate segments."""
    figure, axes = new_figure(width, 2.2)
    rows = [side.data for side in compared.sides if side.data is not None]
    longest = max(len(data.graph.units) for data in rows)
    moved = [[u for m in compared.moves for u in m.base_units],
             [u for m in compared.moves for u in m.new_units]]  # fmt: skip
    for row, data in enumerate(rows):
        of = {unit: s for s in data.plan.segments for unit in s.units}
        units = (of.get(unit.index) for unit in data.graph.units)
        at = 0
        for segment, same in itertools.groupby(units):
            length = len(list(same))
            if segment is not None:
                key = segment.target.key
                axes.barh(row, length, left=at, height=0.7, color=palette[key], edgecolor=PAGE)
                if length > 0.1 / width * len(target_words(key)) * longest:
                    middle = at + length / 2
                    name = target_words(key)
                    axes.text(middle, row, name, ha="center", va="center", color=ON_COLOUR, size=7)
            at += length
        axes.barh([row + 0.43] * len(moved[row]), 1, left=moved[row], height=0.1, color=INK)
    axes.set_yticks([0, 1], ["base", "new"])
    axes.set_ylim(1.6, -0.5)
    axes.set_xlim(0, longest)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("units in order; marked: runs elsewhere in the other", color=INK)
    axes.set_title("Where each plan runs each unit", color=INK)
    return figure


@mpl.rc_context(STYLE)
def ratio_dots(compared: Compared, palette: Mapping[str, str], width: float = WIDE) -> Figure:
    """Draw a row for each target, with a dot for each latency, filled if it changed beyond noise,
    and a line at the median. Slower is to the right."""
    grouped = by_target(compared.rows)
    figure, axes = new_figure(width, 1.4 + 0.36 * len(grouped))
    for y, (key, rows) in enumerate(grouped.items()):
        ratios = [row.ratio or 1.0 for row in rows]
        spread = np.linspace(-0.26, 0.26, len(rows)) if len(rows) > 1 else np.zeros(1)
        faces = [palette[key] if row.changed else "none" for row in rows]
        axes.scatter(
            ratios, y + spread, s=13, facecolors=faces, edgecolors=palette[key], linewidths=0.7
        )
        axes.plot([statistics.median(ratios)] * 2, [y - 0.38, y + 0.38], color=INK, linewidth=1.3)
    axes.axvline(1, color=FAINT, linewidth=0.9, linestyle="--")
    axes.set_yticks(range(len(grouped)), [target_words(key) for key in grouped])
    axes.set_ylim(len(grouped) - 0.4, -0.6)
    every = [row.ratio or 1.0 for rows in grouped.values() for row in rows]
    axes.set_xscale("log")
    axes.set_xlim(0.97 * min([*every, 0.95]), 1.03 * max([*every, 1.05]))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(
        figure_title("new by base: right of 1 is slower", LatencySource.of(compared.simulated)),
        color=INK,
    )
    axes.set_title("Latencies of units and regions", color=INK)
    return figure


def junit(compared: Compared) -> str:
    """Render the rows as test cases of a JUnit file."""
    suite = ET.Element(
        "testsuite",
        name="nnapi-prof compare",
        tests=str(len(compared.rows)),
        failures=str(len(compared.failed)),
        errors="0",
        skipped=str(sum(row.verdict is DiffVerdict.UNSURE for row in compared.rows)),
    )
    for row in compared.rows:
        name = "".join(c for c in row.label if c.isprintable())
        seconds = f"{(row.new_ns or 0.0) / 1e9:.9f}"
        case = ET.SubElement(suite, "testcase", name=name, classname="latency", time=seconds)
        words = row.verdict.value if row.ratio is None else ratio_words(row)
        if row in compared.failed:
            ET.SubElement(case, "failure", message=words).text = words
        elif row.verdict is DiffVerdict.UNSURE:
            ET.SubElement(case, "skipped", message=words)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
