"""What ``nnapi-prof profile --json`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.documents.plans import PLAN, UNIT, of_plan, of_plans, of_units
from nnapi_prof.documents.registry import (
    COUNT,
    COUNT_OR_NULL,
    NUMBER,
    TEXT,
    TRUTH,
    Document,
    array,
    described,
    document,
    extended,
    mapping,
    nullable,
    obj,
)

if TYPE_CHECKING:
    from nnapi_prof.execution.profile.options import ProfileOutcome
    from nnapi_prof.graph.unit import Unit, UnitGraph


@document(
    "profile",
    1,
    "What a model's units cost on a device",
    model=TEXT,
    device=described(TEXT, "for people"),
    fingerprint=described(TEXT, "the device in the cost table"),
    simulated=TRUTH,
    costs=described(TEXT, "the cost table: a file or a URL, without a password"),
    interrupted=described(TRUTH, "Ctrl-C ended it: units and plan are the last round's, if any"),
    seconds=described(NUMBER, "that it took"),
    spent_s=described(mapping(NUMBER), "seconds by what they were spent on"),
    n_measured=described(COUNT, "rows added that come from runs on the device"),
    n_failed=described(COUNT, "of these, refused by a driver, crashed, or too slow"),
    n_refused=described(COUNT, "rows added because the converter refuses"),
    n_reused=described(COUNT, "measurements wanted that the table had"),
    doubts=described(mapping(COUNT), "reason to doubt measurements -> how many"),
    effort=described(
        obj(
            rounds=described(COUNT, "of measuring regions whole and planning again"),
            stable=described(TRUTH, "the last round had nothing new to measure"),
            n_rows=described(COUNT, "measurements that costs and plan rest on"),
            n_regions=described(COUNT, "of these, made in rounds of refinement"),
            n_exhaustive=described(COUNT_OR_NULL, "of every convex region on every target"),
            potential=described(
                NUMBER, "share of the plan's latency that further measurements could save at most"
            ),
        ),
        "what the plan took to find",
    ),
    units=array(
        extended(
            UNIT,
            costs_ns=described(
                mapping(NUMBER), "target -> marginal latency; absent where it cannot run"
            ),
        )
    ),
    plan=nullable(PLAN),
    baselines=array(PLAN),
)
def of_profile(
    model: str, device: str, costs: str, graph: UnitGraph, outcome: ProfileOutcome
) -> Document:
    """``device``: for people; ``costs``: the cost table, without a password."""
    fitted = outcome.costs

    def of_unit(unit: Unit) -> Document:
        by_target = (
            {} if fitted is None else {t: fitted.unit_cost(unit.index, t) for t in fitted.targets}
        )
        return {"costs_ns": {t.key: ns for t, ns in by_target.items() if ns is not None}}

    return {
        "model": model,
        "device": device,
        "fingerprint": outcome.fingerprint,
        "simulated": outcome.info.simulated,
        "costs": costs,
        "interrupted": outcome.interrupted,
        "seconds": outcome.seconds,
        "spent_s": dict(outcome.spent_s),
        "n_measured": outcome.n_measured,
        "n_failed": outcome.n_failed,
        "n_refused": outcome.n_refused,
        "n_reused": outcome.n_reused,
        "doubts": dict(outcome.doubts),
        "effort": {
            "rounds": outcome.rounds,
            "stable": outcome.stable,
            "n_rows": outcome.n_rows,
            "n_regions": outcome.n_regions,
            "n_exhaustive": outcome.n_exhaustive,
            "potential": outcome.potential,
        },
        "units": of_units(graph, of_unit) if fitted is not None else [],
        "plan": None if outcome.plan is None else of_plan(outcome.plan),
        "baselines": of_plans(outcome.baselines),
    }
