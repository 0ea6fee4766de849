"""Makes jobs to measure: the model and action of each, the request that they make, and the row that
a result becomes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nnapi_prof.convert.region import Region
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.measurement import FAILURES, Key, Kind, Measurement, Status, work_columns
from nnapi_prof.costs.model.fit import RegionMatcher, UnitSet
from nnapi_prof.costs.model.forms import ProductForm, UnitForms, signature_in
from nnapi_prof.device.protocol.actions import ActionFlag, Groups, TensorSource, Timing
from nnapi_prof.device.protocol.request import Patience, RequestBuilder
from nnapi_prof.device.protocol.results import (
    SICK,
    SLOW,
    Accelerator,
    ActionResult,
    AgentInfo,
    End,
    NnapiEntryPoint,
    SegmentSamples,
)
from nnapi_prof.errors import ConversionError, DeviceError, UnsupportedOp, UsageError
from nnapi_prof.execution import ActionOptions
from nnapi_prof.execution.actions import build_action
from nnapi_prof.graph.plan import AUTO, CPU, CPU_ALONE, Preference, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.nnapi.facts import LAST_API_LEVEL, api_of, is_level

if TYPE_CHECKING:
    from nnapi_prof.graph.program import Program


NEWEST_LEVEL = 30
"""The newest feature level the converter knows; also what the agent's CPU engine understands."""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A target on the device at hand: the level to lower for, and the version of its driver."""

    target: Target
    level: int
    driver_version: str = ""
    own_level: int = 0
    """What the accelerator reports, where the device's NNAPI knows that level."""

    @property
    def newest(self) -> int:
        """The newest level of which products may have the form, where that is cheapest."""
        return max(self.level, self.own_level)


@dataclass(frozen=True, slots=True)
class Job:
    """One region on one target, to be measured."""

    region: UnitSet
    kind: Kind
    spec: TargetSpec
    conditions: Conditions
    """What of the profile's conditions concerns the target's engine."""
    key: Key
    forms: UnitForms | None = None
    """Of its products of activations; None for those that are chosen on its target."""

    def in_form(self, form: ProductForm) -> Job:
        """The same unit with its products in this form, as a measurement of its own."""
        key = self.key._replace(signature=signature_in(form, self.key.signature))
        return replace(self, key=key, forms=((self.region[0], form),))

    @property
    def halved(self) -> bool:
        """Its model is to be in float16."""
        return self.conditions.halves(self.spec.target)

    @classmethod
    def of(
        cls,
        matcher: RegionMatcher,
        region: UnitSet,
        kind: Kind,
        spec: TargetSpec,
        conditions: Conditions,
        agent_version: str,
    ) -> Job:
        """The job with its key."""
        own = conditions.on(spec.target)
        key = Key(
            signature=matcher.signature(region),
            target=spec.target.key,
            precision=own.precision.value,
            mode=own.mode.value,
            threads=own.threads,
            cpus=own.cpus,
            sustained_s=own.sustained_s,
            driver_version=spec.driver_version,
            agent_version=agent_version,
        )
        return cls(region, kind, spec, own, key)


def device_targets(
    info: AgentInfo,
    preferences: Sequence[Preference] = tuple(Preference),
    accelerators: Collection[str] | None = None,
    one_thread: bool = False,
) -> tuple[TargetSpec, ...]:
    """The CPU (with ``one_thread`` also with one thread), then every accelerator and "auto", each
    under every preference; a library in NNAPI's place
    (:class:`~nnapi_prof.device.protocol.results.NnapiEntryPoint`) has no "auto".

    A model is for a level that both the accelerator and the device's NNAPI know: the CPU of
    Android 10 says that its level is 10000.

    ``accelerators`` limits to those names ("auto" is one); the CPU is always there, for it is
    what the rest is compared with. A device without a usable NNAPI has only the CPU. Raises
    UsageError where a name is none of the device's.
    """
    specs = [TargetSpec(CPU, NEWEST_LEVEL)]
    if one_thread:
        specs.append(TargetSpec(CPU_ALONE, NEWEST_LEVEL))
    levels = {a.name: _level(a.feature_level, info) for a in info.nnapi.accelerators}
    versions = {a.name: a.version for a in info.nnapi.accelerators}
    own_levels = {a.name: _own_level(a.feature_level, info) for a in info.nnapi.accelerators}
    has_runtime = info.nnapi.library is not None and info.nnapi.door is NnapiEntryPoint.NNAPI
    if has_runtime and info.nnapi.error is None:
        # NNAPI's own runtime falls back to its reference kernels, which know the API's level.
        newest = info.api_level or max(levels.values(), default=api_of(info.nnapi.missing))
        levels[AUTO] = min(newest, NEWEST_LEVEL)
        versions[AUTO] = ";".join(f"{name}={versions[name]}" for name in sorted(versions))
    if accelerators is not None:
        unknown = sorted(set(accelerators) - set(levels))
        if unknown:
            there = ", ".join(levels) or "none"
            raise UsageError(f"no accelerator {unknown[0]!r} on this device; there are: {there}")
    for name, level in levels.items():
        if accelerators is None or name in accelerators:
            specs += [
                TargetSpec(
                    Target.nnapi(name, preference), level, versions[name], own_levels.get(name, 0)
                )
                for preference in preferences
            ]
    return tuple(specs)


