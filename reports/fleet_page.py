"""The page of a fleet: many phones and models in one table, few plans, and what drivers do."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from nnapi_prof.graph.plan import CPU, Target
from nnapi_prof.reports.drawings import ToDraw, draw
from nnapi_prof.reports.figures import clip_to, row_label
from nnapi_prof.reports.files import check_fleet_format, write_folder, write_whole
from nnapi_prof.reports.fleet_data import Choice, Day, FleetReport, ModelOnPhone, write_tables
from nnapi_prof.reports.headline import Card
from nnapi_prof.reports.html import template
from nnapi_prof.reports.style import FAINT, INK, STYLE, WIDE, canvas, colours, label_axes, title
from nnapi_prof.reports.words import count, format_change, format_percent, ms_unit

MOST_NAMED = 8
"""Phones of a group that stand in its row; the others are counted."""
MOST_ROWS = 50
"""Slow accelerators and days that a page shows; a folder of tables has all."""
CHANGED = 0.05
"""Median of what was measured again: beyond this a day is marked."""
MOST_TIMES = 50.0
"""What is faster or slower by more is drawn here."""
_MARKERS = "osD^vP*X"
"""Of models, one after the other."""


def write(path: Path, data: FleetReport, document: Mapping[str, Any]) -> None:
    """Writes the report in the form that the path's ending asks for; ``document`` is its JSON.

    Raises UsageError for an ending of another form, or where it cannot be written.
    """
    form = check_fleet_format(path)
    if form == "csv":
        write_folder(path, lambda: write_tables(path, data))
    elif form == "json":
        write_whole(path, lambda: json.dumps(document, indent=1, allow_nan=False) + "\n")
    else:
        write_whole(path, lambda: render(data))


def render(data: FleetReport) -> str:
    """The report as one HTML page."""
    return template("fleet.html").render(**context(data))


def context(data: FleetReport) -> dict[str, Any]:
    """The variables of ``fleet.html``."""
    places = [key for cell in data.cells for key in cell.places]
    palette = colours([CPU, *(Target(key) for key in (*places, *(s.target for s in data.slow)))])
    failing = {each.phone for each in data.faults}
    dates = sorted({day.date for day in data.days})
    histories = [day for day in data.days if _is_history(day, data.days)]
    label = " Latencies are simulated." if data.simulated else ""
    return {
        "data": data,
        "unit": ms_unit(data.simulated),
        "sentence": _sentence(data),
        "cards": _cards(data),
        "cell": data.all_cells,
        "colour": palette,
        "figure": draw(_figures(data, palette), label),
        "choices": {m: [c for c in data.choices if c.model == m] for m in data.models},
        "most_named": MOST_NAMED,
        "slow": data.slow[:MOST_ROWS],
        "more_slow": max(0, len(data.slow) - MOST_ROWS),
        "n_slow": len({each.phone for each in data.slow}),
        "failing": failing,
        "estimated": {cell.phone for cell in data.cells if cell.estimated},
        "dates": dates,
        "days": histories[-MOST_ROWS:],
        "more_days": max(0, len(histories) - MOST_ROWS),
        "changed": CHANGED,
    }


def _is_history(day: Day, days: Sequence[Day]) -> bool:
    """Whether its phone was measured on another day, too."""
    return any(other.phone == day.phone and other.date != day.date for other in days)


def _sentence(data: FleetReport) -> str:
    """What a reader is to know first."""
    useful, n = data.useful, len(data.cells)
    pairs = "phones" if len(data.models) == 1 else "pairs of a phone and a model"
    if useful:
        gain = statistics.median(cell.worth for cell in useful)
        words = (
            f"NNAPI helps on {len(useful)} of {n} {pairs}, and makes the model {gain:.2f} × as fast"
            " there in the median"
        )
        words += "; on the others the CPU alone is best." if len(useful) < n else "."
    else:
        words = f"NNAPI helps on none of {n} {pairs}: the CPU alone is best."
    last = _of_all(data, max(choice.k for choice in data.choices))
    each = " for each model" if len(data.models) > 1 else ""
    return (
        f"{words} With {count(last.k, 'plan')}{each} for all phones instead of one for each phone,"
        f" the model takes {format_percent(last.mean_regret)} longer in the mean."
    )


def _cards(data: FleetReport) -> list[Card]:
    useful = [cell.worth for cell in data.useful]
    gains = [cell.rule_gain for cell in data.cells]
    one, last = _of_all(data, 1), _of_all(data, max(c.k for c in data.choices))
    crashes = sum(each.crashed for each in data.faults)
    return [
        Card(
            "what NNAPI is worth",
            f"{statistics.median(useful):.2f} ×" if useful else "nothing",
            "good" if useful else "",
            f"the speed of the CPU alone, median of the {len(useful)} of {len(data.cells)} where it"
            f" helps{f'; at most {max(useful):.2f} ×' if useful else ''}",
        ),
        Card(
            "fastest rule against best plan",
            format_change(statistics.mean(gains)),
            "",
            f"longer in the mean with the fastest simple strategy; at most"
            f" {format_change(max(gains))}",
        ),
        Card(
            f"regret of {count(last.k, 'plan')}",
            format_percent(last.mean_regret),
            "",
            f"in the mean, worst phone {format_percent(last.worst_regret)};"
            f" of one plan for all {format_percent(one.mean_regret)}",
        ),
        Card(
            "drivers that failed",
            str(len({(f.phone, f.accelerator) for f in data.faults})),
            "bad" if data.faults else "good",
            f"on {count(len({f.phone for f in data.faults}), 'phone')},"
            f" {count(crashes, 'crash', 'crashes')}"
            if data.faults
            else "no crash, none late",
        ),
    ]


def _of_all(data: FleetReport, k: int) -> Choice:
    """The means over models, and the worst of them."""
    own = [c for c in data.choices if c.k == k]
    return Choice(
        "", k, statistics.mean(c.mean_regret for c in own), max(c.worst_regret for c in own)
    )


# ---- figures -------------------------------------------------------------------------------------


def _figures(data: FleetReport, palette: Mapping[str, str]) -> Iterator[ToDraw]:
    yield (
        "worth",
        "What NNAPI is worth on each phone",
        "Dots, one a phone, a line for each model: how many times as fast as the CPU alone. "
        + "; ".join(f"{model}: {_worth_words(_cells(data, model))}" for model in data.models)
        + ".",
        lambda width: worth_dots(data, palette, width=width),
    )
    if max(choice.k for choice in data.choices) > 1:
        yield (
            "regret",
            "Regret by the number of plans",
            "Lines, one a model: how much longer phones take with so many plans than with one of"
            " their own. The table below has every number.",
            lambda width: regret_lines(data, width=width),
        )


def _cells(data: FleetReport, model: str) -> list[ModelOnPhone]:
    return [cell for cell in data.cells if cell.model == model]


def _worth_words(cells: Sequence[ModelOnPhone]) -> str:
    middle = statistics.median(cell.worth for cell in cells)
    n_cpu = sum(not cell.is_worth for cell in cells)
    words = f"median {middle:.2f} ×"
    return words + (f", CPU best on {n_cpu} of {len(cells)}" if n_cpu else "")


@mpl.rc_context(STYLE)
def worth_dots(data: FleetReport, palette: Mapping[str, str], *, width: float = WIDE) -> Figure:
    """A row for each model, a dot for each phone: the speed with its best plan over the CPU's, in
    the colour of what runs most of it; the median as a line."""
    figure, axes = canvas(width, 0.46 * len(data.models), bottom=0.5, top=0.38)
    most = 1.0
    for y, model in enumerate(data.models):
        cells = sorted(_cells(data, model), key=lambda cell: cell.worth)
        worths = np.array([min(cell.worth, MOST_TIMES) for cell in cells])
        most = max(most, float(worths.max()))
        offset = np.linspace(-0.11, 0.11, 5)[np.arange(len(cells)) % 5]
        dots = [palette[cell.places[0]] for cell in cells]
        axes.scatter(worths, y + 0.12 + offset, s=11, color=dots, alpha=0.8, linewidth=0)
        axes.plot([np.median(worths)] * 2, [y - 0.08, y + 0.32], color=INK, linewidth=1.4)
        row_label(axes, y + 0.1, clip_to(model, width), _worth_words(cells))
    axes.axvline(1, color=FAINT, linewidth=0.8, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlim(0.97, max(1.5, most * 1.06))
    ticks = [x for x in (1, 1.2, 1.5, 2, 3, 5, 7, 10, 20, 50) if x <= max(1.5, most * 1.06)]
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g} ×"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(len(data.models) - 0.5, -0.7)
    what = "speed with the best plan, × that of the CPU alone"
    label_axes(axes, title("What NNAPI is worth", data.simulated), title(what, data.simulated))
    return figure


@mpl.rc_context(STYLE)
def regret_lines(data: FleetReport, *, width: float = WIDE) -> Figure:
    """Mean regret of each model against the number of plans."""
    figure, axes = canvas(width, 2.3, left=0.75, bottom=0.5, top=0.38)
    for place, model in enumerate(data.models):
        own = [choice for choice in data.choices if choice.model == model]
        axes.plot(
            [choice.k for choice in own],
            [100 * choice.mean_regret for choice in own],
            color=INK, linewidth=0.9, alpha=0.75, label=clip_to(model, width), clip_on=False,
            marker=_MARKERS[place % len(_MARKERS)], markersize=5, markerfacecolor="none",
        )  # fmt: skip
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g} %"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("plans", color=INK, labelpad=2)
    axes.set_title(title("Mean regret, %", data.simulated), color=INK, loc="left")
    for text in axes.legend(frameon=False, fontsize=8).get_texts():
        text.set_color(INK)
    return figure
