"""``nnapi-prof lab``: Measure on the phones of many hosts at once: worker, profile, status, phones,
cancel; and the documents of ``--json``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof import documents as s
from nnapi_prof.cli import options as opt
from nnapi_prof.cli.command import HELP, Group, define
from nnapi_prof.cli.output import (
    as_json,
    boxed,
    current,
    line,
    ms,
    plain,
    print_document,
    say,
    stderr,
    stdout,
    unit_of,
)
from nnapi_prof.costs import ConditionOptions
from nnapi_prof.device.state import Gates
from nnapi_prof.documents import Document, document, properties
from nnapi_prof.execution.profile import MeasureOptions

if TYPE_CHECKING:
    from nnapi_prof.lab import LabPhone
    from nnapi_prof.lab.cluster import LabRun
    from nnapi_prof.lab.run import LabJob, LabOutcome


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


INTERRUPTED = 130
SHOWN = 30
"""Maximum rows of the live table."""

scheduler_option = click.option(
    "--scheduler", required=True, metavar="ADDRESS", help="Scheduler of the lab: tcp://HOST:8786."
)


@click.group("lab", cls=Group, context_settings=HELP)
def command() -> None:
    """Measure on the phones of many hosts at once, into one cost table.

    Needs `pip install nnapi-prof[lab]`. The scheduler is Dask's own (`dask scheduler`).
    """


@define(
    "worker",
    of=command,
    examples=[
        "nnapi-prof lab worker --scheduler tcp://lab:8786",
        "nnapi-prof lab worker --scheduler tcp://lab:8786 --phone sim:npu-phone",
    ],
)
@scheduler_option
@click.option(
    "--phone",
    "serials",
    multiple=True,
    metavar="SERIAL",
    help="Phones to offer: a value of --device or a pattern, or for simulated phones a folder"
    " of descriptions or 'FOLDER/*.json'; repeatable. Default: all phones connected to"
    " this host.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    help="Number of phones measured at once. Default: all.",
)
def worker(scheduler: str, serials: tuple[str, ...], slots: int | None) -> int:
    """Offer the phones of this host to a lab, until Ctrl-C.

    Each phone is a separate Dask resource. If the scheduler goes away, the worker reconnects.
    """
    import asyncio

    from nnapi_prof.lab.cluster import distributed, serve

    distributed()
    phones = _shelf(serials)
    if as_json():
        print_document(of_lab_worker(scheduler, phones))
    else:
        _show_phones(phones)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(scheduler, phones, slots or len(phones), say))
    return INTERRUPTED


def _shelf(serials: Sequence[str]) -> list[LabPhone]:
    from nnapi_prof.errors import DeviceNotFound
    from nnapi_prof.lab import shelf

    phones, silent = shelf(serials, say)
    for serial, reason in silent:
        say(f"note: {serial} does not answer and is left out: {reason}")
    if not phones:
        raise DeviceNotFound(
            "no phone is connected to this host",
            "connect one, or name one with --phone, as in sim:npu-phone",
        )
    return phones


@define(
    "profile",
    of=command,
    examples=[
        "nnapi-prof lab profile --phones 'sim:*' model.pt",
        "nnapi-prof lab profile --phones 'phones/*.json' model.pt",
        "nnapi-prof lab profile --scheduler tcp://lab:8786 --phones 'android=14,soc=SM*' *.pt2",
    ],
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Scheduler of the lab: tcp://HOST:8786. Default: a cluster on this host with its own"
    " phones.",
)
@click.option(
    "--phones",
    "selectors",
    multiple=True,
    metavar="SELECTOR",
    help="Patterns of names, fingerprints or serials, or soc=, android=, abi=, host= PATTERN."
    " Terms joined by commas must all match; repeated options are alternatives. Without"
    " --scheduler: a value of --device or a pattern. For simulated phones also a folder of"
    " descriptions, or 'FOLDER/*.json'. Default: all.",
)
@click.option(
    "--patience-s",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="How long to wait for a phone that is in use or that no worker offers, or for a lost"
    " scheduler.",
)
@opt.inputs
@opt.costs
@opt.conditions
@opt.gates
@opt.declared(MeasureOptions, "fresh", "refine", "runs")
@opt.models
def profile(
    scheduler: str | None,
    selectors: tuple[str, ...],
    patience_s: float,
    inputs: tuple[str, ...],
    costs: str | None,
    models: tuple[Path, ...],
    conditions: ConditionOptions,
    **options: Any,
) -> int:
    """Measure models on all phones of a lab, each phone one model at a time.

    Measurements in the cost table are not repeated, so you can repeat an interrupted command. A
    phone that disconnects is tried again, then set aside with its reason. All workers must reach
    the cost table (a PostgreSQL URL for several hosts) and the models' paths.
    """
    from nnapi_prof.costs import absolute, default_location
    from nnapi_prof.costs.store import CostStore
    from nnapi_prof.lab import cluster
    from nnapi_prof.lab.run import Coordinator, jobs_of

    asked = {
        "conditions": conditions,
        "options": opt.taken(MeasureOptions, options),
        "gates": opt.taken(Gates, options),
    }
    table = absolute(default_location() if costs is None else costs)
    cluster.distributed()
    with CostStore(table) as store, _lab(scheduler, selectors) as (address, phones):
        jobs = jobs_of(cluster.new_run(), models, phones, table, inputs, asked)
        with _board() as show:
            outcome = Coordinator(
                address, jobs, lambda t: say(f"note: {t}"), show, patience_s
            ).run()
        location = store.location
    if as_json():
        print_document(of_lab_profile(location, outcome))
    else:
        _summarise(outcome, location)
    if outcome.cancelled:
        return INTERRUPTED
    return 1 if outcome.failed else 0


@contextmanager
def _lab(scheduler: str | None, selectors: Sequence[str]) -> Iterator[tuple[str, list[LabPhone]]]:
    """Yields a lab's address, and the selected phones."""
    from nnapi_prof.lab import cluster, select

    if scheduler is None:
        phones = _shelf(selectors)
        with cluster.own_cluster(phones) as address, cluster.connected_to(address) as client:
            say(f"Dask's dashboard: {client.dashboard_link}")
            yield address, phones
        return
    with cluster.connected_to(scheduler) as client:
        phones = select(cluster.offered(client), selectors)
        say(f"Dask's dashboard: {client.dashboard_link}")
    yield scheduler, phones


