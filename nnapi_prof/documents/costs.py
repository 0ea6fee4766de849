"""Build the documents of ``costs``, ``profile``, ``estimate`` and ``calibrate`` with ``--json``.

Measured times are whole numbers of ns, statistics are fractional.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof import documents as s
from nnapi_prof.costs.measurement import Kind, Status
from nnapi_prof.documents import Document, document, properties
from nnapi_prof.documents.plans import CONDITIONS, PLAN, TARGET, UNIT, of_plan, of_plans, of_units
from nnapi_prof.documents.throughput import CONTENTION

if TYPE_CHECKING:
    from nnapi_prof.costs.estimate.calibration import TargetReport
    from nnapi_prof.costs.estimate.costs import EstimatedCosts
    from nnapi_prof.costs.measurement import Measurement
    from nnapi_prof.costs.store import Measured, Pruned
    from nnapi_prof.execution.profile import ProfileOutcome
    from nnapi_prof.execution.profile.threads import ThreadTrial
    from nnapi_prof.graph.plan import Plan
    from nnapi_prof.graph.unit import Unit, UnitGraph

_KIND = s.choice(*(kind.value for kind in Kind))
_STATUS = s.choice(*(status.value for status in Status))
_COSTS = s.described(s.TEXT, "the cost table: a file or a URL, without a password")


@document(
    "costs-list",
    1,
    "The devices in a cost table",
    costs=_COSTS,
    devices=s.array(
        s.obj(
            fingerprint=s.TEXT,
            name=s.TEXT,
            simulated=s.TRUTH,
            rows=s.COUNT,
            kinds=s.described(s.mapping(s.COUNT), "rows of each kind"),
            statuses=s.described(s.mapping(s.COUNT), "rows of each status"),
            targets=s.array(s.TEXT),
            first=s.described(s.TEXT, "date of the oldest measurement"),
            last=s.described(s.TEXT, "date of the newest measurement"),
        )
    ),
)
def of_devices(costs: str, devices: Iterable[Measured]) -> Document:
    return {"costs": costs, "devices": [dataclasses.asdict(each) for each in devices]}


_MEASUREMENT = s.obj(
    fingerprint=s.TEXT,
    device=s.described(s.TEXT, "its name"),
    signature=s.TEXT,
    label=s.TEXT,
    kind=_KIND,
    members=s.described(s.array(s.TEXT), "signatures of the units that it consists of"),
    target=TARGET,
    conditions=CONDITIONS,
    status=_STATUS,
    message=s.described(s.TEXT_OR_NULL, "why it is not ok"),
    attempts=s.described(
        s.COUNT_OR_NULL, "how often it was tried: 2 alone, too; more on another day, too"
    ),
    flags=s.described(s.array(s.TEXT), "reasons to doubt it"),
    simulated=s.TRUTH,
    clock=s.TEXT,
    median_ns=s.described(
        s.NUMBER_OR_NULL,
        "like p95_ns, spread_ns, minimum_ns and n_samples without rounds that were throttled, where"
        " there are others",
    ),
    p95_ns=s.described(s.NUMBER_OR_NULL, "what 95 % of these keep to"),
    spread_ns=s.NUMBER_OR_NULL,
    minimum_ns=s.NUMBER_OR_NULL,
    n_samples=s.COUNT,
    samples_ns=s.described(s.array(s.COUNT), "every run, in the order they ran"),
    corunner=s.described(s.nullable(TARGET), "of kind corun: the target that was busy meanwhile"),
    alone_ns=s.described(s.array(s.COUNT), "of kind corun: every run while nothing else ran"),
    cpu_ns=s.described(
        s.array(s.COUNT), "of kind corun: CPU time of the agent in each of alone_ns"
    ),
    compile_ns=s.COUNT_OR_NULL,
    input_bytes=s.COUNT,
    output_bytes=s.COUNT,
    driver_version=s.TEXT,
    agent_version=s.TEXT,
    measured_at=s.TEXT,
)


@document(
    "costs-show",
    2,
    "Measurements of a cost table",
    costs=_COSTS,
    n_fitting=s.described(
        s.COUNT_OR_NULL,
        "measurements that fit; --limit may show fewer; null where a large table has more than"
        " those shown, which are not counted",
    ),
    measurements=s.array(_MEASUREMENT),
)
def of_measurements(
    costs: str, rows: Iterable[Measurement], names: Mapping[str, str], n_fitting: int | None
) -> Document:
    """Return the document; ``names`` is fingerprint -> the device's name."""
    shown = [_measurement(m, names.get(m.fingerprint, "unknown")) for m in rows]
    return {"costs": costs, "n_fitting": n_fitting, "measurements": shown}


