"""Runs a worker's task: one model on one phone, by :func:`nnapi_prof.profile`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnapi_prof.api.events import Listener, Progress
from nnapi_prof.api.model import Model, load
from nnapi_prof.api.profiling import profile
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.find import open_device
from nnapi_prof.device.protocol.description import device_fingerprint
from nnapi_prof.errors import DeviceError, ModelFileError, NnapiProfError
from nnapi_prof.lab.phones import LabPhone, PhoneBusy, held_here, held_there, named

PHONES = "NNAPI_PROF_LAB_PHONES"
"""A worker's phones, as :func:`nnapi_prof.lab.phones.listed` writes them."""
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
