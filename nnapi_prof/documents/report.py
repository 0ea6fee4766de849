"""Build the documents of ``report``, ``compare``, ``go`` and ``advise`` with ``--json``.

A report's document has the numbers of a bundle, with the advice that is stored in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nnapi_prof import documents as s
from nnapi_prof.advice import Hindrance
from nnapi_prof.costs.diff import CONFIDENCE, DiffVerdict
from nnapi_prof.documents import Document, document, properties
from nnapi_prof.documents.plans import (
    CONDITIONS,
    NOTES,
    OUTPUT,
    PLAN,
    TARGET,
    UNIT,
    of_checks,
    of_plan,
    of_plans,
    of_units,
    run_document,
)

if TYPE_CHECKING:
    from nnapi_prof.advice import Advice
    from nnapi_prof.api.advise import Advised
    from nnapi_prof.api.end_to_end import PipelineResult
    from nnapi_prof.graph.unit import Unit
    from nnapi_prof.reports.comparison import Compared
    from nnapi_prof.reports.data import ReportData

_REWRITE = s.obj(
    name=s.TEXT,
    code=s.described(s.TEXT, "PyTorch"),
    accuracy=s.described(s.TEXT, "what it does to the outputs, as a sentence"),
    exact=s.described(s.TRUTH, "it computes the same except for rounding"),
)
_VERIFIED = s.obj(
    before_ns=s.described(s.NUMBER, "median of the plan as it is, end to end"),
    after_ns=s.described(s.NUMBER, "of the plan of the rewritten model"),
    saves_ns=s.NUMBER,
    margin_ns=s.described(s.NUMBER, "half of its 95 % interval"),
    moved=s.described(
        s.NUMBER_OR_NULL, "largest change of an output, relative to its largest value"
    ),
    failure=s.described(s.TEXT, "why it could not be measured; empty where it was"),
)
ADVICE = s.array(
    s.obj(
        cause=s.described(s.TEXT, "the hindrance, as a sentence"),
        kind=s.choice(*(kind.value for kind in Hindrance)),
        units=s.described(s.array(s.COUNT), "that it is about, by their numbers"),
        labels=s.array(s.TEXT),
        targets=s.described(s.array(s.TEXT), "accelerators that do not run them, or do slowly"),
        rewrite=s.described(s.nullable(_REWRITE), "null where none is known"),
        before_ns=s.described(s.NUMBER, "the plan as it is, predicted"),
        after_ns=s.described(s.NUMBER, "the plan that there would be, predicted"),
        saves_ns=s.described(s.NUMBER, "predicted"),
        margin_ns=s.described(s.NUMBER, "half of its 95 % interval, as far as costs tell theirs"),
        sure=s.described(
            s.TRUTH, "all that the rewrite is made of ran on this device, or every driver has it"
        ),
        simulated=s.TRUTH,
        estimated=s.described(s.TRUTH, "by a vendor's compiler and simulator, for a chip"),
        verified=s.described(s.nullable(_VERIFIED), "null where it was not tried"),
    )
)


@document(
    "advise",
    1,
    "What would make a plan faster, the most first",
    model=s.TEXT,
    device=s.described(s.TEXT, "for people"),
    simulated=s.TRUTH,
    predicted_ns=s.described(s.NUMBER, "of the plan as it is"),
    advice=ADVICE,
    notes=s.array(s.TEXT),
)
def of_advised(advised: Advised) -> Document:
    planned = advised.planned
    return properties(
        "advise",
        planned,
        model=planned.model.name,
        predicted_ns=planned.plan.predicted_ns,
        advice=of_advice(advised.advice),
        notes=list(advised.notes),
    )


def of_advice(advice: Sequence[Advice]) -> list[Document]:
    return [properties(ADVICE["items"], one) for one in advice]


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
    """Return a cell of a frame for JSON, with None for NaN."""
    if value is None or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) * scale


# Builds the document of ``compare --json``.

_SIDE = s.obj(
    name=s.described(s.TEXT, "as it was named"),
    model=s.described(s.TEXT, "empty of a cost table"),
    device=s.TEXT,
    fingerprint=s.TEXT,
    simulated=s.TRUTH,
    median_ns=s.described(s.NUMBER_OR_NULL, "of the plan as it ran whole"),
    p95_ns=s.described(s.NUMBER_OR_NULL, "what 95 % of its runs keep to"),
    predicted_ns=s.NUMBER_OR_NULL,
    segments=s.COUNT_OR_NULL,
    outputs=s.described(
        s.nullable(s.choice("agree", "differ")), "against eager PyTorch; null: not compared"
    ),
    error=s.described(s.TEXT_OR_NULL, "why the plan did not run to its end"),
    notes=NOTES,
)
_ROW = s.obj(
    name=s.described(s.TEXT, "the plan as it ran whole, or a unit or region"),
    target=s.described(s.TEXT_OR_NULL, "null of the plan"),
    base_ns=s.described(s.NUMBER_OR_NULL, "the median; null where it did not run"),
    new_ns=s.NUMBER_OR_NULL,
    verdict=s.choice(*(verdict.value for verdict in DiffVerdict)),
    ratio=s.described(s.NUMBER_OR_NULL, "new by base"),
    low=s.described(s.NUMBER_OR_NULL, "of the interval of the ratio"),
    high=s.NUMBER_OR_NULL,
    simulated=s.TRUTH,
    failed=s.described(s.TRUTH, "it became slower, or does not run any more"),
)
_MOVE = s.obj(
    label=s.TEXT,
    base_units=s.described(s.array(s.COUNT), "indices in the base's model"),
    new_units=s.array(s.COUNT),
    base_target=s.TEXT,
    new_target=s.TEXT,
    base_cause=s.TEXT,
    new_cause=s.TEXT,
)
_REFUSAL = s.obj(
    unit=s.described(s.COUNT, "index in the base's model"),
    label=s.TEXT,
    target=s.TEXT,
    base=s.described(s.TEXT_OR_NULL, "the reason; null where it is not refused"),
    new=s.TEXT_OR_NULL,
)
_FACT = s.obj(name=s.TEXT, base=s.TEXT_OR_NULL, new=s.TEXT_OR_NULL)


@document(
    "compare",
    2,
    "Two bundles, runs or cost tables: what became slower, and what else differs",
    fail_if_slower=s.described(s.NUMBER_OR_NULL, "the slow-down that fails: 0.05 is 5 %"),
    confidence=s.described(s.NUMBER, "of the intervals low to high; with a limit, of all together"),
    threshold=s.described(s.NUMBER, "a unit's latency that changed by less counts as unchanged"),
    simulated=s.described(s.TRUTH, "some latencies are"),
    ok=s.described(s.TRUTH, "nothing fails; else the exit code is 1"),
    base=_SIDE,
    new=_SIDE,
    changed=s.described(s.array(s.TEXT), "what changed, in words, the most important first"),
    rows=s.described(s.array(_ROW), "the plan first, then what fails, then what changed"),
    same_rows=s.described(s.COUNT, "measurements that are the very same on both sides"),
    only_base=s.COUNT,
    only_new=s.COUNT,
    units_in_common=s.COUNT,
    moves=s.described(s.array(_MOVE), "units that run on another target"),
    refusals=s.array(_REFUSAL),
    facts=s.described(s.array(_FACT), "conditions, versions and device facts that differ"),
)
def of_comparison(compared: Compared) -> Document:
    from nnapi_prof.reports.comparison_files import sentences

    return properties(
        "compare",
        compared,
        fail_if_slower=compared.limit,
        confidence=CONFIDENCE,
        ok=not compared.failed,
        changed=list(sentences(compared)),
        same_rows=compared.latencies.same_row,
        only_base=compared.latencies.only_first,
        only_new=compared.latencies.only_second,
        units_in_common=len(compared.matched),
        moves=[
            properties(
                _MOVE,
                move,
                base_target=move.base.target,
                new_target=move.new.target,
                base_cause=move.base.cause,
                new_cause=move.new.cause,
            )
            for move in compared.moves
        ],
    )


# Builds the document of ``nnapi-prof go --json``.

_MEASURED = s.obj(
    n_measured=s.described(s.COUNT, "measurements of the last profile"),
    n_reused=s.described(s.COUNT, "that the table had"),
    rounds=s.described(s.COUNT, "of refinement; 0 where the plan stood already"),
)


@document(
    "go",
    1,
    "A model profiled, planned, run and reported, as far as it came",
    model=s.TEXT,
    device=s.described(s.TEXT_OR_NULL, "for people; null where the profile failed"),
    simulated=s.described(s.TRUTH, "of the device"),
    conditions=s.nullable(CONDITIONS),
    costs=s.described(s.TEXT_OR_NULL, "the cost table: a file or a URL, without a password"),
    measured=s.nullable(_MEASURED),
    bundle=s.described(s.TEXT_OR_NULL, "its folder; null where there is no plan"),
    report=s.described(s.TEXT_OR_NULL, "its file; null where it was not written"),
    plan=s.nullable(PLAN),
    baselines=s.array(PLAN),
    run=s.described(
        s.nullable(s.embedded("run")),
        "as `nnapi-prof run --json` has it; null where it was not run",
    ),
    advice=s.described(ADVICE, "what would make the plan faster; empty where it was not run"),
    fault=s.described(
        s.TEXT_OR_NULL, "what stood in the way, in a sentence; the exit code is not 0"
    ),
    spent_s=s.described(s.mapping(s.NUMBER), "step -> seconds"),
    notes=NOTES,
)
def of_go(result: PipelineResult) -> Document:
    costs, planned, ran = result.costs, result.planned, result.result
    outcome = costs.outcome if costs is not None else None
    return {
        "model": result.model.name,
        "device": None if costs is None else costs.device,
        "simulated": costs is not None and costs.simulated,
        "conditions": None if costs is None else costs.conditions.to_json(),
        "costs": None if costs is None else costs.location,
        "measured": outcome and properties(_MEASURED, outcome),
        "bundle": None if result.bundle is None else str(result.bundle),
        "report": None if result.report is None else str(result.report),
        "plan": None if planned is None else of_plan(planned.plan),
        "baselines": [] if planned is None else of_plans(planned.baselines),
        "run": None
        if ran is None or result.bundle is None or result.run_file is None
        else run_document(result.bundle, result.run_file, ran.run),
        "advice": [] if planned is None else of_advice(planned.advice),
        "fault": None if result.fault is None else str(result.fault),
        "spent_s": dict(result.spent_s),
        "notes": _notes_of(result),
    }


def _notes_of(result: PipelineResult) -> list[str]:
    """Return the model's notes, then those of the bundle about the plan's regions."""
    bundle = None if result.planned is None else result.planned.converted
    of_bundle = () if bundle is None else bundle.notes
    return list(dict.fromkeys((*result.model.notes, *of_bundle)))
