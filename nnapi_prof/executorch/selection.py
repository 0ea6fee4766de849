"""Assign the parts of a model to ExecuTorch's partitioners by measured times.

Phases:

1. Each partitioner alone, all of them in list order, and portable kernels alone lower the whole
   model as ExecuTorch does. These are the baselines and the fallback.
2. Each distinct unit is lowered through each partitioner as a separate program and timed by
   ExecuTorch; then the largest regions that a partitioner takes.
3. Costs are fitted to these times, and the exact solver makes a plan. Its regions that were not
   measured whole are measured, and the plan is made again, until all of them were.
4. The plan's regions, lowered as they were measured, become one file. It runs in turns with the
   baselines, and the fastest file is the answer.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch.export import ExportedProgram

from nnapi_prof.api import Listener, Progress, ProgressCallback, to_log
from nnapi_prof.api.model import Model, load
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import UnitSet
from nnapi_prof.device.find import LOCAL, SIMULATED
from nnapi_prof.errors import PartitionError
from nnapi_prof.execution.compare import TOLERANCE
from nnapi_prof.execution.judgement import choose_inputs
from nnapi_prof.execution.objectives import ChoiceOptions
from nnapi_prof.executorch.aot import Partitioner, silence
from nnapi_prof.executorch.host import build
from nnapi_prof.executorch.partitioner import (
    LIST_ORDER,
    NNAPI,
    PORTABLE,
    Candidate,
    NnapiPartitioner,
    checked,
    named,
    region_candidates,
    target_of,
)
from nnapi_prof.executorch.placement import check_sizes, plain_module
from nnapi_prof.executorch.pte import LoweredPart, concatenate_programs
from nnapi_prof.executorch.region_times import (
    NotLowered,
    RegionTimes,
    delegates,
    file_of,
    lower_program,
    without_layout,
)
from nnapi_prof.executorch.runner import HOST_TIMES, EagerReference
from nnapi_prof.executorch.stopwatch import Stopwatch
from nnapi_prof.executorch.whole import (
    LOWERING,
    PLAN,
    FileChoice,
    FileTrial,
    WholeFile,
    fastest_first,
)
from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
from nnapi_prof.graph.plan import Plan, Segment, Target
from nnapi_prof.options import number
from nnapi_prof.partition import make_problem, plan_problem
from nnapi_prof.partition.baselines import merge_by_target

PLANS = 8
"""Largest number of plans, each made with the measurements for the one before."""
TIME_OVER = "the time for measuring was over: the plan rests on what was measured until then"
NO_PLAN = "the time for measuring was over before every unit was measured: there is no plan"

Place = tuple[UnitSet, Candidate]


def choose(
    model: Model | ExportedProgram | str | os.PathLike[str],
    partitioners: Mapping[str, Partitioner] | None = None,
    *,
    device: str = LOCAL,
    threads: int = 1,
    seconds: float = ChoiceOptions.seconds,
    seed: int | None = None,
    libraries: Sequence[str | os.PathLike[str]] = (),
    progress: ProgressCallback | None = None,
    listener: Listener | None = None,
) -> FileChoice:
    """Lowers a model for ExecuTorch by the fastest measured plan among any partitioners.

    ``partitioners`` are named instances, in the order of the baseline ``list-order``; the default
    is one for each accelerator of the device's NNAPI, then XNNPACK's. A
    :class:`~nnapi_prof.executorch.NnapiPartitioner` competes with each accelerator that it knows
    of. ``device`` is that of :func:`nnapi_prof.executorch.load`. Everything runs on this host in
    separate processes, so that a crash becomes a refusal with its reason. ``libraries`` are shared
    objects that register back ends missing in the wheel. Programs run on ``threads`` threads, with
    the model's example inputs, or random ones from ``seed``; a candidate whose outputs differ from
    eager PyTorch's is refused. ``seconds`` limits the measuring of units and regions. Ctrl-C ends
    it with the best so far, once a whole file was measured.

    Raises UsageError where an argument names something that does not exist or the model leaves
    sizes open, PartitionError where no file of the model runs and agrees, NnapiProfError where
    ExecuTorch cannot be run.
    """
    listener = listener or to_log(progress)
    ChoiceOptions(seconds=seconds)
    number("threads", threads, 1)
    chosen = model if isinstance(model, Model) else load(model)
    if partitioners is None:
        partitioners = named((NNAPI, "xnnpack"), device, listener)
    checked(partitioners)
    check_sizes(chosen)
    inputs = tuple(value.contiguous() for value in choose_inputs(chosen.program, seed))
    on_nnapi = any(isinstance(each, NnapiPartitioner) for each in partitioners.values())
    simulated = on_nnapi and device.startswith(SIMULATED)
    notes = [*chosen.notes, *([HOST_TIMES] if simulated else [])]
    if on_nnapi:
        build(device, listener.busy)
    shared = [os.fspath(library) for library in libraries]
    with listener.working("starting ExecuTorch in a process of its own"):
        stopwatch = Stopwatch(device if on_nnapi else None, threads, shared)
    with stopwatch:
        times = RegionTimes(without_layout(chosen.program), inputs, stopwatch, simulated)
        reference = EagerReference(chosen.program, chosen.eager, TOLERANCE)
        trial = FileTrial(reference, inputs, stopwatch)
        lowering = _Lowering(chosen, times)
        search = _PartitionerSearch(times, region_candidates(partitioners), seconds, listener)
        with trial.until_interrupted(notes):
            lowering.add_baselines(trial, partitioners, listener)
            notes += search.run()
            if search.plan is not None and not _is_baseline(search.plan, trial.files):
                with listener.working("putting the plan together"):
                    lowering.add_plan(trial, search.plan, search.candidates)
            with listener.working("running the files in turns"):
                trial.in_turns()
    ranked = fastest_first(chosen.name, trial.files)
    return FileChoice(
        model=chosen.name,
        device=device,
        simulated=simulated,
        graph=times.graph,
        file=ranked[0],
        files=ranked,
        planned=search.plan,
        costs=search.costs,
        refusals=times.refusals(),
        notes=tuple(notes),
    )


class _Lowering:
    """Lowers the whole model as ExecuTorch does, and by a plan."""

    def __init__(self, model: Model, times: RegionTimes) -> None:
        self._inputs = model.program.units.inputs
        self._times = times
        self._exported = _exported(model)

    def add_baselines(
        self, trial: FileTrial, partitioners: Mapping[str, Partitioner], listener: Listener
    ) -> None:
        """Times each partitioner alone, several in list order, and portable kernels alone."""
        each = {name: [name] for name in partitioners}
        if len(partitioners) > 1:
            each[LIST_ORDER] = list(partitioners)
        each[PORTABLE] = []
        units = tuple(range(len(self._times.graph.units)))
        for done, (name, names) in enumerate(each.items()):
            listener.progress(Progress(LOWERING, done, len(each), name))
            chain = [
                one for own in names for one in Candidate(own, partitioners[own]).fresh()
            ]  # held here until the file is written
            timed = trial.time(partial(self._whole, chain), trial.limit_s())
            samples = timed.timing.samples_ns
            median = statistics.median(samples) if samples else math.inf
            why = "the whole model as ExecuTorch lowers it"
            segment = Segment(units, target_of(name), median, why, measured=True)
            trial.files.append(timed.named(name, Plan(name, (segment,), self._times.simulated)))
            self._times.add_baseline(target_of(name), timed.timing)
        listener.progress(Progress(LOWERING, len(each), len(each), ""))

    def add_plan(self, trial: FileTrial, plan: Plan, candidates: Sequence[Candidate]) -> None:
        """Times a plan's segments, each through its candidate, as one file."""
        by_target = {candidate.target: candidate for candidate in candidates}
        trial.files.append(trial.time(partial(self._planned, plan, by_target)).named(PLAN, plan))

    def _whole(self, chain: Sequence[Partitioner]) -> tuple[Mapping[str, int], bytes]:
        edge = lower_program(self._exported, chain)
        backends = delegates(edge.exported_program())
        if chain and not backends:
            raise NotLowered("it takes nothing of the model")
        return backends, file_of(edge)

    def _planned(
        self, plan: Plan, by_target: Mapping[Target, Candidate]
    ) -> tuple[Mapping[str, int], bytes]:
        held, parts = [], []
        for segment in plan.segments:
            region = self._times.region(segment.units)
            chain = by_target[segment.target].fresh()
            held.append(chain)  # until the file is written
            edge = lower_program(region.exported, chain).exported_program()
            parts.append(LoweredPart(edge, region.inputs, region.outputs))
        outputs, values = self._times.graph.outputs, self._times.values
        manager = concatenate_programs(parts, self._inputs, outputs, values)
        return delegates(manager.exported_program()), file_of(manager)


