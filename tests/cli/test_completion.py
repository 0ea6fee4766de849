"""``nnapi-prof completion``: the scripts, and what bash makes of its own."""

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnapi_prof.cli import commands
from nnapi_prof.cli.doctor import SHELLS
from nnapi_prof.device.find import list_phones
from tests.cli.common import Cli, python

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts(cli, shell):
    result = cli.ok("completion", shell)
    assert result.err == ""
    assert "nnapi-prof" in result.out and "_NNAPI_PROF_COMPLETE" in result.out
    document = cli.document("completion", shell)
    assert (document["shell"], document["script"]) == (shell, result.out.strip())


@pytest.fixture
def home(tmp_path: Path, cli: Cli) -> Path:
    """A folder with the script, an executable nnapi-prof, models and a bundle."""
    program = tmp_path / "bin" / "nnapi-prof"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m nnapi_prof "$@"\n')
    program.chmod(0o755)
    (tmp_path / "script").write_text(cli("completion", "bash").out)
    for name in ("one.pt", "two.pt2", "notes.txt", "phone.json", ".hidden.pt", "a b.pt"):
        (tmp_path / name).touch()
    (tmp_path / "done.nnprof").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "inner.pt").touch()
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    variables = {"HOME": str(home), "TERM": "dumb", "ADB_SERVER_SOCKET": "tcp:1"}
    return {**os.environ, **variables, "PATH": path}


def offered(home: Path, line: str) -> list[str]:
    """What bash's completion function replies to TAB at the end of a line."""
    ask = (
        'source ./script; COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}; '
        '_nnapi_prof_completion nnapi-prof; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", ask, "bash", line],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines() if done.stdout.strip() else []


@needs_bash
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("", list(commands())),
        ("pro", ["profile"]),
        ("agent ", ["build", "clean", "info", "push"]),
        ("run --no-b", ["--no-baselines"]),
        ("profile --mode ", ["sync", "burst", "async", "pointers"]),
        ("profile o", ["one.pt"]),
        ("profile ", ["a b.pt", "bin", "done.nnprof", "models", "one.pt", "two.pt2"]),
        ("profile models/", ["models/inner.pt"]),
        ("profile ~/models/", ["~/models/inner.pt"]),
        ("run d", ["done.nnprof"]),
        ("run nowhere/", []),
    ],
)
def test_commands_options_and_files(home, line, wanted):
    assert offered(home, f"nnapi-prof {line}") == wanted


@pytest.mark.slow
@needs_bash
def test_devices_and_phones(home):
    simulated = [f"sim:{name}" for name in list_phones()]
    assert offered(home, "nnapi-prof profile --device ") == ["local", *simulated]
    # bash replaces only what stands behind a colon.
    assert offered(home, "nnapi-prof profile --device sim:n") == ["npu-phone"]
    assert offered(home, "nnapi-prof profile --device=sim:n") == ["npu-phone"]
    assert offered(home, "nnapi-prof estimate --phone pi") == ["pixel4"]
    assert "phone.json" in offered(home, "nnapi-prof estimate --phone ")
    assert {"--json", "--quiet", "--verbose"} <= set(offered(home, "nnapi-prof devices --"))


def test_connected_phones(home, adb_server, start_daemon):
    phone = start_daemon()
    adb_server.connect(phone.serial)
    asked = {"_NNAPI_PROF_COMPLETE": "bash_complete", "COMP_LINE": "nnapi-prof run --device "}
    variables = environment(home)
    del variables["ADB_SERVER_SOCKET"]  # the server's port is in another variable
    done = subprocess.run(
        ["nnapi-prof"], env=variables | asked, capture_output=True, text=True, check=True
    )
    assert f"plain,{phone.serial}" in done.stdout.splitlines()


@needs_bash
def test_a_real_bash_completes_at_tab(home):
    """Typed into an interactive bash on a terminal of its own, with all of readline."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(home)
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment(home))
    seen = b""

    def wait_for(words: bytes) -> None:
        nonlocal seen
        until = time.monotonic() + 30
        while words not in seen:
            ready, _, _ = select.select([terminal], [], [], max(0.0, until - time.monotonic()))
            assert ready, seen
            seen += os.read(terminal, 4096)

    try:
        os.write(terminal, b"PS1='ready> '; source ./script\n")
        wait_for(b"\nready> ")
        os.write(terminal, b"nnapi-prof prof\t")
        wait_for(b"nnapi-prof profile ")
        os.write(terminal, b"--device sim:np\t")
        wait_for(b"--device sim:npu-phone ")
        os.write(terminal, b"mod\t")
        wait_for(b"models/")
        os.write(terminal, b"\t")
        wait_for(b"models/inner.pt ")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def test_no_torch_is_loaded_at_tab(home):
    line = "nnapi-prof profile --device "
    ask = "import sys; sys.argv = ['nnapi-prof']; import atexit, json; "
    ask += "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr)); "
    ask += "from nnapi_prof.cli import main; main()"
    asked = {"_NNAPI_PROF_COMPLETE": "bash_complete", "COMP_LINE": line}
    done = python("-c", ask, env=environment(home) | asked)
    assert "plain,sim:npu-phone" in done.stdout
    loaded = set(json.loads(done.stderr))
    assert not loaded & {"torch", "pandas", "matplotlib", "sqlalchemy", "rich", "adb_shell"}
