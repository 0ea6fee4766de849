"""What ``nnapi-prof lab ... --json`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnapi_prof.documents.schema import (
    COUNT,
    NUMBER,
    NUMBER_OR_NULL,
    TEXT,
    TRUTH,
    Document,
    array,
    described,
    document,
    mapping,
    obj,
)

if TYPE_CHECKING:
    from nnapi_prof.lab.cluster import Run
    from nnapi_prof.lab.phones import Phone
    from nnapi_prof.lab.run import Outcome

_PHONE = obj(
    serial=described(TEXT, "what --device takes on its host"),
    host=TEXT,
    fingerprint=described(TEXT, "the device in cost tables"),
    name=TEXT,
    soc=described(TEXT, "empty where it does not tell"),
    android=described(TEXT, "release; empty on a machine that is none"),
    abi=TEXT,
    simulated=TRUTH,
)
_SCHEDULER = described(TEXT, "its address")


@document(
    "lab-profile",
    1,
    "Models that were measured on the phones of a lab",
    costs=described(TEXT, "the cost table: a file or a URL"),
    run=described(TEXT, "the run's name"),
    seconds=NUMBER,
    cancelled=TRUTH,
    profiled=described(
        array(
            obj(
                phone=_PHONE,
                model=TEXT,
                tries=COUNT,
                serial=described(TEXT, "of the phone that was measured"),
                host=described(TEXT, "that measured"),
                seconds=NUMBER,
                measured=described(COUNT, "rows added that come from runs on the phone"),
                refused=described(COUNT, "rows added because a lowering refused"),
                reused=described(COUNT, "rows that the cost table had before"),
                plan_ns=described(NUMBER_OR_NULL, "predicted for the fastest plan"),
                simulated=TRUTH,
            )
        ),
        "one for each model and phone",
    ),
    failed=described(
        array(obj(phone=_PHONE, model=TEXT, tries=COUNT, reason=TEXT)),
        "one for each model and phone that was not measured to the end",
    ),
)
def of_lab_profile(costs: str, outcome: Outcome) -> Document:
    from nnapi_prof.lab.run import entry

    return {
        "costs": costs,
        "run": outcome.run,
        "seconds": outcome.seconds,
        "cancelled": outcome.cancelled,
        "profiled": [entry(job) for job in outcome.profiled],
        "failed": [entry(job) for job in outcome.failed],
    }


@document(
    "lab-worker",
    1,
    "The phones of this host that a worker offers",
    scheduler=_SCHEDULER,
    phones=array(_PHONE),
)
def of_lab_worker(scheduler: str, phones: Sequence[Phone]) -> Document:
    return {"scheduler": scheduler, "phones": [phone.to_json() for phone in phones]}


@document(
    "lab-phones",
    1,
    "The phones that a lab's workers offer",
    scheduler=_SCHEDULER,
    phones=array(_PHONE),
)
def of_lab_phones(scheduler: str, phones: Sequence[Phone]) -> Document:
    return {"scheduler": scheduler, "phones": [phone.to_json() for phone in phones]}


_RUN = obj(run=TEXT, states=described(mapping(COUNT), "tasks in each of Dask's states"))


@document(
    "lab-status",
    1,
    "What a lab does",
    scheduler=_SCHEDULER,
    dashboard=described(TEXT, "the address of Dask's dashboard"),
    workers=COUNT,
    phones=COUNT,
    runs=array(_RUN),
)
def of_lab_status(
    scheduler: str, dashboard: str, workers: int, phones: int, runs: Sequence[Run]
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
    runs=described(array(TEXT), "their names"),
)
def of_lab_cancel(scheduler: str, runs: Sequence[str]) -> Document:
    return {"scheduler": scheduler, "runs": list(runs)}
