"""What ``nnapi-prof go --json`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.documents.bundle import of_run
from nnapi_prof.documents.plans import CONDITIONS, NOTES, PLAN, of_plan, of_plans
from nnapi_prof.documents.registry import (
    COUNT,
    NUMBER,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    Document,
    array,
    described,
    document,
    mapping,
    nullable,
    obj,
    registered,
)

if TYPE_CHECKING:
    from nnapi_prof.api.end_to_end import PipelineResult

_RUN = {name: part for name, part in registered()["run"].items() if not name.startswith("$")}


@document(
    "go",
    1,
    "A model profiled, planned, run and reported, as far as it came",
    model=TEXT,
    device=described(TEXT_OR_NULL, "for people; null where the profile failed"),
    simulated=described(TRUTH, "of the device"),
    conditions=nullable(CONDITIONS),
    costs=described(TEXT_OR_NULL, "the cost table: a file or a URL, without a password"),
    measured=nullable(
        obj(
            n_measured=described(COUNT, "measurements of the last profile"),
            n_reused=described(COUNT, "that the table had"),
            rounds=described(COUNT, "of refinement; 0 where the plan stood already"),
        )
    ),
    bundle=described(TEXT_OR_NULL, "its folder; null where there is no plan"),
    report=described(TEXT_OR_NULL, "its file; null where it was not written"),
    plan=nullable(PLAN),
    baselines=array(PLAN),
    run=described(nullable(_RUN), "as `nnapi-prof run --json` has it; null where it was not run"),
    fault=described(TEXT_OR_NULL, "what stood in the way, in a sentence; the exit code is not 0"),
    spent_s=described(mapping(NUMBER), "step -> seconds"),
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
        "measured": None
        if outcome is None
        else {
            "n_measured": outcome.n_measured,
            "n_reused": outcome.n_reused,
            "rounds": outcome.rounds,
        },
        "bundle": None if result.bundle is None else str(result.bundle),
        "report": None if result.report is None else str(result.report),
        "plan": None if planned is None else of_plan(planned.plan),
        "baselines": [] if planned is None else of_plans(planned.baselines),
        "run": None
        if ran is None or result.bundle is None or result.run_file is None
        else of_run(result.bundle, result.run_file, ran.run),
        "fault": None if result.fault is None else str(result.fault),
        "spent_s": dict(result.spent_s),
        "notes": list(result.model.notes),
    }
