"""Run regions by the delegate for :func:`nnapi_prof.bisect`: ``np_et.bisect(model, device)``."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nnapi_prof.api.bisect import bisect as bisect_regions
from nnapi_prof.bisection import Region as UnitRun
from nnapi_prof.bisection.diagnosis import Bisection, Way
from nnapi_prof.bisection.probe import Execution, RegionProbe
from nnapi_prof.costs.measurement import Status
from nnapi_prof.execution.build import DescribedDevice, bundle_at
from nnapi_prof.executorch.aot import silence, to_edge_transform_and_lower
from nnapi_prof.executorch.partitioner import NnapiPartitioner
from nnapi_prof.executorch.placement import DelegatedCall, calls_module, segment_call
from nnapi_prof.executorch.region_times import LIMIT_S, error_line
from nnapi_prof.executorch.stopwatch import Stopwatch
from nnapi_prof.graph.plan import CPU, Plan, Segment

if TYPE_CHECKING:
    from nnapi_prof.api.model import Model
    from nnapi_prof.api.plan import ModelPlan

Runs = list[tuple[int, Execution]]
"""Executions of a region, each with the number of its sample."""


def bisect(
    plan: ModelPlan | Model | str | os.PathLike[str], device: str | None = None, **options: Any
) -> Bisection:
    """Find the first unit whose results differ where ExecuTorch's delegate runs it on this host.

    Arguments are those of :func:`nnapi_prof.bisect`. A culprit's ``ways`` say whether the fault
    also shows without the delegate. Raises UsageError where the device is not on this host.
    """
    with contextlib.ExitStack() as stack:
        stopwatches: dict[str, Stopwatch] = {}

        def through(*arguments: Any) -> RegionProbe:
            probe = DelegateProbe(*arguments)
            device, threads = probe.client.serial, probe.conditions.threads
            if device not in stopwatches:
                stopwatches[device] = stack.enter_context(Stopwatch(device, threads))
            probe.stopwatch = stopwatches[device]
            return probe

        return bisect_regions(plan, device, through=through, **options)


class DelegateProbe(RegionProbe):
    """Runs regions as delegated calls of one program; each repeat is a new process."""

    stopwatch: Stopwatch

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.way = replace(self.way, delegate=True)

    def ways(self) -> list[Way]:
        return [Way(self.conditions.mode, delegate=True, runs=self.way.runs), *super().ways()]

    def execute_in(self, cases: Sequence[tuple[UnitRun, Way]], repeats: int) -> list[Runs]:
        """Run the delegate's cases by the delegate, and the others by the agent.

        Where a call fails, the agent says which regions the driver refuses, and the others run
        again, each in a separate program if necessary. Raises DeviceError where the device fails.
        """
        plain = [case for case in cases if not case[1].delegate]
        answers = dict(zip(plain, super().execute_in(plain, repeats), strict=True))
        delegated = [case for case in cases if case[1].delegate]
        if delegated:
            self.requests += 1
            way, regions = delegated[0][1], [region for region, _ in delegated]
            answers |= {(region, way): runs for region, runs in self._ask(regions, way, repeats)}
        return [answers[case] for case in cases]

    def _ask(
        self, regions: Sequence[UnitRun], way: Way, repeats: int
    ) -> Iterator[tuple[UnitRun, Runs]]:
        answers = self._run(regions, way, repeats)
        if not any(run.status is not Status.OK for _, run in answers[0]):
            yield from zip(regions, answers, strict=True)
            return
        alone = [(region, replace(way, delegate=False, runs=1)) for region in regions]
        others: list[UnitRun] = []
        for region, runs in zip(regions, super().execute_in(alone, 1), strict=True):
            if any(run.status is Status.REFUSED for _, run in runs):
                yield region, runs
            else:
                others.append(region)
        if len(others) < len(regions):
            yield from self._ask(others, way, repeats) if others else ()
        elif len(others) == 1:
            yield others[0], answers[0]
        else:
            for region in others:
                yield region, self._run([region], way, repeats)[0]

    def _run(self, regions: Sequence[UnitRun], way: Way, repeats: int) -> list[Runs]:
        """Run regions in one program on every sample, as :meth:`RegionProbe.execute_in` does."""
        runs: list[Runs] = [[] for _ in regions]
        try:
            calls = [self._call(region) for region in regions]
            path = self._write(calls)
        except Exception as error:  # any error of PyTorch or ExecuTorch in lowering
            failure = Execution(Status.FAILED, f"it cannot be lowered: {error_line(error)}")
            return [[(0, failure)] for _ in regions]
        for sample, repeat in itertools.product(range(len(self.references)), range(repeats)):
            n_runs = way.runs if repeat % 2 else 1
            inputs = self._inputs(calls, sample)
            timing = self.stopwatch.run(path, inputs, n_runs, LIMIT_S)
            self.executions += len(regions)
            outputs = iter(timing.outputs or ())
            for region, call, own in zip(regions, calls, runs, strict=True):
                values = dict(zip(call.outputs, outputs, strict=False))
                run = Execution(timing.status, timing.message, values, reused=n_runs > 1)
                own.append((sample, self.judged(run, sample, region)))
        return runs

    def _inputs(self, calls: Sequence[DelegatedCall], sample: int) -> tuple[torch.Tensor, ...]:
        values = self.references[sample]
        return tuple(values[name].contiguous() for call in calls for name in call.inputs)

    def _write(self, calls: Sequence[DelegatedCall]) -> Path:
        """Write calls as one file; returns its path."""
        partitioner = NnapiPartitioner("nnapi:auto/fast")  # the calls say where they run
        partitioner.calls = tuple(calls)
        with silence():
            module = calls_module(calls)
            exported = torch.export.export(module, self._inputs(calls, 0), strict=False)
            edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
            return self.stopwatch.write(bytes(edge.to_executorch().buffer))

    def _call(self, region: UnitRun) -> DelegatedCall:
        segment = Segment(region, self.target, 0.0, "")
        plan = Plan("region", (segment,), self.client.info().simulated)
        key = self.target.base.key
        device = DescribedDevice({key: self.level, CPU.key: self.level}, key, "", plan.simulated)
        bundle = bundle_at(self.program, "", device, (plan,), self.conditions, ())
        return segment_call(bundle, segment)
