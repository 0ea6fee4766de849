"""From a point of the front to costs that one can plan with: the model in the point's precisions,
measured as any model."""

from __future__ import annotations

from collections.abc import Sequence

from nnapi_prof.api.cost_tables import open_table
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.events import Listener
from nnapi_prof.api.front import FrontPoint, Pareto, float_precision
from nnapi_prof.api.model import Model
from nnapi_prof.api.profiling import profile
from nnapi_prof.bundle.bundle import FrontRow, MixedPrecision, Sensitivity
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.graph.plan import Precision


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
    precision = float_precision(point.plan)
    targets = {segment.target for segment in point.plan.segments}
    accelerators = sorted({t.accelerator for t in targets if t.accelerator is not None})
    preferences = sorted({t.preference.short for t in targets if t.preference is not None})
    with open_table(costs.location) as store:
        return profile(
            mixed_model(front, point, budget),
            client,
            costs=store,
            threads=costs.conditions.threads,
            cpus=costs.conditions.cpus,
            mode=costs.conditions.mode.value,
            relaxed=precision is Precision.RELAXED,
            float16=precision is Precision.FLOAT16,
            accelerators=accelerators,
            preferences=preferences or None,
            cooldown_s=cooldown_s,
            memory_mb=memory_mb,
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