@contextmanager
def _board() -> Iterator[Callable[[Sequence[LabJob]], None]]:
    """Shows the progress of a run: a live table on a terminal, else a line for each job."""
    console, began = stderr(), time.monotonic()
    if not console.is_terminal or current().quiet:
        told: set[int] = set()

        def tell(jobs: Sequence[LabJob]) -> None:
            for place, job in enumerate(jobs):
                if job.over and place not in told:
                    told.add(place)
                    left = _left(jobs, time.monotonic() - began)
                    say(f"{_job_line(job)} ({len(told)} of {len(jobs)}{left})")

        yield tell
        return
    from rich.live import Live

    with Live(console=console, transient=True, refresh_per_second=4) as live:

        def draw(jobs: Sequence[LabJob]) -> None:
            done = sum(job.over for job in jobs)
            title = f"{done} of {len(jobs)}{_left(jobs, time.monotonic() - began)}"
            table = boxed(title, ["phone", "model", "state"])
            for job in sorted(jobs, key=lambda job: (job.over, job.future is None))[:SHOWN]:
                table.add_row(job.phone.label, Path(job.task.model).name, _state(job))
            live.update(table)

        yield draw


def _left(jobs: Sequence[LabJob], took: float) -> str:
    """Returns the remaining time in words, from the time of the finished jobs."""
    done = sum(job.over for job in jobs)
    rest = len(jobs) - done
    return f", about {took / done * rest:.0f} s left" if done and rest else ""


