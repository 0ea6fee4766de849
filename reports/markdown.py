"""Write the report as GitHub Markdown for reviews, issues and notes, with the HTML report's tables.

Names come from models and drivers, and causes quote drivers: all are escaped, so that they appear
unchanged in paragraphs and cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from nnapi_prof.execution.compare import verdict
from nnapi_prof.reports import frames
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.facts import (
    ReportFact,
    device_words,
    environment_facts,
    refusals_by_reason,
    transfer_frame,
    unit_facts,
)
from nnapi_prof.reports.headline import headline
from nnapi_prof.reports.sections import filled_sections
from nnapi_prof.reports.words import (
    DASH,
    SHIP,
    count,
    format_comparison,
    format_difference,
    format_ms,
    format_percent,
    format_si,
    format_time,
    ms_unit,
    plan_words,
    rule_words,
    target_words,
)

_SPECIAL = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", "@": "&#64;", "#": "&#35;"}
"""Escapes of HTML, and of characters that code hosts turn into links to people and issues."""
_LINE_START = re.compile(r"^()([-+=>])|^(\d+)([.)])(?=\s|$)")

Rows = Iterable[Sequence[str]]


def text(raw: object) -> str:
    """Escapes any text for a paragraph of Markdown, on one line."""
    line = " ".join(str(raw).split())
    line = "".join(_ENTITIES.get(character, character) for character in line)
    line = _SPECIAL.sub(r"\\\g<0>", line)
    return _LINE_START.sub(lambda m: f"{m[1] or m[3] or ''}\\{m[2] or m[4]}", line)


def table(heads: Sequence[str], rows: Rows, numbers: Sequence[int] = ()) -> Iterator[str]:
    """Yields the lines of a table; cells are raw texts, ``numbers`` the columns aligned right."""
    yield _markdown_row(heads)
    yield _markdown_row(["--:" if at in numbers else "---" for at in range(len(heads))], raw=True)
    for row in rows:
        if len(row) != len(heads):
            raise ValueError(f"a row of {len(row)} cells in a table of {len(heads)} columns")
        yield _markdown_row(row)
    yield ""


def _markdown_row(cells: Sequence[str], raw: bool = False) -> str:
    return f"| {' | '.join(cell if raw else text(cell) for cell in cells)} |"


def render(data: ReportData) -> str:
    """Returns the report as Markdown."""
    plans = frames.baseline_frame(data.plans, data.run, data.permutes)
    lines = [
        *_head(data, plans),
        *_advice(data),
        *_plan_section(data),
        *_baselines(data, plans),
        *_outputs(data),
        *_refusals_section(data),
        *_transfers(data),
        *_units_section(data),
        *_costs(data),
        *_facts("Device", device_words(data.device_info)),
        *_sections(data),
        *_facts("Environment", environment_facts(data)),
        *_notes(data),
        *_ship(data),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _head(data: ReportData, plans: pd.DataFrame) -> Iterator[str]:
    first = headline(data, plans)
    macs = format_si(sum(unit.macs for unit in data.graph.units))
    yield f"# {text(data.model)} on {text(data.device_name)}"
    yield ""
    yield f"{count(len(data.graph.units), 'unit')}, {macs}MAC" + (
        f", run at {text(format_time(data.run.created_at))}." if data.run else "."
    )
    yield ""
    if data.simulated:
        yield (
            f"{data.what_is_simulated} come from the description of a **simulated** phone, not "
            "from hardware. Outputs are computed for real."
        )
        yield ""
    if data.ran_elsewhere:
        yield f"**{text(data.ran_elsewhere)}**"
        yield ""
    if data.what_is_estimated:
        yield data.what_is_estimated
        yield ""
    yield f"**{text(first.sentence)}**"
    yield ""
    yield from table(
        ["", "result", "of"], [[card.about, card.value, card.detail] for card in first.cards]
    )
    ran = data.run_of_plan
    if ran is not None and ran.error:
        yield f"**The plan did not run to its end:** {text(ran.error)}"
        yield ""


def _advice(data: ReportData) -> Iterator[str]:
    if not data.advice:
        return
    yield "## What would help"
    yield ""
    for number, one in enumerate(data.advice, 1):
        yield f"{number}. {text(one)}."
        if one.rewrite is not None:
            code = " ".join(one.rewrite.code.split()).replace("`", "'")
            yield f"   `{code}`: {text(one.rewrite.accuracy)}"
    yield ""


def _plan_section(data: ReportData) -> Iterator[str]:
    predicted_unit, measured_unit = _units_of(data)
    ran = data.run_of_plan
    timed = frames.segment_frame([ran] if ran else [])
    measured: dict[Any, Mapping[Any, Any]] = dict(
        zip(timed["segment"], timed.to_dict("records"), strict=True)
    )
    heads = ["segment", "target", "units", f"predicted {predicted_unit}"]
    heads += (
        [f"measured {measured_unit}", f"first run {ms_unit(data.run_source)}"] if measured else []
    )
    rows = []
    for row in frames.plan_frame(data.plan, data.graph).to_dict("records"):
        timing = measured.get(row["segment"], {})
        times = [format_ms(timing.get(name)) for name in ("measured_ms", "first_ms")]
        rows.append(
            [
                str(row["segment"]),
                target_words(row["target"]),
                f"{row['n_units']}: {row['label']}",
                format_ms(row["predicted_ms"]),
                *(times if measured else ()),
                {"sum": "sum of measured parts"}.get(row["basis"], row["basis"]),
                f"{format_si(row['in_bytes'])}B",
                f"{format_si(row['out_bytes'])}B",
                row["cause"],
            ]
        )
    n = len(heads)
    yield from _section("Plan", "Segments in the order in which they run, and why each is there.")
    yield from table(
        [*heads, "rests on", "in", "out", "cause"], rows, [0, *range(3, n), n + 1, n + 2]
    )


def _baselines(data: ReportData, plans: pd.DataFrame) -> Iterator[str]:
    predicted_unit, measured_unit = _units_of(data)
    yield from _section(
        "Baselines", "Simple strategies, for comparison, under the same costs and conditions."
    )
    rows = []
    for place, row in enumerate(plans.to_dict("records")):
        was_run = row["runs"] > 0
        rows.append(
            [
                plan_words(row["plan"], is_own=place == 0),
                row["error"] or rule_words(row["plan"]),
                str(row["n_segments"]),
                format_ms(row["predicted_ms"]),
                format_ms(row["measured_ms"]),
                format_ms(row["p95_ms"]),
                f"{format_ms(row['low_ms'])} to {format_ms(row['high_ms'])}" if was_run else DASH,
                str(row["runs"] or DASH),
                format_ms(row["first_ms"]),
                _permutes(row),
            ]
        )
    heads = [
        "plan", "rule", "segments", f"predicted {predicted_unit}", f"measured {measured_unit}",
        "95 % within", "10th to 90th percentile", "runs", "first run", "permutes",
    ]  # fmt: skip
    yield from table(heads, rows, range(2, len(heads)))


def _permutes(row: Mapping[Any, Any]) -> str:
    if pd.isna(row["permutes"]):
        return DASH
    moved = f", {format_si(row['permuted_bytes'])}B" if row["permutes"] else ""
    return f"{int(row['permutes'])}{moved}"


def _outputs(data: ReportData) -> Iterator[str]:
    if data.run is None or not data.run.checks:
        return
    yield from _section("Outputs", "Of the plan, against eager PyTorch on the same inputs.")
    yield from table(
        ["output", "shape", "largest difference", "of its largest value", "allowed", "verdict"],
        [
            [
                check.name,
                " × ".join(map(str, check.shape)) or "scalar",
                format_difference(check.max_abs),
                *format_comparison(check),
                verdict(check),
            ]
            for check in data.run.checks
        ],
        (2, 3, 4),
    )


def _refusals_section(data: ReportData) -> Iterator[str]:
    yield from _section("Refusals", "")
    rows = refusals_by_reason(data.cost_model).to_dict("records")
    if not rows:
        yield "None: every target that was measured runs every unit."
        yield ""
        return
    yield from table(
        ["operation", "reason", "units", "which", "targets"],
        [
            [
                row["operation"],
                row["reason"],
                str(row["n_units"]),
                _ranges(row["units"]),
                row["where"],
            ]
            for row in rows
        ],
        (2,),
    )


def _transfers(data: ReportData) -> Iterator[str]:
    unit = _units_of(data)[0]
    yield from _section("Transfers", "What crosses each segment's border, and what it costs.")
    rows = transfer_frame(data.plan, data.cost_model, data.segment_permutes).to_dict("records")
    heads = ["segment", "target", "in", "out", f"invocation {unit}", f"in {unit}", f"out {unit}"]
    yield from table(
        [*heads, "share of the segment"],
        [
            [
                str(row["segment"]),
                target_words(row["target"]),
                f"{format_si(row['in_bytes'])}B",
                f"{format_si(row['out_bytes'])}B",
                *(format_ms(row[name]) for name in ("invocation_ms", "in_ms", "out_ms")),
                format_percent(row["share"]),
            ]
            for row in rows
        ],
        (0, *range(2, 8)),
    )


def _units_section(data: ReportData) -> Iterator[str]:
    """Yields the folded table of every unit on every target."""
    chosen = {u: s.target for s in data.plan.segments for u in s.units}
    facts = unit_facts(data.cost_model, {}, data.shown_targets)
    places = [row.place for row in facts[0].rows] if facts else []
    yield from _section(
        "Units",
        f"Marginal costs inside a segment, {_units_of(data)[0]}, or the reason why one is missing.",
    )
    yield f"<details><summary>{count(len(facts), 'unit')} on each target</summary>"
    yield ""
    yield from table(
        ["unit", "operation", "runs on", *places],
        [
            [
                str(each.unit),
                data.graph.units[each.unit].label,
                target_words(chosen[each.unit].key),
                *(row.brief for row in each.rows),
            ]
            for each in facts
        ],
        (0,),
    )
    yield "</details>"
    yield ""


def _costs(data: ReportData) -> Iterator[str]:
    unit = _units_of(data)[0]
    fits = frames.fit_frame(data.cost_model)
    shown = [target.key for target in data.shown_targets]
    rows = fits[fits["target"].isin(shown)].to_dict("records")
    yield from _section(
        "Cost model", "Fitted to what was measured; its errors are those of sums of its parts."
    )
    heads = ["target", f"invocation {unit}", "in ns per byte", "out ns per byte", "rows"]
    yield from table(
        [*heads, "median error", "90th percentile"],
        [
            [
                target_words(row["target"]),
                format_ms(row["overhead_ms"]),
                f"{row['in_ns_per_byte']:.3f}",
                f"{row['out_ns_per_byte']:.3f}",
                str(row["rows"]),
                format_percent(row["median_error"]),
                format_percent(row["p90_error"]),
            ]
            for row in rows
        ],
        range(1, 7),
    )


def _facts(heading: str, facts: Sequence[ReportFact]) -> Iterator[str]:
    if facts:
        yield from _section(heading, "")
        yield from table(["", "found"], [[fact.name, fact.value] for fact in facts])


def _sections(data: ReportData) -> Iterator[str]:
    """Yields the sections of :mod:`nnapi_prof.reports.sections`."""
    for section, rows in filled_sections(data):
        yield from _section(section.heading, section.about)
        yield from table(section.heads or ("", "found"), rows, section.numbers)


def _notes(data: ReportData) -> Iterator[str]:
    if data.all_notes:
        yield from _section("Notes", "")
        yield from (f"- {text(note)}" for note in data.all_notes)


def _ship(data: ReportData) -> Iterator[str]:
    """Yields the next commands, to copy; last, as on the page."""
    if not data.ship:
        return
    yield from _section("Ship it", SHIP)
    commands = [
        line
        for step in data.ship
        if step.refusal is None
        for line in (f"# {step.runtime.value}", step.command)
    ]
    if commands:
        longest = max(map(len, re.findall("`+", "\n".join(commands))), default=0)
        fence = "`" * max(3, longest + 1)
        yield from (f"{fence}sh", *commands, fence, "")
    yield from (
        f"- {text(step.runtime.value)}: {text(step.refusal)}" for step in data.ship if step.refusal
    )


def _section(heading: str, about: str) -> Iterator[str]:
    yield f"## {heading}"
    yield ""
    if about:
        yield about
        yield ""


def _units_of(data: ReportData) -> tuple[str, str]:
    """Returns the units of predicted latencies, and of measured ones."""
    planned = data.planned_unit
    return planned, ms_unit(data.run_source)


def _ranges(units: Sequence[int]) -> str:
    """Lists units with ranges: ``3, 5 to 9``."""
    ranges: list[list[int]] = []
    for unit in sorted(units):
        if ranges and unit == ranges[-1][-1] + 1:
            ranges[-1].append(unit)
        else:
            ranges.append([unit])
    return ", ".join(
        f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in ranges
    )
