"""Whole files of one model: the baselines and a plan's, each checked, all timed in turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.export import ExportedProgram

from nnapi_prof.api.events import Listener, Progress
from nnapi_prof.api.model import Model
from nnapi_prof.costs.measurement import Status
from nnapi_prof.execution.judgement import allow_ambiguous, last_step
from nnapi_prof.executorch.aot import Partitioner, silence
from nnapi_prof.executorch.candidates import LIST_ORDER, PORTABLE, Candidate, target_of
from nnapi_prof.executorch.compose import LoweredPart, concatenate_programs
from nnapi_prof.executorch.placement import plain_module
from nnapi_prof.executorch.region_times import (
    LIMIT_S,
    RUNS_FIRST,
    SLOWEST,
    START_S,
    RegionTimes,
    agreeing,
)
from nnapi_prof.executorch.regions import NotLowered, delegates, file_of, lower_program
from nnapi_prof.executorch.stopwatch import ROUND_SECONDS, ProgramTiming, Stopwatch
from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
from nnapi_prof.graph.plan import Plan, Segment

PLAN = "plan"
ROUNDS = 9
"""In which files take turns."""
LOWERING = "lowering the whole model"


@dataclass(frozen=True)
class WholeFile:
    """A file of the whole model, and what came of it."""

    name: str
    """``plan``, a partitioner's name, ``list-order`` or ``portable``; of a plan's baselines
    ``xnnpack``, ``nnapi TARGET`` and ``list-order TARGET``."""
    plan: Plan = field(repr=False)
    status: Status = Status.OK
    reason: str | None = None
    """Why it has no times, or is not the answer in spite of them."""
    backends: Mapping[str, int] = field(default_factory=dict)
    """Name of each back end -> calls of it."""
    buffer: bytes = field(default=b"", repr=False)
    rounds_ns: tuple[tuple[int, ...], ...] = field(default=(), repr=False)

    @property
    def median_ns(self) -> float:
        """Over the rounds, of the median of each; inf where it does not run."""
        if not self.rounds_ns:
            return math.inf
        return statistics.median(statistics.median(own) for own in self.rounds_ns)


class WholeFiles:
    """Files of ``model``, run with ``inputs``; baselines are rows of ``times``, too."""

    def __init__(
        self, model: Model, inputs: Sequence[Tensor], times: RegionTimes, stopwatch: Stopwatch
    ) -> None:
        self._program = model.program
        self._inputs = inputs
        self._times = times
        self._stopwatch = stopwatch
        self._exported = _exported(model)
        with torch.no_grad():
            given = model.program.as_given([value.clone() for value in inputs])
            self._expected = [value.detach().contiguous() for value in model.eager(*given)]
        self.files: list[WholeFile] = []

    def add_baselines(self, partitioners: Mapping[str, Partitioner], listener: Listener) -> None:
        """Each partitioner alone, several in list order, and portable kernels alone."""
        each = {name: [name] for name in partitioners}
        if len(partitioners) > 1:
            each[LIST_ORDER] = list(partitioners)
        each[PORTABLE] = []
        for done, (name, names) in enumerate(each.items()):
            listener.progress(Progress(LOWERING, done, len(each), name))
            chain = [
                one for own in names for one in Candidate(own, partitioners[own]).fresh()
            ]  # held here until the file is written
            file, timing = self._baseline(name, chain)
            self.files.append(file)
            self._times.add_baseline(target_of(name), timing)
        listener.progress(Progress(LOWERING, len(each), len(each), ""))

    def has(self, plan: Plan) -> bool:
        """Whether a baseline's file is this plan's: one segment on the same target, or none."""
        places = {file.plan.segments[0].target for file in self.files}
        return not plan.segments or (len(plan.segments) == 1 and plan.segments[0].target in places)

    def add_plan(self, plan: Plan, candidates: Sequence[Candidate]) -> None:
        """A plan's segments, each through its candidate, as one file."""
        by_target = {candidate.target: candidate for candidate in candidates}
        graph = self._times.graph
        held = []
        try:
            parts = []
            for segment in plan.segments:
                region = self._times.region(segment.units)
                chain = by_target[segment.target].fresh()
                held.append(chain)
                edge = lower_program(region.exported, chain).exported_program()
                parts.append(LoweredPart(edge, region.inputs, region.outputs))
            values = self._times.values
            manager = concatenate_programs(parts, self._program.units.inputs, graph.outputs, values)
            backends, buffer = delegates(manager.exported_program()), file_of(manager)
        except NotLowered as refusal:
            file = WholeFile(PLAN, plan, Status.REFUSED, str(refusal))
        else:
            timing = self._checked(self._stopwatch.time(buffer, self._inputs, LIMIT_S))
            file = _file(PLAN, plan, backends, buffer, timing)
        self.files.append(file)

    def compare(self) -> None:
        """Runs those that can be the answer in turns, and takes these times for theirs."""
        self.files = in_turns(self.files, self._inputs, self._stopwatch)

    def _baseline(self, name: str, chain: Sequence[Partitioner]) -> tuple[WholeFile, ProgramTiming]:
        backends: dict[str, int] = {}
        buffer = b""
        try:
            edge = lower_program(self._exported, chain)
            backends = delegates(edge.exported_program())
            if chain and not backends:
                raise NotLowered("it takes nothing of the model")
            buffer = file_of(edge)
        except NotLowered as refusal:
            timing = ProgramTiming(Status.REFUSED, message=str(refusal))
        else:
            timing = self._checked(self._stopwatch.time(buffer, self._inputs, self._limit_s()))
        units = tuple(range(len(self._times.graph.units)))
        median = statistics.median(timing.samples_ns) if timing.samples_ns else math.inf
        why = "the whole model as ExecuTorch lowers it"
        segment = Segment(units, target_of(name), median, why, measured=True)
        plan = Plan(name, (segment,), self._times.simulated)
        return _file(name, plan, backends, buffer, timing), timing

    def _limit_s(self) -> float:
        fastest = min((file.median_ns for file in self.files), default=math.inf)
        if math.isinf(fastest):
            return LIMIT_S
        return min(LIMIT_S, START_S + RUNS_FIRST * SLOWEST * fastest / 1e9)

    def _checked(self, timing: ProgramTiming) -> ProgramTiming:
        graph = self._program.units
        steps = [last_step(self._program, name) for name in graph.outputs]
        return agreeing(
            timing,
            graph.outputs,
            self._expected,
            steps,
            lambda checks, outputs: allow_ambiguous(
                checks, self._program, self._inputs, steps, outputs, self._expected
            )[0],
        )


