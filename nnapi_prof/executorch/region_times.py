"""Time regions of a model through each candidate in ExecuTorch: rows of costs, and a cost model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from nnapi_prof.costs.measurement import Kind, Measurement, Status, work_columns
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import RegionMatcher, UnitSet, fit
from nnapi_prof.errors import NnapiProfError, escape_untrusted
from nnapi_prof.execution.compare import TOLERANCE, compare
from nnapi_prof.execution.judgement import last_step
from nnapi_prof.execution.profile.jobs import region_label
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.executorch.aot import (
    Partitioner,
    XnnpackPartitioner,
    silence,
    to_edge_transform_and_lower,
)
from nnapi_prof.executorch.host import VERSION
from nnapi_prof.executorch.partitioner import Candidate
from nnapi_prof.executorch.placement import computes_nothing, region_module
from nnapi_prof.executorch.stopwatch import ProgramTiming, Stopwatch
from nnapi_prof.graph.plan import HOST, Target
from nnapi_prof.graph.program import Program, as_array
from nnapi_prof.graph.unit import Unit, UnitGraph

# Regions of a model as separate programs, lowered through any ExecuTorch partitioner.


class NotLowered(NnapiProfError):
    """A program that a partitioner or its back end does not take; the message says why."""


@dataclass(frozen=True)
class RegionProgram:
    """Some units as a separate program."""

    exported: ExportedProgram
    inputs: tuple[str, ...]
    """Values of the model's graph that it takes, in order."""
    outputs: tuple[str, ...]
    """Values that it returns, in order."""


def without_layout(program: Program) -> Program:
    """Removes units that only change dim orders, as ExecuTorch's values are all contiguous. Readers
    of their outputs read their inputs instead."""
    graph = program.units
    alias: dict[str, str] = {}
    units: list[Unit] = []
    for unit in graph.units:
        inputs = tuple(alias.get(name, name) for name in unit.inputs)
        if computes_nothing(program, unit):
            alias |= dict.fromkeys(unit.outputs, inputs[0])
        else:
            units.append(replace(unit, index=len(units), inputs=inputs))
    outputs = tuple(alias.get(name, name) for name in graph.outputs)
    values = {name: type_ for name, type_ in graph.values.items() if name not in alias}
    return replace(program, units=UnitGraph(tuple(units), values, graph.inputs, outputs))


class _Recorder(fx.Interpreter):
    """Runs a module and keeps some of its values."""

    def __init__(self, module: fx.GraphModule, names: Iterable[str]) -> None:
        super().__init__(module)
        self._names = frozenset(names)
        self.values: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self._names:
            self.values[n.name] = value.detach().contiguous()
        return value


