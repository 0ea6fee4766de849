"""A lab of simulated phones through Dask and PostgreSQL: all measured, once, and the same?

    python benchmarks/bench_lab.py                                # 200 phones x 6 models
    python benchmarks/bench_lab.py --phones 12 --models 2

Phones of `draw_phones.py` measure small models three times, each time into a new table:

* **serial**: one after the other in one process, without Dask, into SQLite;
* **lab**: `nnapi-prof lab worker` processes and a scheduler, into PostgreSQL. The time that the
  workers' slots did not measure is the overhead of scheduling;
* **faults**: the same, while --kills workers are killed at random, the scheduler is killed and
  started again, and PostgreSQL is stopped for --outage-s seconds.

Fails where a model x phone is missing, a row is duplicate or differs from the serial one, or
scheduling adds more than 5 % (judged from 100 tasks on: a few end unevenly).

PostgreSQL is a server of Debian's package `postgresql`, started here and stopped again.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

import torch  # noqa: E402
from draw_phones import write_phones  # noqa: E402
from torch import nn  # noqa: E402

import nnapi_prof as nnp  # noqa: E402
from nnapi_prof.costs.store import CostStore  # noqa: E402
from nnapi_prof.lab import (  # noqa: E402
    LabPhone,
    cluster,
)
from nnapi_prof.lab.run import Coordinator, LabJob, LabOutcome, jobs_of  # noqa: E402
from tests.costs.postgres import Server, binaries  # noqa: E402

OPTIONS = {"options": nnp.MeasureOptions(refine=False, runs=5, preferences="fast")}
SAME = ("fingerprint", "signature", "target", "status", "label", "members", "samples_ns")
MOST_ADDED = 0.05
FEWEST_TASKS = 100


class Small(nn.Module):
    """Two convolutions; each number of ``channels`` is another model."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Conv2d(3, channels, 3), nn.Conv2d(channels, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(torch.relu(self.wide(x)))


def models_in(folder: Path, count: int) -> list[Path]:
    paths = []
    for number in range(count):
        model = torch.export.export(Small(4 + 2 * number).eval(), (torch.zeros(1, 3, 12, 12),))
        paths.append(folder / f"small{number}.pt2")
        torch.export.save(model, paths[-1])
    return paths


