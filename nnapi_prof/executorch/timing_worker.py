"""A process that times programs of ExecuTorch's: each job in a child of its own, which may crash.

    python -m nnapi_prof.executorch.timing_worker '{"threads": 1, "device": null, "libraries": []}'

Reads a job a line from its standard input, and answers each with a line, both JSON:

    {"paths": [...], "inputs": "in.pt", "outputs": "out.pt" or null, "rounds": 1, "runs": 30,
     "seconds": 0.1, "limit_s": 10}
    {"paths": [...], "rounds": 0, "runs": 2, ...}               without times, for the last outputs
    {"status": "ok", "rounds_ns": [[[...], ...], ...]}          [path][round] -> samples
    {"status": "crashed", "message": "SIGSEGV"}                 a Status of measurements'

``seconds`` are what a program's runs of one round take at most, beside the first. Times are those
of ExecuTorch's ``execute`` alone: inputs are set once, and outputs are not fetched.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from nnapi_prof.costs.measurement import Status
from nnapi_prof.errors import NnapiProfError, escape_untrusted
from nnapi_prof.executorch.host import Caution, import_runtime, load, require

LEAST_RUNS = 3
"""Of a program in a round, unless one takes :data:`LONG` times what a round may."""
LONG = 3
READ_BYTES = 1 << 16


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what back ends print is no reply
    options = json.loads(sys.argv[1])
    try:
        _prepare(options["device"], options["libraries"])
    except (NnapiProfError, OSError) as error:
        _reply(replies, {"status": Status.FAILED.value, "message": str(error)})
        return
    _reply(replies, {"status": Status.OK.value})
    for line in sys.stdin:
        _reply(replies, run_job(json.loads(line), options["threads"]))


def _prepare(device: str | None, libraries: list[str]) -> None:
    """Loads ExecuTorch, back ends of others, and with a device our delegate."""
    require()
    import_runtime()
    for library in libraries:
        ctypes.CDLL(library)
    if device is not None:
        load(device, caution=Caution(fallback=False))


def _reply(stream: BinaryIO, document: Mapping[str, Any]) -> None:
    stream.write(json.dumps(document).encode() + b"\n")


def run_job(job: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """The answer to a job, run in a child of this process within its limit of time."""
    work = _time if job["rounds"] else _run
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if child == 0:
            _in_child(lambda: work(job, threads), writer, log.fileno())
        os.close(writer)
        data, ended = _read_pipe(reader, job["limit_s"])
        os.close(reader)
        if not ended:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not ended:
            message = f"it took longer than {job['limit_s']:g} s"
            return {"status": Status.TIMEOUT.value, "message": message}
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            return {"status": Status.CRASHED.value, "message": _with_log(name, log)}
        if not data:
            message = f"its process ended with code {os.waitstatus_to_exitcode(status)}"
            return {"status": Status.CRASHED.value, "message": _with_log(message, log)}
        answer: dict[str, Any] = json.loads(data)
        if answer["status"] != Status.OK.value:
            answer["message"] = _with_log(answer["message"], log)
        return answer


def _in_child(work: Callable[[], dict[str, Any]], writer: int, log: int) -> None:
    """Ends this process, with the answer in the pipe."""
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            answer = work()
        except Exception as error:  # whatever a back end raises is its answer
            answer = {"status": Status.FAILED.value, "message": escape_untrusted(str(error), 300)}
        with os.fdopen(writer, "wb") as stream:
            stream.write(json.dumps(answer).encode())
    finally:
        os._exit(0)


def _read_pipe(reader: int, limit_s: float) -> tuple[bytes, bool]:
    """Reads from a pipe, and tells whether it was closed in time."""
    data, end = b"", time.monotonic() + limit_s
    while True:
        if not select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
            return data, False
        part = os.read(reader, READ_BYTES)
        if not part:
            return data, True
        data += part


def _with_log(message: str, log: BinaryIO) -> str:
    """A message with the last line that was logged, which is where ExecuTorch says why."""
    log.seek(0)
    lines = log.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{message} ({escape_untrusted(last, 300)})" if last and last not in message else message


def _run(job: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """Runs a job's program in this process without taking times."""
    from executorch.extension.pybindings import portable_lib

    portable_lib._unsafe_reset_threadpool(threads)
    program = portable_lib._load_program(job["paths"][0])
    method = program.load_method("forward")
    method.set_inputs(tuple(torch.load(job["inputs"], weights_only=True)))
    for _ in range(job["runs"]):
        method.execute()
    torch.save([value.clone() for value in method.get_outputs()], Path(job["outputs"]))
    return {"status": Status.OK.value}


def _time(job: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """Loads and runs a job's programs in this process."""
    from executorch.extension.pybindings import portable_lib

    portable_lib._unsafe_reset_threadpool(threads)
    inputs = tuple(torch.load(job["inputs"], weights_only=True))
    programs = [portable_lib._load_program(path) for path in job["paths"]]
    methods = [program.load_method("forward") for program in programs]
    first_s = []
    for method in methods:
        method.set_inputs(inputs)
        start = time.perf_counter()
        method.execute()
        first_s.append(time.perf_counter() - start)
    if job["outputs"] is not None:
        outputs = [value for value in methods[0].get_outputs() if isinstance(value, torch.Tensor)]
        torch.save(outputs, Path(job["outputs"]))
    for method, taken_s in zip(methods, first_s, strict=True):
        if taken_s < job["seconds"]:
            method.execute()
    rounds: list[list[list[int]]] = [[] for _ in methods]
    for _ in range(job["rounds"]):
        for own, method, taken_s in zip(rounds, methods, first_s, strict=True):
            least = LEAST_RUNS if taken_s < LONG * job["seconds"] else 1
            own.append(_samples(method, least, job["runs"], job["seconds"]))
    return {"status": Status.OK.value, "rounds_ns": rounds}


def _samples(method: Any, least: int, most: int, seconds: float) -> list[int]:
    samples: list[int] = []
    end = time.perf_counter() + seconds
    while len(samples) < least or (len(samples) < most and time.perf_counter() < end):
        start = time.perf_counter_ns()
        method.execute()
        samples.append(time.perf_counter_ns() - start)
    return samples


if __name__ == "__main__":
    main()
