"""One self-contained HTML file: figures inline, style and script inline, nothing fetched."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from nnapi_prof.errors import UsageError
from nnapi_prof.reports import figures, frames
from nnapi_prof.reports.data import ReportData as ReportData
from nnapi_prof.reports.facts import device_facts, how_measured
from nnapi_prof.reports.style import colours, to_svg


@dataclass(frozen=True)
class Headline:
    """The plan against one baseline, both measured where both were, else both predicted."""

    baseline: str
    plan_ms: float
    baseline_ms: float
    measured: bool

    @property
    def factor(self) -> float:
        """Above 1 where the plan is faster."""
        return self.baseline_ms / self.plan_ms if self.plan_ms else 1.0

    @property
    def verdict(self) -> str:
        """``good``, ``bad``, or empty within 2 %, which is noise of a run."""
        return "good" if self.factor > 1.02 else ("bad" if self.factor < 0.98 else "")


def write_report(path: Path, data: ReportData) -> None:
    """Writes the report to ``path``, whole or not at all. Raises UsageError where it cannot."""
    partial = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.touch()  # a place that cannot be written to shows before the work
        partial.write_text(render(data), encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise UsageError(f"cannot write the report {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # there is none after success
            partial.unlink(missing_ok=True)


def render(data: ReportData) -> str:
    """The report as HTML."""
    environment = Environment(
        loader=PackageLoader("nnapi_prof.reports"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(ms=_format_ms, percent=_format_percent, si=_format_si)
    return environment.get_template("report.html").render(**_context(data))


def _context(data: ReportData) -> dict[str, Any]:
    plans = (data.plan, *data.baselines)
    baselines = frames.baseline_frame(plans, data.run, data.permutes)
    segments = frames.plan_frame(data.plan, data.graph)
    ran = data.run_of_plan
    timed = frames.segment_frame([ran] if ran else [])
    units = frames.unit_frame(data.cost_model)
    chosen = {u: s.target.key for s in data.plan.segments for u in s.units}
    palette = colours(
        [*frames.all_targets(data.cost_model), *(s.target for p in plans for s in p.segments)]
    )
    measured = dict(zip(timed["segment"], timed.to_dict("records"), strict=True))
    return {
        "model": data.model,
        "device": data.device_name,
        "created_at": data.run.created_at if data.run else None,
        "simulated": data.simulated,
        "what_is_simulated": data.what_is_simulated,
        "predicted_unit": _unit(data.cost_model.simulated or data.plan.simulated),
        "measured_unit": _unit(data.run is not None and data.run.simulated),
        "plan": data.plan,
        "headlines": _headlines(baselines),
        "run": data.run,
        "run_error": ran.error if ran else None,
        "segments": segments.to_dict("records"),
        "measured": measured,
        "baselines": baselines.to_dict("records"),
        "targets": [target.key for target in frames.all_targets(data.cost_model)],
        "units": _unit_rows(units, chosen),
        "refusals": frames.refusal_frame(data.cost_model).to_dict("records"),
        "estimated": units[units["status"] == "estimated"].to_dict("records"),
        "fits": frames.fit_frame(data.cost_model).to_dict("records"),
        "device_facts": device_facts(data.device_info),
        "accelerators": data.device_info.get("accelerators")
        or _mapping(data.device_info.get("nnapi")).get("accelerators")
        or (),
        "method": how_measured(data.own_measurements, data.run),
        "notes": data.all_notes,
        "colour": palette,
        "figure": _figures(data, baselines, timed, units, chosen, palette),
        "n_units": len(data.graph.units),
        "macs": sum(unit.macs for unit in data.graph.units),
    }


def _figures(
    data: ReportData,
    baselines: pd.DataFrame,
    timed: pd.DataFrame,
    units: pd.DataFrame,
    chosen: Mapping[int, str],
    palette: Mapping[str, str],
) -> dict[str, Markup]:
    """Name -> ``<svg>``; a figure with nothing to show is absent."""
    own = frames.plan_frame(data.plan, data.graph)
    every = pd.concat([own, *(frames.plan_frame(plan, data.graph) for plan in data.baselines)])
    errors = frames.residual_frame(data.cost_model)
    simulated = data.simulated
    made = {
        "baselines": (
            figures.baseline_bars(baselines, simulated),
            "Bars: latency of the plan and its baselines",
        ),
        "timeline": (
            figures.timeline(own, palette, simulated, heading="The plan's segments in order"),
            "Timeline: segments of the plan by target",
        ),
        "timelines": (
            figures.timeline(every, palette, simulated, heading="Segments of all plans"),
            "Timelines: segments of the plan and its baselines by target",
        ),
        "units": (
            figures.unit_latency(units, chosen, simulated),
            "Heat map: latency of each unit on each target",
        ),
    }
    if timed["measured_ms"].notna().any():
        made["segments"] = (
            figures.predicted_against_measured(timed, palette, simulated),
            "Bars: predicted and measured latency of each segment",
        )
    if len(errors):
        made["residuals"] = (
            figures.residuals(errors, palette, simulated),
            "Dots: relative errors of the cost model per target",
        )
    return {name: _svg(figure, name, text) for name, (figure, text) in made.items()}


def _svg(figure: Figure, name: str, description: str) -> Markup:
    """Safe to mark: matplotlib escapes every text that it writes into an SVG."""
    return Markup(to_svg(figure, f"figure-{name}", str(escape(description))))


def _headlines(baselines: pd.DataFrame) -> list[Headline]:
    """The plan against each baseline, the hardest to beat first."""
    rows = baselines.to_dict("records")
    found = []
    for row in rows[1:]:
        both = pd.notna(row["measured_ms"]) and pd.notna(rows[0]["measured_ms"])
        column = "measured_ms" if both else "predicted_ms"
        found.append(Headline(row["plan"], rows[0][column], row[column], bool(both)))
    return sorted(found, key=lambda headline: headline.factor)


def _unit_rows(units: pd.DataFrame, chosen: Mapping[int, str]) -> list[dict[str, Any]]:
    """One row a unit, with its cells by target key."""
    rows = []
    for unit, cells in units.groupby("unit", sort=True):
        first = cells.iloc[0]
        rows.append(
            {
                "unit": int(str(unit)),
                "name": first["name"],
                "label": first["label"],
                "macs": int(first["macs"]),
                "chosen": chosen.get(int(str(unit)), ""),
                "cells": {cell["target"]: cell for cell in cells.to_dict("records")},
            }
        )
    return rows


def _unit(simulated: bool) -> str:
    """The unit behind a latency: simulated ones are labelled wherever they stand."""
    return "ms, simulated" if simulated else "ms"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _format_ms(ms: float | None) -> str:
    """Milliseconds with three significant digits, to the microsecond at the finest; an en dash
    where unknown."""
    if ms is None or pd.isna(ms):
        return "–"
    if ms >= 100:
        return f"{ms:.0f}"
    return f"{ms:.1f}" if ms >= 10 else (f"{ms:.2f}" if ms >= 1 else f"{ms:.3f}")


def _format_percent(ratio: float | None) -> str:
    return "–" if ratio is None or pd.isna(ratio) else f"{100 * ratio:.1f} %"


def _format_si(number: float) -> str:
    """``1.2 k``, ``34 M``: counts and bytes with a decimal prefix."""
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g} {prefix}"
    return f"{number:.0f} "
