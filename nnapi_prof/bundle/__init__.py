"""Define a bundle as data: plans, the rule that selects one, and the models that they run.

A bundle's plans are a list: the partitioner's own, and baselines. If several of them are the
partitioner's own, a set states when each applies: along a front of two criteria, as shares of a
mixture (or of a schedule, over many runs), or on some of many phones. In mixed precision, a bundle
contains the quantisation of the model and the front that its plan was chosen from.

On disk a bundle is a folder::

    manifest.json         everything except weights and models, and its own SHA-256
    model.pt | model.pt2  the original, for the comparison with eager PyTorch
    regions/ID.nnpf       one NNAPI model each (container kind 2: INFO, MODL, BUFS)
    regions/copies.nnpf   the region ``copies``, if there is one
    blobs/SHA256          weights, shared by all regions that use them
    run.json, runs/       its last run, and earlier ones (nnapi_prof.execution.report)
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
    """Predicted latency."""
    error: float
    """Error on the calibration data."""
    held_out_error: float
    held_out_low: float
    held_out_high: float
    """Ends of the 95 % interval of the error on other data of the same kind."""
    n_segments: int
    n_units: Mapping[Precision, int]
    """Number of units that compute in each precision."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The errors that a single unit of the float model causes."""

    label: str
    errors: Mapping[Precision, float]
    """Error in each precision that the unit can run in."""


@dataclass(frozen=True)
class MixedPrecision:
    """The precision data of a bundle whose regions differ in precision."""

    recipe: Mapping[str, Any] = field(repr=False)
    """JSON of :meth:`nnapi_prof.precision.Recipe.to_json`, because a recipe needs PyTorch and
    bundles are read without it."""
    int8_units: frozenset[int]
    """Units of the float model that compute in 8 bits."""
    metric: str
    """Name of the error, for people."""
    budget: float | None
    """Largest allowed error."""
    chosen: str
    """Name of the front's row that became the plan."""
    front: tuple[FrontRow, ...] = ()
    sensitivity: tuple[Sensitivity, ...] = ()
    """Errors of each unit of the float model."""

    @property
    def chosen_row(self) -> FrontRow | None:
        """The row that became the plan."""
        return next((row for row in self.front if row.name == self.chosen), None)

    def applied(self, program: Program) -> Program:
        """Return the float model with the bundle's 8-bit units quantised, as in the bundle's graph.
        Raises ConversionError if the model is a different one, SerializationError if the recipe is
        invalid."""
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
        """Read the JSON of :meth:`to_json`. Raises SerializationError if ``data`` is invalid."""
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
    """Replace an infinite error, which JSON cannot express, by None."""
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
"""Units of a region, ascending, the feature level that it is lowered for, and the forms of its
products of activations other than the default form."""