def in_turns(
    files: Sequence[WholeFile], inputs: Sequence[Tensor], stopwatch: Stopwatch
) -> list[WholeFile]:
    """The files, those that can be the answer with the times of runs in turns."""
    fastest = min(file.median_ns for file in files)
    near = [file for file in files if file.median_ns < SLOWEST * fastest]
    if len(near) < 2:
        return list(files)
    seconds = ROUNDS * sum(max(ROUND_SECONDS, 3 * f.median_ns / 1e9) for f in near)
    timings = stopwatch.compare(
        [file.buffer for file in near], inputs, ROUNDS, LIMIT_S + 3 * seconds
    )
    times = {
        file.name: timing.rounds_ns
        for file, timing in zip(near, timings, strict=True)
        if timing.status is Status.OK
    }
    return [replace(file, rounds_ns=times.get(file.name, file.rounds_ns)) for file in files]


def _file(
    name: str, plan: Plan, backends: Mapping[str, int], buffer: bytes, timing: ProgramTiming
) -> WholeFile:
    return WholeFile(name, plan, timing.status, timing.message, backends, buffer, timing.rounds_ns)


def _exported(model: Model) -> ExportedProgram:
    """Returns the program as its user exported it, else as it was read."""
    if model.mixed is None and model_kind(model.path) is ModelKind.EXPORTED:
        return read_exported(model.path)
    program = model.program
    with silence():
        return torch.export.export(plain_module(program), program.example_inputs, strict=False)
