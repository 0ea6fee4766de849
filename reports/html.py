"""Write the report as one self-contained HTML file: figures, style and script are inline."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from typing import Any

import pandas as pd
from jinja2 import Template

from nnapi_prof.execution.compare import verdict
from nnapi_prof.graph.plan import HOST
from nnapi_prof.reports import frames
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.device_frames import (
    by_costs,
    doubtful,
    history_frame,
    plans_by_preference,
    preference_frame,
    readings,
)
from nnapi_prof.reports.drawings import ReportFrames, draw_all
from nnapi_prof.reports.facts import (
    device_words,
    environment_facts,
    refusals_by_reason,
    transfer_frame,
)
from nnapi_prof.reports.headline import headline
from nnapi_prof.reports.picture import SCRIPT, model_svg
from nnapi_prof.reports.sections import filled_sections
from nnapi_prof.reports.style import HEAT, colours, new_environment
from nnapi_prof.reports.words import (
    GLOSSARY,
    MARGINAL_MARKS,
    SHIP,
    count,
    format_change,
    format_comparison,
    format_difference,
    format_ms,
    format_percent,
    format_si,
    format_time,
    marginal_cell,
    ms_unit,
    place_words,
    plan_kind,
    plan_words,
    rule_words,
    target_words,
    whole,
)

MOST_DOUBTFUL = 30
"""Most doubtful measurements that are listed; the rest is counted."""


def context(data: ReportData) -> dict[str, Any]:
    """Returns names and values for ``report.html``."""
    tables = _tables(data)
    palette = colours(
        [*frames.all_targets(data.cost_model), *(s.target for p in data.plans for s in p.segments)]
    )
    ran = data.run_of_plan
    timed = tables.timed
    picture = model_svg(data, palette)
    shown = [target.key for target in data.shown_targets]
    fits = frames.fit_frame(data.cost_model)
    doubts = doubtful(data.own_measurements)
    return {
        "data": data,
        "headline": headline(data, tables.baselines),
        "picture": picture,
        "beside": beside(picture),
        "picture_script": SCRIPT,
        "predicted_unit": data.planned_unit,
        "median_unit": data.planned_unit,
        "measured_unit": ms_unit(data.run_source),
        "once_unit": ms_unit(data.run_source),
        "run_error": ran.error if ran else None,
        "run_flags": [(run.plan.name, flag) for run in _runs(data) for flag in run.flags],
        "segments": tables.own.to_dict("records"),
        "measured": dict(zip(timed["segment"], timed.to_dict("records"), strict=True)),
        "baselines": tables.baselines.to_dict("records"),
        "targets": shown,
        "units": unit_rows(tables.units, tables.chosen),
        "n_preferences": len({row["preference"] for row in tables.preferences.to_dict("records")}),
        "hosted": host_units(tables.units, tables.chosen),
        "n_estimated": int((tables.units["status"] == "estimated").sum()),
        "n_known": int(tables.units["marginal_ms"].notna().sum()),
        "preferences": tables.preferences.to_dict("records"),
        "preference_plans": plans_by_preference(data.cost_model, data.plan)
        if data.every_preference
        else (),
        "by_costs_ms": by_costs(data.cost_model, data.plan) / frames.NS_PER_MS,
        "refusals": refusals_by_reason(data.cost_model).to_dict("records"),
        "transfers": transfer_frame(data.plan, data.cost_model, data.segment_permutes).to_dict(
            "records"
        ),
        "fits": fits[fits["target"].isin(shown)].to_dict("records"),
        "readings": tables.readings,
        "doubtful": doubts[:MOST_DOUBTFUL],
        "more_doubtful": max(0, len(doubts) - MOST_DOUBTFUL),
        "device_facts": device_words(data.device_info),
        "accelerators": accelerators(data.device_info),
        "environment": environment_facts(data),
        "sections": filled_sections(data),
        "glossary": GLOSSARY,
        "ship_about": SHIP,
        "places": places(palette),
        "colour": palette,
        "figure": draw_all(data, tables, palette),
        "n_units": len(data.graph.units),
        "macs": sum(unit.macs for unit in data.graph.units),
    }


def _tables(data: ReportData) -> ReportFrames:
    ran = data.run_of_plan
    history = history_frame(data.own_measurements)
    return ReportFrames(
        baselines=frames.baseline_frame(data.plans, data.run, data.permutes),
        own=frames.plan_frame(data.plan, data.graph),
        timed=frames.segment_frame([ran] if ran else []),
        units=frames.unit_frame(data.cost_model, data.shown_targets),
        preferences=preference_frame(data.cost_model),
        history=history,
        readings=readings(history),
        chosen={u: s.target.key for s in data.plan.segments for u in s.units},
    )


def host_units(units: pd.DataFrame, chosen: Mapping[int, str]) -> list[dict[Any, Any]]:
    """Returns the rows of units that the plan leaves to the host, which are not measured."""
    mine = units["unit"].map(chosen) == units["target"]
    return units[mine & (units["target"] == HOST.key)].to_dict("records")


def _runs(data: ReportData) -> tuple[Any, ...]:
    return data.run.runs if data.run else ()


def places(palette: Mapping[str, str]) -> dict[str, str]:
    """Maps each engine to its colour, the same for all preferences."""
    rows: dict[str, str] = {}
    for key, colour in palette.items():
        rows.setdefault(place_words(key), colour)
    return rows


MOST_BESIDE = 540
"""Largest width in CSS pixels of a picture that leaves room for figures beside it."""
MOST_NARROW = 400
"""Largest width in CSS pixels of a picture that leaves room for wide figures."""
MOST_IN_ROW = 1040
"""Largest width in CSS pixels of two strips side by side."""
_STRIP = re.compile(r'class="pane">\s*<svg [^>]* width="(\d+)')


def beside(picture: str) -> str:
    """Returns classes of the element with the picture of a model and its figures: side by side if
    the picture is one narrow strip, or two that are one below the other; else empty."""
    widths = [int(width) for width in _STRIP.findall(picture)]
    is_column = len(widths) == 1 or (len(widths) == 2 and sum(widths) > MOST_IN_ROW)
    if not is_column or widths[0] > MOST_BESIDE:
        return ""
    return "beside" if widths[0] <= MOST_NARROW else "beside tight"


def unit_rows(units: pd.DataFrame, chosen: Mapping[int, str]) -> list[dict[str, Any]]:
    """Returns one row per unit, with its cells by target key."""
    rows = []
    for number, cells in units.groupby("unit", sort=True):
        unit = int(str(number))
        first = cells.iloc[0]
        rows.append(
            {
                "unit": unit,
                "name": first["name"],
                "label": first["label"],
                "macs": int(first["macs"]),
                "chosen": chosen.get(unit, ""),
                "cells": {cell["target"]: cell for cell in cells.to_dict("records")},
            }
        )
    return rows


def accelerators(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns NNAPI's devices from the agent's info, also from an older agent's."""
    nnapi = info.get("nnapi")
    inner = nnapi.get("accelerators") if isinstance(nnapi, Mapping) else None
    return list(info.get("accelerators") or inner or ())


def is_known(number: float | None) -> bool:
    """Returns whether a number of a table is known: neither None nor NaN."""
    return number is not None and math.isfinite(number)


# ---- the file ------------------------------------------------------------------------------------


def render(data: ReportData) -> str:
    """Returns the report as HTML."""
    return template("report.html").render(**context(data))


@functools.cache
def template(name: str) -> Template:
    """Returns a template with the filters and colours that pages share; it escapes all values."""
    environment = new_environment()
    environment.filters.update(
        ms=format_ms, percent=format_percent, change=format_change, si=format_si,
        target=target_words, place=place_words, plan=plan_words, rule=rule_words, kind=plan_kind,
        by=sort_key, time=format_time, difference=format_difference, verdict=verdict,
        comparison=format_comparison,
        marginal=marginal_cell, whole=whole,
    )  # fmt: skip
    environment.tests.update(known=is_known)
    environment.globals.update(heat=HEAT, count=count, marginal_marks=MARGINAL_MARKS)
    return environment.get_template(name)


def sort_key(number: float | None) -> str:
    """Returns the key that a table sorts by: a number with six digits, empty if unknown."""
    return f"{number:.6g}" if is_known(number) and number is not None else ""
