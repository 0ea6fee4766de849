"""A run of models x phones as tasks, with retries, until each has an answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnapi_prof.lab import LabPhone, cluster
from nnapi_prof.lab.cluster import PREFIX, Answer, Cancelled, LabError, Task, digest, measure

MOST_TRIES = 3
"""Number of tries on a phone that keeps failing, before it is set aside."""
PAUSE_S = 5.0
"""Seconds before a retry."""
PATIENCE_S = 600.0
"""Seconds to wait for a phone that no worker offers or that is in use, and for a scheduler that
went away."""
POLL_S = 0.2
LOOK_S = 2.0
"""Seconds between checks of the workers' phones."""


@dataclass
class LabJob:
    """A model on one phone, and its state."""

    task: Task
    phone: LabPhone
    tries: int = 0
    answer: Answer | None = None
    reason: str | None = None
    """Reason why it failed for good, without an answer."""
    not_before: float = 0.0
    since: float = 0.0
    """Time of the first submission, or of the last sign of life."""
    future: Any = None
    history: list[str] = field(default_factory=list)
    """Reasons for its retries."""

    @property
    def over(self) -> bool:
        return self.reason is not None or self.answer is not None


@dataclass(frozen=True)
class LabOutcome:
    """The outcome of a run; each model x phone is in ``profiled`` or ``failed``."""

    run: str
    profiled: tuple[LabJob, ...]
    failed: tuple[LabJob, ...]
    seconds: float
    cancelled: bool = False


def jobs_of(
    run: str,
    models: Sequence[Path],
    phones: Sequence[LabPhone],
    costs: str,
    inputs: Sequence[str],
    options: Mapping[str, Any],
) -> list[LabJob]:
    """Makes a job for each model x phone; phones with the same fingerprint share measurements, and
    get one job. Raises ModelFileError where a model cannot be read."""
    kinds = {phone.fingerprint: phone for phone in phones}
    return [
        LabJob(
            Task(
                run=run,
                fingerprint=phone.fingerprint,
                model=str(model.absolute()),
                sha256=digest(model),
                inputs=tuple(inputs),
                costs=costs,
                options=options,
            ),
            phone,
        )
        for model in models
        for phone in kinds.values()
    ]


