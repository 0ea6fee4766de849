"""Times programs of ExecuTorch's in another process: what crashes or hangs there is a result."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from nnapi_prof.costs.measurement import Round, Status
from nnapi_prof.errors import NnapiProfError, escape_untrusted

RUNS = 30
ROUND_SECONDS = 0.08
"""For the runs of one program in a round."""


@dataclass(frozen=True)
class ProgramTiming:
    """The timing of one program."""

    status: Status
    rounds_ns: tuple[tuple[int, ...], ...] = ()
    message: str | None = None
    """Why it has no times."""
    outputs: tuple[Tensor, ...] | None = None
    """Of its first run, where they were asked for."""

    @property
    def samples_ns(self) -> tuple[int, ...]:
        return tuple(ns for samples in self.rounds_ns for ns in samples)

    @property
    def rounds(self) -> tuple[Round, ...]:
        return tuple(Round(len(samples)) for samples in self.rounds_ns)


class Stopwatch:
    """A process that has ExecuTorch and times what it is given, on ``threads`` threads.

    ``device`` is what :func:`nnapi_prof.executorch.load` takes, None where nothing is for NNAPI;
    its segments do not fall back, so that one which NNAPI refuses is refused. ``libraries`` are
    shared objects that register back ends when they are loaded. Raises NnapiProfError where the
    process cannot be had.
    """

    def __init__(self, device: str | None, threads: int = 1, libraries: Sequence[str] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nnapi-prof-")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed with this)
        options = json.dumps({"device": device, "threads": threads, "libraries": list(libraries)})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nnapi_prof.executorch.timing_worker", options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for who asks, and a job ends with its process
        )
        answer = self._answer()
        if answer["status"] != Status.OK.value:
            self.close()
            raise NnapiProfError(f"no process can time ExecuTorch's programs: {answer['message']}")

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
                stream.close()
        self._folder.cleanup()

    def time(self, program: bytes, inputs: Sequence[Tensor], limit_s: float) -> ProgramTiming:
        """Runs a program on its own, with its outputs; ``limit_s`` is for all of it."""
        path = Path(self._folder.name) / "program.pte"
        path.write_bytes(program)
        return self._time([path], inputs, 1, limit_s, with_outputs=True)[0]

    def compare(
        self, programs: Sequence[bytes], inputs: Sequence[Tensor], rounds: int, limit_s: float
    ) -> list[ProgramTiming]:
        """Runs programs in turns, round by round, so that what slows one slows the others."""
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
        """Run a program some times, with its last outputs and without times."""
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
