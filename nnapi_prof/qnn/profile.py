"""Find costs of a model on a chip by units; compile the plan's regions whole until it is stable."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nnapi_prof.costs.estimate.costs import EstimatedCosts
from nnapi_prof.costs.table import Estimate, Price
from nnapi_prof.errors import ConversionError
from nnapi_prof.graph.plan import CPU, HOST, Plan, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.qnn import Chip, NpuGeneration, QnnPrecision
from nnapi_prof.qnn import doubts as odd
from nnapi_prof.qnn.calibration import ChipCalibration, mean_ns
from nnapi_prof.qnn.compiler import Compiled, CompileRequest, CompilerPool
from nnapi_prof.qnn.costs import ChipCosts, RegionTime, UnitModel, border_values, fit_units
from nnapi_prof.qnn.graphs import Form
from nnapi_prof.qnn.network import FLOAT_REFUSED, group_refusals
from nnapi_prof.qnn.regions import activation_groups

SHORT, LONG = ((2, 2), (4, 2)), ((8, 4), (16, 8), (32, 16), (64, 32))
"""Windows of neighbouring units compiled together to find their parts: length and step in units.
Long ones reach between places where a single value carries everything, as regions of plans do;
those from the beginning are also compiled without its first part, mostly a layout change."""
FEW_PLACES = 4
"""Number of such places below which windows may begin and end anywhere."""
HELD_OUT = 8
"""Number of regions that are left out of the fit, to measure the errors of sums."""
SEED = 0
MOST_ROUNDS = 8

Region = frozenset[int]
Cut = Callable[[Iterable[int]], Form]
Planner = Callable[[ChipCosts], Sequence[Plan]]
"""Makes the best plan for given costs, then its rivals."""


@dataclass(frozen=True)
class ChipProfile:
    """The costs of a chip's NPU, and their origin."""

    costs: ChipCosts
    plans: tuple[Plan, ...]
    """The best one, then its rivals."""
    rounds: int
    stable: bool
    """Every region of the plan was compiled whole."""
    n_compiled: int
    """Number of graphs that were not cached."""
    n_regions: int
    """Number of units, chains and regions behind the costs."""
    errors: tuple[float, ...]
    """Relative errors of sums of units, for regions that were not part of the fit."""
    doubts: Mapping[str, tuple[odd.Doubt, ...]] = field(default_factory=dict)
    """Label of a unit or a region -> doubts about its estimate."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Label -> why there is no estimate."""


class _Compiler:
    """Regions of one model for one chip: compiled for both simulations and for the chip itself."""

    def __init__(
        self, graph: UnitGraph, cut: Cut, chip: Chip, precision: QnnPrecision, pool: CompilerPool
    ) -> None:
        self.graph, self.cut, self.chip, self.precision, self.pool = (
            *(graph, cut, chip, precision, pool),
        )
        self.us: dict[Region, float | None] = {}
        """The mean in µs that predicts the chip; None where there is no estimate."""
        self.checked: set[Region] = set()
        """Regions compiled for the chip itself."""
        self.refusals: dict[Region, str] = {}
        self.failures: dict[Region, str] = {}
        self.doubts: dict[Region, tuple[odd.Doubt, ...]] = {}

    def compile(self, regions: Iterable[Sequence[int]], whole: bool = True) -> None:
        """Compiles new regions; a graph that fails has no estimate, and the others go on.

        Regions that only serve to find the parts of units, each of which the chip takes, are not
        compiled ``whole`` for the chip itself.
        """
        earlier = self.checked if whole else self.us
        fresh = [r for r in dict.fromkeys(map(frozenset, regions)) if r not in earlier]
        numbers = [s.soc_model for s in NpuGeneration]
        own = [self.chip.soc_model] if whole else []
        with tempfile.TemporaryDirectory(prefix="nnapi-prof-qnn-") as folder:
            requests: list[CompileRequest] = []
            sent: list[Region] = []
            for region in fresh:
                try:
                    form = self.cut(sorted(region))
                except ConversionError as error:
                    self.checked.add(region)
                    self.us[region], self.failures[region] = None, str(error)
                    continue
                graph = form.hash
                path = Path(folder) / f"{graph}.onnx"
                asked = [CompileRequest(path, graph, number) for number in numbers]
                asked += [CompileRequest(path, graph, number, reasons=True) for number in own]
                if not path.exists() and not all(map(self.pool.remembers, asked)):
                    form.write(path)
                requests += asked
                sent.append(region)
            answers = iter(self.pool.compile(requests))
        for region in sent:
            simulated = {simulation: next(answers) for simulation in NpuGeneration}
            self._take(region, simulated, next(answers) if whole else None)

    def _take(
        self, region: Region, simulated: Mapping[NpuGeneration, Compiled], own: Compiled | None
    ) -> None:
        if own is None:
            own = Compiled()
        else:
            self.checked.add(region)
        refused = group_refusals(own)
        if own.error is not None:
            self.failures[region] = own.error
        elif refused:
            self.refusals[region] = "; ".join(
                f"{part.operation}: {part.reason or 'left to the CPU by the compiler'}"
                for part in refused
            )
        failed = next((one.error for one in simulated.values() if one.error), None)
        if failed is not None:
            self.failures.setdefault(region, failed)
        timed = all(one.us is not None for one in simulated.values())
        if own.error is not None or refused or not timed:
            self.us[region] = None
            return
        times = {s: max(float(one.us or 0), 0.5) * 1e3 for s, one in simulated.items()}
        self.us[region] = mean_ns(self.chip, times) / 1e3
        self.doubts[region] = tuple(odd.of_compiled(simulated, self.precision))

    def time(self, region: Sequence[int]) -> RegionTime | None:
        """Returns the simulated time of a region; None where there is no estimate."""
        us = self.us.get(frozenset(region))
        if us is None:
            return None
        return RegionTime(tuple(region), us, border_values(self.graph, region))

    def times(self, regions: Iterable[Sequence[int]]) -> list[RegionTime]:
        return [time for region in regions if (time := self.time(region)) is not None]


