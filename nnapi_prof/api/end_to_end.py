"""All steps in one: profile, partition, run, report, with one model, device and plan.

Results before a fault are kept: measurements go to the cost table at once, the plan to its folder
before it runs, and the report has only predictions where the run failed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api import SILENT, Listener, Progress, open_client, to_log
from nnapi_prof.api.cost_tables import note_other_agent, open_table
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model, as_model, load
from nnapi_prof.api.profiling import profile_on, profile_options, with_threads, with_trial
from nnapi_prof.api.run import eager_reference, keep_result, run_bundle_on
from nnapi_prof.costs import ConditionOptions, Conditions
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.state import Gates
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.execution import QUICK, Boundary, RunOptions
from nnapi_prof.execution.profile import MeasureOptions, ProfileOptions, ProfileOutcome
from nnapi_prof.graph.plan import Engine
from nnapi_prof.options import into, moved

if TYPE_CHECKING:
    from nnapi_prof.api.plan import ModelPlan
    from nnapi_prof.api.run import Result
    from nnapi_prof.bundle import Bundle


LOGGER = logging.getLogger(__name__)
ADVICE_S = 10.0
"""Time limit of the search for advice."""
VERIFYING_RUNS = 30
"""Minimum runs of each plan before one is chosen, which happens only once."""


@dataclass
class PipelineResult:
    """The results of all steps, None where a step was not reached; ``fault`` is what stopped it."""

    model: Model
    report_path: Path
    costs: Costs | None = None
    planned: ModelPlan | None = None
    bundle: Path | None = None
    """The folder of the plan, once it is written."""
    result: Result | None = None
    run_file: Path | None = None
    """The file in the bundle that keeps the run."""
    report: Path | None = None
    """The report's file, once it is written; it has only predictions where the run failed."""
    fault: NnapiProfError | None = None
    spent_s: dict[str, float] = field(default_factory=dict)
    """Step -> seconds."""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Adds the duration of a block to ``spent_s``."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.spent_s[name] = self.spent_s.get(name, 0.0) + time.monotonic() - began


def run_all(
    model: Model,
    *,
    report: Path,
    device: str | AgentClient | None = None,
    costs: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    runs: int = QUICK.runs,
    boundary: str = QUICK.boundary,
    tolerance: float | None = None,
    cooldown_s: float | None = None,
    memory_mb: int | None = None,
    listener: Listener = SILENT,
    announced: bool = False,
    conditions: ConditionOptions | Conditions | None = None,
) -> PipelineResult:
    """Runs :func:`go`, with the same arguments, and returns results even where a step fails.

    With ``announced`` the caller has already named model and device, so that this does not. The
    bundle is written beside ``report``, under its name with ``.nnprof``. Refinement is skipped
    where the cost table has all measurements of a profile, and the plan's regions measured whole. A
    fault ends it, and is in ``PipelineResult.fault``; Ctrl-C raises KeyboardInterrupt.
    """
    settings = replace(
        QUICK,
        runs=runs,
        boundary=boundary,
        tolerance=tolerance,
        cooldown_s=cooldown_s,
        memory_mb=memory_mb,
    )
    options = profile_options(
        ConditionOptions.of(conditions),
        MeasureOptions(fresh=fresh, cooldown_s=cooldown_s, memory_mb=memory_mb),
        Gates(),
        copies=settings.boundary == Boundary.APP,
    )
    pipeline = PipelineResult(model, report)
    try:
        with open_table(costs) as store, open_client(device, listener) as client:
            note_other_agent(store, client.info(), listener)
            heard = replace(listener, busy=_ignore) if announced else listener
            with pipeline.step("profile"):
                pipeline.costs = _measured(model, client, store, options, heard)
            _load(pipeline, listener)
            _choose_plan(pipeline, client, settings, listener)
            _run(pipeline, client, settings, listener)
        _advise(pipeline, listener)
    except NnapiProfError as error:
        pipeline.fault = error
    try:
        _report(pipeline, listener)
    except NnapiProfError as error:
        pipeline.fault = pipeline.fault or error
    except Exception as error:  # the run is valid without a report
        pipeline.fault = pipeline.fault or NnapiProfError(f"no report: {_error_text(error)}")
    return pipeline


