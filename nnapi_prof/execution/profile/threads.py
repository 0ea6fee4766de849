"""Choose the CPU engine's number of threads: a trial of six to nine units under each number.

Numbers are 1, 2, 4, all big cores, and all cores, which shows whether the little ones help. The
alternatives of a unit take turns, in a few short rounds. The time of the model on the CPU with each
number is estimated from the units of the trial: every unit of the model is as fast, for its size,
as the most similar unit of the trial. Where the heaviest unit predicts a short time, the whole
model runs with each number instead, and decides: threads are woken once a run, not once a unit.
Where whole model and heaviest unit disagree, another process may have taken a core: the other units
run as well, and the whole model once more, and its faster run counts. The trial's rows are in the
cost table, so that the same command chooses the same number again.

Then the lightest unit runs with the number chosen and with one thread. Where a unit of the trial is
faster with one, waking the others takes longer than they save, and short segments of a plan may
have one (:data:`~nnapi_prof.graph.plan.CPU_ALONE`).

On a simulated phone only the start of each measurement takes time. Its trial has fewer
measurements, each as long as a profile's: the profile reuses those with the number chosen. Where
the profile is small, the lightest unit is not measured separately.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nnapi_prof.costs import ALL, BIG, Conditions
from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.model.fit import RegionMatcher, UnitSet
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.device.protocol import AgentInfo
from nnapi_prof.execution.profile import ProfileOptions, ProgressCallback
from nnapi_prof.execution.profile.jobs import (
    NEWEST_LEVEL,
    Job,
    TargetSpec,
    device_targets,
)
from nnapi_prof.execution.profile.measurer import Client, Measurer
from nnapi_prof.execution.profile.regions import MUCH, chain_regions, trial_units
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.execution.profile.unit_session import REFINING
from nnapi_prof.graph.plan import CPU
from nnapi_prof.graph.unit import Unit, UnitGraph, digest

COUNTS = (1, 2, 4)
"""Numbers of threads that are tried wherever there are as many cores."""
LEAST_UNITS = 6
"""Smallest number of units of a trial, where the model has as many different ones."""
LEAST_GAIN = 0.01
"""Relative gain for which more threads are worth waking: repeats vary by as much."""
MOST_WHOLE_NS = 50e6
"""Longest time, by the units and with the best number, of a model that runs whole: a slower one has
units that are worth waking threads for, and running it would take much of the trial."""
WHOLE = -1
"""Stands for the whole model in place of a unit, ..."""
SHORT_CALL = -2
"""... for the lightest unit, which has the shortest call, ..."""
WHOLE_AGAIN = -3
"""... and for the second run of the whole model."""
NEAR = 1.15
"""Time of the heaviest unit on a simulated phone, relative to the best number, above which a number
is tried on no other unit; nor are numbers larger than the best; ..."""
SHARE = 0.1
"""... and the share of the trial's further measurements in all of trial and profile."""
N_CALLS = 2
"""Number of measurements of the shortest call."""
ROUNDS, RUNS = 3, 15
BUDGET_MS, WARMUP_MS = 12.0, 20.0
"""Limits in ms of one unit with one number of threads: a third of those of a measurement."""


@dataclass(frozen=True, slots=True)
class ThreadTrial:
    """The result of a trial."""

    threads: int
    """The number chosen: the smallest that is within :data:`LEAST_GAIN` of the fastest."""
    ns: Mapping[int, float]
    """Number of threads, ascending -> ns of the model on the CPU, by the trial."""
    n_units: int
    """Number of units that ran under every number of threads."""
    whole: bool = False
    """Whether the whole model ran under every number; ``ns`` is then its time."""
    call_ns: Mapping[int, float] = field(default_factory=dict)
    """Number of threads -> ns of the unit that gains most by one thread: with one, and with the
    number chosen if that differs."""
    n_measured: int = 0
    """Number of new measurements."""
    n_kept: int = 0
    """Number of measurements that are also the profile's."""
    seconds: float = 0.0
    """Seconds that the trial took, without loading the model."""

    @property
    def one_thread(self) -> bool:
        """Whether short segments may be faster with one thread."""
        alone, together = (self.call_ns.get(n, math.inf) for n in (1, self.threads))
        return alone < (1 - MUCH) * together < math.inf


