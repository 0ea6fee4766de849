"""What was measured is measured once: profiling again, --fresh, and Ctrl-C."""

import contextlib
import re
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.common import (
    INPUT,
    Profiled,
    Result,
    count_rows,
    start_program,
)

Cli = Callable[..., Result]
QUICK = ("--preference", "fast", "--runs", 5)
SLOW = ("--preference", "fast", "--runs", 100_000, "--budget-ms", 150, "--threads", 1)
"""Half an hour on a device with real time, were it left alone."""


def counts(found: Result) -> tuple[int, int]:
    """(measured, known before) of a profile's first line."""
    text = re.search(r"(\d+) measured, 0 refused by the converter, (\d+) known before", found.out)
    assert text is not None, found.out
    return int(text[1]), int(text[2])


def profile(cli: Cli, device: str, costs: Path, model: Path, *more: object) -> Result:
    return cli("profile", "--device", device, "--input", INPUT, "--costs", costs, *more, model)


def check_resumes(cli: Cli, device: str, costs: Path, model: Path) -> None:
    """Another profile measures the rest; no row is there twice."""
    rows = count_rows(costs)
    result = profile(cli, device, costs, model, *QUICK, "--threads", 1)
    assert result.code == 0
    measured, rows_before = counts(result)
    assert rows_before >= rows and measured > 0
    assert count_rows(costs) == rows + measured
    with contextlib.closing(sqlite3.connect(costs)) as link:
        # The reference runs again and again, and what was measured in a drifting window again.
        query = (
            "select count(*) from measurements where kind <> 'anchor' and drift_percent is null"
            " group by signature, target, threads having count(*) > 1"
        )
        assert link.execute(query).fetchall() == []


# ---- nobody interrupts -------------------------------------------------------------------------


def test_a_second_profile_measures_nothing_and_fresh_everything(
    cli: Cli, profiled: Profiled
) -> None:
    rows = count_rows(profiled.costs)
    again = profile(cli, "sim:npu-phone", profiled.costs, profiled.model, *QUICK)
    assert again.code == 0 and counts(again)[0] == 0 and count_rows(profiled.costs) == rows
    fresh = profile(cli, "sim:npu-phone", profiled.costs, profiled.model, *QUICK, "--fresh")
    assert fresh.code == 0
    # With what is known already, fewer regions could change the plan.
    assert counts(fresh)[0] >= 0.75 * rows
    assert count_rows(profiled.costs) == rows + counts(fresh)[0]


# ---- the user has had enough -------------------------------------------------------------------

WAIT_S = 300
"""For what comes for certain, on a busy machine, too."""


def once_measured(costs: Path, n: int, act: Callable[[], None]) -> threading.Thread:
    """Calls ``act`` from a thread as soon as the cost table has ``n`` rows."""

    def watch() -> None:
        deadline = time.monotonic() + WAIT_S
        while count_rows(costs) < n and time.monotonic() < deadline:
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def start_profile(costs: Path, model: Path, shape: str = INPUT) -> subprocess.Popen[str]:
    named = ("--device", "local", "--input", shape, "--costs", costs)
    return start_program("profile", *named, *SLOW, model)


@pytest.mark.slow("measures for real, for half an hour were it not stopped")
def test_ctrl_c_keeps_what_was_measured(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    costs = tmp_path / "costs.sqlite"
    process = start_profile(costs, tiny)
    once_measured(costs, 4, lambda: process.send_signal(signal.SIGINT)).join(WAIT_S)
    out, err = process.communicate(timeout=WAIT_S)
    rows = count_rows(costs)
    assert process.returncode == 130 and rows >= 4
    assert out.startswith(f"interrupted: {rows} measured, 0 refused by the converter")
    assert "Traceback" not in out + err and "error:" not in err
    check_resumes(cli, "local", costs, tiny)