class Lab:
    """A scheduler and workers, each in its own process, as on several hosts."""

    def __init__(self, serials: Sequence[str], workers: int, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self._log = (folder / "log").open("ab")
        self._scheduler = self._schedule()
        script = [sys.executable, "-m", "nnapi_prof", "lab", "worker", "--slots", "1"]
        self._workers = []
        for number in range(workers):
            named = [word for each in serials[number::workers] for word in ("--phone", each)]
            self._workers.append(self._start(*script, "--scheduler", self.address, *named))

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        # Its own process group, so that all of it can be stopped.
        return subprocess.Popen(
            command, stdout=self._log, stderr=self._log, cwd=REPO, start_new_session=True
        )

    def _schedule(self) -> subprocess.Popen[bytes]:
        port = self.address.rpartition(":")[2]
        command = [sys.executable, "-m", "dask", "scheduler", "--no-dashboard"]
        return self._start(*command, "--host", "127.0.0.1", "--port", port)

    def restart_scheduler(self) -> None:
        self._scheduler.kill()
        self._scheduler.wait()
        self._scheduler = self._schedule()

    def stop(self) -> None:
        for process in (*self._workers, self._scheduler):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._log.close()

    def phones(self, count: int) -> list[LabPhone]:
        """Waits until all phones are offered, and returns them."""
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            try:
                with cluster.connected_to(self.address) as client:
                    while time.monotonic() < deadline:
                        phones = cluster.offered(client)
                        if len(phones) == count:
                            return phones
                        time.sleep(1)
            except cluster.LabError:
                time.sleep(1)
        raise SystemExit(f"{count} phones were not offered within 10 minutes")


class Faults:
    """Faults injected when given shares of the jobs are done."""

    def __init__(self, lab: Lab, server: Server, kills: int, outage_s: float) -> None:
        self._lab, self._server, self._outage_s = lab, server, outage_s
        self._chance = random.Random(1)
        self._threads: list[threading.Thread] = []
        at = [(number + 1) / (kills + 1) for number in range(kills)]
        self._due: list[tuple[float, Callable[[], None]]] = sorted(
            [*((share, self._kill) for share in at), (0.35, self._restart), (0.65, self._outage)],
            key=lambda each: each[0],
        )
        self.told: list[str] = []

    def show(self, jobs: Sequence[LabJob]) -> None:
        share = sum(job.over for job in jobs) / len(jobs)
        while self._due and share >= self._due[0][0]:
            what = self._due.pop(0)[1]
            self._threads.append(threading.Thread(target=what))
            self._threads[-1].start()

    def end(self) -> None:
        for thread in self._threads:
            thread.join()

    def _kill(self) -> None:
        for _ in range(20):
            try:
                with cluster.connected_to(self._lab.address) as client:
                    pids = sorted(client.run(os.getpid, on_error="ignore").values())
                if pids:
                    os.kill(self._chance.choice(pids), signal.SIGKILL)
                    self.told.append("worker killed")
                    return
            except (cluster.LabError, OSError, ValueError, TimeoutError):
                pass  # it is restarting: try again
            time.sleep(1)
        self.told.append("no worker to kill")

    def _restart(self) -> None:
        self._lab.restart_scheduler()
        self.told.append("scheduler restarted")

    def _outage(self) -> None:
        self._server.pause(self._outage_s)
        self.told.append("PostgreSQL stopped")


@contextmanager
def server_in(folder: Path) -> Iterator[Server]:
    programs = binaries()
    if programs is None:
        raise SystemExit("PostgreSQL's server is not installed: apt-get install postgresql")
    tempfile.tempdir = str(folder)
    server = Server(programs)
    try:
        yield server
    finally:
        server.stop()


def rows(costs: str | Path) -> list[tuple[Any, ...]]:
    """Returns the rows without their times of measurement, sorted."""
    with CostStore(costs) as store:
        return sorted(tuple(map(str, map(row.get, SAME))) for row in store.rows())


def serial(serials: Sequence[str], models: Sequence[Path], costs: Path) -> float:
    """Profiles all phones one after the other; returns the seconds."""
    began = time.monotonic()
    loaded = [nnp.load(model) for model in models]
    for number, serial in enumerate(serials):
        for model in loaded:
            nnp.profile(model, serial, costs=costs, **OPTIONS)
        _told(f"serial: {number + 1} of {len(serials)} phones")
    return time.monotonic() - began


def through_dask(
    lab: Lab,
    models: Sequence[Path],
    count: int,
    url: str,
    show: Callable[[Sequence[LabJob]], None] = lambda _: None,
) -> LabOutcome:
    phones = lab.phones(count)
    # As with one profile, the first connection creates the tables.
    CostStore(url).close()

    def told(jobs: Sequence[LabJob]) -> None:
        _told(f"{sum(job.over for job in jobs)} of {len(jobs)} done")
        show(jobs)

    jobs = jobs_of(cluster.new_run(), models, phones, url, (), OPTIONS)
    return Coordinator(lab.address, jobs, lambda words: print(f"  note: {words}"), told).run()


def judge(name: str, outcome: LabOutcome, tasks: int, here: list[Any], there: list[Any]) -> bool:
    """Prints and returns whether a run is complete and has the rows of the serial run."""
    pairs = Counter((job.phone.serial, job.task.model) for job in outcome.profiled)
    twice = len(there) - len({row[:3] for row in there})
    lost, added = Counter(here) - Counter(there), Counter(there) - Counter(here)
    good = len(pairs) == tasks and not outcome.failed and not twice and here == there
    print(
        f"{name}: {len(pairs)} of {tasks} profiled, {len(outcome.failed)} failed,"
        f" {outcome.seconds:.0f} s; {len(there):,} rows, {twice} twice, {lost.total()} lost,"
        f" {added.total()} that the serial run lacks{'' if good else '  NOT THE SAME'}",
        flush=True,
    )
    for job in outcome.failed[:5]:
        print(f"  {job.phone.serial}, {Path(job.task.model).name}: {job.reason}")
    return good


def added_by_scheduling(outcome: LabOutcome, workers: int) -> float:
    """Returns the overhead of scheduling, as a share of the time of the workers' tasks."""
    busy = sum(job.answer.seconds for job in outcome.profiled if job.answer is not None)
    return outcome.seconds * workers / busy - 1


def _told(words: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{words}", end="\x1b[K\r", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--phones", type=int, default=200)
    parser.add_argument("--models", type=int, default=6)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--outage-s", type=float, default=10.0)
    options = parser.parse_args()
    tasks = options.phones * options.models
    good = True
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-lab-")))
        folder.chmod(0o755)
        serials = [f"sim:{path}" for path in write_phones(folder / "phones", options.phones, 1)]
        models = models_in(folder, options.models)
        took = serial(serials, models, folder / "serial.sqlite")
        here = rows(folder / "serial.sqlite")
        print(f"serial: {tasks} profiles, {took:.0f} s, {len(here):,} rows", flush=True)
        server = stack.enter_context(server_in(folder))
        lab = Lab(serials, options.workers, folder)
        stack.callback(lab.stop)
        calm = server.empty()
        outcome = through_dask(lab, models, options.phones, calm)
        good &= judge("lab", outcome, tasks, here, rows(calm))
        added = added_by_scheduling(outcome, options.workers)
        slow = added > MOST_ADDED and tasks >= FEWEST_TASKS
        good &= not slow
        print(f"  scheduling adds {added:.1%}{'  TOO MUCH' if slow else ''}", flush=True)
        stormy = server.empty()
        faults = Faults(lab, server, options.kills, options.outage_s)
        outcome = through_dask(lab, models, options.phones, stormy, faults.show)
        faults.end()
        happened = ", ".join(f"{n} x {what}" for what, n in Counter(faults.told).items())
        good &= judge(f"faults ({happened})", outcome, tasks, here, rows(stormy))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
