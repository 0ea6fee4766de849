"""Finds the parts of a model that prevent a faster plan, and other ways to write them.

Rewrites can be tried: the rewritten model is profiled, planned and run on a device. For a chip,
every rewritten model is compiled and planned again; a rewrite that the compiler makes by itself
saves nothing, and is not offered.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nnapi_prof.advice import GOOD_ENOUGH, LEAST_GAIN, Advice, Hindrance, Verified
from nnapi_prof.api import SILENT, Listener, Progress, open_client, to_log
from nnapi_prof.api.chips import profile_on_chip
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model, load
from nnapi_prof.api.plan import ModelPlan, read_plan
from nnapi_prof.api.planning import partition
from nnapi_prof.api.profiling import profile
from nnapi_prof.costs.measurement import summarise
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.costs.model.forms import formed_rows
from nnapi_prof.costs.table import Z
from nnapi_prof.device import describe, device_fingerprint
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.errors import NnapiProfError, UsageError, option_name
from nnapi_prof.execution.estimation import unit_works
from nnapi_prof.execution.objectives import AdviseOptions, Latency
from nnapi_prof.execution.profile import MeasureOptions
from nnapi_prof.execution.profile.jobs import NEWEST_LEVEL, device_targets
from nnapi_prof.graph.plan import Engine, Plan, Target
from nnapi_prof.qnn import is_qnn, one_chip
from nnapi_prof.qnn.costs import ChipCosts
from nnapi_prof.qnn.regions import Obstacle, obstacles_of
from nnapi_prof.reports import notebook

if TYPE_CHECKING:
    import pandas as pd

    from nnapi_prof.advice.search import KnownRewrite, Suggestion
    from nnapi_prof.advice.whatif import Basis
    from nnapi_prof.reports.data import ReportData

SECONDS = 30.0
"""Time limit of the search for advice; the rest of the advice then rests on costs alone."""
LOOKING, TRYING = "looking for what would help", "trying rewrites"


@dataclass(frozen=True)
class Advised:
    """Suggestions, the largest saving first; :func:`nnapi_prof.advise` finds them."""

    planned: ModelPlan
    """The plan, which keeps the advice when it is saved."""
    notes: tuple[str, ...] = ()

    @property
    def advice(self) -> tuple[Advice, ...]:
        """The suggestions, sorted by measured saving where there is one, else by predicted
        saving."""
        return self.planned.advice

    def frame(self) -> pd.DataFrame:
        """Returns one row for each suggestion: ``cause``, ``units`` (their numbers), ``rewrite``
        (None where none is known), ``code`` (PyTorch), ``accuracy``, ``saves_ms`` (predicted),
        ``margin_ms`` (half of its 95 % interval), ``measured_ms`` (the saving when it was tried,
        else NaN), ``measured_margin_ms`` and ``moved`` (largest relative change of an output)."""
        import pandas as pd

        rows = []
        for one in self.advice:
            verified = one.verified if one.verified and not one.verified.failure else None
            rows.append(
                {
                    "cause": one.cause,
                    "units": one.units,
                    "rewrite": one.rewrite.name if one.rewrite else None,
                    "code": one.rewrite.code if one.rewrite else "",
                    "accuracy": one.rewrite.accuracy if one.rewrite else "",
                    "saves_ms": one.saves_ns / 1e6,
                    "margin_ms": one.margin_ns / 1e6,
                    "measured_ms": verified.saves_ns / 1e6 if verified else float("nan"),
                    "measured_margin_ms": verified.margin_ns / 1e6 if verified else float("nan"),
                    "moved": verified.moved if verified else float("nan"),
                }
            )
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        best = f", the first saves {self.advice[0].saves_ns / 1e6:.3f} ms" if self.advice else ""
        return f"Advised({self.planned.model.name!r}, {len(self.advice)} pieces of advice{best})"

    def _repr_html_(self) -> str:
        rows = [
            [
                one.cause,
                one.remedy,
                one.rewrite.code if one.rewrite else "",
                notebook.ms(one.saves_ns),
            ]
            for one in self.advice
        ]
        kind = notebook.kind_of(self.planned.simulated, self.planned.estimated)
        return notebook.table(
            f"What would help {self.planned.model.name}",
            ["cause", "rewrite", "in PyTorch", f"saves, {kind}"],
            rows,
            numbers=(3,),
        ) + notebook.notes(self.notes)


def advise(
    plan: ModelPlan | str | os.PathLike[str],
    *,
    costs: str | os.PathLike[str] | None = None,
    device: str | AgentClient | None = None,
    tries: int = 0,
    seconds: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> Advised:
    """Finds changes that make a plan faster, ranked by their savings.

    Hindrances are operations that an accelerator refuses, segments between two of the same
    accelerator, units that constraints keep off, units that are slow for their size and changes of
    layout. For each, the plan is made again: with a known rewrite, whose new units are priced by
    measurements on the same device, or without the hindrance where no rewrite is known.

    ``plan`` is a :class:`nnapi_prof.ModelPlan` or its folder; ``costs`` is the cost table, used
    where the plan was read from a folder. The ``tries`` rewrites that save most are written into
    the model, profiled on ``device`` (None: the one that was profiled) and run whole beside the
    plan: ``verified`` has the measured saving, and how far the outputs move.
    For a ``device`` like ``"qnn:SM8750"``, and for a plan that was estimated for one, ``tries``
    (0: 3) operations are rewritten, compiled by Qualcomm's compiler and planned again.
    The search takes at most ``seconds`` (None: 30); Ctrl-C ends search and trials with the results
    so far. A ``listener`` also hears notes, and replaces ``progress``.

    Raises UsageError where costs were not measured, CostError where the table lacks the model,
    DeviceError where the device fails.
    """
    options = AdviseOptions(seconds=seconds, tries=tries or AdviseOptions.tries)
    listener = listener or to_log(progress)
    planned = plan if isinstance(plan, ModelPlan) else read_plan(plan)
    origin = None if planned.costs is None else planned.costs.origin
    chip = device if isinstance(device, str) and is_qnn(device) else None
    if chip is not None and (origin is None or one_chip(chip) != one_chip(origin.device)):
        return Advised(planned_for_chip(planned.model, chip, options.tries, listener))
    if origin is not None:
        own = advise_on_chip(planned, options.tries, listener)
        return Advised(replace(planned, advice=own))
    basis = _basis(planned, costs)
    from nnapi_prof.advice.search import ranked

    hints: list[Suggestion] = []
    verified: dict[int, Advice] = {}
    notes = planned.model.notes
    try:
        for one in _suggestions(planned, basis, options.seconds, listener):
            hints.append(one)
        if tries and hints:
            with open_client(device or planned.device_spec, listener) as client:
                _check_device(planned, client)
                trial = Trial(planned, basis, client, listener, costs)
                for at, one in enumerate(ranked(hints)[:tries]):
                    listener.progress(Progress(TRYING, at, tries, one.advice.remedy))
                    verified[at] = trial.best_of(one)
    except KeyboardInterrupt:
        notes = (*notes, INTERRUPTED)
    advice = [verified.get(at, one.advice) for at, one in enumerate(ranked(hints))]
    advice.sort(key=_rank)
    return Advised(replace(planned, advice=tuple(advice)), notes)


INTERRUPTED = "interrupted: these are the results so far"


def _check_device(planned: ModelPlan, client: AgentClient) -> None:
    """Raises UsageError where a device is not the one that the plan is for."""
    own = planned.costs.fingerprint if planned.costs else planned.bundle.fingerprint
    info = client.info()
    if own is not None and own != device_fingerprint(info):
        raise UsageError(
            f"the plan is for {planned.device}, this device is {describe(info)}",
            "try rewrites on the one that was profiled",
        )


def _rank(advice: Advice) -> float:
    """Returns the saving that suggestions are ranked by: the measured one where there is one. A
    suggestion without a known rewrite has no measurement."""
    verified = advice.verified
    if verified is None or advice.rewrite is None:
        return -advice.saves_ns
    return 0.0 if verified.failure else -verified.saves_ns


def _suggestions(
    planned: ModelPlan, basis: Basis, seconds: float | None, listener: Listener
) -> Iterator[Suggestion]:
    from nnapi_prof.advice.search import suggestions

    program = basis.program
    return suggestions(
        basis,
        seconds=SECONDS if seconds is None else seconds,
        rewriting=planned.model.mixed is None and not program.quantised,
        progress=lambda *told: listener.progress(Progress(LOOKING, *told)),
    )


def _basis(planned: ModelPlan, table: str | os.PathLike[str] | None) -> Basis:
    from nnapi_prof.advice.whatif import Basis

    if planned.costs is not None and planned.costs.measured is None:
        raise UsageError(
            "advice follows from what was measured, and these costs are estimated or your own",
            "profile() measures",
        )
    if planned.frames is not None and planned.frames.ways[0].overlaps:
        raise UsageError(
            "advice is for segments one after the other, and this plan runs branches at once",
            f"make one without {option_name('parallel')}, and ask for advice on that",
        )
    if planned.frames is not None and not planned.frames.is_serial:
        raise UsageError(
            "advice is for the latency of one frame, and this plan is for frames at once: plan one"
            " for a frame, and ask for advice on that"
        )
    data = planned.report_data(costs=table)
    return Basis(
        program=planned.model.program,
        costs=data.cost_model,
        rows=data.measurements,
        plan=planned.plan,
        levels=_levels(planned, data),
        operations_of=unit_works,
        kept_off=_kept_off(planned.plan, data.cost_model),
    )


def _levels(planned: ModelPlan, data: ReportData) -> dict[Target, int]:
    """Returns the feature level of each target, at which rewrites are lowered."""
    info = planned.costs.agent_info if planned.costs else None
    if info is not None:
        return {spec.target: spec.level for spec in device_targets(info, one_thread=True)}
    from nnapi_prof.reports.html import accelerators

    levels = {a.get("name"): a.get("feature_level") for a in accelerators(data.device_info)}
    return {
        target: min(int(levels.get(target.accelerator) or NEWEST_LEVEL), NEWEST_LEVEL)
        for target in data.cost_model.fits
    }


def _kept_off(plan: Plan, costs: CostModel) -> frozenset[int]:
    """Returns the units that constraints may keep off accelerators that can run them; none without
    constraints."""
    if plan.proof is None or not plan.proof.constrained:
        return frozenset()
    places = [target for target in costs.fits if target.engine is Engine.NNAPI]
    return frozenset(
        unit
        for segment in plan.segments
        if segment.target.engine is not Engine.NNAPI
        for unit in segment.units
        if any(costs.unit_cost(unit, target) is not None for target in places)
    )


RUNS, MORE_RUNS, MOST_S = 30, 4, 5.0
"""Runs of the original and the rewritten plan, their growth factor while the saving is not
:data:`CLEAR`, and the seconds that one plan's runs may take at most."""
CLEAR = 0.05
"""Half width of a saving's 95 % interval, as a share of the saving, below which runs suffice."""
NONE_SAVES = "measured unit by unit, none of its rewrites saves anything"
MOST_FORMS = 3
"""Rewrites of one hindrance that are tried."""