def values_of(program: Program, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """Computes the values between the units of a program in eager PyTorch."""
    recorder = _Recorder(program.module, program.units.values)
    with torch.no_grad():
        recorder.run(*inputs)
    return recorder.values


def region_program(
    program: Program, units: Iterable[int], values: dict[str, Tensor]
) -> RegionProgram:
    """Exports units as a program; ``values`` are those between units. Raises NotLowered."""
    try:
        module, inputs, outputs = region_module(program, units)
        with silence():
            examples = tuple(values[name] for name in inputs)
            exported = torch.export.export(module, examples, strict=False)
    except Exception as error:  # any error of PyTorch's export
        raise NotLowered(f"it cannot be exported: {error_line(error)}") from error
    return RegionProgram(exported, inputs, outputs)


def lower_program(exported: ExportedProgram, partitioners: Sequence[Partitioner]) -> Any:
    """Lowers a program by partitioners in list order, as ExecuTorch does; returns its manager.

    Raises NotLowered with the error that occurred.
    """
    try:
        with silence():
            return to_edge_transform_and_lower(exported, partitioner=list(partitioners))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a partitioner is anybody's code
        raise NotLowered(error_line(error)) from error


def file_of(manager: Any) -> bytes:
    """Returns the bytes of the ``.pte`` of an EdgeProgramManager. Raises NotLowered."""
    try:
        with silence():
            return bytes(manager.to_executorch().buffer)
    except Exception as error:  # a partitioner left operators that no kernel supports
        raise NotLowered(error_line(error)) from error


def delegates(exported: ExportedProgram) -> dict[str, int]:
    """Returns the number of calls in a lowered program by name of the back end."""
    counts: dict[str, int] = {}
    for module in exported.graph_module._modules.values():
        backend = getattr(module, "backend_id", None)
        if backend is not None:
            counts[backend] = counts.get(backend, 0) + 1
    return counts


def error_line(error: BaseException) -> str:
    """Returns the name of an error, and the first non-empty line of its message."""
    lines = (line.strip() for line in str(error).split("\n"))
    words = escape_untrusted(next((line for line in lines if line), ""), 300)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


LIMIT_S = 20.0
"""Longest time in seconds to load and time a region or a whole file."""
SLOWEST = 50
"""Ratio to the time of the fastest other candidate beyond which a candidate cannot win."""
START_S = 1.0
"""Seconds to start a child process and load a program on a busy host."""
RUNS_FIRST = 5
"""Number of runs of a slow program in the stopwatch: the first, a warm one, and three."""
UNSIGNED = (
    "XNNPACK's delegate takes signed integers of 8 bits for quantised values, and between the units"
    " of a plan they are unsigned: it competes with the whole model"
)
LEAST_NS = 100
"""Smallest time in ns after the time of an empty program is subtracted."""


@dataclass(frozen=True, slots=True)
class RegionRefusal:
    """A region that a candidate does not run."""

    units: UnitSet
    label: str
    candidate: str
    status: Status
    """REFUSED by the partitioner or its back end, FAILED or CRASHED in ExecuTorch, TIMEOUT."""
    reason: str


class RegionTimes:
    """Measures regions of ``program``, which take and must return its values on ``inputs``.

    Times are those of ExecuTorch's ``execute``, minus its time for an empty program, as a region
    within a program does not have that overhead.
    """

    def __init__(
        self, program: Program, inputs: Sequence[Tensor], stopwatch: Stopwatch, simulated: bool
    ) -> None:
        self.program = program
        self.values = values_of(program, inputs)
        self._stopwatch = stopwatch
        self.simulated = simulated
        self._rows: dict[tuple[str, Target], Measurement] = {}
        self._regions: set[UnitSet] = set()
        self._matcher = RegionMatcher(program.units)
        self._baselines: set[tuple[str, Target]] = set()
        self._exported: dict[UnitSet, RegionProgram] = {}
        self._floor_ns = self._nothing_ns()

    @property
    def graph(self) -> UnitGraph:
        return self.program.units

    def row(self, units: UnitSet, target: Target) -> Measurement | None:
        """Returns the row of a region, or of one equal to it."""
        return self._rows.get((self._matcher.signature(units), target))

    def measure(self, units: UnitSet, candidate: Candidate) -> Measurement:
        """Returns the row of a region through a candidate: the region is lowered, run and compared
        with eager PyTorch unless an equal one was."""
        self._regions.add(units)
        row = self.row(units, candidate.target)
        if row is None:
            row = self._add(units, candidate.target, self._timing(units, candidate))
        return row

    def add_baseline(self, target: Target, timing: ProgramTiming) -> None:
        """Adds the row of a whole file."""
        everything = tuple(range(len(self.graph.units)))
        if everything:
            row = self._add(everything, target, timing)
            self._baselines.add((row.signature, target))

    def _add(self, units: UnitSet, target: Target, timing: ProgramTiming) -> Measurement:
        graph = self.graph
        members = [graph.units[u] for u in units]
        entering, leaving = graph.boundary(units)
        row = Measurement(
            signature=self._matcher.signature(units),
            kind=Kind.UNIT if len(units) == 1 else Kind.REGION,
            label=region_label(graph, units),
            members=tuple(unit.signature for unit in members),
            offsets=tuple(u - units[0] for u in units),
            **work_columns([unit.work for unit in members]),
            target=target,
            fingerprint="",
            agent_version=f"executorch {VERSION}",
            status=timing.status,
            message=timing.message,
            samples_ns=tuple(max(LEAST_NS, ns - self._floor_ns) for ns in timing.samples_ns),
            rounds=timing.rounds,
            input_bytes=sum(graph.values[name].n_bytes for name in entering),
            output_bytes=sum(graph.values[name].n_bytes for name in leaving),
            simulated=self.simulated,
        )
        self._rows[row.signature, target] = row
        self._regions.add(units)
        return row

    def model(self) -> CostModel:
        """Returns the cost model of all measurements. Raises CostError where a unit has none."""
        model = fit(self.graph, self._rows.values(), regions=self._regions, matcher=self._matcher)
        targets = tuple(target for target in model.targets if target != HOST)
        tried = {row.target for row in self._rows.values() if row.kind is Kind.UNIT}
        partial = {target for _, target in self._baselines if target not in tried}
        return replace(model, targets=targets, partial=frozenset(partial), _host_ns={})

    def refusals(self) -> tuple[RegionRefusal, ...]:
        """Returns the regions that did not run, each kind once; whole files are not among them."""
        regions = sorted(self._regions, reverse=True)
        place = {self._matcher.signature(units): units for units in regions}
        return tuple(
            RegionRefusal(
                place[signature],
                row.label,
                target.key.partition(":")[2],
                row.status,
                row.message or row.status.value,
            )
            for (signature, target), row in self._rows.items()
            if not row.usable and (signature, target) not in self._baselines
        )

    def region(self, units: UnitSet) -> RegionProgram:
        """Returns a region as a program; keeps the last one. Raises NotLowered."""
        if units not in self._exported:
            self._exported = {units: region_program(self.program, units, self.values)}
        return self._exported[units]

    def _timing(self, units: UnitSet, candidate: Candidate) -> ProgramTiming:
        try:
            if isinstance(candidate.partitioner, XnnpackPartitioner) and self._is_unsigned(units):
                raise NotLowered(UNSIGNED)
            region = self.region(units)
            partitioners = candidate.fresh()  # held here until its file is written
            edge = lower_program(region.exported, partitioners)
            if partitioners and not delegates(edge.exported_program()):
                raise NotLowered("it takes nothing of it")
            file = file_of(edge)
        except NotLowered as refusal:
            return ProgramTiming(Status.REFUSED, message=str(refusal))
        inputs = [self.values[name] for name in region.inputs]
        timing = self._stopwatch.time(file, inputs, self._limit_s(units))
        expected = [self.values[name] for name in region.outputs]
        steps = [last_step(self.program, name) for name in region.outputs]
        return agreeing(timing, region.outputs, expected, steps)

    def _is_unsigned(self, units: UnitSet) -> bool:
        """Returns whether a region has quantised values in unsigned integers of 8 bits."""
        values = self.graph.values
        names = {name for u in units for name in (*self.graph.units[u].inputs,)}
        names |= {name for u in units for name in self.graph.units[u].outputs}
        types = (values[name] for name in names)
        return any(type_.quant is not None and type_.dtype == "uint8" for type_ in types)

    def _limit_s(self, units: UnitSet) -> float:
        """Returns the time limit of a region; shorter where another candidate was fast."""
        signature = self._matcher.signature(units)
        medians = [
            row.summary.median_ns
            for (known, _), row in self._rows.items()
            if known == signature and row.usable
        ]
        if not medians:
            return LIMIT_S
        return min(LIMIT_S, START_S + RUNS_FIRST * SLOWEST * min(medians) / 1e9)

    def _nothing_ns(self) -> int:
        class Nothing(torch.nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x

        x = torch.zeros(1)
        file = file_of(lower_program(torch.export.export(Nothing(), (x,)), []))
        timing = self._stopwatch.time(file, [x], LIMIT_S)
        return min(timing.samples_ns, default=0)


Allow = Callable[[tuple[OutputCheck, ...], Sequence[Tensor]], tuple[OutputCheck, ...]]
"""Checks and the outputs that they are for -> the checks, of which more may pass."""


def agreeing(
    timing: ProgramTiming,
    names: Sequence[str],
    expected: Sequence[Tensor],
    steps: Sequence[float],
    allow: Allow | None = None,
    tolerance: float = TOLERANCE,
) -> ProgramTiming:
    """Returns a timing, marked as failed where its outputs are not those of eager PyTorch.
    ``allow`` may let more pass; without it, integers are judged like floats. ``tolerance`` is
    relative to an output's largest value."""
    if timing.status is not Status.OK or timing.outputs is None:
        return timing
    if len(timing.outputs) != len(expected):
        message = f"it returns {len(timing.outputs)} values instead of {len(expected)}"
        return ProgramTiming(Status.FAILED, message=message)
    actual, reference = list(map(as_array, timing.outputs)), list(map(as_array, expected))
    integers = tolerance if allow is None else 0.0
    checks = compare(names, actual, reference, tolerance, steps, integers)
    for check in checks if allow is None else allow(checks, timing.outputs):
        if not check.ok:
            difference, allowed = check.texts()
            message = (
                f"output {check.name} differs from eager PyTorch by {difference} of its"
                f" largest value, {allowed} is allowed"
            )
            return ProgramTiming(Status.FAILED, message=message)
    return timing
