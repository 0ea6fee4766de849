"""Finds the part of a model that prevents a faster plan, and another way to write it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nnapi_prof.api import notebook
from nnapi_prof.api.advice_trial import Trial
from nnapi_prof.api.objectives import AdviseOptions
from nnapi_prof.api.options import Listener, Progress, open_client, to_log
from nnapi_prof.api.plan import ModelPlan, read_plan
from nnapi_prof.api.program_costs import unit_works
from nnapi_prof.costs.model.region import CostModel
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.description import describe, device_fingerprint
from nnapi_prof.errors import UsageError, option_name
from nnapi_prof.execution.profile.jobs import NEWEST_LEVEL, device_targets
from nnapi_prof.graph.advice import Advice
from nnapi_prof.graph.plan import Engine, Plan, Target
from nnapi_prof.options import number
from nnapi_prof.qnn.chips import is_qnn, one_chip

if TYPE_CHECKING:
    import pandas as pd

    from nnapi_prof.advice.search import Suggestion
    from nnapi_prof.advice.whatif import Basis
    from nnapi_prof.reports.data import ReportData

SECONDS = 30.0
"""Looking for advice may take; what was not looked at then is told by costs alone."""
TRIES = 3
"""Rewrites that are tried, of those that save most."""
MOST_TRIES = 100
LOOKING, TRYING = "looking for what would help", "trying rewrites"


@dataclass(frozen=True)
class Advised:
    """Suggestions, the largest saving first; :func:`nnapi_prof.advise` finds them."""

    planned: ModelPlan
    """The plan, which keeps the advice when it is saved."""
    notes: tuple[str, ...] = ()

    @property
    def advice(self) -> tuple[Advice, ...]:
        """The suggestions. The measured saving counts where there is one, else the predicted
        one."""
        return self.planned.advice

    def frame(self) -> pd.DataFrame:
        """One row for each: ``cause``, ``units`` (their numbers), ``rewrite`` (None where none is
        known), ``code`` (PyTorch), ``accuracy``, ``saves_ms`` (predicted), ``margin_ms`` (half of
        its 95 % interval), ``measured_ms`` (what it saved when it was tried, NaN where it was not),
        ``measured_margin_ms`` and ``moved`` (largest change of an output,
        relative)."""
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
    """Finds what would make a plan faster, ranked by what it would save.

    For each operation that an accelerator refuses, each segment that divides an accelerator's, each
    unit that constraints keep off, each that is slow for its size and each change of layout, the
    plan is made again as if it were otherwise: with a known rewrite of it, whose new units are
    priced by what the same device ran, or without the hindrance where none is known.

    ``plan`` is a :class:`nnapi_prof.ModelPlan` or the folder of one; ``costs`` the cost table,
    asked where the plan was read from a folder. With ``tries`` so many of the rewrites that save
    most are written into the model, profiled on ``device`` (None: the one that was profiled) and
    run whole beside the plan: ``verified`` says what they saved, and how far they move the outputs.
    For a ``device`` like ``"qnn:SM8750"``, and for a plan that was estimated for one, Qualcomm's
    compiler is asked: ``tries`` (0: 3) operations are written otherwise, compiled and planned anew.
    Looking takes ``seconds`` at most (None: 30); Ctrl-C ends it, and trying, with what is there
    until then. A ``listener`` hears notes, too, in place of ``progress``.

    Raises UsageError where costs were not measured, CostError where the table lacks the model,
    DeviceError where the device fails.
    """
    number("tries", tries, 0, MOST_TRIES)
    seconds = AdviseOptions(seconds=seconds).seconds
    listener = listener or to_log(progress)
    planned = plan if isinstance(plan, ModelPlan) else read_plan(plan)
    origin = None if planned.costs is None else planned.costs.origin
    chip = device if isinstance(device, str) and is_qnn(device) else None
    if chip is not None and (origin is None or one_chip(chip) != one_chip(origin.device)):
        from nnapi_prof.api.advice_trial import planned_for_chip

        return Advised(planned_for_chip(planned.model, chip, tries or TRIES, listener))
    if origin is not None:
        from nnapi_prof.api.advice_trial import advise_on_chip

        own = advise_on_chip(planned, tries or TRIES, listener)
        return Advised(replace(planned, advice=own))
    basis = _basis(planned, costs)
    from nnapi_prof.advice.search import ranked

    options: list[Suggestion] = []
    verified: dict[int, Advice] = {}
    notes = planned.model.notes
    try:
        for one in _suggestions(planned, basis, seconds, listener):
            options.append(one)
        if tries and options:
            with open_client(device or planned.device_spec, listener) as client:
                _check_device(planned, client)
                trial = Trial(planned, basis, client, listener, costs)
                for at, one in enumerate(ranked(options)[:tries]):
                    listener.progress(Progress(TRYING, at, tries, one.advice.remedy))
                    verified[at] = trial.best_of(one)
    except KeyboardInterrupt:
        notes = (*notes, INTERRUPTED)
    advice = [verified.get(at, one.advice) for at, one in enumerate(ranked(options))]
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
    """Feature levels to lower for."""
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
    """Units that constraints may keep off accelerators that run them; none without constraints."""
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