def _measured(
    model: Model,
    client: AgentClient,
    store: CostStore,
    options: ProfileOptions,
    listener: Listener,
) -> Costs:
    """Measures the costs. Refines them unless an earlier profile has: then nothing new had to be
    measured, and the plan's regions were measured whole."""
    options, trial = with_threads(model, client, store, options, listener)
    unit_costs = profile_on(model, client, store, replace(options, refine=False), listener)
    unit_costs = with_trial(unit_costs, trial)
    outcome = unit_costs.outcome
    if not options.refine or (outcome and not outcome.n_measured and _stands(unit_costs)):
        return unit_costs
    again = replace(options, fresh=False)
    final = profile_on(model, client, store, again, replace(listener, busy=_ignore))
    return replace(final, outcome=_together(outcome, final.outcome), thread_trial=trial)


def _together(first: ProfileOutcome | None, second: ProfileOutcome | None) -> ProfileOutcome | None:
    """Returns the second outcome with the counts of both; the first one's measurements are new."""
    if first is None or second is None:
        return second
    return replace(
        second,
        n_measured=first.n_measured + second.n_measured,
        n_failed=first.n_failed + second.n_failed,
        n_refused=first.n_refused + second.n_refused,
        n_reused=first.n_reused,
        seconds=first.seconds + second.seconds,
    )


def _stands(costs: Costs) -> bool:
    plan = costs.outcome.plan if costs.outcome else None
    return plan is not None and all(
        segment.measured or segment.target.engine is Engine.HOST for segment in plan.segments
    )


def _ignore(_: str) -> None:
    """Drops a line that was printed before."""


def _load(pipeline: PipelineResult, listener: Listener) -> None:
    """Reads the model itself, which measuring may not have needed."""
    with pipeline.step("load"):
        with listener.working("loading PyTorch"):
            import torch  # noqa: F401  # everything behind this needs it
        with listener.working(f"reading {pipeline.model.path.name}"):
            _ = pipeline.model.program


def _choose_plan(
    pipeline: PipelineResult, client: AgentClient, settings: RunOptions, listener: Listener
) -> None:
    """Writes the profile's last plan, or a baseline that is faster end to end, to its folder.
    Plans that ran end to end since the last measurement do not run again."""
    from nnapi_prof.api.plan import ModelPlan
    from nnapi_prof.api.planning import verified

    costs, folder = pipeline.costs, pipeline.report_path.with_suffix(".nnprof")
    assert costs is not None and costs.outcome is not None and costs.outcome.plan is not None
    plans = (costs.outcome.plan, *costs.outcome.baselines)
    if settings.boundary == Boundary.APP and costs.measured is not None:
        plans = tuple(map(costs.measured.with_copies, plans))
    planned = ModelPlan(
        model=pipeline.model,
        plans=plans,
        device=costs.device,
        conditions=costs.conditions,
        device_spec=costs.device_spec,
        costs=costs,
    )
    with pipeline.step("partition"):
        earlier = _verified_before(folder, planned)
        if earlier is not None:
            pipeline.planned, pipeline.bundle = (
                replace(planned, plans=earlier.plans, converted=earlier, folder=folder),
                folder,
            )
            return
        planned = replace(planned, converted=planned.bundle)
        pipeline.planned = planned
        listener.notes(*(note for note in planned.bundle.notes if note not in planned.model.notes))
        options = RunOptions(
            runs=max(VERIFYING_RUNS, settings.runs),
            boundary=settings.boundary,
            cooldown_s=settings.cooldown_s,
            conditions=costs.conditions,
            memory_mb=settings.memory_mb,
        )
        try:
            bundle = verified(planned.bundle, pipeline.model.program, client, options, listener)
            pipeline.planned = replace(planned, plans=bundle.plans, converted=bundle)
        finally:  # a plan that was not run whole is valid, too
            pipeline.bundle = pipeline.planned.save(folder)
            pipeline.planned = replace(pipeline.planned, folder=folder)


def _verified_before(folder: Path, planned: ModelPlan) -> Bundle | None:
    """Returns the bundle of an earlier call, if it has the same plans and is newer than all of
    their measurements; else None."""
    from nnapi_prof.bundle.storage import read_bundle
    from nnapi_prof.execution.timing import plan_key

    costs = planned.costs
    try:
        bundle = read_bundle(folder)
        written = (folder / "manifest.json").stat().st_mtime
    except (NnapiProfError, OSError):
        return None
    if costs is None or bundle.fingerprint != costs.fingerprint:
        return None
    ours = [plan_key(plan) for plan in planned.plans]
    theirs = [plan_key(plan) for plan in bundle.plans]
    same = (
        bundle.graph == planned.model.graph
        and bundle.conditions == planned.conditions
        and theirs[1:] == ours[1:]
        and theirs[0] in ours
    )
    own = {unit.signature for unit in planned.model.graph.units}
    measured = (m.measured_at for m in costs.measurements if own.issuperset(m.members))
    newest = max((datetime.fromisoformat(at).timestamp() for at in measured if at), default=0.0)
    return bundle if same and newest < written else None


