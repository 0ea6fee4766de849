"""The costs of a model's units on a device's targets: measured, read from a table, or estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nnapi_prof.api import Listener
from nnapi_prof.api.model import Model
from nnapi_prof.costs import Conditions
from nnapi_prof.costs.contention import Slowdowns, slowdowns
from nnapi_prof.costs.estimate.costs import EstimatedCosts
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.forms import Forms, chosen_forms
from nnapi_prof.costs.model.precision import PrecisionCosts
from nnapi_prof.costs.model.views import AnyCosts, alone_ns, left_at_trial, marginal, shown_targets
from nnapi_prof.costs.table import CostTable, Objective, UnitCost, Weight, adjusted_table
from nnapi_prof.device import device_name
from nnapi_prof.device.protocol import AgentInfo
from nnapi_prof.errors import UsageError, option_name
from nnapi_prof.execution.profile import ProfileOutcome
from nnapi_prof.execution.profile.jobs import NEWEST_LEVEL, device_targets
from nnapi_prof.execution.profile.threads import ThreadTrial
from nnapi_prof.graph.plan import AUTO, Engine, Precision
from nnapi_prof.qnn.calibration import ChipOrigin
from nnapi_prof.reports import notebook
from nnapi_prof.reports.words import (
    MARGINAL_MARKS,
    count,
    marginal_words,
    target_heads,
    trial_words,
)

if TYPE_CHECKING:
    import pandas as pd

    from nnapi_prof.precision import Recipe
    from nnapi_prof.precision.samples import Samples, Source


# Calibration for several precisions: samples of a model's inputs, and scales for 8 bits.


@dataclass(frozen=True)
class CalibrationOptions:
    """The source of samples, as :func:`nnapi_prof.precision.samples.load_samples` takes it."""

    source: Source | None = None
    limit: int | None = None
    """Maximum number; None for :data:`nnapi_prof.precision.samples.LIMIT`."""

    def refuse(self, precision: str) -> None:
        """Raises UsageError where samples are given although nothing is in 8 bits; ``precision``
        names the suffix that would request that."""
        if self != CalibrationOptions():
            raise UsageError(
                f"{option_name('calibration')} and {option_name('samples')} are for 8 bits",
                f"add {precision} to the name of the device",
            )


@dataclass(frozen=True)
class Calibration:
    """The calibration of one model for one device."""

    samples: Samples = field(repr=False)
    recipe: Recipe | None = field(default=None, repr=False)
    """How units are quantised; None where 8 bits were not asked for."""
    level: int = NEWEST_LEVEL
    """The feature level that 8-bit units are for, as devices report it."""


def calibrate_model(
    model: Model,
    info: AgentInfo,
    precisions: Sequence[Precision],
    options: CalibrationOptions,
    listener: Listener,
) -> Calibration:
    """Reads samples and, for 8 bits, makes the recipe for the accelerators of a device.

    The same samples give the same recipe. Raises InputSpecError and UsageError.
    """
    from nnapi_prof.precision.samples import LIMIT, load_samples

    program = model.program
    with listener.working("reading calibration data"):
        samples = load_samples(
            program,
            options.source,
            model=model.path,
            limit=LIMIT if options.limit is None else options.limit,
        )
    listener.notes(*samples.notes)
    level = int8_level(info)
    if Precision.INT8 not in precisions:
        return Calibration(samples, None, level)
    from nnapi_prof.precision.calibrate import calibrate

    with listener.working(f"calibrating 8 bits on {len(samples.calibration)} samples"):
        recipe = calibrate(program, [sample.inputs for sample in samples.calibration], level)
    return Calibration(samples, recipe, level)


def int8_level(info: AgentInfo) -> int:
    """Returns the lowest feature level among a device's accelerators, which all of them support."""
    levels = [
        spec.level
        for spec in device_targets(info)
        if spec.target.engine is Engine.NNAPI and spec.target.accelerator != AUTO
    ]
    return min(levels, default=NEWEST_LEVEL)


MANY_UNITS = 20
"""Maximum number of units in a notebook's table, the slowest ones."""