class TrialInterrupted(KeyboardInterrupt):
    """Ctrl-C while a trial measured; the measurements so far are in the store."""

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
    """Returns the trial of threads for a model on a device, after measuring its missing units.

    None where there is no choice: the device has one core, or the CPU engine runs no unit of the
    trial. Raises DeviceError where the device fails, and TrialInterrupted.
    """
    info = client.info()
    counts = thread_counts(info, options.conditions.cpus)
    if len(counts) == 1 or not unit_cache.units.units:
        return None
    measurer = Measurer(unit_cache, client, store, _settings(options, info), progress)
    graph, matcher = unit_cache.units, RegionMatcher(unit_cache.units)

    def job(region: UnitSet, threads: int, kind: Kind = Kind.THREADS) -> Job:
        conditions = replace(options.conditions, threads=threads)
        spec = TargetSpec(CPU, NEWEST_LEVEL)
        return Job.of(matcher, region, kind, spec, conditions, info.cost_version)

    def measure(regions: Iterable[UnitSet], counts: Sequence[int]) -> ThreadTrial | None:
        measurer.measure("threads", [_apart(job(r, n)) for r in regions for n in counts])
        return read_trial(graph, store, measurer.fingerprint, options.conditions)

    began = time.monotonic()
    units, call = thread_units(graph), _lightest(graph)
    with_call = True
    first, *others = sorted(units, key=lambda unit: -_work_of(graph, graph.units[unit]))
    try:
        if info.simulated:
            # A unit that mostly moves weights is as fast with any number, unlike others.
            first, *others = sorted(units, key=lambda unit: -_excess_of(graph, graph.units[unit]))
            trial = measure([(first,)], counts)
            near = counts if trial is None else _near(trial.ns)
            expected = _expected(graph, matcher, info, options)
            room = SHARE / (1 - SHARE) * expected - (len(counts) - 1)
            with_call = room >= N_CALLS - 1
            room -= (N_CALLS - 1) * with_call
            n_more = max(int(room // (len(near) - 1)), trial is None) if len(near) > 1 else 0
            if n_more > 0:
                trial = measure([(unit,) for unit in others[:n_more]], near)
        else:
            trial = measure([(first,)], counts)
            is_short = trial is not None and min(trial.ns.values()) <= MOST_WHOLE_NS
            decided = len(graph.units) == 1
            if trial is not None and is_short and not decided:
                expected_threads = trial.threads
                trial = measure([_all_units(graph)], counts)
                decided = trial is not None and trial.threads == expected_threads
            if not decided:
                trial = measure([(unit,) for unit in others], counts)
            if not decided and trial is not None and trial.whole:
                again = [_apart(job(_all_units(graph), n), WHOLE_AGAIN) for n in counts]
                measurer.measure("threads", again)
                trial = read_trial(graph, store, measurer.fingerprint, options.conditions)
        if with_call and trial is not None and trial.threads > 1:
            jobs = [_apart(job((call,), n), SHORT_CALL) for n in (1, trial.threads)]
            measurer.measure("threads", jobs)
            trial = read_trial(graph, store, measurer.fingerprint, options.conditions)
    except KeyboardInterrupt as interrupt:
        raise TrialInterrupted(measurer.n_measured, time.monotonic() - began) from interrupt
    if trial is None:
        return None
    n_kept = 0
    if info.simulated and not options.fresh:
        jobs = [job((unit,), trial.threads, Kind.UNIT) for unit in {*units, call}]
        missing = [each for each in jobs if each.key not in measurer.have]
        n_kept = _keep(store, measurer.fingerprint, missing)
    seconds = time.monotonic() - began - measurer.spent_s["load"]
    return replace(trial, n_measured=measurer.n_measured, n_kept=n_kept, seconds=seconds)


def _settings(options: ProfileOptions, info: AgentInfo) -> ProfileOptions:
    """Returns the trial's options: short measurements, or a profile's on a simulated phone."""
    unwatched = replace(options, gates=replace(options.gates, anchor_s=0.0))
    if info.simulated:
        return unwatched
    return replace(
        unwatched,
        rounds=ROUNDS,
        runs=RUNS,
        min_runs=ROUNDS,
        budget_ms=BUDGET_MS,
        warmup_ms=min(WARMUP_MS, options.warmup_ms),
    )


def _expected(
    graph: UnitGraph, matcher: RegionMatcher, info: AgentInfo, options: ProfileOptions
) -> float:
    """Estimates the number of a profile's measurements where every accelerator is far slower: units
    and chains on the CPU, the units of its own trial on the others, and regions in refining."""
    n_others = len(device_targets(info, options.preference_codes[:1], options.accelerators)) - 1
    n_units = len({unit.signature for unit in graph.units})
    n_tried = n_units if options.accelerators is not None else len(trial_units(graph))
    n_chains = len({matcher.signature(region) for _, region in chain_regions(graph)})
    n_measured = n_units + n_chains + n_tried * n_others
    return n_measured * (1 + REFINING * options.refine)


def _keep(store: CostStore, fingerprint: str, jobs: Sequence[Job]) -> int:
    """Stores the trial's rows of these jobs as the profile's own, and returns their number."""
    units = {
        _signature(job.key.signature, role): job.key.signature
        for job in jobs
        for role in (SHORT_CALL, 0)
    }
    selection = Selection((fingerprint,), tuple(units), kinds=(Kind.THREADS,), newest=True)
    rows = {
        unit: replace(row, signature=unit, members=(unit,), kind=Kind.UNIT)
        for row in store.select(selection)
        for unit in [units[row.signature]]
        if row.conditions == jobs[0].conditions
    }
    store.add(*rows.values())
    return len(rows)


def read_trial(
    graph: UnitGraph, store: CostStore, fingerprint: str, conditions: Conditions
) -> ThreadTrial | None:
    """Reads the trial of a model on a device from a cost table; None where there was none with
    these ``conditions``, whose number of threads is ignored."""
    units = {_signature(graph.units[unit].signature): unit for unit in thread_units(graph)}
    whole = RegionMatcher(graph).signature(_all_units(graph))
    units.setdefault(_signature(whole), WHOLE)
    units[_signature(whole, WHOLE_AGAIN)] = WHOLE_AGAIN
    units[_signature(graph.units[_lightest(graph)].signature, SHORT_CALL)] = SHORT_CALL
    selection = Selection((fingerprint,), tuple(units), kinds=(Kind.THREADS,), newest=True)
    own = replace(conditions.on(CPU), threads=0)
    rows = [row for row in store.select(selection) if replace(row.conditions, threads=0) == own]
    return choose(graph, {(units[row.signature], row.threads): row for row in rows})


def choose(graph: UnitGraph, rows: Mapping[tuple[int, int], Measurement]) -> ThreadTrial | None:
    """Chooses the number of threads by rows: (unit, threads) -> row, where a unit may also be
    :data:`WHOLE`, :data:`WHOLE_AGAIN` or :data:`SHORT_CALL`.

    None where no unit ran under every number. Where only one did, numbers that are not :data:`NEAR`
    the fastest on it are judged by it alone, the others by the units that ran under all of them.
    """
    ns: dict[int, dict[int, float]] = defaultdict(dict)
    for (unit, n), row in sorted(rows.items()):
        if row.usable:
            ns[unit][n] = row.latency_ns
    whole, again, call = (ns.pop(role, {}) for role in (WHOLE, WHOLE_AGAIN, SHORT_CALL))
    # Disturbances only make a run slower.
    whole = {n: min(each, again.get(n, math.inf)) for n, each in whole.items()}
    counts = sorted({threads for unit, threads in rows if unit != SHORT_CALL})
    complete = [unit for unit, own in ns.items() if len(own) == len(counts)]
    if len(counts) < 2 or not complete:
        return None
    first = ns[complete[0]]
    near = _near(first) if len(complete) == 1 else counts
    sample = [unit for unit, own in ns.items() if own.keys() >= set(near)]
    times = _units_like(graph, sample)
    if len(whole) == len(counts):
        chosen = least_number(whole)
        call_ns = _shortest_call([call, *ns.values()], chosen)
        return ThreadTrial(chosen, whole, len(sample), whole=True, call_ns=call_ns)
    total = {n: sum(times[unit] * ns[unit][n] for unit in sample) for n in near}
    chosen = least_number(total)
    ratio = total[chosen] / first[chosen]
    return ThreadTrial(
        chosen,
        {n: total.get(n, ratio * first[n]) for n in counts},
        n_units=len(sample),
        call_ns=_shortest_call([call, *ns.values()], chosen),
    )


def _near(ns: Mapping[int, float]) -> list[int]:
    """Returns the numbers of threads that may be the best for a model: the best one for its
    heaviest unit, and smaller ones that are :data:`NEAR` it."""
    best = least_number(ns)
    return [n for n, each in ns.items() if n <= best and each <= ns[best] * NEAR]


def _shortest_call(calls: Iterable[Mapping[int, float]], threads: int) -> Mapping[int, float]:
    """Returns the call that gains most by one thread, among those with one and ``threads``."""
    pairs = [{n: own[n] for n in (1, threads)} for own in calls if own.keys() >= {1, threads}]
    return max(pairs, key=lambda own: own[threads] / own[1], default={}) if threads > 1 else {}


def least_number(ns: Mapping[int, float]) -> int:
    """Returns the smallest number of threads that is within :data:`LEAST_GAIN` of the fastest."""
    most = min(ns.values()) * (1 + LEAST_GAIN)
    return min(n for n, each in ns.items() if each <= most)


def _units_like(graph: UnitGraph, sampled: Iterable[int]) -> Mapping[int, float]:
    """Returns how many times each unit of a sample counts, for units of the most similar size."""
    samples = [graph.units[unit] for unit in sampled]
    times: dict[int, float] = defaultdict(float)
    for unit in graph.units:
        own = [each for each in samples if each.operation == unit.kind] or samples
        nearest = min(own, key=lambda each: (_distance(graph, each, unit), each.index))
        times[nearest.index] += _work_of(graph, unit) / _work_of(graph, nearest)
    return times


def _distance(graph: UnitGraph, first: Unit, second: Unit) -> float:
    return abs(math.log(_work_of(graph, first) / _work_of(graph, second)))


def _work_of(graph: UnitGraph, unit: Unit) -> float:
    """Returns multiply-accumulates plus bytes moved: one of them decides a unit's time."""
    moved = sum(graph.values[name].n_bytes for name in (*unit.inputs, *unit.outputs))
    return float(max(unit.macs + moved + unit.constant_bytes, 1))


def _excess_of(graph: UnitGraph, unit: Unit) -> float:
    """Returns multiply-accumulates minus the bytes of values and constants."""
    return float(2 * unit.macs - _work_of(graph, unit))


def thread_units(graph: UnitGraph) -> tuple[int, ...]:
    """Returns the units of the trial, ascending: those of a profile's own trial, and more of the
    heaviest up to :data:`LEAST_UNITS` different ones."""
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
    """Returns the numbers of threads to try on a device, ascending: :data:`COUNTS`, big cores, all
    cores.

    A core is big where its highest clock is above that of the slowest. ``cpus`` are the cores of
    the conditions: a mask limits the numbers to its cores.
    """
    most = info.threads_max or (max(COUNTS) if info.simulated else info.cpus)
    clocks = [khz for khz in info.cpu_max_khz if khz is not None]
    big = sum(khz > min(clocks) for khz in clocks)
    if cpus not in (BIG, ALL):
        most = min(most, int(cpus, 16).bit_count())
    return counts_up_to(most, big)


def counts_up_to(cores: int, big: int = 0) -> tuple[int, ...]:
    """Returns the numbers of threads to try on so many cores, ``big`` of them big, ascending."""
    return tuple(sorted(n for n in {*COUNTS, big, cores} if 1 <= n <= cores))


def _all_units(graph: UnitGraph) -> UnitSet:
    return tuple(range(len(graph.units)))


def _lightest(graph: UnitGraph) -> int:
    return min(graph.units, key=lambda unit: (_work_of(graph, unit), unit.index)).index


def _apart(job: Job, role: int = 0) -> Job:
    """Returns the job under a separate signature, because other rows may be measured for longer."""
    return replace(job, key=job.key._replace(signature=_signature(job.key.signature, role)))


def _signature(unit: str, role: int = 0) -> str:
    return digest({"threads": unit, "role": role} if role else {"threads": unit})
