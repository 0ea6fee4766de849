"""Locate the units with wrong results, describe each, and find rewrites that agree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from nnapi_prof.advice import Rewrite
from nnapi_prof.advice.search import as_program, moved, names_of, rewritten, rules_for
from nnapi_prof.bisection import (
    FIRST_REPEATS,
    LAST_REPEATS,
    FaultKind,
    Finding,
    Halving,
    Region,
    Verdict,
)
from nnapi_prof.bisection.deviation import Deviation, difference, movement, worst
from nnapi_prof.bisection.diagnosis import (
    MANY_RUNS,
    Culprit,
    Way,
    WayCheck,
    facts_of,
    kind_of,
)
from nnapi_prof.bisection.probe import Execution, RegionProbe, reference_values
from nnapi_prof.costs import Precision
from nnapi_prof.costs.measurement import Status
from nnapi_prof.graph.node import source_of
from nnapi_prof.graph.program import Program, run_units


@dataclass(frozen=True)
class Located:
    """Outcome of the search on one target."""

    culprits: tuple[Culprit, ...]
    unsteady: tuple[str, ...]
    """Labels of units whose differences rounding explains, or that did not differ again."""
    runs: int
    """Requests to the device until the search ended."""
    unchecked: Mapping[int, str]
    """Unit number -> the reason why it was not checked."""


def locate(
    probe: RegionProbe,
    regions: Sequence[Region],
    driver_version: str,
    *,
    find_all: bool,
    every_way: bool = False,
) -> Located:
    """Search regions of a target for the first culprit, or with ``find_all`` for every one.

    With ``every_way``, regions that agree when run the probe's own way are searched in the first
    other way in which they differ.
    """
    culprits: list[Culprit] = []
    unsteady: dict[str, None] = {}
    described = 0
    for findings in _stages(probe, regions, every_way=every_way):
        for finding in findings:
            way = probe.way
            finding = _alone_after_many_runs(probe, finding)
            before = probe.requests
            culprit = _describe(probe, finding, driver_version)
            described += probe.requests - before
            probe.way = way
            if culprit is None:
                unsteady[probe.program.units.label(finding.region)] = None
                continue
            culprits.append(culprit)
            if not find_all:
                break
        if culprits:
            break
    return Located(
        tuple(culprits), tuple(unsteady), probe.requests - described, dict(probe.refusals)
    )


def _stages(
    probe: RegionProbe, regions: Sequence[Region], *, every_way: bool
) -> Iterator[Iterator[Finding]]:
    """Yield the findings of halving, then of each unit alone, then of other ways.

    The caller stops after a stage that found a culprit.
    """
    search = Halving(probe)
    yield search.search(regions)
    yield search.alone(regions)
    if every_way:
        taken = [part for region in regions for part in probe.taken_parts(region)]
        yield _in_other_ways(probe, taken)


def _in_other_ways(probe: RegionProbe, regions: Sequence[Region]) -> Iterator[Finding]:
    """Yield the findings in the first other way in which a region differs, or else a unit alone.

    In shared memory a compilation is executed many times, because a driver's state may grow.
    """
    own = probe.way
    ways = [way if way.pointers else replace(way, runs=MANY_RUNS) for way in probe.ways()]
    way, verdicts = _showing(probe, regions, ways)
    if way is not None:
        probe.way = way
        yield from Halving(probe, verdicts).search(regions)
        return
    units = [(unit,) for region in regions for unit in region]
    near = [w for w in ways if (w.mode is own.mode) + (w.pointers is own.pointers) > 0]
    way, verdicts = _showing(probe, units, near)
    if way is not None:
        probe.way = way
        yield from Halving(probe, verdicts).alone(regions)


def _alone_after_many_runs(probe: RegionProbe, finding: Finding) -> Finding:
    """Return the unit of a finding that differs alone after many runs of its compilation.

    State that grows in a driver may exceed the budget of several units before that of its own unit.
    If there is no such unit, the finding and the probe's way are unchanged.
    """
    own = probe.way
    if len(finding.region) == 1 or own.runs == MANY_RUNS:
        return finding
    probe.way = replace(own, runs=MANY_RUNS)
    alone = next(Halving(probe).alone([finding.region]), None)
    if alone is None:
        probe.way = own
    return alone or finding


def _showing(
    probe: RegionProbe, regions: Sequence[Region], ways: Sequence[Way]
) -> tuple[Way | None, dict[Region, Verdict]]:
    """Return the first other way in which a region differs, with each region's verdict.

    Takes one run. The way is None if no region differs in any way.
    """
    others = [way for way in ways if way != probe.way]
    cases = [(region, way) for way in others for region in regions]
    executed = iter(probe.execute_in(cases, FIRST_REPEATS))
    for way in others:
        verdicts = {
            region: Verdict(max((run.ratio for _, run in next(executed)), default=0.0))
            for region in regions
        }
        if any(verdict.differs for verdict in verdicts.values()):
            return way, verdicts
    return None, {}


def _describe(probe: RegionProbe, finding: Finding, driver_version: str) -> Culprit | None:
    """Describe a finding; None if rounding explains its error or it does not differ again."""
    region, program = finding.region, probe.program
    runs = probe.execute([region], LAST_REPEATS)[0]
    sample, run = max(runs, key=lambda each: each[1].ratio)
    off = worst(run.deviations) or Deviation("", math.inf, math.inf, math.inf)
    values = probe.references[sample]
    entering, leaving = program.units.boundary(region)
    inputs = {name: values[name] for name in entering}
    outputs = {name: values[name] for name in leaving}
    steady = _repeats(runs)
    alike = all(
        _repeats([each for each in runs if each[1].reused is reused]) for reused in (False, True)
    )
    is_float = run.status is Status.OK and program.units.values[off.value].quant is None
    if run.status is Status.OK and run.ratio <= 1.0:
        return None  # the difference did not show again
    if is_float and steady and math.isfinite(off.relative):
        moved = movement(program, region, inputs, outputs, probe.precision)
        if off.relative <= 2 * moved:
            return None
    half = movement(program, region, inputs, outputs, Precision.FLOAT16) if is_float else 0.0
    quants = {name: program.units.values[name].quant for name in run.values}
    facts = tuple(
        (name, facts_of(mine, values[name], 0 if (q := quants[name]) is None else q.zero_point))
        for name, mine in run.values.items()
        if difference(mine.double(), values[name].double()).max() > 0
    )
    kind = kind_of(
        [each for _, each in facts],
        runs=run.status is Status.OK,
        repeats=steady,
        repeats_alike=alike,
        n_units=len(region),
        error=off.relative,
        half_movement=half,
    )
    final = _final_error(program, region, run, values)
    whole = probe.output_error
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
        final_share=None if final is None or not whole else _error_share(final, whole),
        facts=facts,
        way=probe.way,
        ways=() if kind is FaultKind.RACE else _ways(probe, region),
        message=run.message,
        sample=sample,
    )


def _error_share(final: float, whole: float) -> float:
    return min(1.0, final / whole) if math.isfinite(whole) else float(not math.isfinite(final))


def _repeats(runs: Sequence[tuple[int, Execution]]) -> bool:
    """Return whether executions with equal inputs gave equal outputs."""
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
    """Return a tensor with NaN replaced by a number, for comparison."""
    return value.nan_to_num(nan=math.pi) if value.is_floating_point() else value


def _final_error(
    program: Program, region: Region, run: Execution, values: Mapping[str, torch.Tensor]
) -> float | None:
    """Return the outputs' relative error if eager PyTorch computes all units after the region."""
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


