"""What a bundle holds, as data.

On disk a bundle is a folder::

    manifest.json         everything but weights and models, and its own SHA-256
    model.pt | model.pt2  the original, for the comparison with eager PyTorch
    regions/ID.nnpf       one NNAPI model each (container kind 2: INFO, MODL, BUFS)
    blobs/SHA256          weights, shared by all regions that use them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nnapi_prof.convert.converted import ConvertedRegion
from nnapi_prof.convert.permutes import Permutes, permutes
from nnapi_prof.graph.plan import Engine, Plan, Target
from nnapi_prof.graph.unit import UnitGraph

RegionKey = tuple[tuple[int, ...], int]
"""Units of a region, ascending, and the feature level it was lowered for."""


@dataclass(frozen=True)
class Bundle:
    """A plan with its baselines, ready to run; ``plans[0]`` is the partitioner's own."""

    model: str
    """Name of the model, for people."""
    model_file: str
    """Name of the original's file in the bundle."""
    inputs: tuple[str, ...]
    """Input specs, ``1x3x224x224:float32``."""
    device: str
    fingerprint: str
    simulated: bool
    graph: UnitGraph
    plans: tuple[Plan, ...]
    levels: Mapping[str, int]
    """Target key -> feature level its regions were lowered for."""
    regions: Mapping[RegionKey, ConvertedRegion] = field(repr=False)
    threads: int = 1
    """Of the device's CPU engine, as measured for the plan."""
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        return self.plans[0]

    def region(self, units: tuple[int, ...], target: Target) -> ConvertedRegion:
        """The NNAPI model of a segment that the agent runs."""
        return self.regions[(tuple(sorted(units)), self.levels[target.key])]

    def permutes(self, plan: Plan) -> Permutes:
        """What the segments of a plan that the agent runs permute, together."""
        on_device = [s for s in plan.segments if s.target.engine is not Engine.HOST]
        return sum((permutes(self.region(s.units, s.target)) for s in on_device), Permutes())


def needed_regions(plans: tuple[Plan, ...], levels: Mapping[str, int]) -> tuple[RegionKey, ...]:
    """The regions that the agent needs for some plans, each once, in order of first use."""
    found: dict[RegionKey, None] = {}
    for plan in plans:
        for segment in plan.segments:
            if segment.target.engine is not Engine.HOST:
                found[(tuple(sorted(segment.units)), levels[segment.target.key])] = None
    return tuple(found)