class Trial:
    """Trials of rewrites on the device."""

    def __init__(
        self,
        planned: ModelPlan,
        basis: Basis,
        client: AgentClient,
        listener: Listener,
        table: str | os.PathLike[str] | None,
    ) -> None:
        self._planned = planned
        self._basis = basis
        self._client = client
        self._listener = listener
        own = planned.costs.location if planned.costs else None
        self._table = own if table is None else table
        self._before: dict[int, _Ran] = {}

    def best_of(self, suggestion: Suggestion) -> Advice:
        """Returns the advice of a hindrance's first rewrite that saves time, else of the first.

        Units that the driver never ran are measured on their own first, for a new prediction.
        """
        options = self._priced([suggestion, *suggestion.others])
        if not options:
            return replace(suggestion.advice, verified=Verified(failure=NONE_SAVES))
        first: Advice | None = None
        for one in options[:MOST_FORMS]:
            advice = one.advice
            try:
                if one.module is not None:
                    advice = self._by_units(one)
                verified = self._measured(one)
            except NnapiProfError as error:
                verified = Verified(failure=str(error))
            advice = replace(advice, verified=verified)
            if not verified.failure and verified.saves_ns > 0:
                return advice
            first = first or advice
        return first or suggestion.advice

    def _priced(self, options: Sequence[Suggestion]) -> list[Suggestion]:
        """Returns the options whose units alone predict a saving, the nearly best first."""
        if options[0].advice.sure:
            return list(options)
        priced = []
        for one in options:
            if one.advice.sure or one.module is None:
                priced.append(one)
                continue
            try:
                advice = self._by_units(one)
            except NnapiProfError as error:
                advice = replace(one.advice, verified=Verified(failure=str(error)))
            priced.append(replace(one, advice=advice))
        helpful = [one for one in priced if one.advice.sure and one.advice.saves_ns > 0]
        most = max((one.advice.saves_ns for one in helpful), default=0.0)
        return sorted(helpful, key=lambda one: one.advice.saves_ns < GOOD_ENOUGH * most)

    def _profile(self, model: Model, refine: bool) -> Costs:
        return profile(
            model,
            self._client,
            costs=self._table,
            conditions=replace(self._planned.conditions, sustained_s=0),
            options=MeasureOptions(refine=refine),
            listener=replace(self._listener, note=lambda _: None, busy=lambda _: None),
        )

    def _by_units(self, one: Suggestion) -> Advice:
        """Returns advice predicted from the option's units, measured on their own."""
        model = self._model(one)
        costs = self._profile(model, refine=False)
        plan = partition(model, costs, verify=False).plan
        assert costs.measured is not None
        # one fit of both models' units, so that the units they share have the same error
        graph = self._basis.program.units
        basis = replace(self._basis, costs=fit(graph, formed_rows(graph, costs.measurements)))
        return replace(
            one.advice,
            after_ns=basis.predicted_ns(plan),
            margin_ns=basis.margin_ns(plan, costs.measured),
            sure=True,
        )

    def _model(self, one: Suggestion) -> Model:
        program = self._basis.program
        assert one.module is not None
        return load(one.module, list(program.example_inputs), name=self._planned.model.name)

    def _measured(self, one: Suggestion) -> Verified:
        """Runs the plan and the rewritten one whole, and returns both latencies."""
        from nnapi_prof.advice.search import moved

        if one.module is not None:
            model = self._model(one)
            costs = self._profile(model, refine=True)
            after = partition(model, costs, device=self._client, verify=False)
            change = moved(self._basis.program, one.module)
        elif one.advice.kind is Hindrance.KEPT_OFF:
            model = self._planned.model
            costs = self._profile(model, refine=True)
            units = model.graph.units
            still = self._basis.kept_off - set(one.advice.units)
            forbidden = {units[unit].name: "nnapi:*" for unit in still}
            after = partition(
                model, costs, Latency(forbid=forbidden), device=self._client, verify=False
            )
            change = None
        else:
            return Verified(failure="no rewrite is known that could be tried")
        runs = RUNS
        while True:
            was = self._before.get(runs) or self._run(self._planned, runs)
            self._before[runs] = was
            now = self._run(after, runs)
            verified = Verified(
                was.ns,
                now.ns,
                now.moved if change is None else change,
                margin_ns=Z * math.hypot(was.sigma_ns, now.sigma_ns),
            )
            runs *= MORE_RUNS
            if (
                verified.margin_ns <= CLEAR * abs(verified.saves_ns)
                or runs * max(was.ns, now.ns) > MOST_S * 1e9
            ):
                return verified

    def _run(self, planned: ModelPlan, runs: int) -> _Ran:
        from nnapi_prof.api.run import run

        result = run(planned, self._client, baselines=False, runs=runs, listener=SILENT)
        own = result.run.runs[0]
        hosted = sum(s.predicted_ns for s in own.plan.segments if s.target.engine is Engine.HOST)
        if own.error:
            raise UsageError(own.error)
        worst = max((check.relative for check in result.run.checks), default=0.0)
        if not own.total_ns:
            return _Ran(hosted, 0.0, worst)
        timed = summarise(own.total_ns)
        return _Ran(timed.median_ns + hosted, timed.sigma_of_median_ns, worst)