@dataclass(frozen=True)
class Costs:
    """The cost of each unit, and of each region of units, on each target of a device.

    :func:`nnapi_prof.profile` measures them, :func:`nnapi_prof.read_costs` reads them from a cost
    table, :func:`nnapi_prof.estimate` estimates them. :func:`nnapi_prof.partition` takes them.
    """

    model: Model
    device: str
    """The device's name for people: ``npu-phone (simulated phone, ...)``."""
    conditions: Conditions
    """The conditions under which they hold."""
    priced: AnyCosts = field(repr=False)
    """The costs in ns: fitted to measurements, estimated, or a user's own table."""
    estimated: bool = False
    """Whether they are estimates without any measurement."""
    device_spec: str | None = None
    """The device's name as ``device=`` takes it; None where no device was used."""
    fingerprint: str | None = None
    """The device's key in cost tables."""
    location: str | None = None
    """The cost table: a file's path or a URL without its password."""
    measurements: tuple[Measurement, ...] = field(default=(), repr=False)
    """The rows that they were fitted to, including those of other models."""
    corun_rows: tuple[Measurement, ...] = field(default=(), repr=False)
    """Measurements of units that ran at the same time, including those of other models."""
    device_info: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The cost table's description of the device."""
    agent_info: AgentInfo | None = field(default=None, repr=False)
    """The device's description of itself; None where no device was used."""
    outcome: ProfileOutcome | None = field(default=None, repr=False)
    """Number of measurements in a profile, and its last plan."""
    thread_trial: ThreadTrial | None = None
    """The trial that chose the number of threads; None where the caller stated the number."""
    notes: tuple[str, ...] = ()
    objective: Objective | None = None
    """The objective of :meth:`adjusted` costs; None for latency."""
    objective_table: CostTable | None = field(default=None, repr=False)
    """The table of :meth:`adjusted` costs: :attr:`base_table`, changed by the objective."""
    origin: ChipOrigin | None = field(default=None, repr=False)
    """The origin and accuracy of costs that Qualcomm's simulator estimated."""
    calibration: Calibration | None = field(default=None, repr=False)
    """The calibration of costs in several precisions: the scales of 8 bits, and the samples that
    errors are measured on."""

    @property
    def simulated(self) -> bool:
        """Whether the phone is simulated, so that its latencies are computed, not measured."""
        return self.base_table.simulated

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets that units can run on: ``cpu``, ``nnapi:ACCELERATOR/PREFERENCE``,
        ``host``."""
        return tuple(target.key for target in self.priced.targets)

    @property
    def base_table(self) -> CostTable:
        """The costs in ns, without the changes of :meth:`adjusted`."""
        return self.priced if isinstance(self.priced, CostTable) else self.priced.table

    @property
    def table(self) -> CostTable:
        """The partitioner's table, in ns or in the unit of :attr:`objective`."""
        return self.base_table if self.objective_table is None else self.objective_table

    @property
    def measured(self) -> CostModel | None:
        """The fitted cost model; None where costs are estimated, or a user's own."""
        return self.priced if isinstance(self.priced, CostModel) else None

    @cached_property
    def forms(self) -> Forms:
        """The forms of products of activations on each accelerator that the costs refer to."""
        if isinstance(self.priced, EstimatedCosts):
            return self.priced.forms
        if self.measured is None or self.calibration is not None or self.model.mixed is not None:
            return {}
        return chosen_forms(self.model.graph, self.measurements)

    @cached_property
    def contention(self) -> Slowdowns:
        """The factor by which each processor is slower while another one is busy, with this model's
        mix of operations; measured with ``MeasureOptions(contention=True)``, else assumed."""
        return slowdowns(self.model.graph, self.base_table, self.corun_rows)

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """The precisions that regions may compute in; by default only that of the conditions."""
        if isinstance(self.priced, PrecisionCosts):
            return self.priced.precisions
        return (self.conditions.precision,)

    def adjusted(
        self,
        cost: UnitCost | None = None,
        *,
        weight: Weight | None = None,
        name: str = "adjusted latency",
        unit: str = "ms",
    ) -> Costs:
        """Returns costs for another objective than latency, computed from these.

        ``cost(unit, target, ns)`` returns the cost of a unit (``unit.label``, ``unit.macs``, ...)
        on a target that would run it in ``ns``; None keeps it off. ``weight`` is a factor for all
        costs on a target: a function of the target, or a mapping from patterns of target names (1
        for a target that matches none). A region measured whole keeps its latency, plus the changes
        of its units by ``cost``, times the weight. The plan is as exact as for latency.

            watts = {"cpu": 2.5, "nnapi:sim-npu/*": 0.9}
            frugal = nnp.partition(model, costs.adjusted(weight=watts, name="energy", unit="mJ"))

        ``unit`` is the unit of ms x weight, and ``name`` that of the objective, for people. Raises
        UsageError where ``cost`` or ``weight`` gives anything but a number of at least 0, or a
        pattern matches no target.
        """
        objective = Objective(name, unit)
        if self.objective is not None:
            raise UsageError(
                f"these costs were adjusted to {self.objective} already",
                "adjust those that they were made from",
            )
        table = adjusted_table(self.model.graph, self.base_table, cost, weight)
        return replace(self, objective=objective, objective_table=table)

    def frame(self) -> pd.DataFrame:
        """Returns one row for each unit and target.

        ``unit`` (its number), ``name``, ``label``, ``target``, ``accelerator`` (also ``cpu`` or
        ``host``), ``marginal_ms`` (within a region, without invocation and transfer; NaN where it
        cannot run there), ``sigma_ms`` (its standard error, 0 where none is known), ``inferred``
        (whether it was only measured under another preference), ``alone_ms`` (measured alone, with
        invocation and transfer; NaN where it was not), ``reason`` (why it cannot run there) and,
        for adjusted costs, ``objective`` in their own unit.
        """
        import pandas as pd

        priced, rows = self.priced, []
        for unit in self.model.graph.units:
            for target in priced.targets:
                cost = marginal(priced, unit.index, target)
                row = {
                    "unit": unit.index,
                    "name": unit.name,
                    "label": unit.label,
                    "target": target.key,
                    "accelerator": target.accelerator or target.key,
                    "marginal_ms": _in_ms(cost.ns if cost else None),
                    "sigma_ms": _in_ms(cost.sigma_ns if cost else None),
                    "inferred": cost is not None and cost.inferred,
                    "alone_ms": _in_ms(alone_ns(priced, unit.index, target)),
                    "reason": self.base_table.refusals.get((unit.index, target), ""),
                }
                if self.objective is not None:
                    row["objective"] = _in_ms(self.table.unit_cost(unit.index, target))
                rows.append(row)
        return pd.DataFrame(rows)

    def units(self) -> pd.DataFrame:
        """Returns one row for each unit and a column for each accelerator: its marginal cost in ms
        under the preference with most measurements, NaN where it cannot run there.

        A cost may be rough, or 0 where the difference from 0 is noise: :meth:`frame` has standard
        errors, and the table of these costs in a notebook marks such costs.
        """
        import pandas as pd

        shown = shown_targets(self.priced, self.model.graph)
        rows = []
        for unit in self.model.graph.units:
            cells = {
                name: _in_ms(self.priced.unit_cost(unit.index, target))
                for name, target in shown.items()
            }
            rows.append({"unit": unit.index, "name": unit.name, "label": unit.label, **cells})
        return pd.DataFrame(rows)

    def refusals(self) -> pd.DataFrame:
        """Returns one row for each unit and target that cannot run it: ``unit``, ``label``,
        ``target``, ``reason``."""
        import pandas as pd

        units = self.model.graph.units
        rows = [
            {"unit": unit, "label": units[unit].label, "target": target.key, "reason": reason}
            for (unit, target), reason in sorted(self.table.refusals.items())
        ]
        return pd.DataFrame(rows, columns=["unit", "label", "target", "reason"])

    def rows(self) -> pd.DataFrame:
        """Returns one row for each measurement of these costs, with summarised samples, in ms."""
        from nnapi_prof.reports.frames import measurement_frame

        own = {unit.signature for unit in self.model.graph.units}
        return measurement_frame(m for m in self.measurements if own.issuperset(m.members))

    def __repr__(self) -> str:
        kind = notebook.kind_of(self.simulated, self.estimated)
        what = f", adjusted to {self.objective}" if self.objective else ""
        units = count(len(self.model.graph.units), "unit")
        return (
            f"Costs({self.model.name!r} on {device_name(self.device)!r}, {units},"
            f" {len(self.targets)} targets, {kind}{what})"
        )

    def _repr_html_(self) -> str:
        graph = self.model.graph
        units = graph.units
        shown = shown_targets(self.priced, graph).values()
        heads = target_heads(shown)
        by_unit = {
            unit.index: [marginal(self.priced, unit.index, t) for t in shown] for unit in units
        }
        slowest = sorted(by_unit, key=lambda u: -max((c.ns if c else 0.0) for c in by_unit[u]))
        rows = [
            [units[u].label, *(marginal_words(cost, notebook.ms) for cost in by_unit[u])]
            for u in slowest[:MANY_UNITS]
        ]
        kind = notebook.kind_of(self.simulated, self.estimated)
        left_out = len(units) - len(rows)
        told = [*self.notes, *([f"adjusted to {self.objective}"] if self.objective else [])]
        return notebook.table(
            f"{self.model.name} on {self.device}: marginal latency in {kind}",
            ["unit", *heads],
            rows,
            numbers=range(1, len(heads) + 1),
            rest=f"Slowest units first; {MARGINAL_MARKS}; – cannot run there"
            + f"{trial_words(left_at_trial(self.priced))}."
            + (f" {left_out} more units: frame() has all." if left_out else ""),
        ) + notebook.notes(told)


def _in_ms(ns: float | None) -> float:
    return float("nan") if ns is None else ns / 1e6


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during :func:`nnapi_prof.profile`; the measurements so far are in the cost table."""

    def __init__(self, device: str, location: str, outcome: ProfileOutcome) -> None:
        super().__init__(
            f"{outcome.n_measured} measurements are kept in {location}; the same call goes on from"
            " there"
        )
        self.device = device
        """The device's name, as :attr:`Costs.device`."""
        self.location = location
        """The cost table, as :attr:`Costs.location`."""
        self.outcome = outcome
        """Number of measurements, and the plan of the last round."""
