"""What to measure, as jobs: the model and action of each, and the row that its result becomes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnapi_prof.convert.region import Region, operand_of
from nnapi_prof.costs.conditions import Conditions, Precision
from nnapi_prof.costs.measurement import Key, Kind, Measurement, Status, work_columns
from nnapi_prof.costs.model.locate import Locator, UnitSet
from nnapi_prof.device.protocol.actions import (
    MODE_FLAGS,
    ActionSpec,
    SegmentSpec,
    Source,
    TensorSpec,
    Timing,
    cpu_mask,
)
from nnapi_prof.device.protocol.results import ActionResult, AgentInfo
from nnapi_prof.device.protocol.results import Status as ResultStatus
from nnapi_prof.errors import ConversionError, UnsupportedOp, UsageError
from nnapi_prof.graph.plan import AUTO, CPU, Preference, Target
from nnapi_prof.graph.types import TensorType
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.nnapi.api import api_of
from nnapi_prof.nnapi.facts import is_level

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


@dataclass(frozen=True, slots=True)
class Job:
    """One region on one target, to be measured."""

    region: UnitSet
    kind: Kind
    spec: TargetSpec
    conditions: Conditions
    """What of the profile's conditions concerns the target's engine."""
    key: Key

    @property
    def halved(self) -> bool:
        """Its model is to be in float16."""
        return self.conditions.precision is Precision.FLOAT16

    @classmethod
    def of(
        cls,
        locator: Locator,
        region: UnitSet,
        kind: Kind,
        spec: TargetSpec,
        conditions: Conditions,
        agent_version: str,
    ) -> Job:
        """The job with its key."""
        kept = conditions.on(spec.target.engine)
        key = Key(
            signature=locator.signature(region),
            target=spec.target.key,
            precision=kept.precision.value,
            mode=kept.mode.value,
            threads=kept.threads,
            cpus=kept.cpus,
            driver_version=spec.driver_version,
            agent_version=agent_version,
        )
        return cls(region, kind, spec, kept, key)


def device_targets(
    info: AgentInfo,
    preferences: Sequence[Preference] = tuple(Preference),
    accelerators: Collection[str] | None = None,
) -> tuple[TargetSpec, ...]:
    """The CPU, then every accelerator and "auto", each under every preference.

    A model is for a level that both the accelerator and the device's NNAPI know: the CPU of
    Android 10 says that its level is 10000.

    ``accelerators`` limits to those names ("auto" is one); the CPU is always there, for it is
    what the rest is compared with. A device without a usable NNAPI has only the CPU. Raises
    UsageError where a name is none of the device's.
    """
    specs = [TargetSpec(CPU, NEWEST_LEVEL)]
    levels = {a.name: _level(a.feature_level, info) for a in info.nnapi.accelerators}
    versions = {a.name: a.version for a in info.nnapi.accelerators}
    if info.nnapi.library is not None and info.nnapi.error is None:
        # NNAPI's own runtime falls back to its reference kernels, which know the API's level.
        known = info.api_level or max(levels.values(), default=api_of(info.nnapi.missing))
        levels[AUTO] = min(known, NEWEST_LEVEL)
        versions[AUTO] = ";".join(f"{name}={versions[name]}" for name in sorted(versions))
    if accelerators is not None:
        unknown = sorted(set(accelerators) - set(levels))
        if unknown:
            there = ", ".join(levels) or "none"
            raise UsageError(f"no accelerator {unknown[0]!r} on this device; there are: {there}")
    for name, level in levels.items():
        if accelerators is None or name in accelerators:
            specs += [
                TargetSpec(Target.nnapi(name, preference), level, versions[name])
                for preference in preferences
            ]
    return tuple(specs)


def _level(reported: int, info: AgentInfo) -> int:
    """The level to convert for, of an accelerator that reports one."""
    if info.api_level is not None:
        known = info.api_level
    else:
        known = reported if is_level(reported) else api_of(info.nnapi.missing)
    return min(reported, known, NEWEST_LEVEL)


def grid(
    locator: Locator,
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
        signature = locator.signature(region)
        if signature in seen:
            continue
        seen.add(signature)
        jobs += [Job.of(locator, region, kind, spec, conditions, agent_version) for spec in specs]
    return jobs


# ---- models, actions, rows ----------------------------------------------------------------------


INPUT_SEED = 1
"""Seed of the first input; the next ones count up, so that two inputs are not the same."""


class Converter:
    """Converts each region once for each level, and remembers until :meth:`forget`.

    ``load`` gives the program; it is asked at the first conversion, and torch comes with it.
    """

    def __init__(self, load: Callable[[], Program]) -> None:
        self._load = load
        self._known: dict[tuple[UnitSet, int, bool], Region | str] = {}

    def convert(self, region: UnitSet, level: int, halved: bool = False) -> Region | str:
        """The region's model (``halved``: in float16), or the sentence with which it is refused."""
        key = (region, level, halved)
        if key not in self._known:
            try:
                self._known[key] = self._convert(region, level, halved)
            except UnsupportedOp as refusal:
                self._known[key] = refusal.sentence  # for every model that has such a unit
            except ConversionError as refusal:
                self._known[key] = str(refusal)
        return self._known[key]

    def _convert(self, region: UnitSet, level: int, halved: bool) -> Region:
        program = self._load()  # which imports torch; the lowerings want it, too
        from nnapi_prof.convert.float16 import to_float16
        from nnapi_prof.convert.lower import convert_region

        if not halved:
            return convert_region(program, region, level)
        whole = self.convert(region, level)
        if isinstance(whole, str):
            raise ConversionError(whole)
        return to_float16(whole)

    def forget(self) -> None:
        """Lets go of the models, which hold their weights."""
        self._known.clear()


