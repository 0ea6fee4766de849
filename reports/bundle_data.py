"""Read a bundle, its runs and its costs as the data of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from nnapi_prof.advice import Advice
from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.deployment import deploy_steps
from nnapi_prof.bundle.storage import kept_advice, kept_faults, read_bundle
from nnapi_prof.costs import absolute, default_location
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.costs.model.forms import formed_rows
from nnapi_prof.costs.model.regression import TargetFit
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection, instant, stated_instant
from nnapi_prof.device import description_parts
from nnapi_prof.errors import CostError, UsageError, option_name
from nnapi_prof.execution.report import RunReport, choose, every, last
from nnapi_prof.graph.plan import Engine, Plan, Segment, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.qnn.calibration import ChipOrigin
from nnapi_prof.qnn.costs import ChipCosts
from nnapi_prof.reports import format_of, write_report
from nnapi_prof.reports.data import ReportData, this_environment


def report_data(
    bundle: Path,
    costs: str | None = None,
    *,
    until: str | None = None,
) -> ReportData:
    """Returns the data of a bundle's report, with its last run if there is one.

    ``costs`` takes the same values as ``--costs``. ``until``, a UTC time in the table's format
    (:func:`.costs.store.selection.instant`), leaves out later measurements and runs, to show the
    same plan as of that day.

    Raises UsageError if there is no bundle, SerializationError if it or its run is damaged,
    CostError if the table cannot be read or lacks the model.
    """
    loaded = read_bundle(bundle)
    run = last(bundle) if until is None else _last_until(bundle, until)
    naming = naming_table(loaded, costs) if until is None else nullcontext()
    with naming, CostStore(costs) as store:
        model = bundle / loaded.model_file
        data = report_data_from_bundle(loaded, run, store, until=until, model=model)
    if until is not None:
        return data
    ship = deploy_steps(loaded, bundle)
    return replace(data, advice=kept_advice(bundle), faults=kept_faults(bundle), ship=ship)


def chosen_report(
    bundle: Path, costs: str | None, run: str | None = None, at: str | None = None
) -> ReportData:
    """Returns :func:`report_data` of a bundle with the run that ``run`` names
    (:func:`nnapi_prof.execution.report.choose`), or as of the date ``at``."""
    if run is not None and at is not None:
        raise UsageError(
            f"{option_name('run')} and {option_name('at')} exclude each other", "leave one out"
        )
    if run is not None:
        chosen = choose(every(bundle), run)
        return with_run(report_data(bundle, costs), chosen, bundle)
    until = None if at is None else stated_instant("at", at, end=True)
    return report_data(bundle, costs, until=until)


def with_run(data: ReportData, run: RunReport, bundle: Path) -> ReportData:
    """Returns the data with another run of the bundle."""
    made_for = read_bundle(bundle)
    elsewhere = made_for.device if run.fingerprint != made_for.fingerprint else ""
    return replace(data, run=run, planned_for=elsewhere)


def _last_until(bundle: Path, until: str) -> RunReport | None:
    before = [run for run in every(bundle) if instant(run.created_at) <= until]
    return before[-1] if before else None


def report_data_from_bundle(
    bundle: Bundle,
    run: RunReport | None,
    store: CostStore,
    *,
    until: str | None = None,
    model: Path | None = None,
) -> ReportData:
    """Returns :func:`report_data` of a bundle in memory and its run, or None if there was none.

    ``model`` is the original model's file; a plan with estimated segments needs it, because its
    costs are estimated again.
    """
    if run is not None:
        bundle = bundle.of_run(run.runs[0].plan)
    rows = store.select(
        Selection((bundle.fingerprint,), conditions=bundle.conditions, until=until, newest=True)
    )
    if not rows:
        raise CostError(_nothing_of(bundle, store, until))
    costs = _costs(bundle, rows, model, None if until else bundle.fits)
    descriptions = {row.fingerprint: row.description for row in store.devices()}
    plans = bundle.plans
    if until is not None:
        plans = tuple(_priced(plan, bundle.graph, costs, until) for plan in plans[:1])
        plans += tuple(
            priced
            for plan in bundle.plans[1:]
            if (priced := _priced_or_none(plan, bundle.graph, costs, until)) is not None
        )
        run = run and _predicted_anew(run, plans)
    return ReportData(
        model=bundle.model,
        graph=bundle.graph,
        cost_model=costs,
        measurements=tuple(rows),
        plan=plans[0],
        baselines=plans[1:],
        run=run,
        device_info=descriptions.get(bundle.fingerprint, {}),
        notes=bundle.notes,
        permutes={plan.name: bundle.permutes(plan) for plan in bundle.plans},
        segment_permutes=bundle.segment_permutes(plans[0]),
        planned_for=bundle.device if run and run.fingerprint != bundle.fingerprint else "",
        environment=this_environment(),
        mixed=bundle.mixed,
    )


def _nothing_of(bundle: Bundle, store: CostStore, until: str | None) -> str:
    device = description_parts(bundle.device)[0]
    ever = store.select(Selection((bundle.fingerprint,), conditions=bundle.conditions))
    if ever:
        return (
            f"cost table {store.location}: nothing was measured on {device} until {until}"
            f" (the first is of {min(row.measured_at for row in ever)[:19]}): choose a"
            f" later {option_name('at')}"
        )
    return (
        f"cost table {store.location} has nothing of {device} ({bundle.fingerprint}), which"
        f" the bundle was made for: name that table with {option_name('costs')}, or fill this one"
        " with `nnapi-prof profile`"
    )


@contextmanager
def naming_table(bundle: Bundle, costs: str | None) -> Iterator[None]:
    """Wraps a block that reads a bundle's cost table: if the table is missing or lacks the model,
    the error names the table that the bundle was planned with. That table is not opened
    automatically, because a bundle may come from a stranger."""
    try:
        yield
    except (CostError, UsageError) as error:
        asked = costs or default_location()
        if not bundle.costs or absolute(bundle.costs) == absolute(asked):
            raise
        raise type(error)(
            f"{error}; the bundle was planned with another table: add"
            f" {option_name('costs', bundle.costs)}"
        ) from error


def _costs(
    bundle: Bundle,
    rows: Sequence[Measurement],
    model: Path | None,
    fits: Mapping[Target, TargetFit] | None,
) -> CostModel:
    """Returns costs from rows and ``fits``, or from a fit to the rows if ``fits`` is None. Adds
    estimates if the plan was made with them."""
    guessed = any(
        segment.estimated and segment.target.engine is not Engine.HOST
        for segment in bundle.plan.segments
    )
    if not guessed or model is None:
        return fit(bundle.graph, formed_rows(bundle.graph, rows, bundle.forms), fits=fits)

    from nnapi_prof.execution.estimation import filled_costs
    from nnapi_prof.execution.profile.unit_graph_cache import load_program

    program = load_program(model, bundle.inputs, mixed=bundle.mixed)
    return filled_costs(program, rows, bundle.fingerprint)[0]


def _priced(plan: Plan, graph: UnitGraph, costs: CostModel, until: str) -> Plan:
    """Returns the plan with its segments' latencies from the costs. Raises CostError if a segment
    has no cost."""
    segments: list[Segment] = []
    for segment in plan.segments:
        cost = costs.region_cost(segment.units, segment.target)
        if cost is None:
            label = graph.label(segment.units)
            raise CostError(
                f"until {until} nothing says what {label} takes on {segment.target}, where the plan"
                " runs it",
                f"choose a later {option_name('at')}",
            )
        segments.append(
            replace(
                segment,
                predicted_ns=cost.ns,
                measured=cost.measured,
                estimated=cost.estimated,
                interval_ns=None,
            )
        )
    return replace(plan, segments=tuple(segments), simulated=costs.simulated)


def _priced_or_none(plan: Plan, graph: UnitGraph, costs: CostModel, until: str) -> Plan | None:
    """Returns the plan with latencies from the costs; None if a segment has no cost."""
    try:
        return _priced(plan, graph, costs, until)
    except CostError:
        return None


def _predicted_anew(run: RunReport, plans: Sequence[Plan]) -> RunReport:
    """Returns a run with the predictions of these plans instead of its own."""
    named = {plan.name: plan for plan in plans}
    rows = []
    for row in run.runs:
        plan = named.get(row.plan.name)
        if plan is None or len(plan.segments) != len(row.segments):
            continue
        timings = tuple(
            replace(timing, predicted_ns=segment.predicted_ns)
            for timing, segment in zip(row.segments, plan.segments, strict=True)
        )
        rows.append(replace(row, plan=plan, segments=timings))
    return replace(run, runs=tuple(rows))


def write(path: Path, data: ReportData) -> Path:
    """Writes a report to ``path`` and returns it. Raises UsageError if the ending is unknown, or if
    the file cannot be written."""
    form = format_of(path)
    if form == "json":
        raise UsageError(
            f"{path}: Python has the data already (frame(), segments(), report_data()); as one JSON"
            " document `nnapi-prof report --format json` writes it"
        )
    write_report(path, form, data)
    return path


def chip_report(
    model: str,
    costs: ChipCosts,
    origin: ChipOrigin,
    device: str,
    plans: Sequence[Plan],
    notes: tuple[str, ...] = (),
    advice: tuple[Advice, ...] = (),
) -> ReportData:
    """Returns the data of a report of a plan for a chip, where nothing was measured."""
    return ReportData(
        model=model,
        graph=costs.graph,
        cost_model=costs.as_cost_model(),
        measurements=(),
        plan=plans[0],
        baselines=tuple(plans[1:]),
        device_info={"phone": device},
        notes=notes,
        environment=this_environment(),
        advice=advice,
        origin=origin,
    )
