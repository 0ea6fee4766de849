"""A bundle as data: plans, the rule that selects one, and what they need to run.

A bundle's plans are a list: the partitioner's own, and baselines. A set says that several of them
are the partitioner's own, and when each is meant: along a front of two criteria, as the shares of a
mixture (or of a schedule, over many runs), or each for some of many phones.

On disk a bundle is a folder::

    manifest.json         everything but weights and models, and its own SHA-256
    model.pt | model.pt2  the original, for the comparison with eager PyTorch
    regions/ID.nnpf       one NNAPI model each (container kind 2: INFO, MODL, BUFS)
    regions/copies.nnpf   where ``copies`` are
    blobs/SHA256          weights, shared by all regions that use them
    run.json, runs/       its last run, and those before (nnapi_prof.execution.report)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from nnapi_prof.bundle.frames import FramePlan
from nnapi_prof.bundle.phones import OTHERS, PhoneTraits
from nnapi_prof.bundle.plan_set import PlanChoice, PlanSet, SelectionRule
from nnapi_prof.bundle.precision import MixedPrecision
from nnapi_prof.convert.region import Permutes, Region, permutes
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.model.regression import TargetFit
from nnapi_prof.graph.plan import AUTO, Engine, Plan, Target
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
    """Key of a target's base -> feature level its regions were lowered for."""
    regions: Mapping[RegionKey, Region] = field(repr=False)
    conditions: Conditions = Conditions()
    """Under which the plan's costs were measured, and it is to be run."""
    halved: Mapping[RegionKey, Region] = field(default_factory=dict, repr=False)
    """The regions on NNAPI whose models are in float16, by the conditions or by their targets."""
    copies: Region | None = field(default=None, repr=False)
    """For the CPU of an app: the outputs that no unit computes, constants and inputs as they are;
    None where there is none, or NNAPI has not their types."""
    notes: tuple[str, ...] = ()
    costs: str = ""
    """Where the cost table is that it was planned with, for people: a path or a URL without its
    password. Nothing opens it by itself: a bundle may be a stranger's."""
    fits: Mapping[Target, TargetFit] | None = field(default=None, repr=False)
    """What each target was found to cost when the plan was made; None of a bundle that was written
    without, or rests on estimates."""

    plan_set: PlanSet | None = None
    """Which of ``plans`` are the partitioner's own, where there are several; None: the first."""

    mixed: MixedPrecision | None = None
    """Where regions differ in precision: how the model is quantised, for ``graph`` is the quantised
    one then, and what its plan was chosen from."""

    frames: FramePlan | None = None
    """How many frames at once run, where it is meant for that; ``plan_set`` is then its mixture."""

    @property
    def plan(self) -> Plan:
        """The plan where nothing is asked for: the only one, or the first of several."""
        return self.plans[0 if self.plan_set is None else self.plan_set.choices[0].plan]

    def selected_plan(
        self,
        run: int = 0,
        phone: PhoneTraits | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> Plan:
        """The plan that the set's rule selects (:meth:`PlanSet.select`); the only one without."""
        if self.plan_set is None:
            return self.plan
        return self.plans[self.plan_set.select(run, phone, limits)]

    def for_phone(self, phone: PhoneTraits) -> Bundle:
        """Returns this phone's bundle from a set for phones: its plan, and beside it that of all
        others. Returns any other bundle unchanged."""
        if self.plan_set is None or self.plan_set.rule is not SelectionRule.PHONES:
            return self
        choice, key = self.plan_set.for_phone(phone)
        own = self._led_by(choice, self.plan_set)
        threads = choice.threads.get(key, self.conditions.threads)
        return replace(own, conditions=replace(self.conditions, threads=threads))

    def of_run(self, plan: Plan) -> Bundle:
        """Returns the bundle of the phone that ran this plan from a set for phones. Returns any
        other bundle unchanged."""
        if self.plan_set is None or self.plan_set.rule is not SelectionRule.PHONES:
            return self
        ran = [(s.units, s.target) for s in plan.segments]
        for choice in self.plan_set.choices:
            if [(s.units, s.target) for s in self.plans[choice.plan].segments] == ran:
                return self._led_by(choice, self.plan_set)
        return self

    def _led_by(self, choice: PlanChoice, plan_set: PlanSet) -> Bundle:
        own = self.plans[choice.plan]
        others = self.plans[next(c.plan for c in plan_set.choices if OTHERS in c.keys)]
        factor = choice.all_cpu_ns / others.predicted_ns if others.predicted_ns > 0 else 1.0
        there = tuple(
            replace(segment, predicted_ns=segment.predicted_ns * factor, interval_ns=None)
            for segment in others.segments
        )
        beside = [] if others is own else [replace(others, segments=there)]
        return replace(
            self,
            plans=(own, *beside),
            plan_set=None,
            device=choice.device,
            fingerprint=choice.fingerprint,
        )

    def region(self, units: tuple[int, ...], target: Target) -> Region:
        """The NNAPI model of a segment that the agent runs."""
        key = region_key(units, target, self.levels)
        return self.halved[key] if self.conditions.halves(target) else self.regions[key]

    def permutes(self, plan: Plan) -> Permutes:
        """Returns the permutes of the plan's segments that the agent runs, together."""
        return sum((each for each in self.segment_permutes(plan) if each is not None), Permutes())

    def segment_permutes(self, plan: Plan) -> tuple[Permutes | None, ...]:
        """Returns the permutes of each segment of a plan; None for those on the host."""
        return tuple(
            None
            if segment.target.engine is Engine.HOST
            else permutes(self.region(segment.units, segment.target))
            for segment in plan.segments
        )


def accelerators_of(plan: Plan) -> frozenset[str]:
    """The NNAPI devices that a plan names."""
    names = {segment.target.accelerator for segment in plan.segments}
    return frozenset(name for name in names if name is not None and name != AUTO)


def region_key(units: Iterable[int], target: Target, levels: Mapping[str, int]) -> RegionKey:
    """The key of a segment's region."""
    return tuple(sorted(units)), levels[target.base.key]


def needed_regions(
    plans: tuple[Plan, ...],
    levels: Mapping[str, int],
    needs: Callable[[Target], bool] = lambda target: True,
) -> tuple[RegionKey, ...]:
    """The regions that some plans need on the agent's targets of which ``needs`` is true, each
    once, in order of first use."""
    keys: dict[RegionKey, None] = {}
    for plan in plans:
        for segment in plan.segments:
            if segment.target.engine is not Engine.HOST and needs(segment.target):
                keys[region_key(segment.units, segment.target, levels)] = None
    return tuple(keys)