class Coordinator:
    """Submits jobs, receives their answers and retries; ``note`` is called with notes for the user,
    and ``show`` when something changed."""

    def __init__(
        self,
        address: str,
        jobs: Sequence[LabJob],
        note: Callable[[str], None],
        show: Callable[[Sequence[LabJob]], None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._address = address
        self._jobs = list(jobs)
        self._note = note
        self._show = show
        self._patience_s = patience_s
        self._absent: dict[str, float] = {}
        self._told: set[str] = set()
        self._waits: set[str] = set()
        self._looked = 0.0
        self._client: Any = None

    def run(self) -> LabOutcome:
        """Runs until every job is over. Ctrl-C and `lab cancel` end it; the cost table has all
        measurements so far. Raises LabError where the scheduler stays away."""
        began = time.monotonic()
        cancelled = False
        name = self._jobs[0].task.run
        self._client = cluster.connect(self._address)
        try:
            flag = cluster.flag(self._client, name)
            while not all(job.over for job in self._jobs):
                try:
                    looked = self._looked
                    self._step()
                    if looked != self._looked and flag.is_set():
                        cancelled = True
                        break
                except (OSError, TimeoutError, RuntimeError) as error:
                    self._reconnect(error)
                    flag = cluster.flag(self._client, name)
                time.sleep(POLL_S)
        except (Cancelled, KeyboardInterrupt):
            cancelled = True
            cluster.flag(self._client, name).set()
        finally:
            for job in self._jobs:
                job.future = None
            cluster.close(self._client)
        for job in self._jobs:
            if not job.over:
                job.reason = "cancelled before it was done"
        return LabOutcome(
            name,
            tuple(job for job in self._jobs if job.reason is None),
            tuple(job for job in self._jobs if job.reason is not None),
            time.monotonic() - began,
            cancelled,
        )

    def _step(self) -> None:
        """Checks every job once."""
        if self._client.status not in ("running", "connecting"):
            raise OSError(f"the connection is {self._client.status}")
        changed = False
        for job in self._jobs:
            if job.over:
                continue
            if job.future is None:
                if time.monotonic() >= job.not_before:
                    self._submit(job)
                    changed = True
            elif job.future.status != "pending":
                self._hear(job)
                changed = True
        self._without_worker()
        if changed:
            self._show(self._jobs)

    def _submit(self, job: LabJob) -> None:
        job.since = job.since or time.monotonic()
        key = f"{PREFIX}/{job.task.run}/{job.task.key}/{job.tries}-{len(job.history)}"
        job.future = self._client.submit(
            on_worker,
            job.task,
            key,
            key=key,
            resources={cluster.resource(job.phone.fingerprint): 1},
            pure=False,
        )

    def _tell(self, model: str, notes: Sequence[str]) -> None:
        """Reports the notes of a model, once for all phones."""
        for text in (f"{Path(model).name}: {note}" for note in notes):
            if text not in self._told:
                self._told.add(text)
                self._note(text)

    def _hear(self, job: LabJob) -> None:
        """Stores the result of a job's future."""
        future, job.future = job.future, None
        if future.status == "finished":
            answer: Answer = future.result()
            if answer.reason is None:
                job.answer = answer
                self._tell(job.task.model, answer.notes)
            elif answer.busy:
                self._wait(job, answer.reason)
            elif answer.dropped:
                self._dropped(job, answer.reason)
            else:
                job.tries, job.reason = job.tries + 1, answer.reason
        elif future.status in ("cancelled", "lost"):
            job.history.append("the scheduler lost it")
        else:
            error = future.exception()
            if isinstance(error, Cancelled):
                raise error
            if isinstance(error, cluster.distributed().KilledWorker):
                # Dask blames a worker's death on all of its tasks, although one caused it.
                if future.key in cluster.begun(self._client, job.task.run):
                    self._dropped(job, "its worker died while it measured")
                else:
                    job.history.append("its worker died before it began")
            else:
                self._dropped(job, f"{type(error).__name__}: {error}")

    def _wait(self, job: LabJob, reason: str) -> None:
        """Postpones a job whose phone is in use; other jobs go on."""
        if time.monotonic() - job.since > self._patience_s:
            job.reason = f"{reason}, for more than {self._patience_s:.0f} s"
            return
        if reason not in self._waits:
            self._waits.add(reason)
            self._note(f"{reason}: waits for it")
        job.history.append(reason)
        job.not_before = time.monotonic() + PAUSE_S

    def _dropped(self, job: LabJob, reason: str) -> None:
        """Schedules a retry, or sets the phone aside after :data:`MOST_TRIES` failures."""
        job.tries += 1
        job.history.append(reason)
        job.not_before = time.monotonic() + PAUSE_S
        if job.tries < MOST_TRIES:
            self._note(f"{job.phone.label}: {reason}; tried again")
            return
        self._aside(job.phone.fingerprint, f"set aside after {MOST_TRIES} tries: {reason}")

    def _aside(self, fingerprint: str, reason: str) -> None:
        """Gives up all unfinished jobs on phones with this fingerprint."""
        mine = [j for j in self._jobs if j.phone.fingerprint == fingerprint and not j.over]
        for job in mine:
            job.future, job.reason = None, reason
        if mine:
            self._note(f"{mine[0].phone.label} is {reason}")

    def _without_worker(self) -> None:
        """Waits for phones that no worker offers, and sets them aside when patience ends."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        info = self._client.scheduler_info(n_workers=-1)["workers"].values()
        there = {name for worker in info for name in worker.get("resources", {})}
        kinds = {job.phone.fingerprint for job in self._jobs if not job.over}
        for fingerprint in kinds:
            mine = [j for j in self._jobs if j.phone.fingerprint == fingerprint and not j.over]
            if cluster.resource(fingerprint) in there:
                self._absent.pop(fingerprint, None)
                continue
            self._absent.setdefault(fingerprint, now)
            if now - self._absent[fingerprint] > self._patience_s:
                words = f"no worker has offered it for {self._patience_s:.0f} s"
                self._aside(fingerprint, f"set aside: {words}")
            elif mine and fingerprint not in self._waits:
                self._waits.add(fingerprint)
                self._note(f"{mine[0].phone.label}: no worker offers it now; waits for one")

    def _reconnect(self, error: Exception) -> None:
        """Reconnects to a scheduler that went away, and submits all unfinished jobs again."""
        self._note(f"the scheduler at {self._address} went away ({error}); looks for it again")
        cluster.close(self._client)
        for job in self._jobs:
            job.future = None
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                self._client = cluster.connect(self._address)
                return
            except LabError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_S)


def on_worker(task: Task, key: str) -> Answer:
    """Runs :func:`measure`, logs its start in Dask, and checks whether the run was cancelled."""
    cluster.tell_begin(task.run, key)

    def cancelled() -> bool:
        with contextlib.suppress(Exception):  # without a scheduler the phone goes on
            return bool(cluster.flag(None, task.run).is_set())
        return False

    return measure(task, cancelled)
