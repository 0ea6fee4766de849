"""Dask, as a lab uses it: workers that offer phones, a scheduler to ask, a cluster of one's own.

A worker has the resource ``phone-FINGERPRINT`` once for each of its phones, and a task asks for one
of it, so that Dask itself never gives a phone two. A worker's phones stand in its environment.
Tasks are called ``nnapi-prof/RUN/...``, by which a scheduler knows them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nnapi_prof.errors import NnapiProfError, UsageError
from nnapi_prof.lab.phones import LabPhone, listed
from nnapi_prof.lab.task import PHONES, phones_here

PREFIX = "nnapi-prof"
CONNECT_S = 20.0
"""How long a scheduler is waited for."""
AGAIN_S = 5.0
"""Until a worker whose scheduler went away looks for it again."""


class LabError(NnapiProfError):
    """A scheduler that cannot be reached, or what is missing for a lab."""


@dataclass(frozen=True, slots=True)
class LabRun:
    """A run that a scheduler has tasks of."""

    name: str
    states: Mapping[str, int]
    """Dask's state (``processing``, ``memory``, ``no-worker``, ...) -> tasks."""


def distributed() -> Any:
    """Dask's package. Raises LabError where the extra is not installed."""
    try:
        import distributed as package
    except ImportError as error:
        raise LabError(
            "nnapi-prof lab needs Dask and psycopg, which are not installed",
            "`pip install 'nnapi-prof[lab]'`",
        ) from error
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters is in answers
    return package


def resource(fingerprint: str) -> str:
    """Dask's name of a phone of this kind."""
    return f"phone-{fingerprint}"


def new_run() -> str:
    """A name for a run that no other has."""
    return uuid.uuid4().hex[:8]


@contextmanager
def connected_to(address: str) -> Iterator[Any]:
    """A client of the scheduler at this address. Raises LabError where there is none."""
    client = connect(address)
    try:
        yield client
    finally:
        close(client)


def connect(address: str) -> Any:
    """Connects as :func:`connected_to` does; :func:`close` ends it."""
    package = distributed()
    try:
        return package.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise LabError(
            f"no scheduler at {address} ({str(error) or type(error).__name__})",
            "start one with `dask scheduler`, or name its address, as in tcp://HOST:8786",
        ) from error


def close(client: Any) -> None:
    """Ends a client, also one whose scheduler is gone."""
    with contextlib.suppress(Exception):  # Dask's own, of a connection that is no more
        client.close(timeout=5)


@contextmanager
def own_cluster(phones: Sequence[LabPhone], processes: int | None = None) -> Iterator[str]:
    """A scheduler and workers on this host that offer these phones; gives the address.

    A process has phones one at a time: simulated ones share the host's cores, so that there are no
    more processes than cores for them; each real phone has a process of its own.
    """
    package = distributed()
    cores = os.cpu_count() or 1
    real = [[phone] for phone in phones if not phone.simulated]
    simulated = [phone for phone in phones if phone.simulated]
    shares = min(processes or cores, len(simulated)) if simulated else 0
    groups = [*real, *(simulated[start::shares] for start in range(shares))]
    workers = {
        number: {"cls": package.Nanny, "options": worker_options(group, 1)}
        for number, group in enumerate(groups)
    }
    scheduler = {
        "cls": package.Scheduler,
        "options": {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1", "port": 0},
    }
    cluster = package.SpecCluster(workers, scheduler, name="nnapi-prof", silence_logs=50)
    try:
        yield str(cluster.scheduler_address)
    finally:
        cluster.close(timeout=10)


def worker_options(phones: Sequence[LabPhone], slots: int) -> dict[str, Any]:
    """Returns the options of a Dask worker that offers these phones, ``slots`` of them at once."""
    counts = Counter(resource(phone.fingerprint) for phone in phones)
    return {
        "nthreads": slots,
        "resources": dict(counts),
        "env": {PHONES: listed(phones), "OMP_NUM_THREADS": "1"},
        "config": {"logging": {"distributed": "critical"}},
        "memory_limit": 0,  # Dask would end a worker that converts a large model
    }


async def serve(
    address: str, phones: Sequence[LabPhone], slots: int, told: Callable[[str], None]
) -> None:
    """Offers phones to a scheduler until cancelled; one that went away is looked for again."""
    package = distributed()
    while True:
        try:
            nanny = package.Nanny(address, **worker_options(phones, slots))
            async with nanny:
                told(f"offers {len(phones)} phones to {address}")
                await nanny.finished()
        except (OSError, TimeoutError) as error:
            told(f"no scheduler at {address} ({str(error) or type(error).__name__})")
        told(f"looks for {address} again in {AGAIN_S:.0f} s")
        await asyncio.sleep(AGAIN_S)


def offered(client: Any) -> list[LabPhone]:
    """The phones of all workers, by name."""
    answers: Mapping[str, list[LabPhone]] = client.run(phones_here, on_error="ignore")
    phones = {(p.host, p.serial): p for each in answers.values() for p in each}
    return sorted(phones.values(), key=lambda phone: (phone.name, phone.host, phone.serial))


def runs(client: Any) -> list[LabRun]:
    """Lists the runs that the scheduler has tasks of."""
    states: dict[str, Counter[str]] = defaultdict(Counter)
    for key, state in client.run_on_scheduler(_states):
        states[key.split("/")[1]][state] += 1
    return [LabRun(name, dict(counts)) for name, counts in sorted(states.items())]


def _states(dask_scheduler: Any) -> list[tuple[str, str]]:
    tasks = dask_scheduler.tasks.items()
    return [(key, task.state) for key, task in tasks if str(key).startswith(f"{PREFIX}/")]


def cancel(client: Any, name: str | None) -> list[str]:
    """Ends runs, all without a ``name``: their ``lab profile`` gives up what waits, and workers
    stop within seconds; what was measured is kept. Returns the names. Raises UsageError."""
    names = [run.name for run in runs(client)]
    chosen = names if name is None else [each for each in names if each == name]
    if name is not None and not chosen:
        raise UsageError(f"no run {name!r}: there are {', '.join(names) or 'none'}")
    for each in chosen:
        flag(client, each).set()
    return chosen


def flag(client: Any, run: str) -> Any:
    """Set where a run was cancelled."""
    return distributed().Event(f"{PREFIX}-cancel-{run}", client=client)


def tell_begin(run: str, key: str) -> None:
    """On a worker: a task that waited in its queue begins, which the scheduler keeps in mind."""
    distributed().get_worker().log_event(f"{PREFIX}-begins-{run}", key)


def begun(client: Any, run: str) -> frozenset[str]:
    """Keys of a run's tasks that began, the last thousand of them: of others whose worker died the
    worker had only been offered them."""
    return frozenset(key for _, key in client.get_events(f"{PREFIX}-begins-{run}"))