def _own_level(reported: int, info: AgentInfo) -> int:
    """The level that an accelerator reports; 0 where it is none, or later than the phone's NNAPI:
    Android 12 (API 31) was the first whose NNAPI is updated without Android."""
    is_late = info.nnapi.door is NnapiEntryPoint.NNAPI and reported > LAST_API_LEVEL
    too_old = is_late and info.api_level is not None and info.api_level < LAST_API_LEVEL
    return reported if is_level(reported) and not too_old else 0


def _level(reported: int, info: AgentInfo) -> int:
    """The level to convert for, of an accelerator that reports one. That of a library in NNAPI's
    place is its own, whatever the phone's."""
    if info.api_level is not None and info.nnapi.door is NnapiEntryPoint.NNAPI:
        newest = info.api_level
    else:
        newest = reported if is_level(reported) else api_of(info.nnapi.missing)
    return min(reported, newest, NEWEST_LEVEL)


def grid(
    matcher: RegionMatcher,
    regions: Iterable[tuple[Kind, UnitSet]],
    specs: Sequence[TargetSpec],
    conditions: Conditions,
    agent_version: str,
) -> list[Job]:
    """All regions on all targets: equal signatures once, the alternatives of a region in a row.

    The alternatives stand together so that a drift of the device (heat, other load) hits them
    alike.
    """
    seen: set[str] = set()
    jobs: list[Job] = []
    for kind, region in regions:
        signature = matcher.signature(region)
        if signature in seen:
            continue
        seen.add(signature)
        jobs += [Job.of(matcher, region, kind, spec, conditions, agent_version) for spec in specs]
    return jobs


REFINING = 0.2
"""Measurements of refining by those before it: 0.19 (47 to 247) and 0.42 (74 to 175) in profiles of
MobileNetV2 on two simulated phones."""


def expected_later(
    units: Sequence[Job],
    chains: Sequence[Job],
    leaders: Collection[Target],
    have: Collection[Key],
    refine: bool,
) -> Mapping[str, int]:
    """Phase -> measurements that are expected after it.

    Chains are measured on targets that a plan may use, of which ``leaders`` are the most; refining
    follows where anything before it was new. Under other preferences and in refining nobody can
    know.
    """

    def new(jobs: Sequence[Job]) -> int:
        return sum(job.key not in have and job.spec.target in leaders for job in jobs)

    n_chains = new(chains)
    last = round(REFINING * (new(units) + n_chains)) if refine else 0
    n_units = new(units)
    return {
        "trial": n_units + n_chains + last,
        "units": n_chains + last,
        "preferences": n_chains + last,
        "chains": last,
    }


# ---- models, actions, rows ----------------------------------------------------------------------


