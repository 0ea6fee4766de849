"""What to measure: regions, targets and conditions -> jobs, each once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from nnapi_prof.costs.conditions import Conditions, Precision
from nnapi_prof.costs.locate import Locator, Region
from nnapi_prof.costs.measurement import Key, Kind
from nnapi_prof.device.results import AgentInfo
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import AUTO, CPU, Preference, Target
from nnapi_prof.nnapi.api import api_of
from nnapi_prof.nnapi.facts import is_level

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

    region: Region
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
        region: Region,
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
    regions: Iterable[tuple[Kind, Region]],
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
