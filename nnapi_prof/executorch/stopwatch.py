"""Times ExecuTorch programs in another process, where a crash or a hang is a result.

:class:`Stopwatch` starts that process from this module, too, and it runs each job in a child:

    python -m nnapi_prof.executorch.stopwatch '{"threads": 1, "device": null, "libraries": []}'

It reads one job a line from its standard input, and answers each with a line, both in JSON:

    {"paths": [...], "inputs": "in.pt", "outputs": "out.pt" or null, "rounds": 1, "runs": 30,
     "seconds": 0.1, "limit_s": 10}
    {"paths": [...], "rounds": 0, "runs": 2, ...}               without times, for the last outputs
    {"status": "ok", "rounds_ns": [[[...], ...], ...]}          [path][round] -> samples
    {"status": "crashed", "message": "SIGSEGV"}                 a Status of measurements'

``seconds`` limits a program's runs in one round, not counting the first. Times are those of
ExecuTorch's ``execute`` alone: inputs are set once, and outputs are not fetched.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import torch
from torch import Tensor

from nnapi_prof.costs.measurement import Round, Status
from nnapi_prof.errors import NnapiProfError, escape_untrusted
from nnapi_prof.executorch.host import Caution, import_runtime, load, require

RUNS = 30
ROUND_SECONDS = 0.08
"""Time limit of one program's runs in a round."""


@dataclass(frozen=True)
class ProgramTiming:
    """The timing of one program."""

    status: Status
    rounds_ns: tuple[tuple[int, ...], ...] = ()
    message: str | None = None
    """Reason that it has no times."""
    outputs: tuple[Tensor, ...] | None = None
    """Outputs of its first run (:meth:`Stopwatch.run`: the last), where they were asked for."""

    @property
    def samples_ns(self) -> tuple[int, ...]:
        return tuple(ns for samples in self.rounds_ns for ns in samples)

    @property
    def rounds(self) -> tuple[Round, ...]:
        return tuple(Round(len(samples)) for samples in self.rounds_ns)


class Stopwatch:
    """A process that times ExecuTorch programs on ``threads`` threads.

    ``device`` is that of :func:`nnapi_prof.executorch.load`, None where no program uses NNAPI. Its
    segments do not fall back, so that a program fails where NNAPI refuses a segment. ``libraries``
    are shared objects that register back ends when they are loaded. Raises NnapiProfError where the
    process cannot start.
    """

    def __init__(self, device: str | None, threads: int = 1, libraries: Sequence[str] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nnapi-prof-")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed with this)
        options = json.dumps({"device": device, "threads": threads, "libraries": list(libraries)})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nnapi_prof.executorch.stopwatch", options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for the caller; close() ends the group
        )
        try:
            answer = self._answer()
            if answer["status"] != Status.OK.value:
                words = answer["message"]
                raise NnapiProfError(f"no process can time ExecuTorch's programs: {words}")
        except NnapiProfError:
            self.close()
            raise

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process, and the job that it runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # a job that nothing read
                    stream.close()
        self._folder.cleanup()

    def time(self, program: bytes, inputs: Sequence[Tensor], limit_s: float) -> ProgramTiming:
        """Times a program alone, and returns its outputs, too; ``limit_s`` is for all of it."""
        path = Path(self._folder.name) / "program.pte"
        path.write_bytes(program)
        return self._time([path], inputs, 1, limit_s, with_outputs=True)[0]

    def compare(
        self, programs: Sequence[bytes], inputs: Sequence[Tensor], rounds: int, limit_s: float
    ) -> list[ProgramTiming]:
        """Times programs in turns, round by round, so that a slowdown affects all of them."""
        paths = []
        for number, program in enumerate(programs):
            paths.append(Path(self._folder.name) / f"program_{number}.pte")
            paths[-1].write_bytes(program)
        return self._time(paths, inputs, rounds, limit_s, with_outputs=False)

    def write(self, program: bytes) -> Path:
        """Write a program for :meth:`run`, in place of the one before."""
        path = Path(self._folder.name) / "calls.pte"
        path.write_bytes(program)
        return path

    def run(self, path: Path, inputs: Sequence[Tensor], runs: int, limit_s: float) -> ProgramTiming:
        """Run a program ``runs`` times; returns its last outputs and no times."""
        job = {"paths": [str(path)], "rounds": 0, "runs": runs, "limit_s": limit_s}
        answer, outputs = self._asked(job, inputs, with_outputs=True)
        return ProgramTiming(
            Status(answer["status"]), message=answer.get("message"), outputs=outputs
        )

    def _time(
        self,
        paths: Sequence[Path],
        inputs: Sequence[Tensor],
        rounds: int,
        limit_s: float,
        with_outputs: bool,
    ) -> list[ProgramTiming]:
        job = {
            "paths": [str(path) for path in paths],
            "rounds": rounds,
            "runs": RUNS,
            "seconds": ROUND_SECONDS,
            "limit_s": limit_s,
        }
        answer, values = self._asked(job, inputs, with_outputs)
        status = Status(answer["status"])
        if status is not Status.OK:
            return [ProgramTiming(status, message=answer["message"]) for _ in paths]
        return [
            ProgramTiming(status, tuple(map(tuple, rounds_ns)), outputs=values)
            for rounds_ns in answer["rounds_ns"]
        ]

    def _asked(
        self, job: Mapping[str, Any], inputs: Sequence[Tensor], with_outputs: bool
    ) -> tuple[dict[str, Any], tuple[Tensor, ...] | None]:
        """Return the answer to a job, and the outputs where they were asked for."""
        folder = Path(self._folder.name)
        torch.save(list(inputs), folder / "inputs.pt")
        outputs = folder / "outputs.pt"
        job = {
            **job,
            "inputs": str(folder / "inputs.pt"),
            "outputs": str(outputs) if with_outputs else None,
        }
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._gone() from None
        answer = self._answer()
        if not with_outputs or Status(answer["status"]) is not Status.OK:
            return answer, None
        return answer, tuple(torch.load(outputs, weights_only=True))

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._gone()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _gone(self) -> NnapiProfError:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return NnapiProfError(
            f"the process that times ExecuTorch's programs is gone: {escape_untrusted(last, 300)}"
        )


LEAST_RUNS = 3
"""Smallest number of runs in a round, unless one takes :data:`LONG` times a round's limit."""
LONG = 3
READ_BYTES = 1 << 16


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of back ends is not a reply
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
    """Loads ExecuTorch, other back ends, and with a device our delegate."""
    require()
    import_runtime()
    for library in libraries:
        ctypes.CDLL(library)
    if device is not None:
        load(device, caution=Caution(fallback=False))


def _reply(stream: BinaryIO, document: Mapping[str, Any]) -> None:
    stream.write(json.dumps(document).encode() + b"\n")


def run_job(job: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """Runs a job in a child of this process within its time limit; returns the answer."""
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
    """Does the work, writes the answer to the pipe, and ends this process."""
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
    """Returns a message with the last line of the log, where ExecuTorch gives the reason."""
    log.seek(0)
    lines = log.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{message} ({escape_untrusted(last, 300)})" if last and last not in message else message


def _run(job: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """Runs a job's program in this process without taking times."""
    from executorch.extension.pybindings import portable_lib

    portable_lib._unsafe_reset_threadpool(threads)
    inputs = tuple(torch.load(job["inputs"], weights_only=True))
    program = portable_lib._load_program(job["paths"][0])
    method = program.load_method("forward")
    for _ in range(job["runs"]):
        method.set_inputs(inputs)  # a run may write other values in their place
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
