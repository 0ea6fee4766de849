"""Run regions on the device with reference inputs and compare the outputs with references."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from nnapi_prof.bisection import Region as UnitRun
from nnapi_prof.bisection import Verdict
from nnapi_prof.bisection import halves as halves_of
from nnapi_prof.bisection.deviation import Deviation, deviation, worst
from nnapi_prof.bisection.diagnosis import Way
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region, operand_of, to_float16
from nnapi_prof.costs import Conditions, Mode, Precision
from nnapi_prof.costs.measurement import Status
from nnapi_prof.costs.model.forms import Forms, unit_forms
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.build import build_host
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.device.protocol import ActionResult
from nnapi_prof.device.protocol.actions import TensorSource, Timing
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.errors import ConversionError, UnsupportedOp
from nnapi_prof.execution import ActionOptions
from nnapi_prof.execution.actions import PreparedAction, build_action
from nnapi_prof.graph.plan import AUTO, Engine, Target
from nnapi_prof.graph.program import (
    Program,
    all_values,
    constant_outputs,
    from_memory,
    run_units,
    to_memory,
)

HOST_LEVEL = 30
"""Feature level of the host's library."""


def reference_values(program: Program, inputs: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return every value between units: from eager PyTorch, or for 8 bits an integer reference.

    The integer reference is NNAPI's own arithmetic, unit by unit, in the host's library. Raises
    BuildError if that cannot be built.
    """
    values = dict(zip(program.units.inputs, inputs, strict=True)) | constant_outputs(program)
    graph = program.units
    if all(type_.quant is None for type_ in graph.values.values()):
        return values | all_values(program, inputs)
    nnapi = HostNnapi(build_host().library)
    for unit in graph.units:
        reads = {name: values[name] for name in unit.inputs}
        region = None
        if any(graph.values[name].quant is not None for name in (*unit.inputs, *unit.outputs)):
            region = _convert_or_none(program, (unit.index,), HOST_LEVEL)
        if region is None:
            values |= run_units(program, (unit.index,), reads)
        else:
            outputs = nnapi.compile(region).run([values[name] for name in region.inputs])
            values |= dict(zip(region.outputs, outputs, strict=True))
    return values


def _convert_or_none(program: Program, units: UnitRun, level: int) -> Region | None:
    try:
        return convert_region(program, units, level)
    except (UnsupportedOp, ConversionError):
        return None


@dataclass(frozen=True)
class Execution:
    """One execution of a region. ``values`` are its outputs by name, empty where it failed."""

    status: Status
    message: str | None = None
    values: Mapping[str, torch.Tensor] = field(default_factory=dict, repr=False)
    deviations: tuple[Deviation, ...] = ()
    """Deviation of each output from its reference."""
    reused: bool = False
    """The compilation had run before."""

    @property
    def ratio(self) -> float:
        """The worst error as a multiple of the allowed error."""
        if self.status is not Status.OK:
            return math.inf
        off = worst(self.deviations)
        return 0.0 if off is None else off.ratio


class RegionProbe:
    """Runs regions of a program on one target; a probe of :class:`nnapi_prof.bisection.Halving`.

    ``references`` are the values of each sample. ``budget`` is that of
    :func:`.deviation.deviation`.
    """

    def __init__(
        self,
        program: Program,
        client: AgentClient,
        target: Target,
        level: int,
        references: Sequence[Mapping[str, torch.Tensor]],
        conditions: Conditions,
        budget: float | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.program = program
        self.target = target
        self.level = level
        self.references = references
        self.forms: Forms = {}
        """A plan's forms of products of activations."""
        self.conditions = conditions
        self.budget = budget
        self.way = Way(conditions.mode)
        self.requests = 0
        """Requests to the device."""
        self.executions = 0
        """Executions of regions on the device, counting every repeat and sample."""
        self.refusals: dict[int, str] = {}
        """Unit number -> the reason why the unit was not executed alone."""
        self.output_error: float | None = None
        """Relative error of the model's outputs; None if no region computes all of them."""
        self.client = client
        self._tell = tell
        self._regions: dict[UnitRun, Region | str] = {}

    @property
    def precision(self) -> Precision:
        """The precision in which the target computes."""
        return self.conditions.precision_of(self.target)

    def variant(
        self,
        way: Way,
        program: Program | None = None,
        references: Sequence[Mapping[str, torch.Tensor]] | None = None,
        conditions: Conditions | None = None,
    ) -> RegionProbe:
        """Return a probe of the same target without a plan's precision; None keeps this probe's."""
        other = copy.copy(self)
        other.program = program or self.program
        other.references = references or self.references
        other.conditions = conditions or self.conditions
        other.target, other.way = self.target.base, way
        other.refusals, other._regions = {}, {}
        return other

    def ways(self) -> list[Way]:
        """Return the ways in which an app may reach the target's driver, with this probe's number
        of runs."""
        if self.target.engine is not Engine.NNAPI:
            return [Way(self.conditions.mode, runs=self.way.runs)]
        modes = [Mode.SYNC] if self.target.accelerator == AUTO else [Mode.SYNC, Mode.BURST]
        return [
            Way(mode, pointers, runs=self.way.runs)
            for mode, pointers in itertools.product(modes, (False, True))
        ]

    def __call__(self, regions: Sequence[UnitRun], repeats: int) -> list[Verdict]:
        self._tell(self.program.units.label([unit for region in regions for unit in region]))
        whole = [region for region in regions if isinstance(self.convert(region), Region)]
        answers = dict(zip(whole, self.execute(whole, repeats), strict=True))
        return [self._verdict(region, answers.get(region)) for region in regions]

    def _verdict(self, region: UnitRun, runs: Sequence[tuple[int, Execution]] | None) -> Verdict:
        refusal = self._refusal(region, runs)
        if runs is None or refusal is not None:
            if len(region) == 1:
                self.refusals[region[0]] = refusal or "refused"
            return Verdict(0.0, refused=True, parts=self._parts(region))
        outputs = set(self.program.units.outputs)
        first = self.output_error is None  # the largest region comes first
        if first and outputs <= set(self.program.units.boundary(region)[1]):
            self.output_error = max(
                (off.relative for _, run in runs for off in run.deviations if off.value in outputs),
                default=math.inf,
            )
        return Verdict(max((run.ratio for _, run in runs), default=0.0))

    def _refusal(self, region: UnitRun, runs: Sequence[tuple[int, Execution]] | None) -> str | None:
        """Return the reason why a region was not executed; None if it was."""
        converted = self.convert(region)
        if isinstance(converted, str):
            return converted
        refused = (run for _, run in runs or () if run.status is Status.REFUSED)
        return next((run.message or "the driver refuses it" for run in refused), None)

    def convert(self, region: UnitRun) -> Region | str:
        """Return the region's NNAPI model, or the reason why there is none."""
        if region not in self._regions:
            self._regions[region] = self._convert(region)
        return self._regions[region]

    def _convert(self, region: UnitRun) -> Region | str:
        types = self.program.units.values
        crossing = [name for side in self.program.units.boundary(region) for name in side]
        beyond = [name for name in crossing if operand_of(types[name]) is None]
        if beyond:
            return f"{beyond[0]} is {types[beyond[0]]}, which does not cross to a device"
        try:
            forms = unit_forms(self.forms, region, self.target)
            converted = convert_region(self.program, region, self.level, forms)
            return to_float16(converted) if self.conditions.halves(self.target) else converted
        except (UnsupportedOp, ConversionError) as error:
            return str(error)

    def execute(
        self, regions: Sequence[UnitRun], repeats: int
    ) -> list[list[tuple[int, Execution]]]:
        """Run regions like :meth:`execute_in`, in the probe's own way."""
        return self.execute_in([(region, self.way) for region in regions], repeats)

    def execute_in(
        self, cases: Sequence[tuple[UnitRun, Way]], repeats: int
    ) -> list[list[tuple[int, Execution]]]:
        """Run convertible regions on every sample, in one request; each repeat is a new process.

        Every second process runs the region ``way.runs`` times and keeps the last outputs. Returns
        the executions of each case, each with the number of its sample. Raises DeviceError if the
        device fails as a whole.
        """
        if not cases:
            return []
        request = RequestBuilder()
        actions: list[tuple[int, int, bool, PreparedAction]] = []
        for place, (region, way) in enumerate(cases):
            conditions = replace(self.conditions, mode=way.mode)
            on_engine = conditions.on(self.target)
            converted = self.convert(region)
            assert isinstance(converted, Region), converted
            for sample, values in enumerate(self.references):

                def feed(
                    name: str, values: Mapping[str, torch.Tensor] = values
                ) -> tuple[TensorSource, int]:
                    data = to_memory(values[name], self.program.units.values[name])
                    return TensorSource.BLOB, request.add_blob(data)

                for repeat in range(repeats):
                    runs = way.runs if repeat % 2 else 1
                    once = Timing.once()
                    timing = replace(
                        once, min_runs=runs, max_runs=runs, timeout_ms=runs * once.timeout_ms
                    )
                    prepared = build_action(
                        len(actions), [(self.target, converted)], feed, request, timing,
                        ActionOptions(on_engine, untimed=runs == 1), keep=converted.outputs,
                    )  # fmt: skip
                    spec = prepared.spec
                    if way.pointers:
                        spec = replace(spec, pointers=True)
                    request.add_action(spec)
                    actions.append((place, sample, runs > 1, prepared))
        self.requests += 1
        results: list[list[tuple[int, Execution]]] = [[] for _ in cases]
        for event in self.client.run(request.request()):
            if isinstance(event, ActionResult):
                self.executions += 1
                place, sample, reused, prepared = actions[event.action]
                names = {index: name for name, index in prepared.tensors.items()}
                execution = self._execution(event, names)
                execution = replace(execution, reused=reused)
                results[place].append((sample, self.judged(execution, sample, cases[place][0])))
        return results

    def _execution(self, result: ActionResult, names: Mapping[int, str]) -> Execution:
        if not result.ok:
            return Execution(result.status, result.message)
        types = self.program.units.values
        values = {
            names[output.tensor]: from_memory(
                self.client.pull_output(output), types[names[output.tensor]]
            )
            for output in result.outputs
        }
        return Execution(Status.OK, None, values)

    def judged(self, run: Execution, sample: int, region: UnitRun) -> Execution:
        """Return an execution of a region with its deviations."""
        types, expected = self.program.units.values, self.references[sample]
        how = (self.budget, self.precision)
        deviations = tuple(
            deviation(name, mine, expected[name], types[name], *how, n_units=len(region))
            for name, mine in run.values.items()
        )
        return replace(run, deviations=deviations)

    def taken(self, units: Sequence[int]) -> set[int]:
        """Return the units that the target accepts one by one. Takes one run."""
        alone = [(unit,) for unit in units if isinstance(self.convert((unit,)), Region)]
        samples, self.references = self.references, self.references[:1]
        try:
            answers = self.execute(alone, 1)
        finally:
            self.references = samples
        executed = dict(zip(alone, answers, strict=True))
        refusals = {unit: self._refusal((unit,), executed.get((unit,))) for unit in units}
        self.refusals |= {unit: why for unit, why in refusals.items() if why is not None}
        return {unit for unit, why in refusals.items() if why is None}

    def taken_parts(self, region: UnitRun) -> list[UnitRun]:
        """Return the runs of a region's units that were not refused."""
        parts: list[list[int]] = [[]]
        for unit in region:
            if unit in self.refusals:
                parts.append([])
            else:
                parts[-1].append(unit)
        return [tuple(part) for part in parts if part]

    def _parts(self, region: UnitRun) -> tuple[UnitRun, ...]:
        """Return the runs of a refused region's units that the target accepts one by one."""
        if len(region) == 1:
            return ()
        self.taken(region)
        parts = tuple(self.taken_parts(region))
        return halves_of(region) if parts == (region,) else parts
