"""What a bundle holds, as data.

On disk a bundle is a folder::

    manifest.json         everything but weights and models, and its own SHA-256
    model.pt | model.pt2  the original, for the comparison with eager PyTorch
    regions/ID.nnpf       one NNAPI model each (container kind 2: INFO, MODL, BUFS)
    blobs/SHA256          weights, shared by all regions that use them
    run.json, runs/       its last run, and those before (nnapi_prof.execution.report)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from nnapi_prof.bundle.plan_set import PlanSet
from nnapi_prof.convert.region import Permutes, Region, permutes
from nnapi_prof.costs.conditions import Conditions, Precision
from nnapi_prof.costs.model.regression import TargetFit
from nnapi_prof.graph.plan import Engine, Plan, Target
from nnapi_prof.graph.unit import UnitGraph

RegionKey = tuple[tuple[int, ...], int]
"""Units of a region, ascending, and the feature level it was lowered for."""


@dataclass(frozen=True)
class Bundle:
    """A plan, or several, with their baselines, ready to run; ``plans[0]`` is the partitioner's
    own, or one of ``plan_set``."""

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
    regions: Mapping[RegionKey, Region] = field(repr=False)
    conditions: Conditions = Conditions()
    """Under which the plan's costs were measured, and it is to be run."""
    halved: Mapping[RegionKey, Region] = field(default_factory=dict, repr=False)
    """The regions on NNAPI where these conditions want models in float16."""
    notes: tuple[str, ...] = ()
    costs: str = ""
    """Where the cost table is that it was planned with, for people: a path or a URL without its
    password. Nothing opens it by itself: a bundle may be a stranger's."""
    fits: Mapping[Target, TargetFit] | None = field(default=None, repr=False)
    """What each target was found to cost when the plan was made; None of a bundle that was written
    without, or rests on estimates."""

    plan_set: PlanSet | None = None
    """Which of ``plans`` are the partitioner's own, where there are several; None: the first."""

    @property
    def plan(self) -> Plan:
        """The plan where nothing is asked for: the only one, or the first of several."""
        return self.plans[0 if self.plan_set is None else self.plan_set.choices[0].plan]

    def selected_plan(
        self, run: int = 0, phone: str = "", limits: Mapping[str, float] | None = None
    ) -> Plan:
        """The plan that the set's rule selects (:meth:`PlanSet.select`); the only one without."""
        if self.plan_set is None:
            return self.plan
        return self.plans[self.plan_set.select(run, phone or self.fingerprint, limits)]

    def region(self, units: tuple[int, ...], target: Target) -> Region:
        """The NNAPI model of a segment that the agent runs."""
        key = (tuple(sorted(units)), self.levels[target.key])
        return self.halved[key] if halves(self.conditions, target.engine) else self.regions[key]

    def permutes(self, plan: Plan) -> Permutes:
        """What the segments of a plan that the agent runs permute, together."""
        return sum((each for each in self.segment_permutes(plan) if each is not None), Permutes())

    def segment_permutes(self, plan: Plan) -> tuple[Permutes | None, ...]:
        """What each segment of a plan permutes; None on the host."""
        return tuple(
            None
            if segment.target.engine is Engine.HOST
            else permutes(self.region(segment.units, segment.target))
            for segment in plan.segments
        )


def halves(conditions: Conditions, engine: Engine) -> bool:
    """Whether an engine's models are to be in float16."""
    return conditions.on(engine).precision is Precision.FLOAT16


def needed_regions(
    plans: tuple[Plan, ...],
    levels: Mapping[str, int],
    engines: Collection[Engine] = (Engine.CPU, Engine.NNAPI),
) -> tuple[RegionKey, ...]:
    """The regions that some plans need on the agent's engines, each once, in order of first use."""
    keys: dict[RegionKey, None] = {}
    for plan in plans:
        for segment in plan.segments:
            if segment.target.engine in engines:
                keys[(tuple(sorted(segment.units)), levels[segment.target.key])] = None
    return tuple(keys)
