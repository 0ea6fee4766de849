"""Time files of a whole model: each alone and checked, then those that can win in turns."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nnapi_prof.costs.measurement import Status
from nnapi_prof.costs.model import CostModel
from nnapi_prof.errors import NnapiProfError, PartitionError
from nnapi_prof.execution.judgement import allow_ambiguous, last_step
from nnapi_prof.executorch.region_times import (
    LIMIT_S,
    RUNS_FIRST,
    SLOWEST,
    START_S,
    RegionRefusal,
    agreeing,
)
from nnapi_prof.executorch.runner import EagerReference
from nnapi_prof.executorch.stopwatch import ROUND_SECONDS, ProgramTiming, Stopwatch
from nnapi_prof.graph.plan import Plan
from nnapi_prof.graph.unit import UnitGraph

if TYPE_CHECKING:
    import pandas as pd

PLAN = "plan"
ROUNDS = 9
"""Number of rounds in which files take turns."""
LOWERING = "lowering the whole model"
INTERRUPTED = "measuring was interrupted: the fastest of the files that were measured until then"


@dataclass(frozen=True)
class WholeFile:
    """A file of the whole model, and its result."""

    name: str
    """``plan``, a partitioner's name, ``list-order`` or ``portable``; for a plan's baselines
    ``xnnpack``, ``nnapi TARGET`` and ``list-order TARGET``."""
    plan: Plan = field(repr=False)
    status: Status = Status.OK
    reason: str | None = None
    """Reason that it has no times, or is not chosen despite them."""
    backends: Mapping[str, int] = field(default_factory=dict)
    """Number of calls by name of the back end."""
    buffer: bytes = field(default=b"", repr=False)
    rounds_ns: tuple[tuple[int, ...], ...] = field(default=(), repr=False)

    @property
    def median_ns(self) -> float:
        """Median of the rounds' medians; inf where the file does not run."""
        if not self.rounds_ns:
            return math.inf
        return statistics.median(statistics.median(own) for own in self.rounds_ns)


@dataclass(frozen=True)
class TimedFile:
    """A file that was built, if it could be, and its times."""

    backends: Mapping[str, int]
    buffer: bytes
    timing: ProgramTiming

    def named(self, name: str, plan: Plan) -> WholeFile:
        """Returns the file with its place among those of its model."""
        timing = self.timing
        return WholeFile(
            *(name, plan, timing.status, timing.message),
            *(self.backends, self.buffer, timing.rounds_ns),
        )


class FileTrial:
    """Times whole files of one model: each alone and checked, then all that can win in turns."""

    def __init__(
        self, reference: EagerReference, inputs: Sequence[Tensor], stopwatch: Stopwatch
    ) -> None:
        program = reference.program
        self._reference = reference
        self._inputs = inputs
        self._stopwatch = stopwatch
        self._steps = [last_step(program, output) for output in program.units.outputs]
        with torch.no_grad():
            given = program.as_given([value.clone() for value in inputs])
            self._expected = [value.detach().contiguous() for value in reference.eager(*given)]
        self.files: list[WholeFile] = []

    def time(
        self,
        build: Callable[[], tuple[Mapping[str, int], bytes]],
        limit_s: float = LIMIT_S,
        tolerance: float | None = None,
    ) -> TimedFile:
        """Times the file that ``build`` returns with its back ends' calls. A file that cannot be
        built is refused with the error's message; one whose outputs differ from eager PyTorch's by
        more than ``tolerance`` (None: the reference's) failed."""
        try:
            backends, buffer = build()
        except NnapiProfError as refusal:
            return TimedFile({}, b"", ProgramTiming(Status.REFUSED, message=str(refusal)))
        timing = self._stopwatch.time(buffer, self._inputs, limit_s)
        allowed = self._reference.tolerance if tolerance is None else tolerance
        return TimedFile(backends, buffer, self._checked(timing, allowed))

    def limit_s(self) -> float:
        """Returns how long a file that could still win may take, in seconds."""
        fastest = min((file.median_ns for file in self.files), default=math.inf)
        if math.isinf(fastest):
            return LIMIT_S
        return min(LIMIT_S, START_S + RUNS_FIRST * SLOWEST * fastest / 1e9)

    def in_turns(self) -> None:
        """Runs the files that can win in turns, and replaces their times."""
        fastest = min(file.median_ns for file in self.files)
        near = [file for file in self.files if file.median_ns < SLOWEST * fastest]
        if len(near) < 2:
            return
        seconds = ROUNDS * sum(max(ROUND_SECONDS, 3 * f.median_ns / 1e9) for f in near)
        buffers = [file.buffer for file in near]
        timings = self._stopwatch.compare(buffers, self._inputs, ROUNDS, LIMIT_S + 3 * seconds)
        times = {
            file.name: timing.rounds_ns
            for file, timing in zip(near, timings, strict=True)
            if timing.status is Status.OK
        }
        self.files = [replace(f, rounds_ns=times.get(f.name, f.rounds_ns)) for f in self.files]

    @contextmanager
    def until_interrupted(self, notes: list[str]) -> Iterator[None]:
        """Ends at Ctrl-C with a note in ``notes`` where a file has times, else raises
        KeyboardInterrupt."""
        try:
            yield
        except KeyboardInterrupt:
            if not any(file.rounds_ns for file in self.files):
                raise
            notes.append(INTERRUPTED)

    def _checked(self, timing: ProgramTiming, tolerance: float) -> ProgramTiming:
        program = self._reference.program
        return agreeing(
            timing,
            program.units.outputs,
            self._expected,
            self._steps,
            lambda checks, outputs: allow_ambiguous(
                checks, program, self._inputs, self._steps, outputs, self._expected
            )[0],
            tolerance,
        )


