"""Build the documents of ``nnapi-prof lab ... --json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.lab.cluster import LabRun
    from nnapi_prof.lab.phones import LabPhone
    from nnapi_prof.lab.run import LabOutcome


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
