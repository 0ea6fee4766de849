"""What tests of hostile input share: the command line in a process of its own, and its sentence."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm

Refused = Callable[..., str]


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``nnapi-prof`` in an empty folder."""

    def run(*args: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        words = [*warm.python(), "-m", "nnapi_prof", *map(str, args)]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=timeout)

    return run


@pytest.fixture
def refused(command: Callable[..., subprocess.CompletedProcess[str]]) -> Refused:
    """Runs a command that must end in one sentence and exit code 1 or 2; returns the sentence."""

    def run(*args: object, timeout: float = 120) -> str:
        done = command(*args, timeout=timeout)
        assert done.returncode in (1, 2), (done.returncode, done.stderr[-2000:])
        assert "Traceback" not in done.stderr, done.stderr[-2000:]
        assert all(c.isprintable() or c == "\n" for c in done.stderr + done.stdout), done.stderr
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        assert len(errors) == 1, done.stderr
        return " ".join(done.stderr[done.stderr.index(errors[0]) :].split())

    return run
