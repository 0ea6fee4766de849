"""Choose the fastest of a plan's file and those of rules that need no partitioner.

Every file holds the whole model. On this host all of them run in ExecuTorch, in turns; on a
simulated phone the simulated driver times the plan and its baselines, as ``nnapi-prof run`` does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from nnapi_prof.api import Listener, Progress, ProgressCallback, to_log
from nnapi_prof.api.plan import ModelPlan, read_plan
from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.deployment import only_host
from nnapi_prof.costs.measurement import Status
from nnapi_prof.device import device_fingerprint
from nnapi_prof.device.find import LOCAL, SIMULATED, list_phones, open_device
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.judgement import choose_inputs
from nnapi_prof.executorch.host import build
from nnapi_prof.executorch.partitioner import LIST_ORDER, NNAPI
from nnapi_prof.executorch.placement import bundle_for
from nnapi_prof.executorch.pte import Lowered, lower
from nnapi_prof.executorch.runner import reference_of
from nnapi_prof.executorch.stopwatch import Stopwatch
from nnapi_prof.executorch.whole import (
    LOWERING,
    PLAN,
    FileChoice,
    FileTrial,
    WholeFile,
    fastest_first,
)
from nnapi_prof.graph.plan import CPU, BaselineName, Plan, Rule, Segment

if TYPE_CHECKING:
    from nnapi_prof.executorch.partitioner import Priority

XNNPACK = "xnnpack"
_WORDS = {Rule.BEST_SINGLE: NNAPI, Rule.LARGEST_SUPPORTED: LIST_ORDER}
SIMULATED_TIMES = (
    "times are simulated: the phone's own, of its accelerators and its CPU; nothing was measured"
    " on hardware"
)


def fastest(
    plan: ModelPlan | str | os.PathLike[str],
    device: str | None = None,
    *,
    whole: bool = False,
    priority: Priority | None = None,
    threads: int | None = None,
    seed: int | None = None,
    progress: ProgressCallback | None = None,
    listener: Listener | None = None,
) -> FileChoice:
    """Returns the fastest of a plan's file and those of XNNPACK alone, the best accelerator alone,
    and list order, where one accelerator gets all that it supports.

    ``plan`` comes from :func:`nnapi_prof.partition`, or is a bundle's folder; the rules are its
    baselines. ``device`` is ``local`` or ``sim:NAME``, and defaults to the plan's. ``whole`` and
    ``priority`` are those of :func:`nnapi_prof.executorch.lower`, for the plan's own file.
    ``threads`` (None: as the plan was measured) and ``seed`` are those of
    :func:`nnapi_prof.executorch.choose`. On a simulated phone, times are the simulated driver's,
    and only the fastest plan becomes a file. A file that does not run, or whose outputs differ from
    eager PyTorch's, is refused. Ctrl-C ends the comparison with the fastest so far.

    Raises UsageError where the plan is one of several, or its device is neither this host nor a
    simulated phone, PartitionError where no file runs and agrees.
    """
    listener = listener or to_log(progress)
    planned = plan if isinstance(plan, ModelPlan) else read_plan(plan)
    device = device or planned.device_spec or made_on(planned)
    if device is None or (device != LOCAL and not device.startswith(SIMULATED)):
        raise UsageError(
            f"files for {device or planned.device} cannot be timed from here",
            "lower() writes the plan's, and on a phone the app's runner has ExecuTorch",
        )
    bundle = bundle_for(planned)
    if bundle.plan_set is not None:
        raise UsageError("several plans are one file, by their own rule", "lower() writes it")
    threads = bundle.conditions.threads if threads is None else threads
    if threads < 1:
        raise UsageError(f"threads are {threads}: 1 is the least")
    rows = _rivals(planned)
    files = _Files(planned, bundle, whole, priority)
    notes = list(planned.model.notes)
    if device.startswith(SIMULATED):
        timed = files.simulated(rows, device, seed, listener)
        notes.append(SIMULATED_TIMES)
    else:
        timed, more = files.measured(rows, device, threads, seed, listener)
        notes += more
    ranked = fastest_first(planned.model.name, timed)
    return FileChoice(
        model=planned.model.name,
        device=device,
        simulated=device.startswith(SIMULATED),
        graph=planned.model.graph,
        file=ranked[0],
        files=ranked,
        planned=planned.plan,
        costs=None,
        refusals=(),
        notes=tuple(notes),
        simulated_times=device.startswith(SIMULATED),
    )


def made_on(planned: ModelPlan) -> str | None:
    """Returns the device of this host, ``local`` or a simulated phone, that a plan was made on;
    None where it was another."""
    bundle = planned.converted
    if bundle is None:
        return None
    simulated = [f"{SIMULATED}{name}" for name in list_phones()]
    for device in simulated if bundle.simulated else [LOCAL]:
        with open_device(device) as opened:
            if device_fingerprint(opened.client.info()) == bundle.fingerprint:
                return device
    return None


def _rivals(planned: ModelPlan) -> list[tuple[str, Plan]]:
    """Returns the plan, then baselines that differ from it and from each other, by name."""
    everything = tuple(range(len(planned.model.graph.units)))
    alone = Segment(everything, CPU, 0.0, "the whole model as ExecuTorch lowers it")
    rows = [
        (PLAN, planned.plan),
        (XNNPACK, Plan(str(BaselineName(Rule.ALL_CPU)), (alone,), planned.simulated)),
    ]
    for plan in planned.baselines:
        if plan.baseline is None:
            continue
        rule, target = plan.baseline.rule, plan.baseline.target
        if rule is Rule.ALL_CPU:
            rows[1] = (XNNPACK, plan)
        elif rule in _WORDS:
            rows.append((f"{_WORDS[rule]} {target}" if target else _WORDS[rule], plan))
    places: dict[tuple[object, ...], tuple[str, Plan]] = {}
    for name, plan in rows:
        places.setdefault(tuple((s.units, s.target) for s in plan.segments), (name, plan))
    return list(places.values())


class _Files:
    """The files of a plan and its baselines."""

    def __init__(
        self, planned: ModelPlan, bundle: Bundle, whole: bool, priority: Priority | None
    ) -> None:
        self._planned = planned
        self._bundle = bundle
        self._whole = whole
        self._priority = priority

    def measured(
        self,
        rows: Sequence[tuple[str, Plan]],
        device: str,
        threads: int,
        seed: int | None,
        listener: Listener,
    ) -> tuple[list[WholeFile], list[str]]:
        """Times all files in ExecuTorch, in turns; returns them and notes."""
        inputs = choose_inputs(self._planned.model.program, seed)
        inputs = tuple(value.contiguous() for value in inputs)
        build(device, listener.busy)
        notes: list[str] = []
        with listener.working("starting ExecuTorch in a process of its own"):
            stopwatch = Stopwatch(device, threads)
        with stopwatch:
            trial = FileTrial(reference_of(self._planned), inputs, stopwatch)
            with trial.until_interrupted(notes):
                for done, (name, plan) in enumerate(rows):
                    listener.progress(Progress(LOWERING, done, len(rows), name))
                    tolerance = reference_of(replace(self._planned, plans=(plan,))).tolerance
                    timed = trial.time(partial(self._built, name, plan), tolerance=tolerance)
                    trial.files.append(timed.named(name, plan))
                listener.progress(Progress(LOWERING, len(rows), len(rows), ""))
                trial.in_turns()
        return trial.files, notes

    def simulated(
        self,
        rows: Sequence[tuple[str, Plan]],
        device: str,
        seed: int | None,
        listener: Listener,
    ) -> list[WholeFile]:
        """Times all plans by the simulated driver; only the fastest is lowered to a file."""
        from nnapi_prof.api.run import run

        result = run(self._planned, device, seed=seed, listener=listener)
        result.raise_for_mismatch()
        runs = {each.plan.name: each for each in result.run.runs}
        files = []
        for name, plan in rows:
            own = runs.get(plan.name)
            if own is not None and own.total_ns:
                files.append(WholeFile(name, plan, rounds_ns=(own.total_ns,)))
        if not files:
            raise UsageError(only_host(self._bundle.model))
        for index in sorted(range(len(files)), key=lambda index: files[index].median_ns):
            file = files[index]
            try:
                lowered = self._lowered(file.name, file.plan)
            except UsageError as error:
                files[index] = WholeFile(file.name, file.plan, Status.REFUSED, str(error))
                continue
            files[index] = replace(file, backends=lowered.backends(), buffer=lowered.buffer)
            break
        return files

    def _lowered(self, name: str, plan: Plan) -> Lowered:
        own = replace(self._bundle, plans=(plan,))
        planned = replace(self._planned, plans=(plan,), converted=own)
        return lower(planned, whole=self._whole and name == PLAN, priority=self._priority)

    def _built(self, name: str, plan: Plan) -> tuple[Mapping[str, int], bytes]:
        lowered = self._lowered(name, plan)
        return lowered.backends(), lowered.buffer
