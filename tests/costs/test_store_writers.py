"""Several processes write to one cost table at once: nothing is lost, nothing is there twice."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest

from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.database import Database
from nnapi_prof.costs.store.rows import DeviceRow
from tests import warm
from tests.costs.test_store import measurement

WRITER = """
import os, sys, time
from tests.costs.test_store import measurement
from nnapi_prof.costs.store import CostStore
where, name, n, pause_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
with CostStore(where) as store:
    print(os.getpid(), flush=True)
    for i in range(n):
        store.add(measurement(f"own-{name}-{i}"), measurement(f"shared-{i}"))
        print(i, flush=True)
        time.sleep(pause_s)
    store.add_device("phone", {"os": "linux"}, True)
"""


@contextmanager
def writers(
    where: str, count: int, rows: int, pause_s: float = 0.0
) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that add ``rows`` pairs each: one of their own, and one that all of them add."""
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command, ending = [*warm.python(), "-c", WRITER, where], [str(rows), str(pause_s)]
    start = partial(subprocess.Popen, env=environment(), **piped)
    started = [start([*command, str(i), *ending]) for i in range(count)]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def environment() -> dict[str, str]:
    """One whose processes import from where this one does."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)}


def ends_well(started: list[subprocess.Popen[str]]) -> None:
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0] * len(started), errors


def signatures(where: str) -> list[str]:
    with CostStore(where) as store:
        return sorted(row["signature"] for row in store.rows())


def expected(count: int, rows: int) -> list[str]:
    own = [f"own-{name}-{i}" for name in range(count) for i in range(rows)]
    return sorted([*own, *(f"shared-{i}" for i in range(rows))])


@pytest.mark.slow("starts four processes that write")
def test_processes_create_and_write_at_once(anywhere):
    with writers(anywhere, 4, 60) as started:
        ends_well(started)
    assert signatures(anywhere) == expected(4, 60)
    with CostStore(anywhere) as store:
        assert [device.description for device in store.devices()] == [{"os": "linux"}]


@pytest.mark.slow
def test_a_writer_that_is_killed_loses_only_what_it_did_not_tell_of(anywhere):
    with writers(anywhere, 2, 400, 0.005) as started:
        first, second = started
        writer = int(first.stdout.readline())
        for _ in range(20):
            first.stdout.readline()
        os.kill(writer, signal.SIGKILL)
        told = 20 + len(first.communicate()[0].splitlines())
        ends_well([second])
    own, others = [], []
    for name in signatures(anywhere):
        (own if name.startswith("own-0-") else others).append(name)
    assert told <= len(own) <= told + 1
    assert others == [name for name in expected(2, 400) if not name.startswith("own-0-")]


FILLER = """
import resource, signal, sys
from tests.costs.test_store import measurement
from nnapi_prof.costs.store import CostStore
from nnapi_prof.errors import CostError
with CostStore(sys.argv[1]) as store:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
    for i in range(100_000):
        try:
            store.add(measurement(str(i)))
        except CostError as error:
            sys.exit(f"refused {error}")
        print(i, flush=True)
"""


def test_a_full_disk(tmp_path):
    where = str(tmp_path / "costs.sqlite")
    command = [sys.executable, "-c", FILLER, where]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("refused cost table ") and "cannot" in done.stderr
    assert signatures(where) == sorted(done.stdout.split()) != []


def test_a_server_that_restarts_is_waited_for(postgres):
    where = postgres.empty()
    with writers(where, 3, 100, 0.02) as started:
        for process in started:
            process.stdout.readline()
        for _ in range(2):
            postgres.restart()
            time.sleep(0.5)
        ends_well(started)
    assert signatures(where) == expected(3, 100)


def test_a_server_that_is_away_is_waited_for_by_who_knows_it(postgres):
    where = postgres.empty()
    CostStore(where).close()
    away = threading.Thread(target=postgres.pause, args=(0.5,))
    away.start()
    time.sleep(0.3)
    with CostStore(where, patient=True) as store:
        assert store.rows() == []
    away.join()


def test_connections_that_the_server_ends_are_made_anew(postgres):
    with CostStore(postgres.empty()) as store:
        for i in range(3):
            assert store.add(measurement(str(i))) == 1
            postgres.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        assert len(store.rows()) == 3


def test_an_answer_that_got_lost_doubles_nothing(store, monkeypatch):
    """The commit went through, but nobody heard of it: it is run again."""
    from sqlalchemy.exc import OperationalError

    lost = []
    run = Database._run

    def deaf(self, verb, work):
        def call():
            result = work()
            if not lost:
                lost.append(result)
                raise OperationalError("", {}, Exception("database is locked"))
            return result

        return run(self, verb, call)

    monkeypatch.setattr(Database, "_run", deaf)
    monkeypatch.setattr(Database, "_is_transient", lambda self, error: True)
    store.add(measurement("a"), measurement("b"))
    assert lost == [2]
    assert [row["signature"] for row in store.rows()] == ["a", "b"]


def test_threads_share_a_store(store):
    rows = [[measurement(f"{thread}-{i}") for i in range(200)] for thread in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda own: store.add(*own), rows)) == [200] * 4
    assert len(store.rows()) == 4 * 200


def test_the_same_row_is_there_once_and_another_time_is_another_row(store):
    assert store.add(measurement(), measurement()) == 1
    assert store.add(measurement(), measurement("t")) == 1
    assert store.add(measurement(measured_at="2026-01-01T00:00:00.5+00:00")) == 1
    assert store.add(measurement(measured_at="")) == store.add(measurement(measured_at="")) == 1
    assert store.add() == 0
    times = [row["measured_at"] for row in store.rows()]
    assert len(times) == 5 and all(each.endswith("+00:00") for each in times)
    device = DeviceRow("phone", {"os": "linux"}, True, "2026-01-01T00:00:00+00:00")
    assert store.add(devices=[device, device]) == 0
    store.add_device("phone", {"os": "android"}, False)
    assert store.devices() == [device], "the first that was told"
    store.add(measurement("driver", message="a\0b \udc80 ü"))
    (back,) = store.measurements("phone", ["driver"])
    assert back.message == "a\N{REPLACEMENT CHARACTER}b ? ü", "as well as can be"
