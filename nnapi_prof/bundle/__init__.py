"""Define a bundle as data: plans, the rule that selects one, and what they need to run.

A bundle's plans are a list: the partitioner's own, and baselines. A set says that several of them
are the partitioner's own, and when each is meant: along a front of two criteria, as the shares of a
mixture (or of a schedule, over many runs), or each for some of many phones. In mixed
precision, a bundle has the quantisation of the model and the front that its plan was chosen from.

On disk a bundle is a folder::

    manifest.json         everything but weights and models, and its own SHA-256
    model.pt | model.pt2  the original, for the comparison with eager PyTorch
    regions/ID.nnpf       one NNAPI model each (container kind 2: INFO, MODL, BUFS)
    regions/copies.nnpf   where ``copies`` are
    blobs/SHA256          weights, shared by all regions that use them
    run.json, runs/       its last run, and those before (nnapi_prof.execution.report)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nnapi_prof.bundle.plan_set import (
    OTHERS,
    FramePlan,
    PhoneTraits,
    PlanChoice,
    PlanSet,
    SelectionRule,
)
from nnapi_prof.convert.region import Permutes, Region, permutes
from nnapi_prof.costs import Conditions
from nnapi_prof.costs.model.forms import Forms, UnitForms, unit_forms
from nnapi_prof.costs.model.regression import TargetFit
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import AUTO, Engine, Plan, Precision, Target
from nnapi_prof.graph.unit import UnitGraph

if TYPE_CHECKING:
    from nnapi_prof.graph.program import Program


MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class FrontRow:
    """A plan on the front, or a baseline beside it."""

    name: str
    is_baseline: bool
    latency_ns: float
    """As predicted."""
    error: float
    """On the calibration data."""
    held_out_error: float
    held_out_low: float
    held_out_high: float
    """95 %: errors on other data of the same kind lie between these."""
    n_segments: int
    n_units: Mapping[Precision, int]
    """How many units compute in which precision."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The errors that a unit of the float model causes alone."""

    label: str
    errors: Mapping[Precision, float]
    """Those that it can run in."""


@dataclass(frozen=True)
class MixedPrecision:
    """The precision data of a bundle whose regions differ in precision."""

    recipe: Mapping[str, Any] = field(repr=False)
    """As :meth:`nnapi_prof.precision.Recipe.to_json` has it: bundles are read without
    PyTorch, which a recipe needs."""
    int8_units: frozenset[int]
    """Units of the float model that compute in 8 bits."""
    metric: str
    """The error's name, for people."""
    budget: float | None
    """The largest error that was allowed."""
    chosen: str
    """The name of the front's row that became the plan."""
    front: tuple[FrontRow, ...] = ()
    sensitivity: tuple[Sensitivity, ...] = ()
    """Of each unit of the float model."""

    @property
    def chosen_row(self) -> FrontRow | None:
        """The row that became the plan."""
        return next((row for row in self.front if row.name == self.chosen), None)

    def applied(self, program: Program) -> Program:
        """The float model with its units in 8 bits where the bundle has them so: what the bundle's
        graph is of. Raises ConversionError where it is another model, SerializationError where the
        recipe is none."""
        if not self.int8_units:
            return program
        from nnapi_prof.precision import Recipe
        from nnapi_prof.precision.program import quantise

        return quantise(program, Recipe.from_json(self.recipe), self.int8_units).program

    def to_json(self) -> dict[str, Any]:
        return {
            "recipe": dict(self.recipe),
            "int8_units": sorted(self.int8_units),
            "metric": self.metric,
            "budget": self.budget,
            "chosen": self.chosen,
            "front": [
                {
                    "name": row.name,
                    "is_baseline": row.is_baseline,
                    "latency_ns": row.latency_ns,
                    "error": _finite_or_null(row.error),
                    "held_out": [
                        _finite_or_null(row.held_out_error),
                        _finite_or_null(row.held_out_low),
                        _finite_or_null(row.held_out_high),
                    ],
                    "n_segments": row.n_segments,
                    "n_units": _by_word(row.n_units),
                }
                for row in self.front
            ],
            "sensitivity": [
                {"label": row.label, "errors": _by_word(row.errors)} for row in self.sensitivity
            ],
        }

    @classmethod
    def from_json(cls, data: Any) -> MixedPrecision:
        """The inverse of :meth:`to_json`. SerializationError where ``data`` is something else."""
        try:
            rows, sensitivity = data["front"], data["sensitivity"]
            if max(len(rows), len(sensitivity)) > MOST_ROWS:
                raise ValueError(f"it has more than {MOST_ROWS} rows")
            budget = data["budget"]
            return cls(
                recipe=dict(data["recipe"]),
                int8_units=frozenset(_read_count(unit) for unit in data["int8_units"]),
                metric=str(data["metric"]),
                budget=None if budget is None else _read_finite(budget),
                chosen=str(data["chosen"]),
                front=tuple(_read_front_row(row) for row in rows),
                sensitivity=tuple(
                    Sensitivity(
                        str(row["label"]),
                        {Precision(p): _read_finite(e) for p, e in row["errors"].items()},
                    )
                    for row in sensitivity
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise SerializationError(f"the front of precisions: {error!r}") from error


def _read_front_row(data: Any) -> FrontRow:
    held_out, low, high = map(_read_error, data["held_out"])
    low = -low if low == math.inf else low
    return FrontRow(
        name=str(data["name"]),
        is_baseline=bool(data["is_baseline"]),
        latency_ns=_read_finite(data["latency_ns"]),
        error=_read_error(data["error"]),
        held_out_error=held_out,
        held_out_low=low,
        held_out_high=high,
        n_segments=_read_count(data["n_segments"]),
        n_units={Precision(p): _read_count(n) for p, n in data["n_units"].items()},
    )


def _by_word(by_precision: Mapping[Precision, float]) -> dict[str, float]:
    return {precision.value: number for precision, number in by_precision.items()}


def _finite_or_null(error: float) -> float | None:
    """JSON has no word for an error that nothing bounds."""
    return error if math.isfinite(error) else None


def _read_error(value: Any) -> float:
    return math.inf if value is None else _read_finite(value)


def _read_finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number


def _read_count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


RegionKey = tuple[tuple[int, ...], int, UnitForms]
"""Units of a region, ascending, the feature level it was lowered for, and its products of
activations in another form than the usual one."""


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
    forms: Forms = field(default_factory=dict, repr=False)
    """Of products of activations: the cheapest on each accelerator, where it is not the usual."""
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
        key = region_key(units, target, self.levels, self.forms)
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


def region_key(
    units: Iterable[int], target: Target, levels: Mapping[str, int], forms: Forms
) -> RegionKey:
    """The key of a segment's region."""
    own = tuple(sorted(units))
    return own, levels[target.base.key], unit_forms(forms, own, target)


def needed_regions(
    plans: tuple[Plan, ...],
    levels: Mapping[str, int],
    needs: Callable[[Target], bool] = lambda target: True,
    forms: Forms | None = None,
) -> tuple[RegionKey, ...]:
    """The regions that some plans need on the agent's targets of which ``needs`` is true, each
    once, in order of first use."""
    keys: dict[RegionKey, None] = {}
    for plan in plans:
        for segment in plan.segments:
            if segment.target.engine is not Engine.HOST and needs(segment.target):
                keys[region_key(segment.units, segment.target, levels, forms or {})] = None
    return tuple(keys)
