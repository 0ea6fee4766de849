"""How many threads the CPU engine gets: a trial of six to nine units under each number.

Numbers are 1, 2, 4, all big cores, and all cores, which shows whether the little ones help. The
alternatives of a unit take turns, in a few short rounds. What the model takes on the CPU with each
number is estimated from the units of the trial: every unit of the model is as fast, for its size,
as the unit of the trial that is most like it. Where that is little, the whole model runs with each
number as well, and decides: threads are woken once a run, not once a unit. The trial's rows are in
the cost table, so that the same command chooses the same number again.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from nnapi_prof.costs.conditions import ALL, BIG, Conditions
from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.model.fit import RegionMatcher, UnitSet
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.device.protocol.results import AgentInfo
from nnapi_prof.execution.profile.jobs import NEWEST_LEVEL, Job, TargetSpec
from nnapi_prof.execution.profile.measurer import Client, Measurer
from nnapi_prof.execution.profile.options import ProfileOptions, ProgressCallback
from nnapi_prof.execution.profile.regions import trial_units
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.graph.plan import CPU
from nnapi_prof.graph.signature import digest
from nnapi_prof.graph.unit import Unit, UnitGraph

COUNTS = (1, 2, 4)
"""Numbers of threads that are tried wherever there are as many cores."""
LEAST_UNITS = 6
"""Units of a trial, where the model has as many different ones."""
LEAST_GAIN = 0.01
"""What more threads must save to be worth waking: repeats vary by as much."""
MOST_WHOLE_NS = 50e6
"""By the units, with the best number: a model that takes longer has units that are worth waking
threads for, and running it would take much of the trial."""
WHOLE = -1
"""In place of a unit: the whole model."""
ROUNDS, RUNS, SIMULATED_RUNS = 3, 15, 3
BUDGET_MS, WARMUP_MS = 12.0, 20.0
"""Of one unit with one number of threads: a third of what a measurement takes otherwise."""


@dataclass(frozen=True, slots=True)
class ThreadTrial:
    """The result of a trial."""

    threads: int
    """The number chosen: the smallest that is within :data:`LEAST_GAIN` of the fastest."""
    ns: Mapping[int, float]
    """Number of threads -> what the model takes on the CPU by the trial, in ns; the numbers
    ascend."""
    n_units: int
    """Units that ran under every number."""
    whole: bool = False
    """The whole model ran under every number, and ``ns`` is of that."""
    n_measured: int = 0
    """Measurements that were made for it now."""
    seconds: float = 0.0
    """What these took."""


class TrialInterrupted(KeyboardInterrupt):
    """Ctrl-C while a trial measured; what was measured until then is in the store."""

    def __init__(self, n_measured: int, seconds: float) -> None:
        super().__init__()
        self.n_measured, self.seconds = n_measured, seconds


def run_trial(
    unit_cache: UnitGraphCache,
    client: Client,
    store: CostStore,
    options: ProfileOptions,
    progress: ProgressCallback | None = None,
) -> ThreadTrial | None:
    """The number of threads for a model on a device, of which the missing units are measured.

    None where there is no choice: the device has one core, or the CPU engine runs no unit of the
    trial. Raises DeviceError where the device fails, and TrialInterrupted.
    """
    info = client.info()
    counts = thread_counts(info, options.conditions.cpus)
    if len(counts) == 1:
        return None
    short = replace(
        options,
        rounds=ROUNDS,
        max_runs=SIMULATED_RUNS if info.simulated else RUNS,
        min_runs=ROUNDS,
        budget_ms=BUDGET_MS,
        warmup_ms=min(WARMUP_MS, options.warmup_ms),
        gates=replace(options.gates, anchor_s=0.0),
    )
    measurer = Measurer(unit_cache, client, store, short, progress)
    graph, matcher = unit_cache.units, RegionMatcher(unit_cache.units)

    def measure(*regions: UnitSet) -> ThreadTrial | None:
        jobs = [
            _job(matcher, region, replace(options.conditions, threads=n), info.cost_version)
            for region in regions
            for n in counts
        ]
        measurer.measure("threads", jobs)
        return read_trial(graph, store, measurer.fingerprint, options.conditions)

    began = time.monotonic()
    try:
        trial = measure(*((unit,) for unit in thread_units(graph)))
        is_short = trial is not None and min(trial.ns.values()) <= MOST_WHOLE_NS
        if is_short and len(graph.units) > 1 and not info.simulated:
            trial = measure(_all_units(graph))
    except KeyboardInterrupt as interrupt:
        raise TrialInterrupted(measurer.n_measured, time.monotonic() - began) from interrupt
    seconds = time.monotonic() - began
    if trial is None:
        return None
    return replace(trial, n_measured=measurer.n_measured, seconds=seconds)


def read_trial(
    graph: UnitGraph, store: CostStore, fingerprint: str, conditions: Conditions
) -> ThreadTrial | None:
    """Reads the trial of a model on a device from a cost table; None where there
    was none with these ``conditions``, whose number of threads is not asked."""
    units = {_signature(graph.units[unit].signature): unit for unit in thread_units(graph)}
    units.setdefault(_signature(RegionMatcher(graph).signature(_all_units(graph))), WHOLE)
    selection = Selection((fingerprint,), tuple(units), kinds=(Kind.THREADS,), newest=True)
    own = replace(conditions.on(CPU.engine), threads=0)
    rows = [row for row in store.select(selection) if replace(row.conditions, threads=0) == own]
    return choose(graph, {(units[row.signature], row.threads): row for row in rows})


def choose(graph: UnitGraph, rows: Mapping[tuple[int, int], Measurement]) -> ThreadTrial | None:
    """The best number of threads by rows of units or of the :data:`WHOLE`: (unit, threads) -> row.

    None where no unit ran under two numbers.
    """
    counts = sorted({threads for _, threads in rows})
    ns = {
        unit: {n: rows[unit, n].latency_ns for n in counts}
        for unit in sorted({unit for unit, _ in rows})
        if all((unit, n) in rows and rows[unit, n].usable for n in counts)
    }
    whole = ns.pop(WHOLE, None)
    if len(counts) < 2 or not ns:
        return None
    times = _units_like(graph, ns)
    total = whole or {n: sum(times[unit] * own[n] for unit, own in ns.items()) for n in counts}
    least = min(total.values())
    chosen = next(n for n in counts if total[n] <= least * (1 + LEAST_GAIN))
    return ThreadTrial(chosen, total, len(ns), whole is not None)


def _units_like(graph: UnitGraph, sampled: Iterable[int]) -> Mapping[int, float]:
    """How many times each unit of a sample stands for: units like it, by their sizes."""
    samples = [graph.units[unit] for unit in sampled]
    times: dict[int, float] = defaultdict(float)
    for unit in graph.units:
        own = [each for each in samples if each.operation == unit.operation] or samples
        nearest = min(own, key=lambda each: (_distance(graph, each, unit), each.index))
        times[nearest.index] += _work_of(graph, unit) / _work_of(graph, nearest)
    return times


def _distance(graph: UnitGraph, first: Unit, second: Unit) -> float:
    return abs(math.log(_work_of(graph, first) / _work_of(graph, second)))


def _work_of(graph: UnitGraph, unit: Unit) -> float:
    """Multiply-accumulates and bytes moved: one of them decides what a unit takes."""
    moved = sum(graph.values[name].n_bytes for name in (*unit.inputs, *unit.outputs))
    return float(max(unit.macs + moved + unit.constant_bytes, 1))


def thread_units(graph: UnitGraph) -> tuple[int, ...]:
    """Units of the trial, ascending: those of a profile's own trial, and more of the heaviest up to
    :data:`LEAST_UNITS` different ones."""
    chosen = list(trial_units(graph))
    seen = {graph.units[unit].signature for unit in chosen}
    for unit in sorted(graph.units, key=lambda unit: (-_work_of(graph, unit), unit.index)):
        if len(chosen) >= LEAST_UNITS:
            break
        if unit.signature not in seen:
            seen.add(unit.signature)
            chosen.append(unit.index)
    return tuple(sorted(chosen))


def thread_counts(info: AgentInfo, cpus: str = BIG) -> tuple[int, ...]:
    """Numbers of threads to try on a device, ascending: :data:`COUNTS`, all big cores, all cores.

    A core is big where its highest clock is above that of the slowest. ``cpus`` are the cores of
    the conditions: a mask limits the numbers to its cores.
    """
    most = info.threads_max or (max(COUNTS) if info.simulated else info.cpus)
    clocks = [khz for khz in info.cpu_max_khz if khz is not None]
    big = sum(khz > min(clocks) for khz in clocks)
    counts = {*COUNTS, big, most}
    if cpus not in (BIG, ALL):
        most = min(most, int(cpus, 16).bit_count())
        counts.add(most)
    return tuple(sorted(n for n in counts if 1 <= n <= most))


def _all_units(graph: UnitGraph) -> UnitSet:
    return tuple(range(len(graph.units)))


def _job(
    matcher: RegionMatcher, region: UnitSet, conditions: Conditions, agent_version: str
) -> Job:
    """The job of a region, under a signature of its own: other rows are measured for longer."""
    spec = TargetSpec(CPU, NEWEST_LEVEL)
    job = Job.of(matcher, region, Kind.THREADS, spec, conditions, agent_version)
    return replace(job, key=job.key._replace(signature=_signature(job.key.signature)))


def _signature(unit: str) -> str:
    return digest({"threads": unit})
