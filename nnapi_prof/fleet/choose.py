"""Few plans for many phones, chosen by regret, in one bundle that picks a phone's plan."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from nnapi_prof.api import Listener, Progress, to_log
from nnapi_prof.api.cost_tables import read_costs
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model, as_model
from nnapi_prof.costs import ConditionOptions
from nnapi_prof.costs.model.views import with_intervals
from nnapi_prof.costs.store import CostStore, Measured, find, measured
from nnapi_prof.device import description_parts
from nnapi_prof.errors import CostError, UsageError, option_name
from nnapi_prof.execution.build import names_of
from nnapi_prof.fleet import FleetOptions
from nnapi_prof.fleet.plans import (
    Fleet,
    FleetPhone,
    cannot_convert,
    fleet_levels,
    half_ns,
    info_of,
    is_cpu,
    representative,
    useful_targets,
)
from nnapi_prof.graph.plan import BaselineName, Plan, Rule
from nnapi_prof.partition import SearchLimits, make_problem, plan_of_placements
from nnapi_prof.partition.baselines import find_baselines
from nnapi_prof.partition.fleet import FleetObjective, Matrix
from nnapi_prof.partition.fleet_search import SECONDS, FleetPlan, FleetSearch, plan_fleet
from nnapi_prof.partition.problem import Problem
from nnapi_prof.reports.words import count

_STEPS = {
    "phones": "finding each phone's own plan",
    "groups": "finding plans for groups of phones",
    "choices": "choosing plans",
}


def fleet(
    model: Model | str | os.PathLike[str],
    costs: Sequence[Costs] | Mapping[str, Costs],
    *,
    k: int = FleetOptions().k,
    objective: Literal["mean", "worst"] = "mean",
    weights: Sequence[float] | Mapping[str, float] | None = None,
    seconds: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> Fleet:
    """Chooses at most ``k`` plans of a model that are good on many phones.

    ``costs`` are the model's on each phone, in one precision and under the same conditions, except
    for the number of threads, from :func:`nnapi_prof.profile`, :func:`nnapi_prof.read_costs` or
    :func:`nnapi_prof.estimate`; a mapping names the phones. The regret of a plan on a phone is its
    latency divided by the lowest one known there, minus one; ``objective`` minimises the mean or
    the worst regret. ``weights`` are those of the phones (None: all equal), in order or by name, in
    any unit. The search may take ``seconds`` (None: 120); Ctrl-C ends it with the best choice so
    far. ``progress`` and ``listener`` are those of :func:`nnapi_prof.profile`.

    Raises UsageError for an invalid argument, PartitionError where no ``k`` plans serve all phones.
    """
    listener = listener or to_log(progress)
    chosen = as_model(model)
    FleetOptions(k=k, objective=objective, seconds=seconds)
    named = _name_costs(costs)
    _check_costs(chosen, list(named.values()))
    every = list(named.values())
    share = _phone_shares(named, weights)
    full = [make_problem(chosen.graph, each.table) for each in every]
    problems = useful_targets(every, full)
    infos = [info_of(each) for each in every]
    levels = fleet_levels(infos)

    def told(step: str, done: int, total: int) -> None:
        listener.progress(Progress(_STEPS[step], done, total, ""))

    search, unfit = None, set[FleetPlan]()
    while search is None or any(p in unfit for p in _chosen(search)):
        search = plan_fleet(
            problems,
            int(k),
            objective=FleetObjective(objective),
            weights=share.tolist(),
            limits=SearchLimits(),
            seconds=SECONDS if seconds is None else seconds,
            report=told,
            without=unfit,
        )
        unfit |= {
            plan
            for plan in _chosen(search)
            if cannot_convert(lambda: chosen.program, plan, levels, infos)
        }
    return _fleet(chosen, named, problems, share, FleetObjective(objective), search, len(unfit))


def _chosen(search: FleetSearch) -> list[FleetPlan]:
    return [search.plans[plan] for plan in search.choices[-1].plans]


def _fleet(
    model: Model,
    named: Mapping[str, Costs],
    problems: Sequence[Problem],
    share: Matrix,
    objective: FleetObjective,
    search: FleetSearch,
    n_unfit: int,
) -> Fleet:
    """Makes a fleet of the result of the search."""
    choice, every = search.choices[-1], list(named.values())
    rank = {plan: number for number, plan in enumerate(choice.plans)}
    plan_of = [rank[plan] for plan in choice.plan_of]
    phones, plans = [], []
    for phone, (name, costs) in enumerate(named.items()):
        own = search.plans[choice.plan_of[phone]]
        cpu = find_baselines(problems[phone])[0]
        phones.append(
            FleetPhone(
                name=name,
                device=costs.device,
                fingerprint=costs.fingerprint or "",
                weight=float(share[phone]),
                plan=plan_of[phone],
                predicted_ns=float(search.latency_ns[choice.plan_of[phone], phone]),
                half_ns=half_ns(costs, problems[phone], own),
                least_ns=float(search.least_ns[phone]),
                all_cpu_ns=cpu.predicted_ns,
                names=names_of(info_of(costs)),
                simulated=costs.simulated,
                estimated=costs.estimated,
            )
        )
    for phone, index in enumerate(choice.plans):
        place = representative(plan_of, share.tolist(), phone)
        plans.append(_plan_for_phone(search.plans[index], problems[place], every[place], phone))
    notes = []
    if search.interrupted:
        notes.append("the search was ended early: these are the best plans until then")
    if n_unfit:
        notes.append(
            f"{count(n_unfit, 'plan')} that would have been chosen cannot be converted for the"
            " lowest feature level of the phones with its accelerators, and was left out"
        )
    return Fleet(model, tuple(phones), tuple(plans), objective, search, tuple(every), tuple(notes))


def _plan_for_phone(segments: FleetPlan, problem: Problem, costs: Costs, number: int) -> Plan:
    """Returns one of the plans, with the latencies of one phone."""
    placements = [(units, problem.target_index(target)) for units, target in segments]
    plan = plan_of_placements(problem, placements, name=f"plan-{number + 1}")
    if is_cpu(plan):
        plan = replace(plan, name=str(BaselineName(Rule.ALL_CPU)))
    plan = plan.with_note(f"latencies are predicted for {description_parts(costs.device)[0]}")
    return plan if costs.measured is None else with_intervals(plan, costs.measured)


def _name_costs(costs: Sequence[Costs] | Mapping[str, Costs]) -> dict[str, Costs]:
    """Returns the costs with unique names."""
    if isinstance(costs, Mapping):
        return dict(costs)
    named: dict[str, Costs] = {}
    for each in costs:
        if not isinstance(each, Costs):
            raise UsageError(f"costs are a {type(each).__name__}: those of profile() are required")
        name = description_parts(each.device)[0]
        alike = sum(other.partition(", no. ")[0] == name for other in named)
        named[f"{name}, no. {alike + 1}" if alike else name] = each
    return named


def _check_costs(model: Model, costs: Sequence[Costs]) -> None:
    if not costs:
        raise UsageError("a fleet has at least one phone", "pass costs of some")
    for each in costs:
        if not isinstance(each, Costs):
            raise UsageError(f"costs are a {type(each).__name__}: those of profile() are required")
        if each.model.graph != model.graph:
            raise UsageError(f"these costs are of {each.model!r}, not of {model!r}", "profile it")
        if each.objective is not None or each.calibration is not None:
            raise UsageError("plans for a fleet are chosen by latency in one precision")
        own, other = (replace(c.conditions, threads=1).options for c in (costs[0], each))
        if own != other:
            raise UsageError(
                f"the costs are under different conditions ({own!r} and {other!r}): a bundle runs"
                " under one"
            )


def _phone_shares(
    named: Mapping[str, Costs], weights: Sequence[float] | Mapping[str, float] | None
) -> Matrix:
    if isinstance(weights, Mapping):
        unknown = sorted(set(weights) - set(named))
        if unknown:
            raise UsageError(f"a weight is for {unknown[0]!r}: there are {', '.join(named)}")
        weights = [weights.get(name, 0.0) for name in named]
    share = np.ones(len(named)) if weights is None else np.asarray(list(weights), dtype=np.float64)
    if len(share) != len(named) or not np.isfinite(share).all() or (share < 0).any():
        raise UsageError(f"weights are {len(named)} numbers of at least 0")
    if not share.any():
        raise UsageError("the weight of some phone is above 0")
    return np.asarray(share / share.sum(), dtype=np.float64)


# The costs of a model on several phones of one cost table.

EVERY = "*"


def costs_of_phones(
    model: Model,
    store: CostStore,
    patterns: Sequence[str],
    conditions: ConditionOptions,
    listener: Listener,
) -> dict[str, Costs]:
    """Reads the costs on each phone that matches a pattern, by unique names.

    Patterns are those of :func:`nnapi_prof.costs.store.find`; without any, all phones match. Phones
    on which the model was not measured under these ``conditions`` are left out with a note.

    Raises UsageError where a pattern matches no phone, CostError where no phone is left.
    """
    there = measured(store)
    phones = {
        each.fingerprint: each for words in patterns or [EVERY] for each in find(there, words)
    }
    costs: dict[str, Costs] = {}
    missing: list[str] = []
    reason = ""
    for done, phone in enumerate(phones.values()):
        listener.progress(Progress("reading costs", done, len(phones), phone.name))
        try:
            one = read_costs(model, store, phone.fingerprint, conditions=conditions)
        except CostError as error:
            missing.append(phone.name)
            reason = reason or str(error)
            continue
        costs[_phone_name(phone, costs)] = one
    if not costs:
        raise CostError(
            f"the model was measured on none of {len(phones)} phones; on {missing[0]}: {reason}"
        )
    if missing:
        shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        listener.note(f"left out, for the model was not measured there: {shown}")
    return costs


def _phone_name(phone: Measured, others: Mapping[str, Costs]) -> str:
    """Returns a phone's name, with its fingerprint where another phone has the same name."""
    return f"{phone.name} {phone.fingerprint}" if phone.name in others else phone.name


def weights_of(costs: Mapping[str, Costs], stated: Sequence[str]) -> list[float] | None:
    """Returns the weight of each phone from ``PATTERN=NUMBER``, 1 where no pattern matches; None
    where no weight is stated. Raises UsageError."""
    if not stated:
        return None
    weights = dict.fromkeys(costs, 1.0)
    for text in stated:
        words, _, number = text.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not words or not 0 <= weight < math.inf:
            raise UsageError(
                f"{option_name('weight')} {text!r}: a pattern of phones and a number of at least 0"
                " are required, as `pixel*=3`"
            )
        listed = [
            Measured(each.fingerprint or "", name, each.simulated, 0, {}, {}, (), "", "")
            for name, each in costs.items()
        ]
        for each in find(listed, words):
            weights[each.name] = weight
    return list(weights.values())
