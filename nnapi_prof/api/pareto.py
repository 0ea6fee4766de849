"""Fronts of latency against accuracy: targets and precisions of all regions chosen together.

A front has points, and baselines by simple rules. The model in a point's precisions is measured
like any model, which gives costs to plan with.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from nnapi_prof.api import Listener, Progress, to_log
from nnapi_prof.api.cost_tables import open_table
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model, as_model
from nnapi_prof.api.profiling import profile
from nnapi_prof.bundle import FrontRow, MixedPrecision, Sensitivity
from nnapi_prof.device import device_name
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.build import build_host
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.device.protocol import HalfArithmetic
from nnapi_prof.errors import PartitionError, UsageError, for_caller
from nnapi_prof.execution.front import (
    FrontPoint,
    FrontSearch,
    noise_on_targets,
    nondominated,
)
from nnapi_prof.execution.objectives import ParetoOptions
from nnapi_prof.execution.profile import MeasureOptions
from nnapi_prof.graph.plan import Precision
from nnapi_prof.partition import SearchLimits, make_problem
from nnapi_prof.precision.samples import Sample
from nnapi_prof.precision.sensitivity import (
    AccuracyEvaluator,
    Data,
    unit_noise,
)
from nnapi_prof.precision.simulation import PrecisionSimulation, kept_in_float32
from nnapi_prof.precision.user_files import metric_of
from nnapi_prof.reports import notebook
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    import pandas as pd


USUAL_BUDGETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)
"""Errors that plans are searched for, beside the caller's and those of baselines."""

MEASURING = "running plans for their errors"
SENSITIVITY = "errors of single units"
"""Names of the phases in progress."""
PLANS = 40
"""Approximate number of plans that a front runs whole; they share the seconds for errors."""
SHARE_OF_UNITS = 0.4
"""Share of those seconds for the errors of single units."""