@dataclass(frozen=True, slots=True)
class _Ran:
    """The result of running a plan whole."""

    ns: float
    """Median latency; segments on the host count with their predictions."""
    sigma_ns: float
    """Its standard error."""
    moved: float
    """Largest relative difference of an output to eager PyTorch's."""


MOST_RULES = 3
"""Maximum number of rewrites of one operation to compile, the smallest changes first."""
COMPILING = "compiling rewrites"


def advise_on_chip(planned: ModelPlan, tries: int, listener: Listener) -> tuple[Advice, ...]:
    """Returns advice for a plan that was estimated for a chip, the largest saving first.

    Up to three rewrites of each of ``tries`` operations are written into the model and compiled for
    the chip; those that make the plan faster are returned. Raises the errors of
    :func:`nnapi_prof.api.chips.profile_on_chip`.
    """
    costs = planned.costs.priced if planned.costs else None
    assert isinstance(costs, ChipCosts)
    obstacles = list(obstacles_of(planned.model.program, costs, planned.plan))
    obstacles.sort(key=lambda one: (not one.reasons, -one.share_ns))
    advice = []
    for at, obstacle in enumerate(obstacles[:tries]):
        listener.progress(Progress(COMPILING, at, min(tries, len(obstacles)), obstacle.operation))
        best = _best(planned, obstacle, listener)
        if best is not None:
            advice.append(best)
    return tuple(sorted(advice, key=lambda one: -one.saves_ns))


