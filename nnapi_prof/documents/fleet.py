"""Builds the document of ``fleet --json``: few plans, the phones that use each, and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.plans import CONDITIONS, NOTES, PLAN, UNIT, of_plans, of_units
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.api.fleet_result import Fleet
    from nnapi_prof.lab.cluster import LabRun
    from nnapi_prof.lab.phones import LabPhone
    from nnapi_prof.lab.run import LabOutcome

FLEET_PHONE = s.obj(
    name=s.described(s.TEXT, "for people; unlike all others"),
    device=s.described(s.TEXT, "for people, with its system and drivers"),
    fingerprint=s.described(s.TEXT, "the device in the cost table; empty where it is in none"),
    weight=s.described(s.NUMBER, "its share of the fleet; 1 in all"),
    plan=s.described(s.COUNT, "index of its plan among plans"),
    predicted_ns=s.described(s.NUMBER_OR_NULL, "null where no plan runs there, its weight being 0"),
    half_ns=s.described(
        s.NUMBER_OR_NULL, "95 % of what predicted_ns may really be is within so much; null: unknown"
    ),
    least_ns=s.described(s.NUMBER, "of the best plan known for this phone alone"),
    all_cpu_ns=s.NUMBER,
    regret=s.described(s.NUMBER_OR_NULL, "predicted_ns over least_ns, less 1"),
    simulated=s.TRUTH,
    estimated=s.TRUTH,
)
FLEET_CURVE = s.obj(
    k=s.described(s.COUNT, "plans at most"),
    plans=s.described(s.COUNT, "of them in use"),
    mean=s.described(s.NUMBER, "regret of a phone drawn by the weights"),
    worst=s.described(s.NUMBER, "regret of the phone that fares worst"),
    bound=s.described(s.NUMBER, "no k of the candidates have less of the objective"),
)


@document(
    "fleet",
    1,
    "Few plans of a model for many phones, chosen by regret",
    bundle=s.described(s.TEXT, "the bundle's folder"),
    model=s.TEXT,
    simulated=s.described(s.TRUTH, "whether some phone is simulated"),
    estimated=s.described(s.TRUTH, "whether some phone's latencies are estimated"),
    conditions=CONDITIONS,
    objective=s.choice("mean", "worst"),
    mean_regret=s.NUMBER,
    mean_half=s.described(s.NUMBER_OR_NULL, "mean_regret's 95 % interval is within so much"),
    worst_regret=s.NUMBER,
    least_mean_of_one=s.described(s.NUMBER, "no single plan at all has a smaller mean regret"),
    candidates=s.described(s.COUNT, "plans that were to choose from"),
    units=s.array(UNIT),
    plans=s.described(s.array(PLAN), "plans with the highest weight first"),
    phones=s.array(FLEET_PHONE),
    curve=s.array(FLEET_CURVE),
    notes=NOTES,
)
def of_fleet(path: Path, fleet: Fleet) -> Document:
    return properties(
        "fleet",
        fleet,
        bundle=str(path),
        model=fleet.model.name,
        conditions=fleet.costs[0].conditions.to_json(),
        least_mean_of_one=fleet.search.least_mean_of_one,
        candidates=len(fleet.search.plans),
        units=of_units(fleet.model.graph),
        plans=of_plans(fleet.plans),
        curve=[
            properties(FLEET_CURVE, choice, k=number, plans=len(choice.plans))
            for number, choice in enumerate(fleet.search.choices, 1)
        ],
    )


# Builds the documents of ``nnapi-prof lab ... --json``.

_PHONE = s.obj(
    serial=s.described(s.TEXT, "what --device takes on its host"),
    host=s.TEXT,
    fingerprint=s.described(s.TEXT, "the device in cost tables"),
    name=s.TEXT,
    soc=s.described(s.TEXT, "empty where it does not tell"),
    android=s.described(s.TEXT, "release; empty on a machine without Android"),
    abi=s.TEXT,
    simulated=s.TRUTH,
)
_PROFILED = s.obj(
    phone=_PHONE,
    model=s.TEXT,
    tries=s.COUNT,
    serial=s.described(s.TEXT, "of the phone that was measured"),
    host=s.described(s.TEXT, "that measured"),
    seconds=s.NUMBER,
    measured=s.described(s.COUNT, "rows added that come from runs on the phone"),
    refused=s.described(s.COUNT, "rows added because a lowering refused"),
    reused=s.described(s.COUNT, "rows that the cost table had before"),
    plan_ns=s.described(s.NUMBER_OR_NULL, "predicted for the fastest plan"),
    simulated=s.TRUTH,
)
_FAILED = s.obj(phone=_PHONE, model=s.TEXT, tries=s.COUNT, reason=s.TEXT)
_SCHEDULER = s.described(s.TEXT, "its address")


@document(
    "lab-profile",
    1,
    "Models that were measured on the phones of a lab",
    costs=s.described(s.TEXT, "the cost table: a file or a URL"),
    run=s.described(s.TEXT, "the run's name"),
    seconds=s.NUMBER,
    cancelled=s.TRUTH,
    profiled=s.described(s.array(_PROFILED), "one for each model and phone"),
    failed=s.described(
        s.array(_FAILED), "one for each model and phone that was not measured to the end"
    ),
)
def of_lab_profile(costs: str, outcome: LabOutcome) -> Document:
    return properties(
        "lab-profile",
        outcome,
        costs=costs,
        profiled=[
            properties(
                _PROFILED, job.answer, phone=job.phone, model=job.task.model, tries=job.tries + 1
            )
            for job in outcome.profiled
        ],
        failed=[properties(_FAILED, job, model=job.task.model) for job in outcome.failed],
    )


@document(
    "lab-worker",
    1,
    "The phones of this host that a worker offers",
    scheduler=_SCHEDULER,
    phones=s.array(_PHONE),
)
def of_lab_worker(scheduler: str, phones: Sequence[LabPhone]) -> Document:
    return {"scheduler": scheduler, "phones": [phone.to_json() for phone in phones]}


@document(
    "lab-phones",
    1,
    "The phones that a lab's workers offer",
    scheduler=_SCHEDULER,
    phones=s.array(_PHONE),
)
def of_lab_phones(scheduler: str, phones: Sequence[LabPhone]) -> Document:
    return {"scheduler": scheduler, "phones": [phone.to_json() for phone in phones]}


_RUN = s.obj(run=s.TEXT, states=s.described(s.mapping(s.COUNT), "tasks in each of Dask's states"))


@document(
    "lab-status",
    1,
    "What a lab does",
    scheduler=_SCHEDULER,
    dashboard=s.described(s.TEXT, "the address of Dask's dashboard"),
    workers=s.COUNT,
    phones=s.COUNT,
    runs=s.array(_RUN),
)
def of_lab_status(
    scheduler: str, dashboard: str, workers: int, phones: int, runs: Sequence[LabRun]
) -> Document:
    return {
        "scheduler": scheduler,
        "dashboard": dashboard,
        "workers": workers,
        "phones": phones,
        "runs": [{"run": run.name, "states": dict(run.states)} for run in runs],
    }


@document(
    "lab-cancel",
    1,
    "Runs of a lab that were cancelled",
    scheduler=_SCHEDULER,
    runs=s.described(s.array(s.TEXT), "their names"),
)
def of_lab_cancel(scheduler: str, runs: Sequence[str]) -> Document:
    return {"scheduler": scheduler, "runs": list(runs)}
