"""Run tasks on a lab's Dask cluster: workers that offer phones, and profiles of models on them.

A worker has one resource ``phone-FINGERPRINT`` for each of its phones, and a task requires one, so
that Dask never gives a phone two tasks. A worker's phones are in its environment. The names of
tasks are ``nnapi-prof/RUN/...``, so that a scheduler can find them. Each task profiles one model on
one phone with :func:`nnapi_prof.profile`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnapi_prof.api import Listener, Progress
from nnapi_prof.api.model import Model, load
from nnapi_prof.api.profiling import profile
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device import device_fingerprint
from nnapi_prof.device.find import open_device
from nnapi_prof.errors import DeviceError, ModelFileError, NnapiProfError, UsageError
from nnapi_prof.lab import LabPhone, PhoneBusy, held_here, held_there, listed, named

PHONES = "NNAPI_PROF_LAB_PHONES"
"""Environment variable with a worker's phones, in the format of :func:`nnapi_prof.lab.listed`."""
ASK_S = 2.0
"""Seconds between checks whether a run was cancelled."""
_LOADING = threading.Lock()
_models: dict[tuple[str, tuple[str, ...]], Model] = {}


class Cancelled(NnapiProfError):
    """``nnapi-prof lab cancel`` ended the run."""


@dataclass(frozen=True, slots=True)
class Task:
    """A model to profile on a phone of one fingerprint, with ``options`` of
    :func:`nnapi_prof.profile`."""

    run: str
    fingerprint: str
    model: str
    sha256: str
    inputs: tuple[str, ...]
    costs: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.fingerprint}-{Path(self.model).stem}-{self.sha256[:8]}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a task: measurements, or the ``reason`` why there are none."""

    serial: str
    host: str
    seconds: float
    measured: int = 0
    """Number of rows added from runs on the phone."""
    refused: int = 0
    reused: int = 0
    plan_ns: float | None = None
    """Predicted latency of the fastest plan."""
    simulated: bool = False
    notes: tuple[str, ...] = ()
    """Notes from reading the model, such as a guessed shape."""
    reason: str | None = None
    busy: bool = False
    """Whether the phone was in use by someone else, so that the task should wait."""
    dropped: bool = False
    """Whether the phone failed, not the model, so that the task should be tried again."""


def phones_here() -> list[LabPhone]:
    """Returns the phones that this worker offers."""
    return named(os.environ.get(PHONES, "[]"))


def measure(task: Task, cancelled: Callable[[], bool] = lambda: False) -> Answer:
    """Measures on the first free phone with the task's fingerprint.

    The answer has errors of nnapi-prof, except :class:`Cancelled`, which is raised like all other
    errors.
    """
    began = time.monotonic()
    phones = [phone for phone in phones_here() if phone.fingerprint == task.fingerprint]
    answer = Answer("", socket.gethostname(), 0.0, reason="no phone here", dropped=True)
    for phone in phones:
        try:
            return _on(phone, task, cancelled, began)
        except PhoneBusy as error:
            answer = _failed(phone, began, error, busy=True)
        except Cancelled:
            raise
        except DeviceError as error:
            answer = _failed(phone, began, error, dropped=True)
        except NnapiProfError as error:
            return _failed(phone, began, error)
    return answer


def _failed(
    phone: LabPhone, began: float, error: NnapiProfError, busy: bool = False, dropped: bool = False
) -> Answer:
    seconds = time.monotonic() - began
    return Answer(phone.serial, phone.host, seconds, reason=str(error), busy=busy, dropped=dropped)


def _on(phone: LabPhone, task: Task, cancelled: Callable[[], bool], began: float) -> Answer:
    with contextlib.ExitStack() as stack:
        stack.enter_context(held_here(phone.serial))
        client = stack.enter_context(open_device(phone.serial)).client
        stack.enter_context(held_there(client.transport, client.folder))
        if device_fingerprint(client.info()) != phone.fingerprint:
            raise DeviceError(
                f"{phone.serial} is another phone, or has another system, than when its worker"
                " began",
                "start `nnapi-prof lab worker` anew",
                serial=phone.serial,
            )
        model = _model(task)
        asked = time.monotonic()

        def progress(_: Progress) -> None:
            nonlocal asked
            if time.monotonic() - asked < ASK_S:
                return
            asked = time.monotonic()
            if cancelled():
                raise Cancelled(f"{task.key}: the run was cancelled; what was measured is kept")

        # `lab profile` has opened it before, so an unreachable server should come back
        store = stack.enter_context(CostStore(task.costs, patient=True))
        listener = Listener(progress=progress)
        costs = profile(model, client, costs=store, listener=listener, **task.options)
    outcome = costs.outcome
    assert outcome is not None
    return Answer(
        serial=phone.serial,
        host=phone.host,
        seconds=time.monotonic() - began,
        measured=outcome.n_measured,
        refused=outcome.n_refused,
        reused=outcome.n_reused,
        plan_ns=None if outcome.plan is None else outcome.plan.predicted_ns,
        simulated=costs.simulated,
        notes=tuple(model.notes),
    )


def _model(task: Task) -> Model:
    """Reads a model once for all phones of a worker. Raises ModelFileError where this host has
    another file."""
    with _LOADING:
        place = (task.sha256, task.inputs)
        if place not in _models:
            path = Path(task.model)
            if not path.is_file() or digest(path) != task.sha256:
                raise ModelFileError(
                    f"{path} on {socket.gethostname()} is not the model that is to be measured",
                    "put it there, or name a path that all hosts of the lab share",
                )
            model = load(path, task.inputs or None)
            _ = model.program  # read it whole now, as PyTorch's readers are not thread-safe
            _models[place] = model
        return _models[place]


def digest(path: Path) -> str:
    """Returns the SHA-256 of a model file, in hex. Raises ModelFileError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read ({error.strerror})", "give the path of a .pt or .pt2 file"
        ) from None


