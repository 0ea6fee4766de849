"""Writers that are killed and disks that fill up: nothing measured is lost or doubled."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnapi_prof.costs.store import CostStore

WRITER = """
import resource, signal, sys
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU

path, limit = sys.argv[1], int(sys.argv[2])
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


def write(path: Path, limit: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(limit)], stdout=subprocess.PIPE, text=True
    )


def kept(path: Path) -> list[str]:
    with CostStore(path) as store:
        return [row["signature"] for row in store.rows()]


def test_killed_while_it_writes(tmp_path: Path) -> None:
    """20 times, each time going on in the same file, which has all that was said to be there."""
    path = tmp_path / "costs.sqlite"
    random_ = random.Random(0)
    most = -1
    for _ in range(20):
        writer = write(path)
        assert writer.stdout is not None
        writer.stdout.readline()  # it has begun
        time.sleep(random_.random() * 0.1)
        writer.send_signal(signal.SIGKILL)
        said = [int(word) for word in writer.stdout.read().split()]
        writer.stdout.close()
        writer.wait()
        most = max([most, *said])
        rows = kept(path)
        assert len(set(rows)) == len(rows), "doubled"
        assert set(map(int, rows)) >= set(range(most + 1)), "lost"
        assert len(rows) <= most + 2  # the one that was being written may be there


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of file sizes")
def test_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    writer = write(path, 400_000)
    said, _ = writer.communicate(timeout=120)
    *numbers, last = said.splitlines()
    assert writer.returncode == 1
    assert last.startswith("refused cost table ") and "cannot" in last
    assert kept(path) == numbers