def make_action(
    number: int,
    job: Job,
    converted: Region,
    model: int,
    timing: Timing,
    group: int,
    memory_kb: int = 0,
) -> ActionSpec:
    """The action that measures ``job``: one segment over pseudo-random inputs.

    ``model`` is the index of ``converted`` in the request that ``number`` is an id in, ``group``
    the number of the alternatives that it takes turns with.
    """
    n_inputs = len(converted.inputs)
    tensors = [
        _tensor(t, Source.RANDOM, INPUT_SEED + i) for i, t in enumerate(converted.input_types)
    ]
    tensors += [_tensor(t, Source.SEGMENT, 0) for t in converted.output_types]
    segment = SegmentSpec.on(
        job.spec.target,
        model,
        tuple(range(n_inputs)),
        tuple(range(n_inputs, len(tensors))),
        job.conditions.precision is Precision.RELAXED,
    )
    return ActionSpec(
        number,
        tuple(tensors),
        (segment,),
        timing=timing,
        flags=MODE_FLAGS[job.conditions.mode],
        threads=job.conditions.threads,
        cpu_mask=cpu_mask(job.conditions.cpus),
        memory_kb=memory_kb,
        group=group,
    )


def _tensor(known: TensorType, source: Source, value: int) -> TensorSpec:
    operand = operand_of(known)
    assert operand is not None, f"{known} crosses to a device"
    return TensorSpec(operand.type, operand.dims, source, value)


def refused(job: Job, graph: UnitGraph, fingerprint: str, simulated: bool, why: str) -> Measurement:
    """The measurement of a job that a lowering refuses: nothing ran."""
    region = job.region
    entering, leaving = graph.boundary(region)
    return Measurement(
        signature=job.key.signature,
        kind=job.kind,
        label=region_label(graph, region),
        members=tuple(graph.units[u].signature for u in region),
        offsets=tuple(u - region[0] for u in region),
        **work_columns([graph.units[u].work for u in region]),
        target=job.spec.target,
        fingerprint=fingerprint,
        agent_version=job.key.agent_version,
        driver_version=job.key.driver_version,
        conditions=job.conditions,
        status=Status.REFUSED,
        message=why,
        input_bytes=sum(graph.values[name].n_bytes for name in entering),
        output_bytes=sum(graph.values[name].n_bytes for name in leaving),
        simulated=simulated,
        clock="simulated" if simulated else "monotonic",
    )


def measured(
    job: Job,
    graph: UnitGraph,
    fingerprint: str,
    simulated: bool,
    converted: Region,
    result: ActionResult,
) -> Measurement:
    """The measurement that a result of the agent's is."""
    timing = result.segments[0] if result.segments else None
    kernels = timing.kernels if timing else None
    return dataclasses.replace(
        refused(job, graph, fingerprint, simulated, ""),
        status=Status(result.status.value),
        message=None if result.ok else _why(result),
        samples_ns=timing.samples_ns if timing else (),
        hardware_ns=timing.hardware_ns if timing else (),
        driver_ns=timing.driver_ns if timing else (),
        compile_ns=timing.compile_ns if timing else None,
        first_ns=result.first_ns,
        rounds=result.rounds,
        warmup_runs=result.warmup_runs,
        warm=None if simulated else result.warm,  # simulated clocks are as warm as they will be
        cpu_mask=result.cpu_mask,
        kernels_xnnpack=kernels.xnnpack if kernels else None,
        kernels_portable=kernels.portable if kernels else None,
        memory=timing.memory if timing else None,
        n_operations=len(converted.operations),
        clock=result.clock,
        cpu_khz_before=result.cpu_khz[0],
        cpu_khz_after=result.cpu_khz[1],
        thermal_mc_before=result.thermal_mc[0],
        thermal_mc_after=result.thermal_mc[1],
        rss_peak_kb=result.rss_peak_kb,
    )


def _why(result: ActionResult) -> str:
    """``during compile: no kernel for SIN (ANEURALNETWORKS code 4)``."""
    at_fault = result.stage and result.status is not ResultStatus.REFUSED
    parts = [f"during {result.stage}" if at_fault else "", result.message or ""]
    if result.signal and result.signal not in (result.message or ""):
        parts.append(result.signal)
    said = ": ".join(part for part in parts if part)
    return f"{said} (NNAPI result code {result.code})" if result.code is not None else said


def region_label(graph: UnitGraph, region: UnitSet) -> str:
    """For people: the labels of up to three units, of more the first, the last and the count."""
    labels = [graph.units[index].label for index in region]
    if len(labels) <= 3:
        return " | ".join(labels)
    return f"{labels[0]} ... {labels[-1]} ({len(labels)} units)"