def _state(job: LabJob) -> str:
    if job.reason is not None:
        return f"failed: {job.reason}"
    if job.answer is not None:
        return f"{job.answer.measured} measured in {job.answer.seconds:.0f} s"
    if job.future is None and job.history:
        return f"waits: {job.history[-1]}"
    return "in work or in turn"


def _job_line(job: LabJob) -> str:
    return f"{job.phone.label}, {Path(job.task.model).name}: {_state(job)}"


def _summarise(outcome: LabOutcome, location: str) -> None:
    console = stdout()
    simulated = {job.answer.simulated for job in outcome.profiled if job.answer is not None}
    unit = "ms, some simulated" if len(simulated) > 1 else unit_of(True in simulated)
    numbers = ["measured", "refused", "known before", "s", f"plan ({unit})"]
    table = boxed(f"Run {outcome.run}", ["phone", "model"], numbers)
    for job in outcome.profiled:
        answer = job.answer
        assert answer is not None
        counts = [str(n) for n in (answer.measured, answer.refused, answer.reused)]
        cells = [*counts, f"{answer.seconds:.1f}", ms(answer.plan_ns)]
        table.add_row(job.phone.label, Path(job.task.model).name, *cells)
    console.print(table)
    for job in outcome.failed:
        line(console, _job_line(job))
    n, bad = len(outcome.profiled), len(outcome.failed)
    what = "cancelled: " if outcome.cancelled else ""
    words = f"{what}{n} profiled, {bad} failed, {outcome.seconds:.1f} s; costs in {location}"
    line(console, words)


@define(
    "phones",
    of=command,
    examples=["nnapi-prof lab phones --scheduler tcp://lab:8786"],
)
@scheduler_option
def phones_command(scheduler: str) -> None:
    """List the phones that a lab's workers offer."""
    from nnapi_prof.lab import cluster

    with cluster.connected_to(scheduler) as client:
        phones = cluster.offered(client)
    if as_json():
        print_document(of_lab_phones(scheduler, phones))
    else:
        _show_phones(phones)


def _show_phones(phones: Sequence[LabPhone]) -> None:
    table = plain(["phone", "serial", "host", "fingerprint", "SoC", "Android", "ABI"])
    for phone in phones:
        name = f"{phone.name} (simulated)" if phone.simulated else phone.name
        cells = (phone.serial, phone.host, phone.fingerprint)
        table.add_row(name, *cells, phone.soc or "–", phone.android or "–", phone.abi)
    stdout().print(table)
    if not phones:
        say("note: no worker offers a phone: `nnapi-prof lab worker` does")


@define(
    "status",
    of=command,
    examples=["nnapi-prof lab status --scheduler tcp://lab:8786"],
)
@scheduler_option
def status(scheduler: str) -> None:
    """Show a lab's workers, phones and the progress of its runs."""
    from nnapi_prof.lab import cluster

    with cluster.connected_to(scheduler) as client:
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        phones, runs = len(cluster.offered(client)), cluster.runs(client)
        dashboard = str(client.dashboard_link)
    if as_json():
        print_document(of_lab_status(scheduler, dashboard, workers, phones, runs))
        return
    click.echo(f"{workers} workers with {phones} phones; Dask's dashboard: {dashboard}")
    for run in runs:
        states = ", ".join(f"{n} {state}" for state, n in sorted(run.states.items()))
        click.echo(f"run {run.name}: {states}")


@define(
    "cancel",
    of=command,
    examples=["nnapi-prof lab cancel --scheduler tcp://lab:8786"],
)
@scheduler_option
@click.argument("run", required=False)
def cancel(scheduler: str, run: str | None) -> None:
    """End RUN, or all runs: measurements are kept, and their `lab profile` says so."""
    from nnapi_prof.lab import cluster

    with cluster.connected_to(scheduler) as client:
        names = cluster.cancel(client, run)
    if as_json():
        print_document(of_lab_cancel(scheduler, names))
    else:
        click.echo(f"cancelled: {', '.join(names) or 'nothing runs'}")
