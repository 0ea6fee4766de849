"""Run tasks on a lab's Dask cluster: workers that offer phones, and profiles of models on them.

A worker has the resource ``phone-FINGERPRINT`` once for each of its phones, and a task asks for one
of it, so Dask itself never gives a phone two tasks. A worker's phones stand in its environment.
Tasks are called ``nnapi-prof/RUN/...``, by which a scheduler knows them. Each profiles one model on
one phone, by :func:`nnapi_prof.profile`.
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
"""A worker's phones, as :func:`nnapi_prof.lab.listed` writes them."""
ASK_S = 2.0
"""Between two questions whether a run was cancelled."""
_LOADING = threading.Lock()
_models: dict[tuple[str, tuple[str, ...]], Model] = {}


class Cancelled(NnapiProfError):
    """``nnapi-prof lab cancel`` ended the run."""


@dataclass(frozen=True, slots=True)
class Task:
    """A model on phones of one fingerprint. ``options`` are those of :func:`nnapi_prof.profile`."""

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
    """How a task ended: with measurements, or (``reason``) without."""

    serial: str
    host: str
    seconds: float
    measured: int = 0
    """Rows added that come from runs on the phone."""
    refused: int = 0
    reused: int = 0
    plan_ns: float | None = None
    """What the fastest plan is predicted to take."""
    simulated: bool = False
    notes: tuple[str, ...] = ()
    """What the user should know of the model as it was read, such as a guessed shape."""
    reason: str | None = None
    busy: bool = False
    """Somebody else measures on the phone: nothing is wrong, try it later."""
    dropped: bool = False
    """The phone failed, not the model: try it again."""


def phones_here() -> list[LabPhone]:
    """The phones that this worker offers."""
    return named(os.environ.get(PHONES, "[]"))


def measure(task: Task, cancelled: Callable[[], bool] = lambda: False) -> Answer:
    """Measures on the first phone of the task's kind that is free.

    What is wrong is in the answer; other errors than ours, and :class:`Cancelled`, are raised.
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

        # `lab profile` has opened it: where its server is away just now, it comes back.
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
    """Read once for all phones of a worker. Raises ModelFileError where it is another file here."""
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
            _ = model.program  # read whole now: PyTorch's readers are not made for threads
            _models[place] = model
        return _models[place]


def digest(path: Path) -> str:
    """SHA-256 of a model file, in hex. Raises ModelFileError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read ({error.strerror})", "give the path of a .pt or .pt2 file"
        ) from None


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