def _is_baseline(plan: Plan, files: Sequence[WholeFile]) -> bool:
    """Returns whether a baseline's file is this plan's: one segment on the same target, or none."""
    places = {file.plan.segments[0].target for file in files}
    return not plan.segments or (len(plan.segments) == 1 and plan.segments[0].target in places)


def _exported(model: Model) -> ExportedProgram:
    """Returns the program as its user exported it, else as it was read."""
    if model.mixed is None and model_kind(model.path) is ModelKind.EXPORTED:
        return read_exported(model.path)
    program = model.program
    with silence():
        return torch.export.export(plain_module(program), program.example_inputs, strict=False)


class _PartitionerSearch:
    """Measures units and regions until the solver's plan uses no others."""

    def __init__(
        self,
        times: RegionTimes,
        candidates: Sequence[Candidate],
        seconds: float,
        listener: Listener,
    ) -> None:
        self.candidates = candidates
        self.plan: Plan | None = None
        """The last plan; None before there is one."""
        self.costs: CostModel | None = None
        """Costs that the plan was made from."""
        self._times = times
        self._end = time.monotonic() + seconds
        self._listener = listener

    def run(self) -> tuple[str, ...]:
        """Measures and plans; returns notes on what cut it short."""
        if not self._times.graph.units:
            return ()
        try:
            self._measure("units", self._units())
            self._solve()
            self._measure("largest regions", self._largest())
            for _ in range(PLANS):
                self._solve()
                places = list(self._unmeasured())
                if not places:
                    break
                self._measure("regions of the plan", places)
            else:
                self._solve()
        except TimeoutError:
            return (NO_PLAN if self.plan is None else TIME_OVER,)
        except PartitionError as error:
            return (f"there is no plan: {error}",)
        return ()

    def _measure(self, phase: str, places: Sequence[Place]) -> None:
        """Measures the places. Raises TimeoutError where time is over before the last of them."""
        for done, (units, candidate) in enumerate(places):
            if time.monotonic() > self._end:
                raise TimeoutError
            label = f"{self._times.graph.label(units)} through {candidate.name}"
            self._listener.progress(Progress(phase, done, len(places), label))
            self._times.measure(units, candidate)
        self._listener.progress(Progress(phase, len(places), len(places), ""))

    def _units(self) -> list[Place]:
        """Returns each unit, of equal ones the first, through all candidates."""
        firsts = {unit.signature: unit.index for unit in reversed(self._times.graph.units)}
        return [((u,), each) for u in sorted(firsts.values()) for each in self.candidates]

    def _largest(self) -> list[Place]:
        """Returns the largest regions of units that each partitioner takes, the rest anywhere."""
        assert self.costs is not None
        problem = make_problem(self._times.graph, self.costs.table)
        anywhere = problem.unit_ns.argmin(axis=1).tolist()
        places = []
        for candidate in self.candidates:
            if candidate.partitioner is None or candidate.target not in problem.targets:
                continue
            k = problem.target_index(candidate.target)
            takes = np.isfinite(problem.unit_ns[:, k]).tolist()
            chain = [k if own else other for own, other in zip(takes, anywhere, strict=True)]
            regions = merge_by_target(problem, chain)
            places += [(units, candidate) for units, at in regions if at == k and len(units) > 1]
        return places

    def _solve(self) -> None:
        self.costs = self._times.model()
        self.plan = plan_problem(
            make_problem(self._times.graph, self.costs.table), with_curve=False
        ).default

    def _unmeasured(self) -> Iterator[Place]:
        """Yields segments of the plan that were not measured whole, through every partitioner that
        takes their units."""
        assert self.plan is not None and self.costs is not None
        for segment in self.plan.segments:
            if segment.measured:
                continue
            for candidate in self.candidates:
                own = candidate.target == segment.target
                costs = [self.costs.unit_cost(u, candidate.target) for u in segment.units]
                takes = candidate.partitioner is not None and None not in costs
                if (own or takes) and self._times.row(segment.units, candidate.target) is None:
                    yield segment.units, candidate
