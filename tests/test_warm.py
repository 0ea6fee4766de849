"""A program that starts warm is one that starts cold, but for the time that its imports take."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.processes import is_running, wait_until

pytestmark = pytest.mark.slow
STREAMS = """
import os, sys
print(sys.stdin.read(), sys.argv, os.getcwd(), os.environ.get("OURS"), "HOME" in os.environ)
print("a line", file=sys.stderr)
sys.exit({code})
"""


def both(*arguments: str, **options: object) -> list[subprocess.CompletedProcess[str]]:
    """What a program does, started warm and cold."""
    starts = ([*warm.python()], [sys.executable])
    return [
        subprocess.run([*start, *arguments], capture_output=True, text=True, **options)  # type: ignore[call-overload]
        for start in starts
    ]


@pytest.mark.parametrize("code", ["3", "'words'"])
def test_streams_arguments_folder_environment_and_code(tmp_path: Path, code: str) -> None:
    words = ("-c", STREAMS.format(code=code), "x", "y z")
    environment = {"OURS": "1", "OMP_NUM_THREADS": "1"}
    one, other = both(*words, input="heard", cwd=tmp_path, env=environment)
    assert one.returncode == other.returncode
    assert (one.stdout, one.stderr) == (other.stdout, other.stderr)
    assert f"heard ['-c', 'x', 'y z'] {tmp_path} 1 False" in one.stdout


def test_exceptions_signals_and_modules() -> None:
    one, other = both("-c", "raise ValueError(3)")
    assert one.returncode == other.returncode == 1
    assert one.stderr.splitlines()[-1] == other.stderr.splitlines()[-1] == "ValueError: 3"
    one, other = both("-c", "import os; os.kill(os.getpid(), 9)")
    assert one.returncode == other.returncode == -signal.SIGKILL
    one, other = both("-m", "nnapi_prof", "schema", "no-such")
    assert (one.returncode, one.stderr) == (other.returncode, other.stderr)


@pytest.mark.again("imports PyTorch for another server")
def test_a_server_that_was_killed_is_started_again() -> None:
    assert warm.python()
    server, socket = warm._servers[-1]
    server.kill()
    server.wait()
    (one, _) = both("-c", "print(1)")
    assert one.stdout == "1\n" and warm._servers[-1][1] != socket


def test_a_program_ends_with_whoever_started_it(tmp_path: Path) -> None:
    number = tmp_path / "pid"
    code = f"import os, time; open({str(number)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    with subprocess.Popen([*warm.python(), "-c", code]) as client:
        wait_until(lambda: number.exists() and number.read_text() != "")
        client.kill()
    wait_until(lambda: not is_running(int(number.read_text())))