def _measurement(m: Measurement, name: str) -> Document:
    summary = m.summary if m.samples_ns else None
    return properties(
        _MEASUREMENT,
        m,
        device=name,
        median_ns=summary and summary.median_ns,
        p95_ns=summary and summary.p95_ns,
        spread_ns=summary and summary.spread_ns,
        minimum_ns=summary and summary.minimum_ns,
        n_samples=summary.n if summary else 0,
    )


@document(
    "costs-merge",
    1,
    "Other cost tables were added to a cost table",
    costs=_COSTS,
    tables=s.array(
        s.obj(
            table=_COSTS,
            rows=s.COUNT,
            added=s.described(s.COUNT, "rows that the table had not"),
            left_out=s.described(s.COUNT, "rows that cannot be, which were not added"),
            devices=s.COUNT,
        )
    ),
)
def of_merge(costs: str, tables: Sequence[Document]) -> Document:
    return {"costs": costs, "tables": list(tables)}


@document(
    "costs-prune",
    1,
    "Rows that were deleted from a cost table, or would be",
    costs=_COSTS,
    deleted=s.described(s.TRUTH, "false: nothing was touched, --yes was not given"),
    rows=s.described(s.COUNT, "that go"),
    kept=s.COUNT,
    devices=s.described(s.mapping(s.COUNT), "fingerprint -> its rows that go"),
    forgotten=s.described(s.array(s.TEXT), "fingerprints of devices that no row is left of"),
)
def of_prune(costs: str, pruned: Pruned) -> Document:
    return properties("costs-prune", pruned, costs=costs)


EFFORT = s.obj(
    rounds=s.described(s.COUNT, "of measuring regions whole and planning again"),
    stable=s.described(s.TRUTH, "the last round had nothing new to measure"),
    n_rows=s.described(s.COUNT, "measurements that costs and plan rest on"),
    n_regions=s.described(s.COUNT, "of these, made in rounds of refinement"),
    n_exhaustive=s.described(s.COUNT_OR_NULL, "of every convex region on every target"),
    potential=s.described(
        s.NUMBER, "share of the plan's latency that further measurements could save at most"
    ),
)


THREAD_TRIAL = s.obj(
    threads=s.described(s.COUNT, "of the CPU engine, the number chosen"),
    n_units=s.described(s.COUNT, "that ran under every number"),
    ns=s.described(
        s.mapping(s.NUMBER), "number of threads -> the model on the CPU, estimated from these units"
    ),
    whole=s.described(s.TRUTH, "the whole model ran under every number: ns is of that"),
    call_ns=s.described(
        s.mapping(s.NUMBER), "number of threads -> the shortest call, with one and with the chosen"
    ),
)


