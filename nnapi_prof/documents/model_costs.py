"""What ``profile``, ``estimate`` and ``calibrate`` print with ``--json``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.documents.contention import CONTENTION
from nnapi_prof.documents.plans import PLAN, TARGET, UNIT, of_plan, of_plans, of_units
from nnapi_prof.documents.schema import (
    COUNT,
    COUNT_OR_NULL,
    NUMBER,
    NUMBER_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    Document,
    array,
    described,
    document,
    extended,
    mapping,
    nullable,
    obj,
    properties,
)

if TYPE_CHECKING:
    from nnapi_prof.costs.estimate.calibration import TargetReport
    from nnapi_prof.costs.estimate.costs import EstimatedCosts
    from nnapi_prof.execution.profile.options import ProfileOutcome
    from nnapi_prof.graph.plan import Plan
    from nnapi_prof.graph.unit import Unit, UnitGraph


EFFORT = obj(
    rounds=described(COUNT, "of measuring regions whole and planning again"),
    stable=described(TRUTH, "the last round had nothing new to measure"),
    n_rows=described(COUNT, "measurements that costs and plan rest on"),
    n_regions=described(COUNT, "of these, made in rounds of refinement"),
    n_exhaustive=described(COUNT_OR_NULL, "of every convex region on every target"),
    potential=described(
        NUMBER, "share of the plan's latency that further measurements could save at most"
    ),
)


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
    effort=described(EFFORT, "what the plan took to find"),
    units=array(
        extended(
            UNIT,
            costs_ns=described(
                mapping(NUMBER), "target -> marginal latency; absent where it cannot run"
            ),
        )
    ),
    contention=nullable(CONTENTION),
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

    return properties(
        "profile",
        outcome,
        model=model,
        device=device,
        simulated=outcome.info.simulated,
        costs=costs,
        effort=properties(EFFORT, outcome),
        units=of_units(graph, of_unit) if fitted is not None else [],
        plan=None if outcome.plan is None else of_plan(outcome.plan),
        baselines=of_plans(outcome.baselines),
    )


_ERROR = described(
    NUMBER_OR_NULL,
    "relative; nine of ten predictions stay below in cross-validation; null where not known",
)


_ESTIMATE = obj(
    ns=NUMBER,
    error=_ERROR,
    never_measured=described(
        TEXT_OR_NULL, "type of operation, where the target was never measured to run one"
    ),
)
_PRICE = obj(invocation_ns=NUMBER, ns_per_in_byte=NUMBER, ns_per_out_byte=NUMBER)
_SHARES = described(
    mapping(NUMBER), "type that was never measured -> its share of the plan's latency"
)


@document(
    "estimate",
    1,
    "Estimated latency and plan on a phone that is not there",
    model=TEXT,
    phone=TEXT,
    origin=described(TEXT, "where the phone's description comes from"),
    estimated={"const": True},
    simulated=described(TRUTH, "whether the description is of a simulated phone"),
    targets=described(mapping(_PRICE), "target -> what each invocation costs"),
    units=array(
        extended(
            UNIT,
            costs=described(mapping(_ESTIMATE), "by target"),
            refusals=described(mapping(TEXT), "target -> why it cannot run there"),
        )
    ),
    plan=extended(PLAN, error=_ERROR, never_measured=_SHARES),
    baselines=array(extended(PLAN, error=_ERROR, never_measured=_SHARES)),
)
def of_estimate(
    model: str, phone: str, origin: str, costs: EstimatedCosts, plans: Sequence[Plan]
) -> Document:
    """``plans``: the best one, then its baselines."""

    def of_unit(unit: Unit) -> Document:
        estimates = {
            target.key: properties(_ESTIMATE, estimate)
            for target in costs.targets
            if (estimate := costs.estimates.get((unit.index, target))) is not None
        }
        refusals = {
            target.key: costs.refusals[unit.index, target]
            for target in costs.targets
            if (unit.index, target) in costs.refusals
        }
        return {"costs": estimates, "refusals": refusals}

    best, *baselines = (
        {
            **of_plan(plan),
            "error": costs.plan_error(plan),
            "never_measured": costs.never_measured(plan),
        }
        for plan in plans
    )
    prices = {target.key: properties(_PRICE, price) for target, price in costs.prices.items()}
    return {
        "model": model,
        "phone": phone,
        "origin": origin,
        "estimated": True,
        "simulated": costs.simulated,
        "targets": prices,
        "units": of_units(costs.graph, of_unit),
        "plan": best,
        "baselines": baselines,
    }


@document(
    "calibrate",
    1,
    "How well a phone's description predicts what was measured of it",
    name=described(TEXT, "the phone's name in the description"),
    fingerprint=described(TEXT, "the device in the cost table"),
    simulated=TRUTH,
    folds=COUNT,
    seed={"type": "integer"},
    file=described(TEXT_OR_NULL, "the description that was written"),
    targets=described(
        array(
            obj(
                target=TARGET,
                rows=COUNT,
                median_error=NUMBER,
                error=described(NUMBER, "nine of ten are below"),
                within_tenth=described(NUMBER, "share of rows within 10 %"),
                single_rate_median_error=described(NUMBER, "of one rate for all, the baseline"),
            )
        ),
        "relative errors in cross-validation",
    ),
)
def of_calibration(
    name: str,
    fingerprint: str,
    simulated: bool,
    reports: Sequence[TargetReport],
    folds: int,
    seed: int,
    file: Path | None,
) -> Document:
    targets = []
    for report in reports:
        median, nine, within = report.summary(report.errors)
        targets.append(
            {
                "target": report.target.key,
                "rows": report.rows,
                "median_error": median,
                "error": nine,
                "within_tenth": within,
                "single_rate_median_error": report.summary(report.single_rate)[0],
            }
        )
    return {
        "name": name,
        "fingerprint": fingerprint,
        "simulated": simulated,
        "folds": folds,
        "seed": seed,
        "file": file and str(file),
        "targets": targets,
    }
