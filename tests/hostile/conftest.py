"""The command line for tests of hostile input, and the sentence with which it refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.common import Cli


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Cli:
    """Runs ``nnapi-prof`` in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return Cli(capsys)


@pytest.fixture
def refused(command: Cli) -> Callable[..., str]:
    """Runs a command that must end in one sentence and exit code 1 or 2; returns the sentence."""

    def run(*args: object) -> str:
        result = command(*args)
        assert result.code in (1, 2), (result.code, result.err)
        assert all(c.isprintable() or c == "\n" for c in result.err + result.out), result.err
        return result.error

    return run
