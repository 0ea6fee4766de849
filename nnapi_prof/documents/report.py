"""What ``report`` prints with ``--json``: a bundle as numbers, or what differs between several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nnapi_prof.documents.advice import ADVICE, of_advice
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
from nnapi_prof.documents.schema import (
    COUNT,
    COUNT_OR_NULL,
    NUMBER,
    NUMBER_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    Document,
    Schema,
    array,
    choice,
    described,
    document,
    mapping,
    nullable,
    obj,
    properties,
)

if TYPE_CHECKING:
    from nnapi_prof.graph.unit import Unit
    from nnapi_prof.reports.data import ReportData


_COST = obj(
    target=TARGET,
    marginal_ns=described(NUMBER_OR_NULL, "inside a region, without invocation and transfer"),
    alone_ns=described(NUMBER_OR_NULL, "`statistic` of the unit run alone, all included"),
    relative_spread=described(NUMBER_OR_NULL, "sigma of alone_ns by alone_ns"),
    status=choice("measured", "fitted", "estimated", "refused", "unknown"),
    reason=described(TEXT_OR_NULL, "why it is refused, in a sentence"),
)
_COSTED = obj(
    **UNIT["properties"],
    macs=COUNT,
    target=described(TEXT_OR_NULL, "where the plan runs it"),
    costs=array(_COST),
)
_FIT = obj(
    target=TARGET,
    overhead_ns=described(NUMBER, "of one invocation"),
    in_ns_per_byte=NUMBER,
    out_ns_per_byte=NUMBER,
    rows=COUNT,
    median_error=described(NUMBER_OR_NULL, "of sums against measurements, relative"),
    p90_error=NUMBER_OR_NULL,
)
_RUN = obj(
    name=TEXT,
    predicted_ns=described(NUMBER, "of what was timed"),
    median_ns=NUMBER_OR_NULL,
    first_ns=COUNT_OR_NULL,
    total_ns=described(array(COUNT), "every recorded run, in the order they ran"),
    error=TEXT_OR_NULL,
)
_RAN = obj(
    device=described(TEXT, "for people"),
    fingerprint=TEXT,
    simulated=TRUTH,
    created_at=TEXT,
    conditions=described(TEXT, "the options that asked for other than the usual conditions"),
    plans=described(array(_RUN), "the plan first"),
    outputs=array(OUTPUT),
)


@document(
    "report",
    1,
    "A bundle with the costs behind it and its last run",
    model=TEXT,
    device=described(TEXT, "for people"),
    simulated=described(TRUTH, "some latencies are; each plan and run says it of its own"),
    estimated=described(TRUTH, "whether the plan rests in part on estimated costs"),
    statistic=described(choice("median", "p95"), "what every latency but median_ns is of its runs"),
    units=array(_COSTED),
    plan=PLAN,
    baselines=array(PLAN),
    run=nullable(_RAN),
    cost_model=array(_FIT),
    advice=described(ADVICE, "as `nnapi-prof advise` left it in the bundle; empty without"),
    device_facts=mapping(TEXT),
    method=described(mapping(TEXT), "how the numbers were measured"),
    notes=NOTES,
)
def of_report(data: ReportData) -> Document:
    from nnapi_prof.reports.facts import device_facts, how_measured

    return {
        "model": data.model,
        "device": data.device_name,
        "simulated": data.simulated,
        "estimated": any(segment.estimated for segment in data.plan.segments),
        "statistic": data.statistic.value,
        "units": _units(data),
        "plan": of_plan(data.plan),
        "baselines": of_plans(data.baselines),
        "run": _run(data),
        "cost_model": _fits(data),
        "advice": of_advice(data.advice),
        "device_facts": dict(device_facts(data.device_info)),
        "method": dict(how_measured(data.own_measurements, data.run, data.statistic)),
        "notes": list(data.all_notes),
    }


def _units(data: ReportData) -> list[Document]:
    from nnapi_prof.reports.frames import NS_PER_MS, unit_frame

    where = {unit: s.target.key for s in data.plan.segments for unit in s.units}
    costs: dict[int, list[Document]] = {}
    for row in unit_frame(data.cost_model).to_dict("records"):
        costs.setdefault(row["unit"], []).append(
            {
                "target": row["target"],
                "marginal_ns": _known(row["marginal_ms"], NS_PER_MS),
                "alone_ns": _known(row["alone_ms"], NS_PER_MS),
                "relative_spread": _known(row["spread"]),
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


def _fits(data: ReportData) -> list[Document]:
    from nnapi_prof.reports.frames import NS_PER_MS, fit_frame

    return [
        {
            "target": row["target"],
            "overhead_ns": row["overhead_ms"] * NS_PER_MS,
            "in_ns_per_byte": row["in_ns_per_byte"],
            "out_ns_per_byte": row["out_ns_per_byte"],
            "rows": row["rows"],
            "median_error": _known(row["median_error"]),
            "p90_error": _known(row["p90_error"]),
        }
        for row in fit_frame(data.cost_model).to_dict("records")
    ]


def _known(value: Any, scale: float = 1.0) -> float | None:
    """A cell of a frame as JSON has it: null for NaN."""
    if value is None or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) * scale


_LATENCY = obj(
    ns=described(NUMBER_OR_NULL, "median of the runs, or what is predicted"),
    p10_ns=NUMBER_OR_NULL,
    p90_ns=NUMBER_OR_NULL,
    n_samples=COUNT,
    simulated=TRUTH,
    estimated=described(TRUTH, "rests in part on the static model"),
)
_RIVAL = nullable(
    obj(
        plan=TEXT,
        speedup=described(NUMBER, "above 1 the plan is faster"),
        measured=described(TRUTH, "both ran; else both are predicted"),
    )
)
_SIDE = obj(
    letter=TEXT,
    name=TEXT,
    model=TEXT,
    device=TEXT,
    units=COUNT,
    only_here=described(array(COUNT), "units that not every other side has"),
    segments=COUNT,
    targets=array(TEXT),
    measured=_LATENCY,
    predicted=_LATENCY,
    relative_error=described(NUMBER_OR_NULL, "(predicted - measured) / measured"),
    first_ns=described(COUNT_OR_NULL, "first run after compilation"),
    compile_ns=described(COUNT_OR_NULL, "all segments together"),
    against_fastest=described(_RIVAL, "the baseline that is hardest to beat"),
    against_best_single=_RIVAL,
    against_cpu=_RIVAL,
    outputs=choice("agree", "differ", "not compared"),
    largest_relative_difference=NUMBER_OR_NULL,
    run_at=TEXT_OR_NULL,
    error=described(TEXT_OR_NULL, "why the plan did not run to its end"),
)
_RATIO = obj(
    side=TEXT,
    ratio=described(NUMBER_OR_NULL, "latency of this side by that of the first"),
    low=NUMBER_OR_NULL,
    high=NUMBER_OR_NULL,
    measured=TRUTH,
    verdict=TEXT,
)
_MOVE = obj(
    label=TEXT,
    units=described(array(array(COUNT)), "indices in each side's model"),
    targets=described(array(TEXT), "of each side"),
    causes=described(array(TEXT), "of each side"),
)
_CHANGED = obj(
    signature=TEXT,
    label=TEXT,
    kind=TEXT,
    target=TEXT,
    verdict=TEXT,
    ratio=NUMBER_OR_NULL,
    low=NUMBER_OR_NULL,
    high=NUMBER_OR_NULL,
    first_ns=NUMBER_OR_NULL,
    second_ns=NUMBER_OR_NULL,
    simulated=TRUTH,
)
_LATENCIES = obj(
    side=TEXT,
    median_ratio=NUMBER_OR_NULL,
    compared=described(COUNT, "units and regions measured on both sides"),
    not_measured_again=COUNT,
    only_first=COUNT,
    only_here=COUNT,
    by_target=array(
        obj(
            target=TEXT,
            compared=COUNT,
            slower=described(COUNT, "beyond noise"),
            faster=described(COUNT, "beyond noise"),
            median_ratio=NUMBER,
        )
    ),
    changed=array(_CHANGED),
)
_REFUSAL = obj(
    unit=described(COUNT, "index in the first side's model"),
    label=TEXT,
    targets=array(TEXT),
    reasons=described(array(TEXT_OR_NULL), "of each side; null where it is not refused"),
)
_DIFFERENCE: Schema = obj(
    name=TEXT, values=described(array(TEXT_OR_NULL), "of each side; null where unknown")
)


@document(
    "compare",
    1,
    "Plans, devices or dates side by side: every other side against the first",
    confidence=described(NUMBER, "of the intervals low to high"),
    threshold=described(NUMBER, "latencies that changed by less are left out"),
    simulated=described(TRUTH, "some latencies are"),
    sides=array(_SIDE),
    changed=described(array(TEXT), "what changed, in words, the most important first"),
    ratios=described(array(_RATIO), "end to end, of each side but the first"),
    placement=obj(units_in_common=COUNT, units_elsewhere=COUNT, moves=array(_MOVE)),
    latencies=described(array(_LATENCIES), "of each side but the first"),
    refusals=array(_REFUSAL),
    conditions=array(_DIFFERENCE),
    device_facts=array(_DIFFERENCE),
)
def of_comparison(named: Sequence[tuple[str, ReportData]]) -> dict[str, Any]:
    """The document of several bundles, runs or dates, each with its name."""
    from nnapi_prof.reports.compare_summary import content

    return content(named)
