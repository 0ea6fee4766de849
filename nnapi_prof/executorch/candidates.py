"""Partitioners by name: those of a caller's, and those that ExecuTorch's wheel or a module has."""

from __future__ import annotations

import copy
import importlib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nnapi_prof.api.options import SILENT, Listener, open_client
from nnapi_prof.errors import UsageError, did_you_mean, option_name
from nnapi_prof.execution.profile.jobs import device_targets
from nnapi_prof.executorch.aot import Partitioner, silence
from nnapi_prof.executorch.partitioner import NnapiPartitioner
from nnapi_prof.graph.plan import AUTO, Engine, Precision, Preference, Target

PORTABLE = "portable"
"""ExecuTorch's own kernels, which need no partitioner."""
NNAPI = "nnapi"
LIST_ORDER = "list-order"
_NAME = re.compile(r"[\w.-]+")
_NO_NAME = re.compile(r"[^\w.-]+")
_WHEEL = {
    "vulkan": "executorch.backends.vulkan.partitioner.vulkan_partitioner:VulkanPartitioner",
    "xnnpack": "executorch.backends.xnnpack.partition.xnnpack_partitioner:XnnpackPartitioner",
}
"""Of executorch's wheel, those for phones that need no arguments."""


@dataclass(frozen=True)
class Candidate:
    """A place for a region: a partitioner with its back end, or none, portable kernels."""

    name: str
    partitioner: Partitioner | None

    @property
    def target(self) -> Target:
        return target_of(self.name)

    def fresh(self) -> list[Partitioner]:
        """For one program. A NnapiPartitioner holds what its program calls: each has its own."""
        if self.partitioner is None:
            return []
        ours = isinstance(self.partitioner, NnapiPartitioner)
        return [copy.copy(self.partitioner) if ours else self.partitioner]


def target_of(name: str) -> Target:
    """``executorch:NAME``."""
    return Target(f"{Engine.EXECUTORCH.value}:{name}")


def checked(partitioners: Mapping[str, Partitioner]) -> None:
    """Raises UsageError where there are none, one is no partitioner, or a name cannot be one."""
    if not partitioners:
        raise UsageError("there is nothing to choose among", "name one partitioner at least")
    for name, partitioner in partitioners.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a name for a partitioner", "use letters, digits and _ . -"
            )
        if name in (PORTABLE, LIST_ORDER):
            raise UsageError(
                f"the name {name} is reserved", "choose another name for the partitioner"
            )
        if not isinstance(partitioner, Partitioner):
            what = "its class" if inspect.isclass(partitioner) else type(partitioner).__name__
            raise UsageError(
                f"{name} is {what}",
                "give an instance of a class derived from"
                " executorch.exir.backend.partitioner.Partitioner",
            )


def region_candidates(partitioners: Mapping[str, Partitioner]) -> tuple[Candidate, ...]:
    """Lists the candidates for a region: each partitioner as it is; for one that knows several
    accelerators of NNAPI's, each of these, NAME-ACCELERATOR; the portable kernels last."""
    candidates: list[Candidate] = []
    for name, partitioner in partitioners.items():
        if isinstance(partitioner, NnapiPartitioner):
            targets = _one_each(partitioner.targets())
            for target, level in targets:
                own = name if len(targets) == 1 else _candidate_name(name, target)
                candidates.append(Candidate(own, partitioner.on(target, level)))
        else:
            candidates.append(Candidate(name, partitioner))
    return (*candidates, Candidate(PORTABLE, None))


def _one_each(targets: Sequence[tuple[Target, int]]) -> list[tuple[Target, int]]:
    """Picks the fast preference of each named accelerator, or its first."""
    best: dict[str, tuple[Target, int]] = {}
    for target, level in targets:
        name = target.accelerator or AUTO
        fast = target.preference is Preference.FAST_SINGLE_ANSWER
        if target.precision is Precision.FLOAT32 and name != AUTO and (fast or name not in best):
            best[name] = (target, level)
    return list(best.values())


def named(names: Sequence[str], device: str, listener: Listener = SILENT) -> dict[str, Partitioner]:
    """Partitioners by their names: ``nnapi``, one for each of the device's accelerators; what the
    wheel has (``xnnpack``, ``vulkan``, ...); ``MODULE:CLASS`` of anybody's, made without arguments
    and called by its class.

    Raises UsageError where there is none of that name, or it is not installed, and DeviceError
    where the device cannot be asked.
    """
    partitioners: dict[str, Partitioner] = {}
    for name in names:
        if name == NNAPI:
            partitioners |= _accelerators(device, listener)
        elif ":" in name:
            partitioners[name.rpartition(":")[2]] = _imported(name, name)
        elif name in _WHEEL:
            partitioners[name] = _imported(name, _WHEEL[name])
        else:
            known = (NNAPI, *_WHEEL)
            raise UsageError(
                f"{option_name('partitioners')}: there is no {name!r}{did_you_mean(name, known)};"
                f" {', '.join(known)} and MODULE:CLASS can be named"
            )
    return partitioners


def _accelerators(device: str, listener: Listener) -> dict[str, Partitioner]:
    with open_client(device, listener) as client:
        specs = device_targets(client.info(), (Preference.FAST_SINGLE_ANSWER,))
    places = [
        (spec.target, spec.level)
        for spec in specs
        if spec.target.engine is Engine.NNAPI and spec.target.accelerator != AUTO
    ]
    if not places:
        raise UsageError(f"{device} has no accelerator of NNAPI's", f"leave {NNAPI} out")
    if len(places) == 1:
        return {NNAPI: NnapiPartitioner(places[0][0], level=places[0][1])}
    return {
        _candidate_name(NNAPI, target): NnapiPartitioner(target, level=level)
        for target, level in places
    }


def _candidate_name(name: str, target: Target) -> str:
    """``nnapi-ACCELERATOR``; the accelerator alone where it is called so already. What a name
    cannot have becomes a dash."""
    accelerator = _NO_NAME.sub("-", target.accelerator or "")
    return accelerator if accelerator.startswith(name) else f"{name}-{accelerator}"


def _imported(name: str, place: str) -> Partitioner:
    module, _, word = place.partition(":")
    try:
        with silence():
            return getattr(importlib.import_module(module), word)()
    except Exception as error:  # whatever a module of anybody's raises
        words = f"{type(error).__name__}: {error}"
        raise UsageError(f"the partitioner {name} cannot be loaded: {words}") from error