PREFIX = "nnapi-prof"
CONNECT_S = 20.0
"""Seconds to wait for a scheduler."""
AGAIN_S = 5.0
"""Seconds until a worker tries again to reach a scheduler that went away."""


class LabError(NnapiProfError):
    """A scheduler cannot be reached, or a package for labs is missing."""


@dataclass(frozen=True, slots=True)
class LabRun:
    """A run with tasks on a scheduler."""

    name: str
    states: Mapping[str, int]
    """Dask's state (``processing``, ``memory``, ``no-worker``, ...) -> number of tasks."""


def distributed() -> Any:
    """Imports Dask's package. Raises LabError where the extra is not installed."""
    try:
        import distributed as package
    except ImportError as error:
        raise LabError(
            "nnapi-prof lab needs Dask and psycopg, which are not installed",
            "`pip install 'nnapi-prof[lab]'`",
        ) from error
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # answers report errors
    return package


def resource(fingerprint: str) -> str:
    """Returns the name of Dask's resource for phones with a fingerprint."""
    return f"phone-{fingerprint}"


def new_run() -> str:
    """Returns a unique name for a run."""
    return uuid.uuid4().hex[:8]


@contextmanager
def connected_to(address: str) -> Iterator[Any]:
    """Yields a client of the scheduler at this address. Raises LabError where there is none."""
    client = connect(address)
    try:
        yield client
    finally:
        close(client)


def connect(address: str) -> Any:
    """Connects like :func:`connected_to`, until :func:`close`."""
    package = distributed()
    try:
        return package.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise LabError(
            f"no scheduler at {address} ({str(error) or type(error).__name__})",
            "start one with `dask scheduler`, or name its address, as in tcp://HOST:8786",
        ) from error


def close(client: Any) -> None:
    """Closes a client, also one whose scheduler is gone."""
    with contextlib.suppress(Exception):  # Dask's errors of a lost connection
        client.close(timeout=5)


@contextmanager
def own_cluster(phones: Sequence[LabPhone], processes: int | None = None) -> Iterator[str]:
    """Runs a scheduler and workers on this host that offer these phones, and yields the address.

    A process runs one phone at a time. Simulated phones share the host's cores, so that they get at
    most one process per core; each real phone has its own process.
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
    """Returns the options of a Dask worker that runs ``slots`` of these phones at once."""
    counts = Counter(resource(phone.fingerprint) for phone in phones)
    return {
        "nthreads": slots,
        "resources": dict(counts),
        "env": {PHONES: listed(phones), "OMP_NUM_THREADS": "1"},
        "config": {"logging": {"distributed": "critical"}},
        "memory_limit": 0,  # a limit would make Dask end a worker that converts a large model
    }


async def serve(
    address: str, phones: Sequence[LabPhone], slots: int, told: Callable[[str], None]
) -> None:
    """Offers phones to a scheduler until cancelled, and reconnects if it goes away."""
    package = distributed()
    while True:
        try:
            nanny = package.Nanny(address, **worker_options(phones, slots))
            async with nanny:
                told(f"offers {len(phones)} phones to {address}")
                await nanny.finished()
        except (OSError, TimeoutError, RuntimeError) as error:  # Dask wraps those of a start
            reason = error.__cause__ or error
            told(f"no scheduler at {address} ({str(reason) or type(reason).__name__})")
        told(f"looks for {address} again in {AGAIN_S:.0f} s")
        await asyncio.sleep(AGAIN_S)


def offered(client: Any) -> list[LabPhone]:
    """Returns the phones of all workers, sorted by name."""
    answers: Mapping[str, list[LabPhone]] = client.run(phones_here, on_error="ignore")
    phones = {(p.host, p.serial): p for each in answers.values() for p in each}
    return sorted(phones.values(), key=lambda phone: (phone.name, phone.host, phone.serial))


def runs(client: Any) -> list[LabRun]:
    """Lists the runs with tasks on the scheduler."""
    states: dict[str, Counter[str]] = defaultdict(Counter)
    for key, state in client.run_on_scheduler(_states):
        states[key.split("/")[1]][state] += 1
    return [LabRun(name, dict(counts)) for name, counts in sorted(states.items())]


def _states(dask_scheduler: Any) -> list[tuple[str, str]]:
    tasks = dask_scheduler.tasks.items()
    return [(key, task.state) for key, task in tasks if str(key).startswith(f"{PREFIX}/")]


def cancel(client: Any, name: str | None) -> list[str]:
    """Ends the run of this name, or all for None. Their ``lab profile`` drops waiting tasks, and
    workers stop within seconds; measurements are kept. Returns the names. Raises UsageError."""
    names = [run.name for run in runs(client)]
    chosen = names if name is None else [each for each in names if each == name]
    if name is not None and not chosen:
        raise UsageError(f"no run {name!r}: there are {', '.join(names) or 'none'}")
    for each in chosen:
        flag(client, each).set()
    return chosen


def flag(client: Any, run: str) -> Any:
    """Returns the event that is set when a run is cancelled."""
    return distributed().Event(f"{PREFIX}-cancel-{run}", client=client)


def tell_begin(run: str, key: str) -> None:
    """Logs on the scheduler that a task in this worker's queue begins."""
    distributed().get_worker().log_event(f"{PREFIX}-begins-{run}", key)


def begun(client: Any, run: str) -> frozenset[str]:
    """Returns the keys of a run's tasks that began, at most the last thousand. Other tasks of a
    worker that died were only in its queue."""
    return frozenset(key for _, key in client.get_events(f"{PREFIX}-begins-{run}"))
