"""What ``report`` prints with ``--json``: a bundle as numbers, or what differs between several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nnapi_prof.costs.diff import CONFIDENCE
from nnapi_prof.documents import schema as s
from nnapi_prof.documents.advice import ADVICE
from nnapi_prof.documents.costs import of_difference
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
from nnapi_prof.graph.plan import Rule

if TYPE_CHECKING:
    from nnapi_prof.costs.diff import Comparison
    from nnapi_prof.graph.unit import Unit
    from nnapi_prof.reports.compare_sides import Ratio, Side
    from nnapi_prof.reports.compare_summary import Compared
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
        units=_units(data),
        plan=of_plan(data.plan),
        baselines=of_plans(data.baselines),
        run=_run(data),
        cost_model=_fits(data),
        device_facts=dict(device_facts(data.device_info)),
        method=dict(how_measured(data.own_measurements, data.run)),
        notes=data.all_notes,
    )


def _units(data: ReportData) -> list[Document]:
    from nnapi_prof.reports.frames import NS_PER_MS, unit_frame

    where = {u: each.target.key for each in data.plan.segments for u in each.units}
    costs: dict[int, list[Document]] = {}
    for row in unit_frame(data.cost_model).to_dict("records"):
        costs.setdefault(row["unit"], []).append(
            {
                "target": row["target"],
                "marginal_ns": _known(row["marginal_ms"], NS_PER_MS),
                "alone_ns": _known(row["alone_ms"], NS_PER_MS),
                "p95_ns": _known(row["p95_ms"], NS_PER_MS),
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


_LATENCY = s.obj(
    ns=s.described(s.NUMBER_OR_NULL, "median of the runs, or what is predicted"),
    p10_ns=s.NUMBER_OR_NULL,
    p90_ns=s.NUMBER_OR_NULL,
    n_samples=s.COUNT,
    simulated=s.TRUTH,
    estimated=s.described(s.TRUTH, "rests in part on the static model"),
)
_RIVAL = s.nullable(
    s.obj(
        plan=s.TEXT,
        speedup=s.described(s.NUMBER, "above 1 the plan is faster"),
        measured=s.described(s.TRUTH, "both ran; else both are predicted"),
    )
)
_SIDE = s.obj(
    letter=s.TEXT,
    name=s.TEXT,
    model=s.TEXT,
    device=s.TEXT,
    units=s.COUNT,
    only_here=s.described(s.array(s.COUNT), "units that not every other side has"),
    segments=s.COUNT,
    targets=s.array(s.TEXT),
    measured=_LATENCY,
    predicted=_LATENCY,
    relative_error=s.described(s.NUMBER_OR_NULL, "(predicted - measured) / measured"),
    first_ns=s.described(s.COUNT_OR_NULL, "first run after compilation"),
    compile_ns=s.described(s.COUNT_OR_NULL, "all segments together"),
    against_fastest=s.described(_RIVAL, "the baseline that is hardest to beat"),
    against_best_single=_RIVAL,
    against_cpu=_RIVAL,
    outputs=s.choice("agree", "differ", "not compared"),
    largest_relative_difference=s.NUMBER_OR_NULL,
    run_at=s.TEXT_OR_NULL,
    error=s.described(s.TEXT_OR_NULL, "why the plan did not run to its end"),
)
_RATIO = s.obj(
    side=s.TEXT,
    ratio=s.described(s.NUMBER_OR_NULL, "latency of this side by that of the first"),
    low=s.NUMBER_OR_NULL,
    high=s.NUMBER_OR_NULL,
    measured=s.TRUTH,
    verdict=s.TEXT,
)
_MOVE = s.obj(
    label=s.TEXT,
    units=s.described(s.array(s.array(s.COUNT)), "indices in each side's model"),
    targets=s.described(s.array(s.TEXT), "of each side"),
    causes=s.described(s.array(s.TEXT), "of each side"),
)
_CHANGED = s.obj(
    signature=s.TEXT,
    label=s.TEXT,
    kind=s.TEXT,
    target=s.TEXT,
    verdict=s.TEXT,
    ratio=s.NUMBER_OR_NULL,
    low=s.NUMBER_OR_NULL,
    high=s.NUMBER_OR_NULL,
    first_ns=s.NUMBER_OR_NULL,
    second_ns=s.NUMBER_OR_NULL,
    simulated=s.TRUTH,
)
_LATENCIES = s.obj(
    side=s.TEXT,
    median_ratio=s.NUMBER_OR_NULL,
    compared=s.described(s.COUNT, "units and regions measured on both sides"),
    not_measured_again=s.COUNT,
    only_first=s.COUNT,
    only_here=s.COUNT,
    by_target=s.array(
        s.obj(
            target=s.TEXT,
            compared=s.COUNT,
            slower=s.described(s.COUNT, "beyond noise"),
            faster=s.described(s.COUNT, "beyond noise"),
            median_ratio=s.NUMBER,
        )
    ),
    changed=s.array(_CHANGED),
)
_REFUSAL = s.obj(
    unit=s.described(s.COUNT, "index in the first side's model"),
    label=s.TEXT,
    targets=s.array(s.TEXT),
    reasons=s.described(s.array(s.TEXT_OR_NULL), "of each side; null where it is not refused"),
)
_DIFFERENCE = s.obj(
    name=s.TEXT, values=s.described(s.array(s.TEXT_OR_NULL), "of each side; null where unknown")
)


@document(
    "compare",
    1,
    "Plans, devices or dates side by side: every other side against the first",
    confidence=s.described(s.NUMBER, "of the intervals low to high"),
    threshold=s.described(s.NUMBER, "latencies that changed by less are left out"),
    simulated=s.described(s.TRUTH, "some latencies are"),
    sides=s.array(_SIDE),
    changed=s.described(s.array(s.TEXT), "what changed, in words, the most important first"),
    ratios=s.described(s.array(_RATIO), "end to end, of each side but the first"),
    placement=s.obj(units_in_common=s.COUNT, units_elsewhere=s.COUNT, moves=s.array(_MOVE)),
    latencies=s.described(s.array(_LATENCIES), "of each side but the first"),
    refusals=s.array(_REFUSAL),
    conditions=s.array(_DIFFERENCE),
    device_facts=s.array(_DIFFERENCE),
)
def of_comparison(named: Sequence[tuple[str, ReportData]]) -> Document:
    """The document of several bundles, runs or dates, each with its name; in ns, null where
    unknown. Raises UsageError as :func:`nnapi_prof.reports.compare_summary.compared` does."""
    from nnapi_prof.reports.compare_changes import THRESHOLD
    from nnapi_prof.reports.compare_summary import compared

    comparison = compared(named)
    others = comparison.others
    return properties(
        "compare",
        comparison,
        confidence=CONFIDENCE,
        threshold=THRESHOLD,
        sides=[_of_side(comparison, side) for side in comparison.sides],
        changed=[sentence.text for sentence in comparison.sentences],
        ratios=[
            _of_ratio(side, ratio) for side, ratio in zip(others, comparison.ratios, strict=True)
        ],
        placement={
            "units_in_common": len(comparison.matched),
            "units_elsewhere": comparison.n_moved,
            "moves": [
                properties(
                    _MOVE,
                    move,
                    targets=[stay.target for stay in move.stays],
                    causes=[stay.cause for stay in move.stays],
                )
                for move in comparison.moves
            ],
        },
        latencies=[
            _of_latencies(side, each)
            for side, each in zip(others, comparison.latencies, strict=True)
        ],
        device_facts=comparison.descriptions,
    )


def _of_side(comparison: Compared, side: Side) -> Document:
    data = side.data
    return properties(
        _SIDE,
        side,
        model=data.model,
        device=data.device_name,
        units=len(data.graph.units),
        only_here=comparison.only(side),
        segments=len(data.plan.segments),
        targets=sorted({segment.target.key for segment in data.plan.segments}),
        relative_error=side.error,
        against_fastest=side.fastest,
        against_best_single=side.against(Rule.BEST_SINGLE),
        against_cpu=side.against(Rule.ALL_CPU),
        largest_relative_difference=side.worst_difference,
        run_at=data.run and data.run.created_at,
        error=data.run_of_plan and data.run_of_plan.error,
    )


def _of_ratio(side: Side, ratio: Ratio | None) -> Document:
    if ratio is None:
        words = "no latency on both sides"
        unknown = dict.fromkeys(("ratio", "low", "high"))
        return {"side": side.letter, **unknown, "measured": False, "verdict": words}
    return properties(_RATIO, ratio, side=side.letter, ratio=ratio.value)


def _of_latencies(side: Side, comparison: Comparison) -> Document:
    from nnapi_prof.reports.compare_changes import by_target

    return properties(
        _LATENCIES,
        comparison,
        side=side.letter,
        compared=len(comparison.differences),
        not_measured_again=comparison.same_row,
        only_here=comparison.only_second,
        by_target=by_target(comparison),
        changed=[of_difference(_CHANGED, each) for each in comparison.changed],
    )