def _best(planned: ModelPlan, obstacle: Obstacle, listener: Listener) -> Advice | None:
    """Compiles an operation's rewrites. Returns the smallest change among those that save about the
    most; None where none helps."""
    tried = []
    for rule in list(obstacle.rules)[:MOST_RULES]:
        advice = _compiled(planned, obstacle, rule, listener)
        if advice is not None and advice.saves_ns >= LEAST_GAIN * advice.before_ns:
            tried.append(advice)
    most = max((one.saves_ns for one in tried), default=0.0)
    return next((one for one in tried if one.saves_ns >= GOOD_ENOUGH * most), None)


def _compiled(
    planned: ModelPlan, obstacle: Obstacle, rule: KnownRewrite, listener: Listener
) -> Advice | None:
    from nnapi_prof.advice.search import rewritten

    program, costs = planned.model.program, planned.costs
    assert costs is not None and costs.origin is not None
    module = rewritten(program, dict.fromkeys(obstacle.rules[rule], rule.form))
    if module is None:
        return None
    quiet = replace(listener, note=lambda _: None, busy=lambda _: None)
    try:
        model = load(module, list(program.example_inputs), name=planned.model.name)
        after = profile_on_chip(model, costs.origin.device, quiet)
    except NnapiProfError as error:
        listener.note(f"{rule.rewrite.name} was not compiled: {error}")
        return None
    units = program.units.units
    before_ns = planned.plan.predicted_ns
    return Advice(
        kind=Hindrance.REFUSED if obstacle.reasons else Hindrance.SLOW,
        units=obstacle.units,
        labels=tuple(units[unit].label for unit in obstacle.units),
        operations=tuple(units[unit].full_operation for unit in obstacle.units),
        targets=(costs.device,),
        reasons=obstacle.reasons,
        before_ns=before_ns,
        after_ns=after.plan.predicted_ns,
        rewrite=rule.rewrite,
        estimated=True,
        margin_ns=costs.origin.calibration.tie * before_ns,
    )


def planned_for_chip(model: Model, device: str, tries: int, listener: Listener) -> ModelPlan:
    """Plans a model for a chip, with advice."""
    planned = profile_on_chip(model, device, listener).planned
    return replace(planned, advice=advise_on_chip(planned, tries, listener))
