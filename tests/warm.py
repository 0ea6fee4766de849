"""Python programs in processes of their own that begin with PyTorch in memory.

``[*warm.python(), "-m", "nnapi_prof", ...]`` stands where ``[sys.executable, "-m", ...]`` could,
and saves the seconds in which a process imports the same modules as the one before. A server, one
for each process of tests, imports them once; for each program it forks. The program has a process,
an environment, a folder and standard streams of its own, and ends with the exit code that it would
have. What tests the start of a program, its imports, its linker's variables or what signals do
starts ``sys.executable``.

``python -m tests.warm SOCKET`` is the server; it ends with its standard input.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
import warnings
from pathlib import Path

from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.warm_client import LENGTH, STATUS

PRELOADED = (
    *("torch._dynamo", "torch.export._trace", "torch.export.pt2_archive", "torchao", "torch.onnx"),
    *("matplotlib.backends.backend_svg", "matplotlib.figure", "pandas", "scipy.stats"),
    *("sqlalchemy.dialects.sqlite", "jsonschema", "rich.table"),
    *("nnapi_prof.cli.go", "nnapi_prof.cli.agent", "nnapi_prof.cli.report"),
    *("nnapi_prof.cli.measure", "nnapi_prof.api.end_to_end", "nnapi_prof.api.cost_tables"),
    *("nnapi_prof.cli.convert", "nnapi_prof.cli.partition", "nnapi_prof.documents.conversion"),
    *("nnapi_prof.bundle.torchscript", "nnapi_prof.execution.timing", "nnapi_prof.reports.html"),
    *("nnapi_prof.frontend.loader", "nnapi_prof.precision.program"),
    "tabulate",  # by torch._dynamo, as a program ends
)
"""What most programs import, and what costs most of their start."""


STRANGER = "--without-ours"


def python(*, ours: bool = True) -> tuple[str, ...]:
    """What a command begins with whose program shall start warm; without ``ours`` nothing of
    nnapi_prof is imported there yet."""
    client = str(Path(__file__).with_name("warm_client.py"))
    return (sys.executable, "-IS", client, _server(), *(() if ours else (STRANGER,)))


_servers: list[tuple[subprocess.Popen[bytes], str]] = []
"""Of this process, the last in use, each with its socket."""


def _server() -> str:
    """The socket of this process's server; starts one where there is none, or it was killed."""
    if not _servers or _servers[-1][0].poll() is not None:
        _servers.append(_started())
    return _servers[-1][1]


def _started() -> tuple[subprocess.Popen[bytes], str]:
    path = tempfile.mkdtemp(prefix="nnapi-prof-warm-") + "/s"
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", path],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None and server.stdout is not None
    if server.stdout.readline() != b"ready\n":
        raise RuntimeError("the server of warm processes did not start: its words stand above")
    atexit.register(_end, server)
    return server, path


def _end(server: subprocess.Popen[bytes]) -> None:
    server.communicate()


def _serve(path: str) -> list[str] | None:
    """Forks for each program. Returns its arguments there, and None once the tests are over."""
    with quiet_torch():
        for name in PRELOADED:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in one process would copy all pages of the others
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(16)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listener, 0], [], [])
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if 0 in ready:
                Path(path).unlink()
                Path(path).parent.rmdir()
                return None
            link, _ = listener.accept()
            if os.fork() == 0:
                break
            link.close()
    return _guard(link)


def _guard(link: socket.socket) -> list[str]:
    """Forks the program, waits for it, and ends it where whoever asked goes away."""
    head, streams, _, _ = socket.recv_fds(link, LENGTH.size, 3)
    (length,) = LENGTH.unpack(head)
    arguments, folder, environment = json.loads(link.recv(length, socket.MSG_WAITALL))
    program = os.fork()
    if program:
        os.close(0)
        os.close(1)
        for stream in streams:
            os.close(stream)
        handle = os.pidfd_open(program)
        ready, _, _ = select.select([handle, link], [], [])
        if handle not in ready:
            os.kill(program, signal.SIGKILL)
        _, status = os.waitpid(program, 0)
        with contextlib.suppress(OSError):
            link.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))
        os._exit(0)
    link.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _writer(1, "strict")
    sys.stderr = _writer(2, "backslashreplace")
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    return list(arguments)


def _writer(number: int, errors: str) -> io.TextIOWrapper:
    """A standard stream as Python makes it at its start."""
    return io.TextIOWrapper(
        open(number, "wb", closefd=False),
        encoding="utf-8",
        errors=errors,
        line_buffering=number == 2 or os.isatty(number),
    )


def _run(arguments: list[str]) -> None:
    """Does what Python would with these arguments, but for taking modules apart at the end."""
    code: object = 0
    try:
        _main(arguments)
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if not (code is None or isinstance(code, int)):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):  # closed, as is what it writes to
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(int(code or 0) & 0xFF)


def _main(arguments: list[str]) -> None:
    if arguments[0] == STRANGER:
        for name in [name for name in sys.modules if name.partition(".")[0] == "nnapi_prof"]:
            del sys.modules[name]
        arguments = arguments[1:]
    while arguments[0] == "-W":
        warnings.simplefilter(arguments[1])  # type: ignore[arg-type]
        arguments = arguments[2:]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    kind, *words = arguments
    if kind == "-m":
        sys.argv = words
        sys.path.insert(0, str(Path.cwd()))
        if not hasattr(sys.modules.get(words[0]), "__path__"):
            sys.modules.pop(words[0], None)  # runpy warns of what was imported before
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *words[1:]]
        sys.path.insert(0, "")
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(words[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(kind).resolve().parent))
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    if (program := _serve(sys.argv[1])) is not None:
        _run(program)
