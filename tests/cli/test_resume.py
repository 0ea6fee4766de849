"""What was measured until Ctrl-C is kept, and measured once."""

import contextlib
import re
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from tests.cli.common import INPUT, Cli, count_rows, start_program

WAIT_S = 300
"""For what comes for certain, on a busy machine, too."""


@pytest.mark.slow("measures for real, for half an hour were it not stopped")
def test_ctrl_c_keeps_what_was_measured(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    costs = tmp_path / "costs.sqlite"
    named = ("--device", "local", "--input", INPUT, "--costs", costs)
    fast = (*named, "--preference", "fast", "--threads", 1)
    process = start_program("profile", *fast, "--runs", 100_000, "--budget-ms", 150, tiny)
    deadline = time.monotonic() + WAIT_S
    while count_rows(costs) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    rows = count_rows(costs)
    assert process.returncode == 130 and rows >= 4
    assert out.startswith(f"interrupted: {rows} measured, 0 refused by the converter")
    assert "Traceback" not in out + err and "error:" not in err

    result = cli.ok("profile", *fast, "--runs", 5, tiny)
    counts = re.search(r"(\d+) measured, 0 refused .*, (\d+) known before", result.out)
    assert counts is not None and int(counts[1]) > 0 and int(counts[2]) >= rows
    assert count_rows(costs) == rows + int(counts[1])
    with contextlib.closing(sqlite3.connect(costs)) as link:
        # The reference runs again and again, and what was measured in a drifting window again.
        query = (
            "select count(*) from measurements where kind <> 'anchor' and drift_percent is null"
            " group by signature, target, threads having count(*) > 1"
        )
        assert link.execute(query).fetchall() == []
