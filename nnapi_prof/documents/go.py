"""Builds the document of ``nnapi-prof go --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.advice import ADVICE, of_advice
from nnapi_prof.documents.plans import CONDITIONS, NOTES, PLAN, of_plan, of_plans, run_document
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.api.end_to_end import PipelineResult

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
        "notes": list(result.model.notes),
    }
