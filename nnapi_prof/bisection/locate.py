"""Finding the units that compute something else, and describing each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from nnapi_prof.bisection.deviation import Deviation, difference, movement, worst
from nnapi_prof.bisection.diagnosis import FaultKind, facts_of, kind_of
from nnapi_prof.bisection.probe import Execution, RegionProbe
from nnapi_prof.bisection.result import Culprit, Way, WayCheck
from nnapi_prof.bisection.search import LAST_REPEATS, Finding, Halving, Region
from nnapi_prof.costs.conditions import Mode, Precision
from nnapi_prof.costs.measurement import Status
from nnapi_prof.graph.eager import run_units
from nnapi_prof.graph.plan import AUTO, Engine
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.source import source_of


@dataclass(frozen=True)
class Located:
    """Outcome of the search of one target."""

    culprits: tuple[Culprit, ...]
    unsteady: tuple[str, ...]
    """Labels of units that differ no more than rounding moves eager PyTorch."""
    runs: int
    """Requests to the device of the search."""
    final_error: float | None


def locate(
    probe: RegionProbe, regions: Sequence[Region], driver_version: str, *, find_all: bool
) -> Located:
    """Search regions of a target; the first culprit alone, or with ``find_all`` every one."""
    search = Halving(probe)
    culprits: list[Culprit] = []
    unsteady: list[str] = []
    whole = _whole_error(probe, regions)
    for finding in _findings(search, regions):
        culprit = _describe(probe, finding, driver_version, whole)
        if culprit is None:
            unsteady.append(probe.program.units.label(finding.region))
            continue
        culprits.append(culprit)
        if not find_all:
            break
    return Located(tuple(culprits), tuple(unsteady), search.runs, whole)


def _findings(search: Halving, regions: Sequence[Region]) -> Iterator[Finding]:
    """Yield what the halving finds, else what each unit alone shows."""
    n_findings = 0
    for finding in search.search(regions):
        n_findings += 1
        yield finding
    if not n_findings:
        yield from search.alone(regions)


def _whole_error(probe: RegionProbe, regions: Sequence[Region]) -> float | None:
    """Return the error of the model's outputs where one region computes all of them."""
    outputs = set(probe.program.units.outputs)
    if len(regions) != 1 or not outputs <= set(probe.program.units.boundary(regions[0])[1]):
        return None
    if isinstance(probe.convert(regions[0]), str):
        return None
    runs = probe.execute([regions[0]], 1)[0]
    errors = [
        off.relative
        for sample, run in runs
        for off in probe.deviations(run, sample)
        if off.value in outputs
    ]
    return max(errors, default=None)


def _describe(
    probe: RegionProbe, finding: Finding, driver_version: str, whole: float | None
) -> Culprit | None:
    """Describe a finding; None where rounding explains its error."""
    region, program = finding.region, probe.program
    runs = probe.execute([region], LAST_REPEATS)[0]
    sample, run = max(runs, key=lambda each: probe.ratio(each[1], each[0]))
    off = worst(probe.deviations(run, sample)) or Deviation("", math.inf, math.inf, math.inf)
    values = probe.references[sample]
    entering, leaving = program.units.boundary(region)
    inputs = {name: values[name] for name in entering}
    outputs = {name: values[name] for name in leaving}
    steady = _repeats(runs)
    is_float = run.status is Status.OK and program.units.values[off.value].quant is None
    if run.status is Status.OK and probe.ratio(run, sample) <= 1.0:
        return None  # it came and went, and could not be shown again
    if is_float and steady and math.isfinite(off.relative):
        moved = movement(program, region, inputs, outputs, probe.precision)
        if off.relative <= 2 * moved:
            return None
    half = movement(program, region, inputs, outputs, Precision.FLOAT16) if is_float else 0.0
    facts = tuple(
        (name, facts_of(mine, values[name]))
        for name, mine in run.values.items()
        if difference(mine.double(), values[name].double()).max() > 0
    )
    kind = kind_of(
        [each for _, each in facts],
        runs=run.status is Status.OK,
        repeats=steady,
        n_units=len(region),
        error=off.relative,
        half_movement=half,
    )
    final = _final_error(program, region, run, values)
    return Culprit(
        units=region,
        names=tuple(program.units.units[unit].name for unit in region),
        label=program.units.label(region),
        target=probe.target,
        driver_version=driver_version,
        source=source_of(
            program.nodes[name] for unit in region for name in program.units.units[unit].nodes
        ),
        kind=kind,
        worst=off,
        final_error=final,
        final_share=None if final is None or not whole else min(1.0, final / whole),
        facts=facts,
        ways=_ways(probe, region, kind),
        message=run.message,
        sample=sample,
    )


def _repeats(runs: Sequence[tuple[int, Execution]]) -> bool:
    """Whether executions with equal inputs gave equal outputs."""
    by_sample: dict[int, list[Execution]] = {}
    for sample, run in runs:
        by_sample.setdefault(sample, []).append(run)
    return all(
        a.status is b.status
        and all(
            torch.equal(_bits(value), _bits(b.values[name])) for name, value in a.values.items()
        )
        for executions in by_sample.values()
        for a, b in itertools.pairwise(executions)
    )


def _bits(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor's numbers with every NaN alike, for comparison."""
    return value.nan_to_num(nan=math.pi) if value.is_floating_point() else value


def _final_error(
    program: Program, region: Region, run: Execution, values: Mapping[str, torch.Tensor]
) -> float | None:
    """Return the outputs' relative error where all units but the region's compute as eager does."""
    if run.status is not Status.OK:
        return None
    graph = program.units
    later = [unit.index for unit in graph.units if unit.index > min(region)]
    later = [unit for unit in later if unit not in region]
    current = {**values, **run.values}
    for unit in later:
        reads = {name: current[name] for name in graph.units[unit].inputs}
        current |= run_units(program, (unit,), reads)
    errors = []
    for name in graph.outputs:
        reference = values[name].double()
        apart = difference(current[name].double(), reference)
        finite = reference[reference.isfinite()]
        largest = finite.abs().max().item() if finite.numel() else 0.0
        error = apart.max().item() if apart.numel() else 0.0
        errors.append(error / largest if largest > 0 else (math.inf if error else 0.0))
    return max(errors, default=None)


def _ways(probe: RegionProbe, region: Region, kind: FaultKind) -> tuple[WayCheck, ...]:
    """Try a region in every way in which an app may reach the driver."""
    target = probe.target
    if target.engine is not Engine.NNAPI or kind is FaultKind.RACE:
        return ()
    modes = [Mode.SYNC] if target.accelerator == AUTO else [Mode.SYNC, Mode.BURST]
    checks = []
    for mode, pointers in itertools.product(modes, (False, True)):
        way = Way(mode, pointers)
        runs = probe.execute([region], 1, way)[0]
        checks.append(WayCheck(way, any(probe.ratio(run, sample) > 1 for sample, run in runs)))
    return tuple(checks)