def pareto(
    model: Model | str | os.PathLike[str],
    costs: Costs,
    *,
    metric: str = "relative",
    budgets: Sequence[float] = (),
    seconds: float | None = None,
    accuracy_s: float = ParetoOptions().accuracy_s,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> Pareto:
    """Finds the fastest plan for every error budget, with targets and precisions of its regions
    chosen together, and baselines with one precision for all.

    ``costs`` are those of :func:`nnapi_prof.profile` with ``precisions``. The error of each unit in
    each precision, and that of every plan, is measured on the calibration data by running it on
    this host in NNAPI's own arithmetic, with about as many samples as ``accuracy_s`` seconds allow
    (at least two). ``metric`` defines the error: ``relative`` (root mean square, relative to
    outputs less their mean), ``top1``, or ``"module:function"`` of outputs and targets. Plans are
    searched for within ``budgets`` (0.02: 2 %) and within usual ones; each search may take
    ``seconds`` (None: 10). ``progress`` and ``listener`` are those of :func:`nnapi_prof.profile`.

    Raises UsageError where the costs have only one precision, or the metric does not fit.
    """
    ParetoOptions(budgets=budgets, seconds=seconds, accuracy_s=accuracy_s)
    if as_model(model).graph != costs.model.graph:
        raise UsageError(f"these costs are of {costs.model!r}, not of {model!r}", "profile it")
    if costs.calibration is None or len(costs.precisions) < 2:
        raise UsageError(
            for_caller(
                "the front needs costs in several precisions: name them with --precisions",
                "these costs know one precision only: profile(model, ..., precisions=['float32',"
                " 'relaxed', 'int8'])",
            )
        )
    limits = SearchLimits() if seconds is None else SearchLimits(seconds=seconds)
    return _search(costs, metric, budgets, limits, accuracy_s, listener or to_log(progress))


def _search(
    costs: Costs,
    metric: str,
    budgets: Sequence[float],
    limits: SearchLimits,
    accuracy_s: float,
    listener: Listener,
) -> Pareto:
    """Runs :func:`pareto` with checked arguments."""
    calibration = costs.calibration
    assert calibration is not None
    precisions = tuple(p for p in costs.precisions if p is not Precision.FLOAT32)
    with listener.working("building the host's NNAPI"):
        host = HostNnapi(build_host().library)
    simulation = PrecisionSimulation(
        costs.model.program, host, calibration.recipe, calibration.level
    )
    judged_by = metric_of(metric)
    samples, others = calibration.samples.calibration, calibration.samples.held_out
    with listener.working("running the model in float32"):
        n = _affordable(simulation, samples, accuracy_s)
        apart = None if samples == others else _data(others, max(2, n // 2))
        judge = AccuracyEvaluator(simulation, _data(samples, n), apart, judged_by)
    notes = list(calibration.samples.notes)
    if len(judge.calibration) < len(samples):
        notes.append(
            f"plans ran on {len(judge.calibration)} of {len(samples)} calibration samples, as"
            f" {accuracy_s:g} s for measuring errors allow"
        )

    def of_units(done: int, total: int) -> None:
        listener.progress(Progress(SENSITIVITY, done, total, ""))

    half = HalfArithmetic.NONE if costs.agent_info is None else costs.agent_info.cpu_float16
    native = half is HalfArithmetic.NATIVE
    every_unit = [unit.index for unit in simulation.program.units.units]
    noise = unit_noise(
        simulation,
        judge.calibration.samples,
        judge.reference,
        precisions,
        limit_s=accuracy_s * SHARE_OF_UNITS,
        narrow=not half.has_wide_sums,
        in_float32=kept_in_float32(simulation.program, every_unit, native),
        progress=of_units,
    )
    problem = make_problem(costs.model.graph, costs.table)
    for output in range(noise.power.shape[2]):
        problem = problem.without(~np.isfinite(noise_on_targets(problem, noise, output)))
    n_done = 0

    def told(what: str) -> None:
        nonlocal n_done
        n_done += 1
        listener.progress(Progress(MEASURING, n_done, max(PLANS, n_done + 1), what))

    search = FrontSearch(problem, noise, judge, limits, told, half)
    every = sorted({*budgets, *USUAL_BUDGETS})
    rules = search.uniform(precisions)
    search.front(every)
    for budget in every:
        search.within(budget)
    points = nondominated(search.points)
    power = noise.power.max(axis=2, initial=0.0)
    return Pareto(
        costs=costs,
        metric=judge.metric.name,
        points=tuple(
            replace(point, name=f"front {number}") for number, point in enumerate(points, start=1)
        ),
        baselines=tuple(rules),
        sensitivity=tuple(map(tuple, np.sqrt(power).tolist())),
        precisions=noise.precisions,
        notes=tuple(dict.fromkeys(notes)),
    )


def _affordable(
    simulation: PrecisionSimulation, samples: Sequence[Sample], accuracy_s: float
) -> int:
    """Returns the number of samples for whole plans that the seconds allow, from the duration of
    one sample in float16, or with a recipe in 8 bits, wherever that can run."""
    everything = range(len(simulation.program.units.units))
    precision = Precision.FLOAT16 if simulation.recipe is None else Precision.INT8
    assignment = {
        unit: precision for unit in everything if simulation.refusal(unit, precision) is None
    }
    simulation.outputs(assignment, samples[0].inputs)  # compiles
    began = time.monotonic()
    simulation.outputs(assignment, samples[0].inputs)
    each_s = max(time.monotonic() - began, 1e-6)
    affordable = accuracy_s * (1 - SHARE_OF_UNITS) / (PLANS * 1.5 * each_s)
    return max(2, min(len(samples), int(affordable)))


def _data(samples: Sequence[Sample], n: int) -> Data:
    """Returns ``n`` of the samples, evenly spaced."""
    places = np.unique(np.linspace(0, len(samples) - 1, min(n, len(samples))).round().astype(int))
    chosen = [samples[place] for place in places.tolist()]
    targets = [sample.target for sample in chosen]
    has_targets = all(target is not None for target in targets)
    return Data([sample.inputs for sample in chosen], targets if has_targets else None)


@dataclass(frozen=True)
class Pareto:
    """Plans of which none is both faster and more accurate than another, the fastest first.

    :func:`nnapi_prof.pareto` makes one. It also has baselines: one precision for all, and fixed
    orders in which units get a lower precision one after the other.
    """

    costs: Costs = field(repr=False)
    metric: str
    """The error's name, for people."""
    points: tuple[FrontPoint, ...]
    baselines: tuple[FrontPoint, ...]
    sensitivity: tuple[tuple[float, ...], ...] = field(repr=False, default=())
    """[unit][precision]: the error that a unit alone causes; inf where it cannot run so."""
    precisions: tuple[Precision, ...] = ()
    """The precisions of :attr:`sensitivity`'s columns."""
    notes: tuple[str, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether its latencies are those of a simulated phone."""
        return self.costs.simulated

    def within(self, budget: float) -> FrontPoint:
        """Returns the fastest plan whose error keeps to a budget (0.02: 2 %), both on the
        calibration data and on held-out data.

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
        """Returns plans that are faster than :meth:`within` one's, and keep to the budget on the
        calibration data but not on held-out data."""
        faster = itertools.takewhile(lambda p: max(p.error, p.held_out.error) > budget, self.points)
        return tuple(point for point in faster if point.error <= budget)

    def frame(self) -> pd.DataFrame:
        """Returns one row for each point, then each baseline: ``plan``, ``is_baseline``,
        ``latency_ms``, ``error``, ``held_out_error``, ``held_out_low``, ``held_out_high``,
        ``sqnr_db``, ``segments`` (how many), and the share of units in each precision."""
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


def costs_within(
    front: Pareto,
    budget: float,
    client: AgentClient,
    *,
    cooldown_s: float | None,
    memory_mb: int | None,
    listener: Listener,
) -> Costs:
    """Measures the model in the precisions of a front's fastest plan that keeps to a budget, also
    on held-out data.

    It is measured on the accelerators of this plan, with the conversions between precisions as
    units: its precisions are fixed, its targets may still improve. Raises PartitionError where no
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
    """Returns the model with a point's units in 8 bits, and the data of that choice for reports."""
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
