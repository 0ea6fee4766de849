"""Make jobs to measure, with their models, actions and requests, and turn results into rows."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nnapi_prof.convert.region import Region
from nnapi_prof.costs import Conditions
from nnapi_prof.costs.measurement import Key, Kind, Measurement, Status, work_columns
from nnapi_prof.costs.model.fit import RegionMatcher, UnitSet
from nnapi_prof.costs.model.forms import ProductForm, UnitForms, signature_in
from nnapi_prof.device.protocol import (
    ActionResult,
    AgentInfo,
    NnapiEntryPoint,
    SegmentSamples,
)
from nnapi_prof.device.protocol.actions import ActionFlag, Groups, TensorSource, Timing
from nnapi_prof.device.protocol.request import Patience, RequestBuilder
from nnapi_prof.errors import UsageError
from nnapi_prof.execution import ActionOptions
from nnapi_prof.execution.actions import build_action
from nnapi_prof.execution.profile.unit_graph_cache import Converter
from nnapi_prof.graph.plan import AUTO, CPU, CPU_ALONE, Preference, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.nnapi import LAST_API_LEVEL, api_of, is_level

NEWEST_LEVEL = 30
"""The newest feature level that the converter and the agent's CPU engine support."""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A target on the device at hand: the level to lower for, and the version of its driver."""

    target: Target
    level: int
    driver_version: str = ""
    own_level: int = 0
    """The level that the accelerator reports, where the device's NNAPI supports it; else 0."""

    @property
    def newest(self) -> int:
        """The newest level whose forms products may have, where these are cheapest."""
        return max(self.level, self.own_level)


@dataclass(frozen=True, slots=True)
class Job:
    """One region on one target, to be measured."""

    region: UnitSet
    kind: Kind
    spec: TargetSpec
    conditions: Conditions
    """The profile's conditions, as far as they concern the target's engine."""
    key: Key
    forms: UnitForms | None = None
    """Forms of its products of activations; None for those that are chosen on its target."""

    def in_form(self, form: ProductForm) -> Job:
        """Returns the job of the same unit with its products in this form, measured separately."""
        key = self.key._replace(signature=signature_in(form, self.key.signature))
        return replace(self, key=key, forms=((self.region[0], form),))

    @property
    def halved(self) -> bool:
        """Whether its model is to be in float16."""
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
        """Returns the job with its key."""
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
    """Returns the CPU (with ``one_thread`` also with one thread), then every accelerator and
    "auto", each under every preference; a library in NNAPI's place
    (:class:`~nnapi_prof.device.protocol.NnapiEntryPoint`) has no "auto".

    A model is converted for a level that both the accelerator and the device's NNAPI support: the
    CPU of Android 10 reports the level 10000.

    ``accelerators`` limits the targets to those names ("auto" is one); the CPU is always included,
    because the rest is compared with it. A device without a usable NNAPI has only the CPU. Raises
    UsageError where the device has no accelerator of a name.
    """
    specs = [TargetSpec(CPU, NEWEST_LEVEL)]
    if one_thread:
        specs.append(TargetSpec(CPU_ALONE, NEWEST_LEVEL))
    levels = {a.name: _level(a.feature_level, info) for a in info.nnapi.accelerators}
    versions = {a.name: a.version for a in info.nnapi.accelerators}
    own_levels = {a.name: _own_level(a.feature_level, info) for a in info.nnapi.accelerators}
    has_runtime = info.nnapi.library is not None and info.nnapi.door is NnapiEntryPoint.NNAPI
    if has_runtime and info.nnapi.error is None:
        # NNAPI's own runtime falls back to its reference kernels, which support the API's level.
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
    """Returns the level that an accelerator reports; 0 where it is not a level, or later than the
    phone's NNAPI: Android 12 (API 31) was the first whose NNAPI is updated without Android."""
    is_late = info.nnapi.door is NnapiEntryPoint.NNAPI and reported > LAST_API_LEVEL
    too_old = is_late and info.api_level is not None and info.api_level < LAST_API_LEVEL
    return reported if is_level(reported) and not too_old else 0


def _level(reported: int, info: AgentInfo) -> int:
    """Returns the level to convert for, by the level that an accelerator reports. A library in
    NNAPI's place has its own, whatever the phone's."""
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
    """Returns jobs of all regions on all targets, equal signatures once.

    The alternatives of a region are adjacent, so that a drift of the device (heat, other load)
    affects them alike.
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


# ---- models, actions, rows ----------------------------------------------------------------------


def refused(job: Job, graph: UnitGraph, fingerprint: str, simulated: bool, why: str) -> Measurement:
    """Returns the measurement of a job that a lowering refuses: nothing ran."""
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
    """Returns the measurement of one segment, by its number, in a result of the agent."""
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
        warm=None if simulated else result.warm,  # simulated clocks do not warm up
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
    if job.kind is Kind.THREADS:  # too short to count as the units' own
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
    """Returns ``during compile: no kernel for SIN (NNAPI result code 4)``."""
    at_fault = result.stage and result.status is not Status.REFUSED
    parts = [f"during {result.stage}" if at_fault else "", result.why]
    if result.signal and result.signal not in (result.message or ""):
        parts.append(result.signal)
    words = ": ".join(part for part in parts if part)
    return f"{words} (NNAPI result code {result.code})" if result.code is not None else words


def region_label(graph: UnitGraph, region: UnitSet) -> str:
    """Returns the labels of up to three units, for people; else the first, the last and the
    count."""
    labels = [graph.units[index].label for index in region]
    if len(labels) <= 3:
        return " | ".join(labels)
    return f"{labels[0]} ... {labels[-1]} ({len(labels)} units)"


# ---- requests -----------------------------------------------------------------------------------


INPUT_SEED = 1
"""Seed of the first input; the next ones count up, so that no two inputs are the same."""
MAX_ACTIONS = 200
"""Largest number of actions in one request; if it fails as a whole, no more are lost."""
WATCHED_ACTIONS = 24
"""Largest number in one request where the device is checked between them: some seconds."""
MAX_WEIGHT_BYTES = 128 << 20
"""Largest size of weights that the models of one request hold in this process's memory."""


@dataclass
class Prepared:
    """A request, its jobs by action, and the jobs that cannot be sent."""

    request: RequestBuilder
    sent: dict[int, tuple[Job, Region]] = field(default_factory=dict)
    refusals: list[tuple[Job, Measurement]] = field(default_factory=list)


def batches(graph: UnitGraph, jobs: Sequence[Job], most: int = MAX_ACTIONS) -> Iterator[list[Job]]:
    """Splits jobs into requests of at most ``most``, but never the alternatives of one region."""
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
    """Converts the jobs of one request, equal models once. ``timing`` has that of units (True) and
    of other regions; ``gauges`` are jobs that ran well, by which the agent checks their drivers."""
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
            lambda _: (TensorSource.RANDOM, next(seeds)),  # noqa: B023  # called right away
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
    """Returns a job's model, or the reason why it is refused."""
    return converter.convert(job.region, job.spec.level, job.forms or (), job.halved)
