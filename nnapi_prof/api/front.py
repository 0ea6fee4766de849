"""Describe the front of latency against error, and measure a model in the precisions of a point.

A front has points, rules beside them, and what fits a budget. The model in a point's precisions is
measured as any model, which gives costs that one can plan with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nnapi_prof.api import notebook
from nnapi_prof.api.cost_tables import open_table
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model
from nnapi_prof.api.options import Listener
from nnapi_prof.api.profiling import profile
from nnapi_prof.bundle.bundle import FrontRow, MixedPrecision, Sensitivity
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.description import device_name
from nnapi_prof.errors import PartitionError
from nnapi_prof.execution.profile.options import MeasureOptions
from nnapi_prof.graph.plan import Engine, Plan, Precision
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    import pandas as pd

    from nnapi_prof.precision.metrics import ErrorEstimate
    from nnapi_prof.precision.sensitivity import PlanError


@dataclass(frozen=True)
class FrontPoint:
    """One plan: every region on a target, in a precision."""

    name: str
    """``front 3``, or the rule of a baseline."""
    plan: Plan
    """Of the float model's units; targets say their precisions."""
    measured: PlanError = field(repr=False)
    """Of the whole plan, on calibration and on held-out data."""
    predicted_error: float
    """What its units' own errors add up to, as :attr:`PlanError.relative`."""
    float_precision: Precision
    """What floats are computed in when it runs, on accelerators and on a CPU that has it."""

    @property
    def latency_ns(self) -> float:
        return self.plan.predicted_ns

    @property
    def error(self) -> float:
        """On the calibration data."""
        return self.measured.calibrated.error

    @property
    def held_out(self) -> ErrorEstimate:
        """On data that chose nothing; on the calibration data where there is no other."""
        return self.measured.honest

    def precisions(self, n_units: int) -> tuple[Precision, ...]:
        """[n_units]: what each unit computes in."""
        return precisions_of(n_units, self.plan)


def precisions_of(n: int, plan: Plan) -> tuple[Precision, ...]:
    """[n]: what each unit computes in."""
    chosen = [Precision.FLOAT32] * n
    for segment in plan.segments:
        for unit in segment.units:
            chosen[unit] = segment.target.precision
    return tuple(chosen)


def float_precisions(plan: Plan) -> tuple[Precision, ...]:
    """Returns the precisions that a plan's floats may have when it runs, where one holds for all.

    It is the most exact one that the plan has on accelerators, so that no error exceeds what was
    planned; where all floats are the CPU's, any that it has, the least exact first.
    """
    order = list(Precision)
    for engine in (Engine.NNAPI, Engine.CPU):
        targets = (segment.target for segment in plan.segments)
        used = {t.precision for t in targets if t.engine is engine} - {Precision.INT8}
        if used:
            most_exact = sorted(used, key=order.index)
            return tuple(most_exact[:1] if engine is Engine.NNAPI else most_exact[::-1])
    return (Precision.FLOAT32,)


@dataclass(frozen=True)
class Pareto:
    """Plans of which none is both faster and more accurate than another, the fastest first.

    :func:`nnapi_prof.pareto` makes one. Beside them stand the baselines: one precision for all, and
    the orders that lower units one after the other.
    """

    costs: Costs = field(repr=False)
    metric: str
    """The error's name, for people."""
    points: tuple[FrontPoint, ...]
    baselines: tuple[FrontPoint, ...]
    sensitivity: tuple[tuple[float, ...], ...] = field(repr=False, default=())
    """[unit][precision]: the error that a unit alone causes; inf where it cannot run so."""
    precisions: tuple[Precision, ...] = ()
    """Of :attr:`sensitivity`'s columns."""
    notes: tuple[str, ...] = ()

    @property
    def simulated(self) -> bool:
        """Its latencies are those of a simulated phone."""
        return self.costs.simulated

    def within(self, budget: float) -> FrontPoint:
        """The fastest plan whose error keeps to a budget (0.02: 2 %), on the calibration data and
        on held-out data, too.

        Raises PartitionError where none does.
        """
        for point in self.points:
            if point.error <= budget and point.held_out.error <= budget:
                return point
        least = min(self.points, key=lambda point: max(point.error, point.held_out.error))
        raise PartitionError(
            f"no plan keeps an error of {budget:.3g}: the most accurate one has"
            f" {max(least.error, least.held_out.error):.3g} ({self.metric}); allow more, or"
            " float32 among the precisions"
        )

    def passed_over(self, budget: float) -> tuple[FrontPoint, ...]:
        """Faster plans that keep to a budget on the calibration data, but not on held-out data."""
        return tuple(point for point in self.points if point.error <= budget < point.held_out.error)

    def frame(self) -> pd.DataFrame:
        """One row for each point, then each baseline: ``plan``, ``is_baseline``, ``latency_ms``,
        ``error``, ``held_out_error``, ``held_out_low``, ``held_out_high``, ``sqnr_db``,
        ``segments`` (how many), and the share of units in each precision."""
        import pandas as pd

        return pd.DataFrame(self._rows())

    def _rows(self) -> Iterator[dict[str, object]]:
        from nnapi_prof.precision.metrics import sqnr_db

        n_units = len(self.costs.model.graph.units)
        for is_baseline, group in ((False, self.points), (True, self.baselines)):
            for point in group:
                chosen = point.precisions(n_units)
                yield {
                    "plan": point.name,
                    "is_baseline": is_baseline,
                    "latency_ms": point.latency_ns / 1e6,
                    "error": point.error,
                    "held_out_error": point.held_out.error,
                    "held_out_low": point.held_out.low,
                    "held_out_high": point.held_out.high,
                    "sqnr_db": sqnr_db(point.error),
                    "segments": len(point.plan.segments),
                    **{p.value: chosen.count(p) / n_units for p in self.precisions},
                }

    def __repr__(self) -> str:
        return (
            f"Pareto({self.costs.model.name!r} on {device_name(self.costs.device)!r},"
            f" {count(len(self.points), 'plan')}, {self.metric})"
        )

    def _repr_html_(self) -> str:
        kind = notebook.kind_of(self.simulated, self.costs.estimated)
        rows = [
            [
                str(row["plan"]),
                f"{row['latency_ms']:.3f}",
                f"{row['error']:.2%}",
                f"{row['held_out_error']:.2%}"
                f" ({row['held_out_low']:.2%} … {row['held_out_high']:.2%})",
                str(row["segments"]),
            ]
            for row in self._rows()
        ]
        heads = ["plan", f"latency, {kind}", "error", "held out", "segments"]
        return notebook.table(
            f"{self.costs.model.name} on {self.costs.device}: latency against {self.metric}",
            heads,
            rows,
            numbers=(1, 2, 3, 4),
        ) + notebook.notes(self.notes)