def _ways(probe: RegionProbe, region: Region) -> tuple[WayCheck, ...]:
    """Try a region in every way in which an app may reach the driver. Takes one run."""
    ways = probe.ways()
    if len(ways) < 2:
        return ()
    executed = probe.execute_in([(region, way) for way in ways], FIRST_REPEATS)
    return tuple(
        WayCheck(way, any(run.ratio > 1 for _, run in runs))
        for way, runs in zip(ways, executed, strict=True)
    )


MOST_MOVED = 1e-3
"""Largest change of the model's outputs by a rewrite, relative to the largest value. A cure keeps
the model's results: advice's hard-swish for SiLU does not qualify."""


def agreeing_rewrites(probe: RegionProbe, culprit: Culprit) -> Iterator[tuple[Rewrite, Program]]:
    """Yield the rewrites of a culprit's operations that agree on its target, and the new programs.

    Yields nothing for 8-bit models, which are not rewritten. Raises DeviceError if the device
    fails.
    """
    program = probe.program
    if any(type_.quant is not None for type_ in program.units.values.values()):
        return
    for name in names_of(program, culprit.units):
        for rule in rules_for(program.nodes[name].target):
            module = rewritten(program, {name: rule.form})
            if module is None or moved(program, module) > MOST_MOVED:
                continue
            changed = as_program(module, program)
            if changed is not None and _agrees(probe, culprit, changed):
                yield rule.rewrite, changed


def _agrees(probe: RegionProbe, culprit: Culprit, program: Program) -> bool:
    """Return whether the target computes all units correctly that the old program did not have."""
    old = {unit.nodes for unit in probe.program.units.units}
    new = [unit.index for unit in program.units.units if unit.nodes not in old]
    if not new:
        return False
    references = [
        reference_values(program, [values[name] for name in probe.program.units.inputs])
        for values in probe.references
    ]
    other = probe.variant(culprit.way, program, references)
    verdicts = other([(unit,) for unit in new], FIRST_REPEATS)
    return not any(verdict.refused or verdict.differs for verdict in verdicts)