# The result of a choice among partitioners.


def fastest_first(model: str, files: Iterable[WholeFile]) -> tuple[WholeFile, ...]:
    """Sorts the files of a model by their latency. Raises PartitionError where none of them ran."""
    ranked = tuple(sorted(files, key=lambda file: file.median_ns))
    if not ranked[0].rounds_ns:
        reasons = "; ".join(f"{file.name}: {file.reason}" for file in ranked)
        raise PartitionError(f"no file of {model} runs in ExecuTorch: {reasons}")
    return ranked


@dataclass(frozen=True)
class FileChoice:
    """The fastest measured file of a model, and the files it was chosen from."""

    model: str
    """The model's name."""
    device: str
    simulated: bool
    """NNAPI is a simulated phone's."""
    graph: UnitGraph
    """The model's units, which plans name. Where partitioners were measured, it lacks units that
    only change dim orders, as ExecuTorch has none."""
    file: WholeFile = field(repr=False)
    """The chosen file."""
    files: tuple[WholeFile, ...] = field(repr=False)
    """All measured files, the fastest first; those that did not run last."""
    planned: Plan | None = field(repr=False)
    """The solver's plan, whether or not its file was chosen; None where there is none."""
    costs: CostModel | None = field(repr=False)
    """Costs that the plan was made from."""
    refusals: tuple[RegionRefusal, ...] = field(repr=False)
    """Regions that a partitioner, its back end or its run does not take."""
    notes: tuple[str, ...] = ()
    simulated_times: bool = False
    """Times are those of a simulated phone's driver; else this host's, whatever NNAPI is."""

    @property
    def clock(self) -> str:
        """The source of the times, for the head of a table."""
        return "simulated latency in ms" if self.simulated_times else "latency in ms on this host"

    @property
    def plan(self) -> Plan:
        """The plan that the file follows: segments on ``executorch:NAME``. A baseline's is one
        segment."""
        return self.file.plan

    @property
    def buffer(self) -> bytes:
        """The bytes of the file."""
        return self.file.buffer

    @property
    def median_ns(self) -> float:
        """The median latency of a run of the file."""
        return self.file.median_ns

    def backends(self) -> Mapping[str, int]:
        """Returns the number of calls by name of the back end."""
        return self.file.backends

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the ``.pte``."""
        file = Path(path)
        file.write_bytes(self.buffer)
        return file

    def frame(self) -> pd.DataFrame:
        """Returns one row for each file, the fastest first: ``file``, ``median_ms`` (NaN where it
        does not run), ``against_fastest``, ``calls`` (of back ends), ``status``, ``reason``."""
        import pandas as pd

        rows = [
            {
                "file": file.name,
                "median_ms": file.median_ns / 1e6 if file.rounds_ns else float("nan"),
                "against_fastest": file.median_ns / self.median_ns
                if file.rounds_ns
                else float("nan"),
                "calls": sum(file.backends.values()),
                "status": file.status.value,
                "reason": file.reason or "",
            }
            for file in self.files
        ]
        return pd.DataFrame(rows)