class Converter:
    """Converts each region once for each level, and remembers until :meth:`forget`.

    ``load`` gives the program; it is asked at the first conversion, and torch comes with it.
    """

    def __init__(self, load: Callable[[], Program]) -> None:
        self._load = load
        self._models: dict[tuple[UnitSet, int, UnitForms, bool], Region | str] = {}

    def convert(
        self, region: UnitSet, level: int, forms: UnitForms = (), halved: bool = False
    ) -> Region | str:
        """The region's model with products in such ``forms`` (``halved``: in float16), or the
        sentence with which it is refused."""
        key = (region, level, forms, halved)
        if key not in self._models:
            try:
                self._models[key] = self._convert(*key)
            except UnsupportedOp as refusal:
                self._models[key] = refusal.refusal.sentence  # for every model that has such a unit
            except ConversionError as refusal:
                self._models[key] = str(refusal)
        return self._models[key]

    def _convert(self, region: UnitSet, level: int, forms: UnitForms, halved: bool) -> Region:
        program = self._load()  # which imports torch; the lowerings want it, too
        from nnapi_prof.convert.lower import convert_region
        from nnapi_prof.convert.region import to_float16

        if not halved:
            return convert_region(program, region, level, forms)
        whole = self.convert(region, level, forms)
        if isinstance(whole, str):
            raise ConversionError(whole)
        return to_float16(whole)

    def forget(self) -> None:
        """Lets go of the models, which hold their weights."""
        self._models.clear()


def refused(job: Job, graph: UnitGraph, fingerprint: str, simulated: bool, why: str) -> Measurement:
    """The measurement of a job that a lowering refuses: nothing ran."""
    clock = "simulated" if simulated else "monotonic"
    return row_of(
        job, graph, fingerprint, simulated, status=Status.REFUSED, message=why, clock=clock
    )


def measured(
    job: Job,
    graph: UnitGraph,
    fingerprint: str,
    simulated: bool,
    converted: Region,
    result: ActionResult,
    number: int = 0,
) -> Measurement:
    """The measurement that a result of the agent's is, of the segment of that number."""
    segment = result.segments[number] if number < len(result.segments) else SegmentSamples()
    kernels = segment.kernels
    return row_of(
        job,
        graph,
        fingerprint,
        simulated,
        status=result.status,
        message=None if result.ok else _why(result),
        samples_ns=segment.samples_ns,
        hardware_ns=segment.hardware_ns,
        driver_ns=segment.driver_ns,
        copies_ns=result.copies_ns,
        alone_ns=segment.alone_ns,
        cpu_ns=segment.cpu_ns,
        compile_ns=segment.compile_ns,
        first_ns=result.first_ns,
        rounds=result.rounds,
        warmup_runs=result.warmup_runs,
        warm=None if simulated else result.warm,  # simulated clocks are as warm as they will be
        cpu_mask=result.cpu_mask,
        kernels_xnnpack=kernels.xnnpack if kernels else None,
        kernels_portable=kernels.portable if kernels else None,
        memory=segment.memory,
        n_operations=len(converted.operations),
        clock=result.clock,
        cpu_khz_before=result.cpu_khz[0],
        cpu_khz_after=result.cpu_khz[1],
        thermal_mc_before=result.thermal_mc[0],
        thermal_mc_after=result.thermal_mc[1],
        rss_peak_kb=result.rss_peak_kb,
        attempts=result.attempts,
    )


def row_of(
    job: Job, graph: UnitGraph, fingerprint: str, simulated: bool, **outcome: Any
) -> Measurement:
    """Return the cost table's row of a job with this ``outcome``."""
    units = [graph.units[u] for u in job.region]
    entering, leaving = graph.boundary(job.region)
    form_of = dict(job.forms or ())
    members = tuple(
        signature_in(form_of[unit.index], unit.signature)
        if unit.index in form_of
        else unit.signature
        for unit in units
    )
    if job.kind is Kind.THREADS:  # shortened, it tells nothing of the units themselves
        members = (job.key.signature,)
    return Measurement(
        signature=job.key.signature,
        kind=job.kind,
        label=region_label(graph, job.region),
        members=members,
        offsets=tuple(u - job.region[0] for u in job.region)[: len(members)],
        **work_columns([unit.work for unit in units]),
        target=job.spec.target,
        fingerprint=fingerprint,
        agent_version=job.key.agent_version,
        driver_version=job.key.driver_version,
        conditions=job.conditions,
        input_bytes=sum(graph.values[name].n_bytes for name in entering),
        output_bytes=sum(graph.values[name].n_bytes for name in leaving),
        simulated=simulated,
        **outcome,
    )


