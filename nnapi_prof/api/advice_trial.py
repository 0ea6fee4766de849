"""Try advice: rewrites are written into the model, and profiled, planned and run on a device.

For a chip, every rewrite is compiled and planned anew. A rewrite that the compiler makes by itself
saves nothing then, and is not offered.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nnapi_prof.api.chip_costs import profile_on_chip
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model, load
from nnapi_prof.api.objectives import Latency
from nnapi_prof.api.options import SILENT, Listener, Progress
from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.api.planning import partition
from nnapi_prof.api.profiling import profile
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.costs.model.forms import formed_rows
from nnapi_prof.costs.samples import summarise
from nnapi_prof.costs.table import Z
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.errors import NnapiProfError, UsageError
from nnapi_prof.execution.profile.options import MeasureOptions
from nnapi_prof.graph.advice import GOOD_ENOUGH, LEAST_GAIN, Advice, Hindrance, Verified
from nnapi_prof.graph.plan import Engine
from nnapi_prof.qnn.costs import ChipCosts
from nnapi_prof.qnn.regions import activation_groups

if TYPE_CHECKING:
    from nnapi_prof.advice.rules import KnownRewrite
    from nnapi_prof.advice.search import Suggestion
    from nnapi_prof.advice.whatif import Basis

RUNS, MORE_RUNS, MOST_S = 30, 4, 5.0
"""Of a plan that is tried, and of the one it is compared with; so many times as many where these do
not tell the saving well enough, while a plan's runs take at most so many seconds."""
CLEAR = 0.05
"""Of a saving: known well enough where the interval is narrower."""
NONE_SAVES = "measured unit by unit, none of its rewrites saves anything"
MOST_FORMS = 3
"""Rewrites of one hindrance that are tried."""


class Trial:
    """Rewrites on the device."""

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
        """The first of a hindrance's rewrites that saves anything, else the one that was first.

        What the driver was never asked is measured unit by unit first, which prices it anew.
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
        """Those whose units save something by themselves, the ones that save most first."""
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
        """Its advice by the plan that follows from its units measured alone."""
        model = self._model(one)
        costs = self._profile(model, refine=False)
        plan = partition(model, costs, verify=False).plan
        assert costs.measured is not None
        # by one fit of both models' units, so that what they share errs alike
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
        """Both plans run whole."""
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
    """A plan that was run whole."""

    ns: float
    """Median; what is on the host as it is predicted."""
    sigma_ns: float
    """Its standard error."""
    moved: float
    """Largest relative difference of an output to eager PyTorch's."""


MOST_RULES = 3
"""Rewrites of one operation that are compiled, those that change least first."""
COMPILING = "compiling rewrites"


@dataclass(frozen=True)
class _Obstacle:
    """The units of one operation that could be written otherwise."""

    operation: str
    units: tuple[int, ...]
    reasons: tuple[str, ...]
    """Why the NPU does not take them; empty where it does."""
    share_ns: float
    """What a rewrite can save at most, by the plan."""
    rules: Mapping[KnownRewrite, tuple[str, ...]]
    """Rewrite -> the nodes that it is for."""


def advise_on_chip(planned: ModelPlan, tries: int, listener: Listener) -> tuple[Advice, ...]:
    """Returns advice for a plan that was estimated for a chip, the largest saving first.

    Of ``tries`` operations up to three rewrites each are written into the model and compiled for
    the chip; those are offered that make the plan faster. Raises what
    :func:`nnapi_prof.api.chip_costs.profile_on_chip` raises.
    """
    obstacles = sorted(_obstacles(planned), key=lambda one: (not one.reasons, -one.share_ns))
    advice = []
    for at, obstacle in enumerate(obstacles[:tries]):
        listener.progress(Progress(COMPILING, at, min(tries, len(obstacles)), obstacle.operation))
        best = _best(planned, obstacle, listener)
        if best is not None:
            advice.append(best)
    return tuple(sorted(advice, key=lambda one: -one.saves_ns))


def _obstacles(planned: ModelPlan) -> Iterator[_Obstacle]:
    from nnapi_prof.advice.rules import rules_for
    from nnapi_prof.advice.search import names_of

    assert planned.costs is not None and isinstance(planned.costs.priced, ChipCosts)
    costs, program = planned.costs.priced, planned.model.program
    assert costs.npu is not None
    graph, leader = program.units, activation_groups(program.units)
    target = {unit: s.target for s in planned.plan.segments for unit in s.units}
    operations: dict[str, list[int]] = {}
    for unit in graph.units:
        operations.setdefault(unit.kind, []).append(unit.index)
    for operation, units in operations.items():
        rules: dict[KnownRewrite, tuple[str, ...]] = {}
        for name in names_of(program, units):
            for rule in rules_for(program.nodes[name].target):
                rules[rule] = (*rules.get(rule, ()), name)
        why = {
            costs.refusals[u, costs.npu]: None for u in units if (u, costs.npu) in costs.refusals
        }
        share = sum(
            costs.unit_cost(unit, target[unit]) or 0.0
            for unit in {group for unit in units for group in (unit, leader[unit])}
        )
        if rules and (why or share >= LEAST_GAIN * planned.plan.predicted_ns):
            yield _Obstacle(operation, tuple(units), tuple(why), share, rules)


def _best(planned: ModelPlan, obstacle: _Obstacle, listener: Listener) -> Advice | None:
    """Compiles an operation's rewrites, and takes of those that save most the one that changes
    least; None where none helps."""
    tried = []
    for rule in list(obstacle.rules)[:MOST_RULES]:
        advice = _compiled(planned, obstacle, rule, listener)
        if advice is not None and advice.saves_ns >= LEAST_GAIN * advice.before_ns:
            tried.append(advice)
    most = max((one.saves_ns for one in tried), default=0.0)
    return next((one for one in tried if one.saves_ns >= GOOD_ENOUGH * most), None)


def _compiled(
    planned: ModelPlan, obstacle: _Obstacle, rule: KnownRewrite, listener: Listener
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
