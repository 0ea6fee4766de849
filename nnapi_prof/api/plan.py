"""Plans of a model: the target of each segment, the reason for it, and the predicted latency."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.advice import Advice
from nnapi_prof.api import table_location
from nnapi_prof.api.chip_bundle import read_chip_bundle, write_chip_bundle
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model, load
from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.deployment import deploy_steps
from nnapi_prof.bundle.plan_set import FramePlan
from nnapi_prof.bundle.storage import is_chip_plan, keep_advice, kept_advice, read_bundle
from nnapi_prof.costs import Conditions, absolute
from nnapi_prof.costs.contention import ASSUMED, ContentionBasis, Slowdowns
from nnapi_prof.costs.estimate.costs import EstimatedCosts
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.table import Objective
from nnapi_prof.device import device_name
from nnapi_prof.device.protocol import AgentInfo
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.build import bundle_of, save_bundle, with_open_sizes
from nnapi_prof.graph.plan import Plan
from nnapi_prof.partition import CurvePoint, ParallelPlan, ThroughputPlan
from nnapi_prof.partition.solver import PlanSearch
from nnapi_prof.qnn.costs import ChipCosts
from nnapi_prof.reports import notebook
from nnapi_prof.reports.bundle_data import chip_report, naming_table, report_data_from_bundle
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    import pandas as pd

    from nnapi_prof.execution.report import RunReport


@dataclass(frozen=True)
class ModelPlan:
    """A plan of a model for a device, and its baselines.

    :func:`nnapi_prof.partition` makes one, :func:`nnapi_prof.run` runs it, :meth:`save` writes the
    folder that ``nnapi-prof run`` takes.
    """

    model: Model
    plans: tuple[Plan, ...] = field(repr=False)
    """The plan, then its baselines."""
    device: str
    """The name of its device, for people."""
    conditions: Conditions
    """The conditions under which it runs."""
    estimated: bool = False
    """Whether its costs are estimates without any measurement."""
    device_spec: str | None = None
    """Its device as ``device=`` takes it; None where no device was used."""
    costs: Costs | None = field(default=None, repr=False)
    """The costs that it was made from; None where it was read from a folder."""
    converted: Bundle | None = field(default=None, repr=False)
    """The plan with its regions converted for the device; None before that."""
    objective: Objective | None = None
    """The objective that it minimises; None for latency."""
    objective_values: tuple[float, ...] = ()
    """The value of each of ``plans``, in the objective's unit."""
    search: PlanSearch | None = field(default=None, repr=False)
    """The result of the search for it; None where it was read from a folder, or is for frames."""
    frames: FramePlan | None = None
    """The number of frames that run at once, and their ``plans``; None for one frame."""
    throughput: PredictedThroughput | None = field(default=None, repr=False)
    """The prediction for many frames at once; None for one frame, or where it was read from a
    folder."""
    advice: tuple[Advice, ...] = field(default=(), repr=False)
    """Suggestions of :func:`nnapi_prof.advise` for a faster plan."""
    folder: Path | None = None
    """The folder that it was read from, or that :func:`nnapi_prof.go` wrote it to."""
    parallel: ParallelPlan | None = field(default=None, repr=False)
    """The prediction for one frame's branches at once, where the objective was Parallel."""

    @property
    def best(self) -> Plan | None:
        """The plan of the lowest latency, with any number of segments; ``best.proof`` bounds its
        distance from the optimum. None where this was read from a folder."""
        return None if self.search is None else self.search.best

    @property
    def curve(self) -> tuple[CurvePoint, ...]:
        """The lowest latency in ns (for another objective, a million times its value) for each
        number of segments up to the best plan's, with a bound; empty where this was read from a
        folder."""
        return () if self.search is None else self.search.curve

    @property
    def plan(self) -> Plan:
        """The plan itself: segments in order, each with its units, its target and its cause."""
        return self.plans[0]

    @property
    def baselines(self) -> tuple[Plan, ...]:
        """Plans by simple rules, without a partitioner, all-cpu first."""
        return self.plans[1:]

    @property
    def simulated(self) -> bool:
        """Whether its latencies are those of a simulated phone."""
        return self.plan.simulated

    @property
    def latency_ms(self) -> float:
        """The predicted latency in ms."""
        return self.plan.predicted_ns / 1e6

    @property
    def uncertainty(self) -> float | None:
        """The relative error that nine of ten predictions stayed below when the phone's description
        was made. None where it is unknown, or costs were measured."""
        priced = None if self.costs is None else self.costs.priced
        return priced.plan_error(self.plan) if isinstance(priced, EstimatedCosts) else None

    def segments(self) -> pd.DataFrame:
        """Returns one row for each segment of the plan, in order: ``segment``, ``target``,
        ``units`` (their numbers), ``label``, ``predicted_ms``, ``low_ms`` and ``high_ms`` (95 %
        interval, NaN where there is none), ``basis`` (``measured`` whole, ``sum`` of measured
        parts, ``estimated``), ``cause``."""
        import pandas as pd

        rows = []
        for number, segment in enumerate(self.plan.segments):
            low, high = segment.interval_ns or (float("nan"),) * 2
            basis = "measured" if segment.measured else "sum"
            rows.append(
                {
                    "segment": number,
                    "target": segment.target.key,
                    "units": segment.units,
                    "label": self.model.graph.label(segment.units),
                    "predicted_ms": segment.predicted_ns / 1e6,
                    "low_ms": low / 1e6,
                    "high_ms": high / 1e6,
                    "basis": "estimated" if segment.estimated else basis,
                    "cause": segment.cause,
                }
            )
        return pd.DataFrame(rows)

    def frame(self) -> pd.DataFrame:
        """Returns one row for the plan and each baseline: ``plan``, ``segments`` (how many),
        ``predicted_ms``, ``against_plan`` (its latency as a multiple of the plan's) and, for
        another objective, ``objective`` in its unit."""
        import pandas as pd

        rows = []
        for number, plan in enumerate(self.plans):
            row = {
                "plan": plan.name,
                "segments": len(plan.segments),
                "predicted_ms": plan.predicted_ns / 1e6,
                "against_plan": self._against(plan),
            }
            if self.objective is not None:
                row["objective"] = self.objective_values[number]
            rows.append(row)
        return pd.DataFrame(rows)

    def _against(self, plan: Plan) -> float:
        return plan.predicted_ns / self.plan.predicted_ns if self.plan.predicted_ns else 1.0

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the plan, its regions and the model to a folder, like ``nnapi-prof partition``,
        and returns the path. An existing bundle is replaced.

        Raises UsageError where it cannot be written, or has no device.
        """
        folder = Path(path)
        if self.costs is not None and self.costs.origin is not None:
            write_chip_bundle(folder, self.model, self.plans, self.costs)
            if self.advice:
                keep_advice(folder, self.advice)
            return folder
        location = self.costs.location if self.costs else None
        bundle = replace(self.bundle, costs=absolute(location)) if location else self.bundle
        save_bundle(folder, bundle, self.model.path)
        if self.advice:
            keep_advice(folder, self.advice)
        return folder

    @cached_property
    def bundle(self) -> Bundle:
        """The plan with its regions converted for its device.

        Raises UsageError where no device was used, UnsupportedOp where a region cannot be
        converted.
        """
        if self.converted is not None:
            return self.converted
        self.refuse_estimate()
        info = self.costs.agent_info if self.costs else None
        if info is None:
            raise UsageError(
                "this plan was made without a device",
                "run() it on one, or partition() costs that profile() measured",
            )
        return self.new_bundle(info)

    def refuse_estimate(self) -> None:
        """Raises UsageError for a plan that was estimated for a chip, which no device runs."""
        if self.costs is not None and self.costs.origin is not None:
            raise UsageError(
                f"this plan is estimated for {self.costs.origin.device}, and no device runs it",
                "`nnapi-prof convert --to qnn` writes files for that chip",
            )

    def bundle_for(self, info: AgentInfo) -> Bundle:
        """Returns the plan with its regions converted for its own device, if it has one, else for
        that of ``info``. Raises the errors of :func:`nnapi_prof.execution.build.bundle_of`."""
        if self.converted is not None or (self.costs and self.costs.agent_info):
            return self.bundle
        return self.new_bundle(info)

    def new_bundle(self, info: AgentInfo) -> Bundle:
        """Converts the regions of the plan for a device, even if they were converted before."""
        program, file = self.model.program, f"model{self.model.path.suffix}"
        fits, notes = None, self.model.notes
        if self.costs is not None:
            measured, notes = self.costs.measured, self.costs.notes
            if measured is not None and not measured.filled:
                fits = measured.fits
        forms = self.costs.forms if self.costs is not None else {}
        bundle = bundle_of(
            program, file, info, self.plans, self.conditions, notes, fits, forms=forms
        )
        bundle = replace(bundle, mixed=self.model.mixed, frames=self.frames)
        if self.frames is not None:
            bundle = replace(bundle, plan_set=self.frames.plan_set)
        return with_open_sizes(bundle, self.model.inputs)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        costs: str | os.PathLike[str] | None = None,
    ) -> Path:
        """Writes a report with predictions only; ``Result.report`` also has measurements.

        Arguments and errors are those of :meth:`nnapi_prof.Result.report`.
        """
        from nnapi_prof.reports.bundle_data import write

        return write(Path(path), self.report_data(costs=costs))

    def report_data(
        self,
        run: RunReport | None = None,
        *,
        costs: str | os.PathLike[str] | None = None,
        bundle: Bundle | None = None,
    ) -> ReportData:
        """Returns the data of a report. ``costs`` is a cost table, used where the plan was read
        from a folder; ``bundle`` is the one that ran, if it is not the plan's own.

        Raises CostError where the table lacks the model, UsageError where nothing was measured.
        """
        if self.costs is not None and self.costs.origin is not None:
            chip = self.costs
            assert isinstance(chip.priced, ChipCosts) and chip.origin is not None
            return chip_report(
                self.model.name,
                chip.priced,
                chip.origin,
                chip.device,
                self.plans,
                chip.notes,
                self.advice,
            )
        bundle = bundle or self.bundle
        ship = deploy_steps(bundle, self.folder) if self.folder is not None else ()
        if self.costs is None:
            table = table_location(costs)
            with naming_table(bundle, table), CostStore(table) as store:
                data = report_data_from_bundle(bundle, run, store, model=self.model.path)
                return replace(data, advice=self.advice, ship=ship)
        measured = self.costs.measured
        if measured is None:
            raise UsageError(
                "a report shows what was measured, and these costs are estimated or your own",
                "profile() measures",
            )
        return ReportData(
            model=bundle.model,
            graph=bundle.graph,
            cost_model=measured,
            measurements=self.costs.measurements,
            plan=bundle.plan,
            baselines=bundle.plans[1:],
            run=run,
            device_info=self.costs.device_info,
            notes=bundle.notes,
            permutes={plan.name: bundle.permutes(plan) for plan in bundle.plans},
            mixed=bundle.mixed,
            advice=self.advice,
            ship=ship,
        )

    def __repr__(self) -> str:
        return (
            f"ModelPlan({self.model.name!r} on {device_name(self.device)!r}, "
            f"{count(len(self.plan.segments), 'segment')},"
            f" {self.latency_ms:.3f} {notebook.kind_of(self.simulated, self.estimated)})"
        )

    def _repr_html_(self) -> str:
        kind = notebook.kind_of(self.simulated, self.estimated)
        segments = []
        for number, segment in enumerate(self.plan.segments):
            label = self.model.graph.label(segment.units)
            if len(segment.units) > 1:
                label = f"{len(segment.units)} units: {label}"
            cells = [str(number), segment.target.key, label, notebook.ms(segment.predicted_ns)]
            segments.append([*cells, segment.cause])
        plans = []
        for number, plan in enumerate(self.plans):
            cells = [plan.name, str(len(plan.segments)), notebook.ms(plan.predicted_ns)]
            cells.append(f"{self._against(plan):.2f}x")
            if self.objective is not None:
                cells.append(f"{self.objective_values[number]:.4g}")
            plans.append(cells)
        heads = ["plan", "segments", f"latency, {kind}", "against the plan"]
        if self.objective is not None:
            heads.append(str(self.objective))
        return (
            notebook.table(
                f"Plan of {self.model.name} on {self.device}, predicted latency in {kind}",
                ["#", "target", "units", "latency", "why"],
                segments,
                numbers=(0, 3),
            )
            + notebook.table("Plan and baselines", heads, plans, numbers=range(1, len(heads)))
            + notebook.notes(self.plan.notes)
        )


def read_plan(path: str | os.PathLike[str]) -> ModelPlan:
    """Reads a plan from ``path``, a folder that :meth:`ModelPlan.save` or ``nnapi-prof partition``
    wrote.

    Raises UsageError where there is no plan, SerializationError where it is damaged.
    """
    folder = Path(path)
    if is_chip_plan(folder):
        chip = read_chip_bundle(folder)
        return ModelPlan(
            model=chip.model,
            plans=chip.plans,
            device=chip.costs.device,
            conditions=chip.costs.conditions,
            estimated=True,
            costs=chip.costs,
            advice=chip.advice,
            folder=folder,
        )
    bundle = read_bundle(folder)
    model = load(folder / bundle.model_file, bundle.inputs)
    model = replace(model, unit_cache=replace(model.unit_cache, name=bundle.model))
    return ModelPlan(
        model=model if bundle.mixed is None else model.in_precision(bundle.mixed),
        plans=bundle.plans,
        device=bundle.device,
        conditions=bundle.conditions,
        converted=bundle,
        frames=bundle.frames,
        advice=kept_advice(folder),
        folder=folder,
    )


PREDICTED: Mapping[ContentionBasis, str] = {
    basis: f"predicted from costs that were measured one at a time; {words}"
    for basis, words in {
        ContentionBasis.MEASURED: "how processors slow each other down was measured",
        ContentionBasis.PARTLY: (
            "how some processors slow each other down was measured, of the others it is"
            f" assumed: {ASSUMED:g} times"
        ),
        ContentionBasis.ASSUMED: (
            f"that processors slow each other down {ASSUMED:g} times is assumed"
        ),
        ContentionBasis.GIVEN: "how processors slow each other down was given",
    }.items()
}


@dataclass(frozen=True)
class PredictedThroughput:
    """Predicted frames per second of throughput plans, and of their baselines.

    Units were measured one at a time and slowed down by the contention; the rates themselves were
    not measured. ``nnapi_prof.partition(model, costs, Throughput()).throughput`` is one.
    """

    model: Model
    device: str
    """The name of its device, for people."""
    plan: ThroughputPlan = field(repr=False)
    """The plans with their shares, the load of each processor, and the curve."""
    contention: Slowdowns
    """The slow-downs of the plans' processors that it was planned with, measured or assumed."""
    simulated: bool
    estimated: bool
    """Whether its costs are estimates without any measurement."""

    @property
    def frames_per_second(self) -> float:
        """The predicted rate, with the requested number of frames in flight."""
        return self.plan.frames_per_second

    @property
    def most_per_second(self) -> float:
        """The upper bound of the rate, for any plans and order of frames under these costs."""
        return self.plan.most_per_second

    @property
    def baselines(self) -> dict[str, float]:
        """Frames per second of the alternatives, with any number of frames in flight."""
        return {rate.rule.value: rate.frames_per_second for rate in self.plan.baselines}

    def curve(self) -> pd.DataFrame:
        """Returns one row for each number of frames in flight: frames per second, latency (ms)."""
        import pandas as pd

        return pd.DataFrame(
            {
                "frames_in_flight": point.frames_in_flight,
                "frames_per_second": point.frames_per_second,
                "latency_ms": point.latency_ns[0] / 1e6,
                "latency_95_ms": point.latency_ns[1] / 1e6,
                "memory_bytes": point.memory_bytes,
                "how": point.rate.rule.value,
            }
            for point in self.plan.curve
        )

    def __repr__(self) -> str:
        kind = notebook.kind_of(self.simulated, self.estimated).removeprefix("ms")
        return (
            f"PredictedThroughput({self.model.name!r} on {device_name(self.device)!r},"
            f" {self.frames_per_second:.4g} frames/s by {self.plan.rule.value}, predicted{kind})"
        )

    def _repr_html_(self) -> str:
        rows = [
            [self.plan.rule.value, f"{self.frames_per_second:.4g}"],
            *([rule, f"{rate:.4g}"] for rule, rate in self.baselines.items()),
            ["no plans do more than", f"{self.most_per_second:.4g}"],
        ]
        return notebook.table(
            f"{self.model.name} on {self.device}", ["how", "frames/s"], rows, numbers=(1,)
        ) + notebook.notes([PREDICTED[self.contention.basis]])