def nondominated(points: Sequence[FrontPoint]) -> tuple[FrontPoint, ...]:
    """The points of which none is both as fast and as accurate as another, the fastest first; of
    equals the one of fewer segments."""
    ordered = sorted(points, key=lambda p: (p.latency_ns, p.error, len(p.plan.segments)))
    front: list[FrontPoint] = []
    for point in ordered:
        if not front or point.error < front[-1].error:
            front.append(point)
    return tuple(front)


def costs_within(
    front: Pareto,
    budget: float,
    client: AgentClient,
    *,
    cooldown_s: float | None,
    memory_mb: int | None,
    listener: Listener,
) -> Costs:
    """Costs of the model in the precisions of the fastest plan of a front that keeps to a budget,
    on held-out data, too.

    It is measured on the accelerators that this plan uses, conversions at borders among its units:
    its precisions stand, what runs where may still become better. Raises PartitionError where no
    plan keeps to the budget.
    """
    point = front.within(budget)
    for other in front.passed_over(budget):
        listener.note(
            f"{other.name} would be faster ({other.latency_ns / 1e6:.3f} ms), but its error on"
            f" held-out data is {other.held_out.error:.2%}, above the budget of {budget:.2%}"
        )
    costs = front.costs
    targets = {segment.target for segment in point.plan.segments}
    accelerators = sorted({t.accelerator for t in targets if t.accelerator is not None})
    preferences = sorted({t.preference.short for t in targets if t.preference is not None})
    with open_table(costs.location) as store:
        return profile(
            mixed_model(front, point, budget),
            client,
            costs=store,
            conditions=replace(costs.conditions, precision=point.float_precision, sustained_s=0),
            options=MeasureOptions(
                accelerators=accelerators,
                preferences=preferences or None,
                cooldown_s=cooldown_s,
                memory_mb=memory_mb,
            ),
            listener=listener,
        )


def mixed_model(front: Pareto, point: FrontPoint, budget: float | None) -> Model:
    """The model with a point's units in 8 bits, and all that a report says of the choice."""
    model = front.costs.model
    precisions = point.precisions(len(model.graph.units))
    calibration = front.costs.calibration
    recipe = None if calibration is None else calibration.recipe
    mixed = MixedPrecision(
        recipe={} if recipe is None else recipe.to_json(),
        int8_units=frozenset(u for u, p in enumerate(precisions) if p is Precision.INT8),
        metric=front.metric,
        budget=budget,
        chosen=point.name,
        front=tuple(
            _front_row(front.costs, each, is_baseline)
            for is_baseline, group in ((False, front.points), (True, front.baselines))
            for each in group
        ),
        sensitivity=tuple(
            Sensitivity(unit.label, _finite(front.precisions, errors))
            for unit, errors in zip(model.graph.units, front.sensitivity, strict=True)
        ),
    )
    return model.in_precision(mixed)


def _front_row(costs: Costs, point: FrontPoint, is_baseline: bool) -> FrontRow:
    precisions = point.precisions(len(costs.model.graph.units))
    return FrontRow(
        name=point.name,
        is_baseline=is_baseline,
        latency_ns=point.latency_ns,
        error=point.error,
        held_out_error=point.held_out.error,
        held_out_low=point.held_out.low,
        held_out_high=point.held_out.high,
        n_segments=len(point.plan.segments),
        n_units={p: precisions.count(p) for p in dict.fromkeys(precisions)},
    )


def _finite(precisions: Sequence[Precision], errors: Sequence[float]) -> dict[Precision, float]:
    return {p: e for p, e in zip(precisions, errors, strict=True) if e < float("inf")}
