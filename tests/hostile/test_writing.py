"""Writers that are killed and disks that fill up: nothing measured is lost or doubled."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from nnapi_prof.costs.store import CostStore
from tests import warm
from tests.parts import missing, need

WRITER = """
import os, resource, signal, sys
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU
from tests.parts import missing, need

path, limit = sys.argv[1], int(sys.argv[2])
print(os.getpid(), flush=True)
with CostStore(path) as store:
    if limit:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    for i in range(100_000):
        try:
            store.add(Measurement(str(i), Kind.UNIT, "x" * 50, (str(i),), (), CPU, "phone", "1",
                                  Status.OK, conditions=Conditions(), samples_ns=tuple(range(99)),
                                  measured_at=f"2026-11-22T00:00:00.{i:06}+00:00"))
        except CostError as error:
            print("refused", error, flush=True)
            sys.exit(1)
        print(i, flush=True)
"""


_SPEC = importlib.util.spec_from_file_location(
    "nnapi_prof_hostile_postgres", Path(__file__).parent.parent / "costs" / "postgres.py"
)
assert _SPEC is not None and _SPEC.loader is not None
postgres = importlib.util.module_from_spec(_SPEC)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Any]]:
    """Where a new cost table is, and its server."""
    if request.param == "sqlite":
        yield str(tmp_path / "costs.sqlite"), None
        return
    assert _SPEC is not None and _SPEC.loader is not None
    need("psycopg", "postgres")
    _SPEC.loader.exec_module(postgres)
    result = postgres.binaries()
    if result is None:
        missing("no PostgreSQL server on this machine: apt-get install postgresql")
    server = postgres.Server(result)
    yield f"postgresql://{postgres.USER}@/postgres?host={server.folder}", server
    server.stop()


@dataclass(frozen=True)
class Writer:
    """A process that writes, and what it says of that; ``started`` is what waits for it."""

    started: subprocess.Popen[str]
    stdout: IO[str]
    pid: int

    def end(self) -> list[str]:
        """Kills it; returns what it said that was not read yet."""
        os.kill(self.pid, signal.SIGKILL)
        text = self.stdout.read().split()
        self.stdout.close()
        self.started.wait()
        return text


def write(path: str | Path, limit: int = 0) -> Writer:
    started = subprocess.Popen(
        [*warm.python(), "-c", WRITER, str(path), str(limit)], stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    return Writer(started, started.stdout, int(started.stdout.readline()))


def kept(path: str | Path) -> list[str]:
    with CostStore(path) as store:
        return [row["signature"] for row in store.rows()]


def test_killed_while_it_writes(table: tuple[str, Any]) -> None:
    """20 times, each time going on in the same table, which has all that was said to be there."""
    path, _ = table
    random_ = random.Random(0)
    most = -1
    for _ in range(20):
        writer = write(path)
        writer.stdout.readline()  # it has begun
        time.sleep(random_.random() * 0.1)
        text = [int(word) for word in writer.end()]
        most = max([most, *text])
        rows = kept(path)
        assert len(set(rows)) == len(rows), "doubled"
        assert set(map(int, rows)) >= set(range(most + 1)), "lost"
        assert len(rows) <= most + 2  # the one that was being written may be there


def test_a_server_that_is_stopped_and_started_while_it_writes(table: tuple[str, Any]) -> None:
    path, server = table
    if server is None:
        pytest.skip("a file has no server")
    writer = write(path)
    for _ in range(3):
        writer.stdout.readline()
        time.sleep(0.2)
        server.restart()
    writer.stdout.readline()
    time.sleep(0.5)
    text = writer.end()
    rows = kept(path)
    assert text and "refused" not in text
    assert [int(row) for row in rows] == list(range(len(rows))), "lost, or doubled"
    assert len(rows) > int(text[-1])


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of file sizes")
def test_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    writer = write(path, 400_000)
    text, _ = writer.started.communicate(timeout=120)
    *numbers, last = text.splitlines()
    assert writer.started.returncode == 1
    assert last.startswith("refused cost table ") and "cannot" in last
    assert kept(path) == numbers