@document(
    "profile",
    2,
    "What a model's units cost on a device",
    model=s.TEXT,
    device=s.described(s.TEXT, "for people"),
    fingerprint=s.described(s.TEXT, "the device in the cost table"),
    simulated=s.TRUTH,
    costs=s.described(s.TEXT, "the cost table: a file or a URL, without a password"),
    interrupted=s.described(
        s.TRUTH, "Ctrl-C ended it: units and plan are the last round's, if any"
    ),
    seconds=s.described(s.NUMBER, "that it took"),
    spent_s=s.described(s.mapping(s.NUMBER), "seconds by what they were spent on"),
    n_measured=s.described(s.COUNT, "rows added that come from runs on the device"),
    n_failed=s.described(s.COUNT, "of these, refused by a driver, crashed, or too slow"),
    n_refused=s.described(s.COUNT, "rows added because the converter refuses"),
    n_reused=s.described(s.COUNT, "measurements wanted that the table had"),
    doubts=s.described(s.mapping(s.COUNT), "reason to doubt measurements -> how many"),
    effort=s.described(EFFORT, "what the plan took to find"),
    units=s.array(
        s.extended(
            UNIT,
            costs_ns=s.described(
                s.mapping(s.NUMBER), "target -> marginal latency; absent where it cannot run"
            ),
        )
    ),
    contention=s.nullable(CONTENTION),
    thread_trial=s.described(
        s.nullable(THREAD_TRIAL), "null where a number was stated or there is one core"
    ),
    plan=s.nullable(PLAN),
    baselines=s.array(PLAN),
)
def of_profile(
    model: str,
    device: str,
    costs: str,
    graph: UnitGraph,
    outcome: ProfileOutcome,
    trial: ThreadTrial | None = None,
) -> Document:
    """Return the document; ``device`` is a name for people, ``costs`` the cost table without a
    password."""
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
        thread_trial=None
        if trial is None
        else properties(
            THREAD_TRIAL,
            trial,
            ns={str(n): ns for n, ns in trial.ns.items()},
            call_ns={str(n): ns for n, ns in trial.call_ns.items()},
        ),
        plan=None if outcome.plan is None else of_plan(outcome.plan),
        baselines=of_plans(outcome.baselines),
    )


_ERROR = s.described(
    s.NUMBER_OR_NULL,
    "relative; nine of ten predictions stay below in cross-validation; null where not known",
)


_ESTIMATE = s.obj(
    ns=s.NUMBER,
    error=_ERROR,
    never_measured=s.described(
        s.TEXT_OR_NULL, "type of operation, where the target was never measured to run one"
    ),
)
_PRICE = s.obj(invocation_ns=s.NUMBER, ns_per_in_byte=s.NUMBER, ns_per_out_byte=s.NUMBER)
_SHARES = s.described(
    s.mapping(s.NUMBER), "type that was never measured -> its share of the plan's latency"
)


@document(
    "estimate",
    1,
    "Estimated latency and plan on a phone that is not there",
    model=s.TEXT,
    phone=s.TEXT,
    origin=s.described(s.TEXT, "where the phone's description comes from"),
    estimated={"const": True},
    simulated=s.described(s.TRUTH, "whether the description is of a simulated phone"),
    threads=s.described(s.COUNT, "of the CPU"),
    targets=s.described(s.mapping(_PRICE), "target -> what each invocation costs"),
    units=s.array(
        s.extended(
            UNIT,
            costs=s.described(s.mapping(_ESTIMATE), "by target"),
            refusals=s.described(s.mapping(s.TEXT), "target -> why it cannot run there"),
        )
    ),
    plan=s.extended(PLAN, error=_ERROR, never_measured=_SHARES),
    baselines=s.array(s.extended(PLAN, error=_ERROR, never_measured=_SHARES)),
)
def of_estimate(
    model: str, phone: str, origin: str, costs: EstimatedCosts, plans: Sequence[Plan]
) -> Document:
    """Return the document; ``plans`` are the best one, then its baselines."""

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
        "threads": costs.threads,
        "targets": prices,
        "units": of_units(costs.graph, of_unit),
        "plan": best,
        "baselines": baselines,
    }


@document(
    "calibrate",
    1,
    "How well a phone's description predicts what was measured of it",
    name=s.described(s.TEXT, "the phone's name in the description"),
    fingerprint=s.described(s.TEXT, "the device in the cost table"),
    simulated=s.TRUTH,
    folds=s.COUNT,
    seed={"type": "integer"},
    file=s.described(s.TEXT_OR_NULL, "the description that was written"),
    targets=s.described(
        s.array(
            s.obj(
                target=TARGET,
                rows=s.COUNT,
                median_error=s.NUMBER,
                error=s.described(s.NUMBER, "nine of ten are below"),
                within_tenth=s.described(s.NUMBER, "share of rows within 10 %"),
                single_rate_median_error=s.described(s.NUMBER, "of one rate for all, the baseline"),
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
