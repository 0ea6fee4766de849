"""Processes of a test: run to their end, or waited for, however busy the machine is."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def is_running(pid: int) -> bool:
    """Whether a process has not ended yet.

    One that ended stays in /proc as a zombie until its parent takes note, which for an orphan is
    PID 1: in a container that may take many seconds.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Waits for what comes for certain; fails after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def output_of(command: Sequence[object], **options: Any) -> str:
    """What a program prints that must succeed; fails with all its words where it does not."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