def _why(result: ActionResult) -> str:
    """``during compile: no kernel for SIN (ANEURALNETWORKS code 4)``."""
    at_fault = result.stage and result.status is not Status.REFUSED
    parts = [f"during {result.stage}" if at_fault else "", result.why]
    if result.signal and result.signal not in (result.message or ""):
        parts.append(result.signal)
    words = ": ".join(part for part in parts if part)
    return f"{words} (NNAPI result code {result.code})" if result.code is not None else words


def region_label(graph: UnitGraph, region: UnitSet) -> str:
    """For people: the labels of up to three units, of more the first, the last and the count."""
    labels = [graph.units[index].label for index in region]
    if len(labels) <= 3:
        return " | ".join(labels)
    return f"{labels[0]} ... {labels[-1]} ({len(labels)} units)"


# ---- requests -----------------------------------------------------------------------------------


INPUT_SEED = 1
"""Seed of the first input; the next ones count up, so that two inputs are not the same."""
MAX_ACTIONS = 200
"""In one request; a request that fails as a whole costs no more than these."""
WATCHED_ACTIONS = 24
"""In one request where the device is looked at between them: some seconds."""
MAX_WEIGHT_BYTES = 128 << 20
"""Weights that one request's models hold in this process's memory."""


@dataclass
class Prepared:
    """A request, its jobs by action, and the jobs that cannot be sent."""

    request: RequestBuilder
    sent: dict[int, tuple[Job, Region]] = field(default_factory=dict)
    refusals: list[tuple[Job, Measurement]] = field(default_factory=list)


def batches(graph: UnitGraph, jobs: Sequence[Job], most: int = MAX_ACTIONS) -> Iterator[list[Job]]:
    """Cuts jobs into requests of so many, never between the alternatives of one region."""
    batch: list[Job] = []
    weight = 0
    for region, group in itertools.groupby(jobs, key=lambda job: job.region):
        alternatives = list(group)
        size = sum(graph.units[index].constant_bytes for index in region)
        full = len(batch) + len(alternatives) > most or weight + size > MAX_WEIGHT_BYTES
        if batch and full:
            yield batch
            batch, weight = [], 0
        batch += alternatives
        weight += size
    if batch:
        yield batch


def prepare(
    batch: Sequence[Job],
    graph: UnitGraph,
    converter: Converter,
    timing: Mapping[bool, Timing],
    memory_kb: int,
    fingerprint: str,
    simulated: bool,
    patience: Patience,
    gauges: Sequence[Job] = (),
) -> Prepared:
    """Converts the jobs of one request, equal models once. ``timing`` of units, and of the rest;
    ``gauges`` are jobs that ran well, by which the agent finds out whether their drivers work."""
    prepared = Prepared(RequestBuilder(patience))
    request = prepared.request
    groups = Groups()
    for number, job in enumerate(batch):
        converted = convert_job(converter, job)
        if isinstance(converted, str):
            row = refused(job, graph, fingerprint, simulated, converted)
            prepared.refusals.append((job, row))
            continue
        group = groups.number(job.region, sum(map(len, converted.buffers)))
        seeds = itertools.count(INPUT_SEED)
        action = build_action(
            number,
            [(job.spec.target, converted)],
            lambda _: (TensorSource.RANDOM, next(seeds)),  # noqa: B023  # asked here and now
            request,
            timing[job.kind is Kind.UNIT],
            ActionOptions(job.conditions, memory_kb, group),
        )
        request.add_action(action.spec)
        prepared.sent[number] = (job, converted)
    for number, job in enumerate(gauges if prepared.sent else (), len(batch)):
        converted = convert_job(converter, job)
        if not isinstance(converted, str):
            action = build_action(
                number,
                [(job.spec.target, converted)],
                lambda _: (TensorSource.RANDOM, INPUT_SEED),
                request,
                timing[True],
                ActionOptions(job.conditions, memory_kb, 0),
            )
            request.add_action(replace(action.spec, flags=ActionFlag.GAUGE))
    return prepared


def convert_job(converter: Converter, job: Job) -> Region | str:
    """A job's model, or the sentence with which it is refused."""
    return converter.convert(job.region, job.spec.level, job.forms or (), job.halved)


# ---- drivers that are sick, and jobs that ask ----------------------------------------------------