def _run(
    pipeline: PipelineResult, client: AgentClient, settings: RunOptions, listener: Listener
) -> None:
    from nnapi_prof.api.run import Result

    planned, bundle = pipeline.planned, pipeline.bundle
    assert planned is not None and bundle is not None
    with listener.working("running eager PyTorch"), pipeline.step("eager"):
        inputs, references = eager_reference(planned.model.program, planned.model.eager, settings)
    with pipeline.step("run"):
        program = planned.model.program
        ran = run_bundle_on(planned.bundle, program, inputs, references, client, settings, listener)
        pipeline.result = Result(planned, ran)
        pipeline.run_file = keep_result(bundle, ran)


def _advise(pipeline: PipelineResult, listener: Listener) -> None:
    """Adds advice that rests on costs alone; a plan of an earlier call has it already."""
    from nnapi_prof.api.advise import advise
    from nnapi_prof.api.run import Result
    from nnapi_prof.bundle.storage import keep_advice, kept_advice

    planned, bundle, result = pipeline.planned, pipeline.bundle, pipeline.result
    assert planned is not None and bundle is not None and result is not None
    with pipeline.step("advise"):
        advice = kept_advice(bundle)
        if not advice:
            try:
                advice = advise(planned, seconds=ADVICE_S, listener=listener).advice
                keep_advice(bundle, advice)
            except Exception as error:  # the plan and its run are valid without advice
                listener.note(f"no advice: {_error_text(error)}")
                return
        pipeline.planned = replace(planned, advice=advice)
        pipeline.result = Result(pipeline.planned, result.run)


def _report(pipeline: PipelineResult, listener: Listener) -> None:
    """Writes the report of the results so far, unless there is no plan."""
    if pipeline.planned is None:
        return
    with listener.working("writing the report"), pipeline.step("report"):
        subject = pipeline.planned if pipeline.result is None else pipeline.result
        pipeline.report = subject.report(pipeline.report_path)


def _error_text(error: Exception) -> str:
    """Returns the message of an error that ends a step but not the whole; the traceback of an
    unexpected error goes to the log."""
    if isinstance(error, NnapiProfError | OSError):
        return str(error)
    LOGGER.debug("a step failed", exc_info=error)
    return (
        f"it ended with {type(error).__name__}: {error}, which is a fault of nnapi-prof: the result"
        " stands, and --verbose tells where"
    )


@moved(**into("conditions", ConditionOptions))
def go(
    model: Model | str | os.PathLike[str],
    device: str | AgentClient | None = None,
    *,
    inputs: str | Sequence[str] | None = None,
    report: str | os.PathLike[str] | None = None,
    costs: str | os.PathLike[str] | None = None,
    conditions: ConditionOptions | Conditions | None = None,
    fresh: bool = False,
    runs: int = QUICK.runs,
    boundary: str = QUICK.boundary,
    tolerance: float | None = None,
    cooldown_s: float | None = None,
    memory_mb: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Runs all steps, like ``nnapi-prof go``: profiles a model on a device, plans, runs the plan
    beside its baselines, compares outputs, writes a report.

    ``inputs`` are those of :func:`nnapi_prof.load`, for a file. ``report`` is the HTML file, None
    the model's name with ``.html`` beside it; the plan's folder is beside that, with ``.nnprof``.
    ``device``, ``costs`` and ``conditions`` are those of :func:`nnapi_prof.profile`, ``fresh``,
    ``cooldown_s`` and ``memory_mb`` those of its ``options``. ``runs`` is how many runs of each
    plan are recorded, for about half a second; ``boundary`` and ``tolerance`` are those of
    :func:`nnapi_prof.run`. Costs in the cost table are not measured again.

    Raises NnapiProfError where a step fails; the results so far are kept and written.
    """
    chosen = as_model(model) if inputs is None or isinstance(model, Model) else load(model, inputs)
    pipeline = run_all(
        chosen,
        report=Path(report) if report is not None else chosen.path.with_suffix(".html"),
        device=device,
        costs=costs,
        conditions=conditions,
        fresh=fresh,
        runs=runs,
        boundary=boundary,
        tolerance=tolerance,
        cooldown_s=cooldown_s,
        memory_mb=memory_mb,
        listener=to_log(progress),
    )
    if pipeline.fault is not None or pipeline.result is None:
        raise pipeline.fault or NnapiProfError(f"{chosen.name}: the plan was not run")
    return pipeline.result