def profile_chip(
    graph: UnitGraph,
    cut: Cut,
    chip: Chip,
    precision: QnnPrecision,
    calibration: ChipCalibration,
    cpu: EstimatedCosts,
    pool: CompilerPool,
    planner: Planner,
    say: Callable[[str], None] = lambda _: None,
) -> ChipProfile:
    """Compiles units and windows of them, then regions of plans, until the plan is stable.

    ``cut`` makes a region's graph. ``cpu`` has the costs of the phone's CPU (and of the host, where
    it is needed). ``planner`` makes the best plan for given costs, and its rivals.
    """
    target = Target(f"qnn:{chip.name}/{precision.value}")
    leader = activation_groups(graph)
    groups = _groups_of(leader)
    compiler = _Compiler(graph, cut, chip, precision, pool)
    floats = precision is QnnPrecision.FP16 and not chip.float_runs
    if not floats:
        say(f"compiling {len(groups)} units for {chip.name}")
        compiler.compile(groups.values())
        for group in groups.values():
            if len(group) > 1 and compiler.us[frozenset(group)] is None:
                leader |= {unit: unit for unit in group}
        groups = _groups_of(leader)
        compiler.compile(groups.values())
    alone = {first: compiler.time(group) for first, group in groups.items()}
    runs = {unit for first, group in groups.items() if alone[first] for unit in group}
    windows = [w for w in _windows(graph, groups, leader) if runs.issuperset(w)]
    held_out = [w for w in _held_out(graph, groups, leader) if runs.issuperset(w)]
    say(f"compiling {len(windows) + len(held_out)} regions of several units")
    compiler.compile([*windows, *held_out], whole=False)
    units = {first: time for first, time in alone.items() if time is not None}
    model = fit_units(units, leader, compiler.times(windows), compiler.times(held_out))
    costs = _costs(graph, target, calibration, cpu, model, groups, leader, compiler, floats)
    plans: Sequence[Plan] = ()
    stable, rounds = False, 0
    while not stable and rounds < MOST_ROUNDS:
        rounds += 1
        plans = planner(costs)
        used_regions = {
            frozenset(segment.units)
            for plan in plans
            for segment in plan.segments
            if segment.target == target
        }
        fresh = used_regions - compiler.checked
        if not fresh:
            stable = True
            break
        say(f"compiling {len(fresh)} regions of plans whole")
        compiler.compile(sorted(map(sorted, fresh)))
        costs = _with_whole(costs, compiler, target, calibration, fresh)
    label = graph.label
    return ChipProfile(
        costs=costs,
        plans=tuple(plans),
        rounds=rounds,
        stable=stable,
        n_compiled=pool.n_compiled,
        n_regions=len(compiler.us),
        errors=model.errors,
        doubts={label(r): d for r, d in compiler.doubts.items() if d},
        failures={label(r): words for r, words in compiler.failures.items()},
    )


