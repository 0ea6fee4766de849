"""Plans of a model: what runs where, why, and how fast that should be."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nnapi_prof.api import notebook
from nnapi_prof.api import options as arguments
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.devices import reached
from nnapi_prof.api.events import Listener, Progress, to_log
from nnapi_prof.api.model import Model, load, loaded
from nnapi_prof.api.objective import AdjustedCosts, Objective, as_latency
from nnapi_prof.api.options import PlanOptions
from nnapi_prof.api.plan_search import (
    Guard,
    Search,
    bundle_of,
    find_plans,
    guarded,
    save_bundle,
    verified,
    with_open_sizes,
)
from nnapi_prof.api.report import data_of, naming_table
from nnapi_prof.api.throughput import (
    Throughput,
    partition_frames,
    plan_branches,
    verified_frames,
    with_branches,
)
from nnapi_prof.bundle.advice import keep_advice, kept_advice
from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.bundle.doors import steps
from nnapi_prof.bundle.frames import FramePlan
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.costs import absolute
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.estimate.costs import EstimatedCosts, FilledCosts
from nnapi_prof.costs.measurement import Statistic
from nnapi_prof.costs.model.views import with_intervals
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.description import device_name
from nnapi_prof.device.protocol.results import AgentInfo
from nnapi_prof.errors import UsageError, option, spelled
from nnapi_prof.execution.options import RunOptions
from nnapi_prof.graph.advice import Advice
from nnapi_prof.graph.plan import Plan
from nnapi_prof.partition import Costs as PricedUnits
from nnapi_prof.partition import CurvePoint, ParallelPlan
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    import pandas as pd

    from nnapi_prof.execution.report import RunReport


KEPT = "the plan keeps to what was asked: no baseline that runs faster replaces it"


@dataclass(frozen=True)
class Planned:
    """A plan of a model for a device, and its baselines.

    :func:`nnapi_prof.partition` makes one, :func:`nnapi_prof.run` runs it, :meth:`save` writes the
    folder that ``nnapi-prof run`` takes.
    """

    model: Model
    plans: tuple[Plan, ...] = field(repr=False)
    """The plan, then its baselines."""
    device: str
    """The device that it is for, for people."""
    conditions: Conditions
    """Under which it is to run."""
    estimated: bool = False
    """Nothing of its costs was measured."""
    device_spec: str | None = None
    """What ``device=`` takes for its device; None where none was asked."""
    costs: Costs | None = field(default=None, repr=False)
    """What it was made from; None where it was read from a folder."""
    converted: Bundle | None = field(default=None, repr=False)
    """With its regions converted for the device, where they are already."""
    objective: Objective | None = None
    """What was made least, where that is not the latency."""
    objective_values: tuple[float, ...] = ()
    """Of each plan, in the objective's unit."""
    search: Search | None = field(default=None, repr=False)
    """What the search for it came to; None where this was read from a folder, or is for frames."""
    frames: FramePlan | None = None
    """How many frames run at once, and by which of ``plans``; None where it is for one frame."""
    throughput: Throughput | None = field(default=None, repr=False)
    """What was predicted of frames at once; None where it is for one frame, or was read from a
    folder."""
    advice: tuple[Advice, ...] = field(default=(), repr=False)
    """What would make it faster, where :func:`nnapi_prof.advise` was asked."""
    folder: Path | None = None
    """Where it was read from, or written to by :func:`nnapi_prof.go`."""
    parallel: ParallelPlan | None = field(default=None, repr=False)
    """What was predicted of one frame's branches at once, where that was asked for."""

    @property
    def best(self) -> Plan | None:
        """The plan of least latency, however many segments it takes; ``best.proof`` says how far
        from the optimum it can be. None where this was read from a folder."""
        return None if self.search is None else self.search.best

    @property
    def curve(self) -> tuple[CurvePoint, ...]:
        """The least latency (of another objective, a million times its value) for each number of
        segments up to the best plan's, with a bound; empty where this was read from a folder."""
        return () if self.search is None else self.search.curve

    @property
    def plan(self) -> Plan:
        """The plan itself: segments in order, each with its units, its target and its cause."""
        return self.plans[0]

    @property
    def baselines(self) -> tuple[Plan, ...]:
        """What one would do without a partitioner, all-cpu first."""
        return self.plans[1:]

    @property
    def simulated(self) -> bool:
        """Its latencies are those of a simulated phone."""
        return self.plan.simulated

    @property
    def latency_ms(self) -> float:
        """The predicted latency in ms."""
        return self.plan.predicted_ns / 1e6

    @property
    def uncertainty(self) -> float | None:
        """Of an estimated plan: nine of ten predictions stayed within this share of the truth when
        the phone's description was made. None where that is not known, or costs were measured."""
        priced = None if self.costs is None else self.costs.as_they_are
        return priced.plan_error(self.plan) if isinstance(priced, EstimatedCosts) else None

    def segments(self) -> pd.DataFrame:
        """One row for each segment of the plan, in order: ``segment``, ``target``, ``units`` (their
        numbers), ``label``, ``predicted_ms``, ``low_ms`` and ``high_ms`` (95 % interval, NaN where
        there is none), ``basis`` (``measured`` whole, ``sum`` of measured parts, ``estimated``),
        ``cause``."""
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
        """One row for the plan and each baseline: ``plan``, ``segments`` (how many),
        ``predicted_ms``, ``against_plan`` (its latency as a multiple of the plan's) and, where
        another objective was asked for, ``objective`` in its unit."""
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
        """Writes the plan, its regions and the model to a folder, as ``nnapi-prof partition`` does;
        returns its path. A bundle that stands there is replaced.

        Raises UsageError where it cannot be written, or no device was asked for.
        """
        folder = Path(path)
        location = self.costs.location if self.costs else None
        bundle = replace(self.bundle, costs=absolute(location)) if location else self.bundle
        save_bundle(folder, bundle, self.model.path)
        if self.advice:
            keep_advice(folder, self.advice)
        return folder

    @cached_property
    def bundle(self) -> Bundle:
        """The plan with its regions converted for its device.

        Raises UsageError where no device was asked, UnsupportedOp where a region cannot be had.
        """
        if self.converted is not None:
            return self.converted
        info = self.costs.agent_info if self.costs else None
        if info is None:
            raise UsageError(
                "this plan was made without a device: run() it on one, or partition() costs that"
                " profile() measured"
            )
        return self._bundle(info)

    def bundle_for(self, info: AgentInfo) -> Bundle:
        """The plan with its regions converted for a device: its own, if it has one already, else
        that of ``info``. Raises what :func:`nnapi_prof.api.plan_search.bundle_of` raises."""
        if self.converted is not None or (self.costs and self.costs.agent_info):
            return self.bundle
        return self._bundle(info)

    def _bundle(self, info: AgentInfo) -> Bundle:
        program, file = self.model.program, f"model{self.model.path.suffix}"
        fits, notes = None, self.model.notes
        if self.costs is not None:
            measured, notes = self.costs.measured, self.costs.notes
            if measured is not None and not isinstance(measured, FilledCosts):
                fits = measured.fits
        bundle = bundle_of(program, file, info, self.plans, self.conditions, notes, fits)
        statistic = Statistic.MEDIAN if self.costs is None else self.costs.statistic
        bundle = replace(bundle, mixed=self.model.mixed, frames=self.frames, statistic=statistic)
        if self.frames is not None:
            bundle = replace(bundle, plan_set=self.frames.plan_set)
        return with_open_sizes(bundle, self.model.inputs)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        costs: str | os.PathLike[str] | None = None,
    ) -> Path:
        """Writes a report with predictions only; ``Result.report`` has what was measured, too.

        Arguments and errors are those of :meth:`nnapi_prof.Result.report`.
        """
        from nnapi_prof.api.report import write

        return write(Path(path), [(self.model.name, self.report_data(costs=costs))])

    def report_data(
        self,
        run: RunReport | None = None,
        *,
        costs: str | os.PathLike[str] | None = None,
        bundle: Bundle | None = None,
    ) -> ReportData:
        """All that a report of it shows. ``costs`` is a cost table, asked where the plan was read
        from a folder; ``bundle`` that which ran, where it is another than the plan's own.

        Raises CostError where the table lacks the model, UsageError where nothing was measured.
        """
        bundle = bundle or self.bundle
        ship = steps(bundle, self.folder) if self.folder is not None else ()
        if self.costs is None:
            table = arguments.table(costs)
            with naming_table(bundle, table), CostStore(table) as store:
                data = data_of(bundle, run, store, model=self.model.path)
                return replace(data, advice=self.advice, ship=ship)
        measured = self.costs.measured
        if measured is None:
            raise UsageError(
                "a report shows what was measured, and these costs are estimated or your own:"
                " profile() measures"
            )
        return ReportData(
            model=bundle.model,
            graph=bundle.graph,
            cost_model=measured,
            measurements=self.costs.measurements,
            plan=bundle.plan,
            baselines=bundle.plans[1:],
            run=run.by(self.costs.statistic) if run is not None else None,
            statistic=self.costs.statistic,
            device_info=self.costs.device_info,
            notes=bundle.notes,
            permutes={plan.name: bundle.permutes(plan) for plan in bundle.plans},
            mixed=bundle.mixed,
            advice=self.advice,
            ship=ship,
        )

    def __repr__(self) -> str:
        return (
            f"Planned({self.model.name!r} on {device_name(self.device)!r}, "
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


def partition(
    model: Model | str | os.PathLike[str],
    costs: Costs | PricedUnits,
    *,
    forbid: str | Sequence[str] | Mapping[str, str] = (),
    pin: str | Sequence[str] | Mapping[str, str] = (),
    preference: Literal["low_power", "fast", "sustained"] | None = None,
    max_regions: int | None = None,
    max_compile_ms: float | None = None,
    max_error: float | None = None,
    listed: Sequence[str] = (),
    solver: Literal["search", "milp"] = "search",
    best: bool = False,
    seconds: float | None = None,
    accuracy_budget: float | None = None,
    metric: str = "relative",
    objective: Literal["latency", "throughput"] = "latency",
    contention: float | Mapping[tuple[str, str], float] | None = None,
    frames_in_flight: int | None = None,
    max_latency_ms: float | None = None,
    max_memory_mb: int | None = None,
    parallel: bool = False,
    device: str | AgentClient | None = None,
    verify: bool | None = None,
    cooldown_s: float = RunOptions().cooldown_s,
    memory_mb: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> Planned:
    """Chooses what runs where: the exact optimum under the costs, and its baselines.

    ``costs`` are :class:`nnapi_prof.Costs`; ``costs.adjusted(...)`` plans for another objective
    than latency. Costs all of one's own are any object with the members of
    ``nnapi_prof.partition.Costs``: what each unit, an invocation and a transferred byte cost on
    each target, in ns or whatever is to be least.

    ``forbid`` keeps units off targets (``"softmax*"``, ``"conv2d*=nnapi:npu/*"``), ``pin`` runs
    them on one (``"softmax*=cpu"`` or ``{"softmax*": "cpu"}``); ``preference`` is the only one of
    accelerators; ``max_regions``, ``max_compile_ms`` (ms) and ``max_error`` (relative, in less than
    float32) limit the plan; ``listed`` units make the baseline of that name; ``solver="milp"`` asks
    HiGHS.
    The plan has the fewest segments within noise of the least latency; ``best`` is for the least
    latency itself. Planning takes ``seconds`` at most (None: 10); Ctrl-C ends it with the best plan
    until then, and a note.

    With ``verify`` plan and baselines run whole on ``device`` (the one that was profiled, if not
    said), and the one that is fastest end to end becomes the plan, as ``nnapi-prof partition`` does
    it; None does so where a device was profiled and latency alone is asked for. ``cooldown_s``,
    ``memory_mb``, ``progress`` and ``listener`` are those of :func:`nnapi_prof.profile`. For a
    ``device`` that is open already the plan's regions are converted at once.

    Costs in several precisions (:func:`nnapi_prof.profile` with ``precisions``) want an
    ``accuracy_budget``: the largest error of the plan (0.02: 2 %), by ``metric`` as
    :func:`nnapi_prof.pareto` takes it. The fastest plan on the front that keeps to it, on held-out
    data, too, says which units are in 8 bits; the model so is measured and planned on the device.

    With the ``objective`` ``"throughput"`` processors work at once, on different frames, and the
    plan is a mixture: each frame takes one of several plans, so that most frames come out in a
    second. ``frames_in_flight`` is how many are on their way at most (None: four for each
    processor), ``max_latency_ms`` what 95 % of frames may take, ``max_memory_mb`` limits the
    weights on all processors and what frames hand over. ``contention`` says how many times as long
    a processor takes while another one is busy: one number for all, or (processor, the other one)
    -> number, processors being ``"cpu"`` and the accelerators' names (None: that of the costs,
    which ``profile(beside=True)`` measured or which is assumed). On a device the mixture, whole
    frames in turn, one plan as a pipeline and the best single device run as they would, and the way
    of most frames per second is taken. It has no other constraints than these.

    ``parallel`` asks whether branches of one frame are worth running at once, on different
    processors that slow each other down as ``contention`` says. Where a bound promises less than
    15 % nothing is tried (``Planned.parallel`` has its figures). A schedule is taken only if it
    runs faster on the device than the serial plan.

    Raises UsageError where an argument names what is not there, PartitionError where no plan keeps
    to what is asked, DeviceError where the device fails.
    """
    listener = listener or to_log(progress)
    chosen = loaded(model)
    own_costs = costs if isinstance(costs, Costs) else None
    priced: PricedUnits = costs.priced if isinstance(costs, Costs) else costs
    conditions = own_costs.conditions if own_costs else Conditions()
    plan_options = PlanOptions(
        arguments.placements("forbid", forbid),
        arguments.placements("pin", pin),
        preference,
        max_regions,
        arguments.names("listed", listed),
        solver,
        max_compile_ms,
        max_error,
        best,
        seconds,
    )
    about_frames = (frames_in_flight, max_latency_ms, max_memory_mb)
    if objective != "throughput" and (
        about_frames != (None,) * 3 or (contention is not None and not parallel)
    ):
        raise UsageError(
            f"{option('contention')}, {option('frames-in-flight')}, {option('max-latency-ms')} and"
            f" {option('max-memory-mb')} are for {option('objective')}"
            + spelled(" throughput", '="throughput"')
        )
    if parallel and (
        objective != "latency"
        or own_costs is None
        or plan_options.constrain
        or accuracy_budget is not None
    ):
        raise UsageError(
            f"{option('parallel')} is for the latency of one frame, with costs that profile()"
            " measured and no other wishes"
        )
    if objective == "throughput":
        others = plan_options.constrain or solver != "search" or best or listed
        if others or accuracy_budget is not None:
            raise UsageError(
                "frames at once keep to limits of latency, memory and frames in flight, and to no"
                " other wishes: leave them out"
            )
        if own_costs is None or own_costs.model.graph != chosen.graph:
            raise UsageError(f"frames per second need costs of {chosen!r} that profile() measured")
        plans, frames, predicted = partition_frames(
            chosen,
            own_costs,
            contention=contention,
            frames_in_flight=frames_in_flight,
            max_latency_ms=max_latency_ms,
            max_memory_mb=max_memory_mb,
            seconds=seconds,
            listener=listener,
        )
        planned = Planned(
            model=chosen,
            plans=plans,
            device=own_costs.device,
            conditions=conditions,
            estimated=own_costs.estimated,
            device_spec=own_costs.device_spec,
            costs=own_costs,
            frames=frames,
            throughput=predicted,
        )
        return _on_device(planned, device, verify, cooldown_s, memory_mb, listener)
    if objective != "latency":
        raise UsageError(f"the objective is {objective!r}: latency and throughput can be asked for")
    if accuracy_budget is not None:
        arguments.number("accuracy_budget", accuracy_budget, 0)
        if own_costs is None or plan_options.constrain:
            raise UsageError(
                "an accuracy budget is for costs that profile() measured in several precisions, and"
                " for plans without other constraints"
            )
        from nnapi_prof.api.mixed import costs_within
        from nnapi_prof.api.pareto import pareto

        front = pareto(
            chosen,
            own_costs,
            metric=metric,
            budgets=(accuracy_budget,),
            seconds=seconds,
            listener=listener,
        )
        with reached(device or own_costs.device_spec, listener) as client:
            own = costs_within(
                front,
                accuracy_budget,
                client,
                cooldown_s=cooldown_s,
                memory_mb=memory_mb,
                listener=listener,
            )
            return partition(
                own.model,
                own,
                listed=listed,
                solver=solver,
                best=best,
                seconds=seconds,
                device=client,
                verify=verify,
                cooldown_s=cooldown_s,
                memory_mb=memory_mb,
                listener=listener,
            )
    if own_costs is not None and own_costs.calibration is not None:
        raise UsageError(
            spelled(
                "costs in several precisions want --accuracy-budget, as 2%",
                "costs in several precisions want an accuracy_budget, as 0.02",
            )
        )
    if not hasattr(priced, "unit_cost"):
        raise UsageError(f"costs are a {type(costs).__name__}: those of profile() are wanted")
    if own_costs is not None and own_costs.model.graph != chosen.graph:
        raise UsageError(f"these costs are of {own_costs.model!r}, not of {chosen!r}: profile it")
    measured = own_costs.measured if own_costs else None
    guard: Guard | None = None
    if max_error is not None:
        guard = partial(guarded, chosen.program, priced, conditions, max_error)
    with listener.working("planning"):
        search = find_plans(chosen.graph, priced, plan_options, guard=guard, listener=listener)
    values: tuple[float, ...] = ()
    if (
        own_costs is not None
        and own_costs.objective is not None
        and isinstance(priced, AdjustedCosts)
    ):
        base, other = priced.base, own_costs.objective
        values = tuple(plan.predicted_ns / 1e6 for plan in search.plans)
        search = search.each(lambda plan: as_latency(plan, base, other))
    if measured is not None:
        known_costs = measured
        search = search.each(lambda plan: with_intervals(plan, known_costs))
    if own_costs is not None and own_costs.statistic is not Statistic.MEDIAN:
        words = f"planned by the {own_costs.statistic.words} of each measurement's runs"
        search = search.each(lambda plan: plan.with_note(words))
    planned = Planned(
        model=chosen,
        plans=search.plans,
        device=own_costs.device if own_costs else "costs of one's own",
        conditions=conditions,
        estimated=own_costs is not None and own_costs.estimated,
        device_spec=device.serial
        if isinstance(device, AgentClient)
        else device or (own_costs.device_spec if own_costs else None),
        costs=own_costs,
        objective=own_costs.objective if own_costs else None,
        objective_values=values,
        search=search,
    )
    if parallel and own_costs is not None:
        schedule = plan_branches(chosen, own_costs, contention, seconds, listener)
        planned = replace(planned, parallel=schedule)
        if (branches := with_branches(planned.plans, schedule)) is not None:
            plans = (*planned.plans, branches[0])
            planned = replace(planned, plans=plans, frames=branches[1])
    plain = measured is not None and not values and not plan_options.constrain
    if verify and not plain:
        raise UsageError(
            "verify picks the fastest plan as it runs: it is for measured costs, without"
            " constraints and with latency as the objective"
        )
    if verify is None and planned.device_spec is not None:
        verify = plain
        if plan_options.constrain:
            listener.busy(KEPT)
    return _on_device(planned, device, bool(verify), cooldown_s, memory_mb, listener)


def _on_device(
    planned: Planned,
    device: str | AgentClient | None,
    verify: bool | None,
    cooldown_s: float,
    memory_mb: int | None,
    listener: Listener,
) -> Planned:
    """The plan converted for the device, where one is open or it is to run there; and what is
    fastest there, where it is to (``verify`` None: where a device was profiled)."""
    if verify is None:
        verify = planned.device_spec is not None or isinstance(device, AgentClient)
    if not verify and not isinstance(device, AgentClient):
        return planned
    program = planned.model.program
    with reached(device or planned.device_spec, listener) as client:
        with listener.working("converting what the plan gives to the device"):
            bundle = planned._bundle(client.info())
        listener.notes(*(note for note in bundle.notes if note not in planned.model.notes))
        options = RunOptions(
            cooldown_s=cooldown_s,
            conditions=planned.conditions,
            memory_mb=memory_mb,
            statistic=planned.costs.statistic if planned.costs else Statistic.MEDIAN,
        )
        if verify and planned.throughput is None:
            bundle = verified(bundle, program, client, options, listener)
        if verify and bundle.frames is not None:
            bundle = verified_frames(bundle, program, client, options, listener)
    return replace(
        planned,
        plans=bundle.plans,
        converted=bundle,
        frames=bundle.frames,
        conditions=bundle.conditions,
    )


def read_plan(path: str | os.PathLike[str]) -> Planned:
    """Reads a plan from ``path``, a folder that :meth:`Planned.save` or ``nnapi-prof partition``
    wrote.

    Raises UsageError where there is none, SerializationError where it is damaged.
    """
    folder = Path(path)
    bundle = read_bundle(folder)
    model = load(folder / bundle.model_file, bundle.inputs)
    model = replace(model, outline=replace(model.outline, name=bundle.model))
    return Planned(
        model=model if bundle.mixed is None else model.in_precision(bundle.mixed),
        plans=bundle.plans,
        device=bundle.device,
        conditions=bundle.conditions,
        converted=bundle,
        frames=bundle.frames,
        advice=kept_advice(folder),
        folder=folder,
    )