OPEN = "left open, because a driver fails what it ran before (restart the phone, then run again):"
NEVER = "left open, because a driver runs no small model either (restart, then run again):"
HANGS = "left open, because its driver died or hung for too long (run again to go on):"
"""The flags, before the accelerator's name, of what was not measured for that."""


def check_same(before: Sequence[Accelerator], now: Sequence[Accelerator] | None) -> None:
    """Raise DeviceError where the accelerators are not those that a profile began with: its rows
    name their versions, and what NNAPI chooses from."""
    if now is None:
        return
    old, new = ({each.name: each.version for each in side} for side in (before, now))
    words = [
        f"{name} is {'gone' if name not in new else f'version {new[name]}'} now (it was {version})"
        for name, version in old.items()
        if new.get(name) != version
    ]
    words += [f"there is an accelerator {name} now" for name in new if name not in old]
    if words:
        raise DeviceError(
            f"the phone's accelerators changed while it was measured: {'; '.join(words)}",
            "profile again: what was measured so far stands",
        )


class DriverHealth:
    """The health of the drivers in one profile. What is left open is counted in ``doubts``.

    What a driver fails or refuses on which nothing ran before waits for the end of its request, and
    so does then what NNAPI chose, which may be the CPU for that. If nothing else ran on the driver
    by then, small models say whether it is at fault: it is if it runs none of them."""

    def __init__(self, doubts: Counter[str]) -> None:
        self._doubts = doubts
        self._ill: dict[str, str] = {}
        """Accelerators on which nothing is measured any more, and the flag that says why."""
        self._proven: set[str] = set()
        """Those that ran a small model: what they refuse they do not support."""
        self._gauges: dict[str, tuple[float, Job]] = {}
        self._failing: dict[str, Target] = {}
        """Accelerators of which rows are held, and one of their targets."""

    def note_gauge(self, job: Job, row: Measurement) -> None:
        """Remembers a job that ran well; the shortest of an accelerator's is its gauge."""
        name = row.target.accelerator
        if not row.usable or name is None or name == AUTO:
            return
        if name not in self._gauges or row.latency_ns < self._gauges[name][0]:
            self._gauges[name] = (row.latency_ns, job)

    def holds(self, row: Measurement) -> bool:
        """Whether a row is to wait until the request is over, and its driver asked."""
        name = row.target.accelerator
        if name == AUTO:
            return bool(self._failing)
        refused = row.status is Status.REFUSED and name not in self._proven
        if name is None or name in self._gauges or not (refused or row.status in FAILURES):
            return False
        self._failing.setdefault(name, row.target)
        return True

    def unproven(self) -> dict[str, Target]:
        """Accelerators of which rows are held, and nothing ran by now; holds nothing more."""
        asked = {name: to for name, to in self._failing.items() if name not in self._gauges}
        self._failing.clear()
        return asked

    def note_small_models(self, name: str, fared: Collection[Status]) -> None:
        """Learns how the small models fared on an accelerator; none tells nothing."""
        if Status.OK in fared:
            self._proven.add(name)
        elif fared:
            self._ill[name] = NEVER

    def gauges(self, jobs: Iterable[Job]) -> list[Job]:
        """The gauges of the accelerators that jobs need: NNAPI's choice needs all."""
        names = {job.spec.target.accelerator for job in jobs}
        return [job for name, (_, job) in self._gauges.items() if name in names or AUTO in names]

    def stop(self, job: Job) -> bool:
        """Whether a job needs a driver that is ill; it is counted as open then."""
        name = job.spec.target.accelerator
        needed = [f"{flag} {ill}" for ill, flag in self._ill.items() if name in (ill, AUTO)]
        self._doubts.update(needed)
        return bool(needed)

    def ended(self, end: End, unmeasured: Iterable[Job], too_slow: Collection[str]) -> None:
        """Learns at the end of a request which drivers are ill, and what they left open."""
        states = {each.accelerator or AUTO: each.state for each in end.drivers}
        states |= dict.fromkeys(too_slow, SLOW)
        flags = {SICK: OPEN, SLOW: HANGS}
        for name, state in states.items():
            if state in flags:
                self._ill.setdefault(name, flags[state])
        for job in unmeasured:
            self.stop(job)
