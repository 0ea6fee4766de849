"""Builds the document of ``report --json``: a bundle as numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.advice import ADVICE
from nnapi_prof.documents.plans import (
    NOTES,
    OUTPUT,
    PLAN,
    TARGET,
    UNIT,
    of_checks,
    of_plan,
    of_plans,
    of_units,
)
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.graph.unit import Unit
    from nnapi_prof.reports.data import ReportData


_COST = s.obj(
    target=TARGET,
    marginal_ns=s.described(s.NUMBER_OR_NULL, "inside a region, without invocation and transfer"),
    alone_ns=s.described(s.NUMBER_OR_NULL, "median of the unit run alone, all included"),
    p95_ns=s.described(s.NUMBER_OR_NULL, "what 95 % of its runs alone keep to"),
    relative_spread=s.described(s.NUMBER_OR_NULL, "sigma of alone_ns by alone_ns"),
    status=s.choice("measured", "fitted", "estimated", "refused", "unknown"),
    reason=s.described(s.TEXT_OR_NULL, "why it is refused, in a sentence"),
)
_COSTED = s.obj(
    **UNIT["properties"],
    macs=s.COUNT,
    target=s.described(s.TEXT_OR_NULL, "where the plan runs it"),
    costs=s.array(_COST),
)
_FIT = s.obj(
    target=TARGET,
    overhead_ns=s.described(s.NUMBER, "of one invocation"),
    in_ns_per_byte=s.NUMBER,
    out_ns_per_byte=s.NUMBER,
    rows=s.COUNT,
    median_error=s.described(s.NUMBER_OR_NULL, "of sums against measurements, relative"),
    p90_error=s.NUMBER_OR_NULL,
)
_RUN = s.obj(
    name=s.TEXT,
    predicted_ns=s.described(s.NUMBER, "of what was timed"),
    median_ns=s.NUMBER_OR_NULL,
    p95_ns=s.NUMBER_OR_NULL,
    first_ns=s.COUNT_OR_NULL,
    total_ns=s.described(s.array(s.COUNT), "every recorded run, in the order they ran"),
    error=s.TEXT_OR_NULL,
)
_RAN = s.obj(
    device=s.described(s.TEXT, "for people"),
    fingerprint=s.TEXT,
    simulated=s.TRUTH,
    created_at=s.TEXT,
    conditions=s.described(s.TEXT, "the options that asked for other than the usual conditions"),
    plans=s.described(s.array(_RUN), "the plan first"),
    outputs=s.array(OUTPUT),
)


@document(
    "report",
    2,
    "A bundle with the costs behind it and its last run",
    model=s.TEXT,
    device=s.described(s.TEXT, "for people"),
    simulated=s.described(s.TRUTH, "some latencies are; each plan and run says it of its own"),
    estimated=s.described(s.TRUTH, "whether the plan rests in part on estimated costs"),
    units=s.array(_COSTED),
    plan=PLAN,
    baselines=s.array(PLAN),
    run=s.nullable(_RAN),
    cost_model=s.array(_FIT),
    advice=s.described(ADVICE, "as `nnapi-prof advise` left it in the bundle; empty without"),
    device_facts=s.mapping(s.TEXT),
    method=s.described(s.mapping(s.TEXT), "how the numbers were measured"),
    notes=NOTES,
)
def of_report(data: ReportData) -> Document:
    from nnapi_prof.reports.facts import device_facts, how_measured

    return properties(
        "report",
        data,
        device=data.device_name,
        estimated=data.plan.estimated,
        units=_unit_rows(data),
        plan=of_plan(data.plan),
        baselines=of_plans(data.baselines),
        run=_run(data),
        cost_model=_fit_rows(data),
        device_facts=dict(device_facts(data.device_info)),
        method=dict(how_measured(data.own_measurements, data.run)),
        notes=data.all_notes,
    )


def _unit_rows(data: ReportData) -> list[Document]:
    from nnapi_prof.reports.frames import NS_PER_MS, unit_frame

    where = {u: each.target.key for each in data.plan.segments for u in each.units}
    costs: dict[int, list[Document]] = {}
    for row in unit_frame(data.cost_model).to_dict("records"):
        costs.setdefault(row["unit"], []).append(
            {
                "target": row["target"],
                "marginal_ns": _finite_or_none(row["marginal_ms"], NS_PER_MS),
                "alone_ns": _finite_or_none(row["alone_ms"], NS_PER_MS),
                "p95_ns": _finite_or_none(row["p95_ms"], NS_PER_MS),
                "relative_spread": _finite_or_none(row["spread"]),
                "status": row["status"],
                "reason": row["reason"] if isinstance(row["reason"], str) else None,
            }
        )

    def more(unit: Unit) -> Document:
        return {
            "macs": unit.macs,
            "target": where.get(unit.index),
            "costs": costs.get(unit.index, []),
        }

    return of_units(data.graph, more)


def _run(data: ReportData) -> Document | None:
    run = data.run
    if run is None:
        return None
    plans = [properties(_RUN, row, name=row.plan.name) for row in run.runs]
    return properties(_RAN, run, plans=plans, outputs=of_checks(run.checks))


def _fit_rows(data: ReportData) -> list[Document]:
    from nnapi_prof.reports.frames import NS_PER_MS, fit_frame

    return [
        {
            "target": row["target"],
            "overhead_ns": row["overhead_ms"] * NS_PER_MS,
            "in_ns_per_byte": row["in_ns_per_byte"],
            "out_ns_per_byte": row["out_ns_per_byte"],
            "rows": row["rows"],
            "median_error": _finite_or_none(row["median_error"]),
            "p90_error": _finite_or_none(row["p90_error"]),
        }
        for row in fit_frame(data.cost_model).to_dict("records")
    ]


def _finite_or_none(value: Any, scale: float = 1.0) -> float | None:
    """A cell of a frame as JSON has it: null for NaN."""
    if value is None or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) * scale