@dataclass(frozen=True)
class Bundle:
    """One or more plans with baselines, ready to run; ``plans[0]`` is the partitioner's own, or one
    of ``plan_set``."""

    model: str
    """Name of the model, for people."""
    model_file: str
    """Name of the original model's file in the bundle."""
    inputs: tuple[str, ...]
    """Input specs, ``1x3x224x224:float32``."""
    device: str
    fingerprint: str
    simulated: bool
    graph: UnitGraph
    plans: tuple[Plan, ...]
    levels: Mapping[str, int]
    """Key of a target's base -> feature level that its regions are lowered for."""
    regions: Mapping[RegionKey, Region] = field(repr=False)
    forms: Forms = field(default_factory=dict, repr=False)
    """Cheapest form of each product of activations on each accelerator, if not the default."""
    conditions: Conditions = Conditions()
    """Conditions under which the plan's costs were measured, and under which it should run."""
    halved: Mapping[RegionKey, Region] = field(default_factory=dict, repr=False)
    """The regions on NNAPI whose models are in float16, due to the conditions or their targets."""
    copies: Region | None = field(default=None, repr=False)
    """Region for an app's CPU that returns the outputs that no unit computes: constants and
    unchanged inputs. None if there are none, or if NNAPI does not support their types."""
    notes: tuple[str, ...] = ()
    costs: str = ""
    """Location of the cost table used for planning, for people: a path or a URL without its
    password. It is never opened automatically, because a bundle may come from a stranger."""
    fits: Mapping[Target, TargetFit] | None = field(default=None, repr=False)
    """Fitted costs of each target at planning time; None for a bundle that was written without them
    or that uses estimates."""

    plan_set: PlanSet | None = None
    """The partitioner's own plans among ``plans``, if there are several; None: only the first."""

    mixed: MixedPrecision | None = None
    """Quantisation of the model, and the front that its plan was chosen from, if regions differ in
    precision; ``graph`` is then the quantised one."""

    frames: FramePlan | None = None
    """Schedule of several frames at once, if the bundle is meant for that; ``plan_set`` is then its
    mixture."""

    @property
    def plan(self) -> Plan:
        """The default plan: the only one, or the first of several."""
        return self.plans[0 if self.plan_set is None else self.plan_set.choices[0].plan]

    def selected_plan(
        self,
        run: int = 0,
        phone: PhoneTraits | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> Plan:
        """Return the plan that the set's rule selects (:meth:`PlanSet.select`); without a set, the
        only plan."""
        if self.plan_set is None:
            return self.plan
        return self.plans[self.plan_set.select(run, phone, limits)]

    def for_phone(self, phone: PhoneTraits) -> Bundle:
        """Return this phone's bundle from a set for phones: its own plan, then that of all other
        phones. Return any other bundle unchanged."""
        if self.plan_set is None or self.plan_set.rule is not SelectionRule.PHONES:
            return self
        choice, key = self.plan_set.for_phone(phone)
        own = self._led_by(choice, self.plan_set)
        threads = choice.threads.get(key, self.conditions.threads)
        return replace(own, conditions=replace(self.conditions, threads=threads))

    def of_run(self, plan: Plan) -> Bundle:
        """Return the bundle of the phone that ran this plan from a set for phones. Return any other
        bundle unchanged."""
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
        """Return the NNAPI model of a segment that the agent runs."""
        key = region_key(units, target, self.levels, self.forms)
        return self.halved[key] if self.conditions.halves(target) else self.regions[key]

    def permutes(self, plan: Plan) -> Permutes:
        """Return the total permutes of the plan's segments that the agent runs."""
        return sum((each for each in self.segment_permutes(plan) if each is not None), Permutes())

    def segment_permutes(self, plan: Plan) -> tuple[Permutes | None, ...]:
        """Return the permutes of each segment of a plan; None for those on the host."""
        return tuple(
            None
            if segment.target.engine is Engine.HOST
            else permutes(self.region(segment.units, segment.target))
            for segment in plan.segments
        )


def accelerators_of(plan: Plan) -> frozenset[str]:
    """Return the NNAPI devices that a plan names."""
    names = {segment.target.accelerator for segment in plan.segments}
    return frozenset(name for name in names if name is not None and name != AUTO)


def region_key(
    units: Iterable[int], target: Target, levels: Mapping[str, int], forms: Forms
) -> RegionKey:
    """Return the key of a segment's region."""
    own = tuple(sorted(units))
    return own, levels[target.base.key], unit_forms(forms, own, target)


def needed_regions(
    plans: tuple[Plan, ...],
    levels: Mapping[str, int],
    needs: Callable[[Target], bool] = lambda target: True,
    forms: Forms | None = None,
) -> tuple[RegionKey, ...]:
    """Return the regions that plans need on the agent's targets that satisfy ``needs``, each once,
    in order of first use."""
    keys: dict[RegionKey, None] = {}
    for plan in plans:
        for segment in plan.segments:
            if segment.target.engine is not Engine.HOST and needs(segment.target):
                keys[region_key(segment.units, segment.target, levels, forms or {})] = None
    return tuple(keys)