def _groups_of(leader: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """Returns leader -> itself and the units that are compiled with it."""
    groups: dict[int, tuple[int, ...]] = {}
    for unit, first in leader.items():
        groups[first] = (*groups.get(first, ()), unit)
    return groups


def _closed(
    units: Iterable[int], groups: Mapping[int, tuple[int, ...]], leader: Mapping[int, int]
) -> tuple[int, ...]:
    """Returns the units with their whole groups, as no activation may be cut off."""
    return tuple(sorted({member for unit in units for member in groups[leader[unit]]}))


def _windows(
    graph: UnitGraph, groups: Mapping[int, tuple[int, ...]], leader: Mapping[int, int]
) -> list[tuple[int, ...]]:
    n, places = len(graph.units), narrow_places(graph)
    runs = [
        (start, min(start + length, n)) for length, step in SHORT for start in range(0, n, step)
    ]
    for length, step in LONG:
        for start in range(0, n, step):
            first = max(place for place in places if place <= start)
            last = min((place for place in places if place >= start + length), default=n)
            runs += [(first, last), (places[1] if first == 0 else first, last)]
    windows = {_closed(range(*run), groups, leader) for run in runs}
    return sorted(window for window in windows if len(window) > 1)


def narrow_places(graph: UnitGraph) -> list[int]:
    """Returns the places between units where a single value carries everything, including 0 and the
    end; all places where there are few."""
    n = len(graph.units)
    inner = [place for place in range(1, n) if len(graph.boundary(range(place))[1]) == 1]
    return [0, *inner, n] if len(inner) >= FEW_PLACES else list(range(n + 1))


def _held_out(
    graph: UnitGraph, groups: Mapping[int, tuple[int, ...]], leader: Mapping[int, int]
) -> list[tuple[int, ...]]:
    places, generator = narrow_places(graph), random.Random(SEED)
    used = set(_windows(graph, groups, leader))
    regions: set[tuple[int, ...]] = set()
    for _ in range(20 * HELD_OUT):
        first, last = sorted(generator.sample(range(len(places)), 2))
        region = _closed(range(places[first], places[last]), groups, leader)
        if len(region) > 1 and region not in used:
            regions.add(region)
        if len(regions) == HELD_OUT:
            break
    return sorted(regions)


def _costs(
    graph: UnitGraph,
    target: Target,
    calibration: ChipCalibration,
    cpu: EstimatedCosts,
    model: UnitModel,
    groups: Mapping[int, tuple[int, ...]],
    leader: Mapping[int, int],
    compiler: _Compiler,
    floats: bool,
) -> ChipCosts:
    """Returns the CPU's costs together with the NPU's."""
    estimates = dict(cpu.estimates)
    refusals = dict(cpu.refusals)
    error = math.expm1(calibration.spread)
    for unit in range(len(graph.units)):
        group = frozenset(groups[leader[unit]])
        part = model.parts.get(unit)
        if part is None or compiler.us.get(group) is None:
            words = FLOAT_REFUSED if floats else compiler.refusals.get(group)
            failure = compiler.failures.get(group, "the simulator gives none")
            refusals[unit, target] = words or f"no estimate: {failure}"
        else:
            estimates[unit, target] = Estimate(calibration.region_ns(part * 1e3), error)
    border = calibration.region_ns(model.border_rate * 1e3)
    invocation = calibration.overhead_ns + calibration.region_ns(model.fixed_us * 1e3)
    prices = {**cpu.prices, target: Price(invocation, border, border)}
    costs = ChipCosts(
        graph=graph,
        prices=prices,
        estimates=estimates,
        refusals=refusals,
        models=cpu.models,
        works=cpu.works,
        border_bytes=model.border_bytes(graph),
        npu=target,
        npu_error=error,
    )
    return _with_whole(costs, compiler, target, calibration, compiler.us)


def _with_whole(
    costs: ChipCosts,
    compiler: _Compiler,
    target: Target,
    calibration: ChipCalibration,
    regions: Iterable[Region],
) -> ChipCosts:
    """Returns the costs with those of regions that were compiled whole."""
    compiled = {
        (region, target): math.inf if us is None else calibration.whole_ns(us * 1e3)
        for region in regions
        for us in (compiler.us[region],)
    }
    return replace(costs, compiled={**costs.compiled, **compiled})


def phone_side(costs: EstimatedCosts) -> EstimatedCosts:
    """Returns the costs of a phone's CPU, and of the host where it is needed; no accelerators."""
    used = {target for target in costs.prices if target in (CPU, HOST)}
    return EstimatedCosts(
        graph=costs.graph,
        prices={target: costs.prices[target] for target in used},
        estimates={at: one for at, one in costs.estimates.items() if at[1] in used},
        refusals={at: why for at, why in costs.refusals.items() if at[1] in used},
        models={t: m for t, m in costs.models.items() if t in used},
        works=costs.works,
    )
