"""A choice of plans for many phones as a bundle: names, feature levels, the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model
from nnapi_prof.bundle import Bundle, accelerators_of
from nnapi_prof.bundle.plan_set import OTHERS, PhoneTraits, PlanChoice, PlanSet, SelectionRule
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.costs.model.forms import Forms, ProductForm, place_of
from nnapi_prof.costs.model.views import half_interval_ns
from nnapi_prof.costs.table import drop_dominated_targets
from nnapi_prof.device import described_info
from nnapi_prof.device.protocol import AgentInfo
from nnapi_prof.errors import UnsupportedOp, UsageError
from nnapi_prof.execution.build import bundle_of, levels_of, save_bundle, with_open_sizes
from nnapi_prof.graph.plan import Engine, Plan, Segment, Target
from nnapi_prof.graph.program import Program
from nnapi_prof.partition import baselines, make_problem
from nnapi_prof.partition.fleet import FleetChoice, FleetObjective, Matrix
from nnapi_prof.partition.fleet_search import FleetPlan, FleetSearch, latency_of
from nnapi_prof.partition.problem import Problem
from nnapi_prof.reports import notebook
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    import pandas as pd


def info_of(costs: Costs) -> AgentInfo | None:
    """Returns the information about the device of these costs; None where the device was only
    described by its latencies."""
    if costs.agent_info is not None:
        return costs.agent_info
    if not costs.device_info:
        return None
    return described_info(costs.device_info, costs.simulated)


def useful_targets(costs: Sequence[Costs], problems: Sequence[Problem]) -> list[Problem]:
    """Returns the problems without targets that are useless on all of the phones."""
    useful: set[Target] = set()
    for each, problem in zip(costs, problems, strict=True):
        if each.measured is not None:
            useful |= set(drop_dominated_targets(each.base_table).targets)
        else:
            useful |= set(_undominated(problem))
    return [_only(problem, useful) for problem in problems]


def _undominated(problem: Problem) -> list[Target]:
    """Lists the targets of a problem without measured regions, except those that another preference
    of the same accelerator beats everywhere."""
    order = sorted(range(len(problem.targets)), key=lambda k: float(problem.unit_ns[:, k].min()))
    alive: list[int] = []
    for k in order:
        rivals = [
            r for r in alive if problem.targets[r].accelerator == problem.targets[k].accelerator
        ]
        if problem.region_ns or not any(_as_fast(problem, r, k) for r in rivals):
            alive.append(k)
    return [problem.targets[k] for k in alive]


def _as_fast(problem: Problem, k: int, other: int) -> bool:
    prices = (problem.overhead_ns, problem.in_ns_per_byte, problem.out_ns_per_byte)
    return (
        problem.targets[k].engine is Engine.NNAPI
        and bool((problem.unit_ns[:, k] <= problem.unit_ns[:, other]).all())
        and all(price[k] <= price[other] for price in prices)
    )


def _only(problem: Problem, targets: set[Target]) -> Problem:
    places = [k for k, target in enumerate(problem.targets) if target in targets]
    index = {k: i for i, k in enumerate(places)}
    return Problem(
        labels=problem.labels,
        predecessors=problem.predecessors,
        values=problem.values,
        targets=tuple(problem.targets[k] for k in places),
        unit_ns=problem.unit_ns[:, places],
        overhead_ns=problem.overhead_ns[places],
        in_ns_per_byte=problem.in_ns_per_byte[places],
        out_ns_per_byte=problem.out_ns_per_byte[places],
        region_ns={
            (units, index[k]): ns for (units, k), ns in problem.region_ns.items() if k in index
        },
        estimated=None if problem.estimated is None else problem.estimated[:, places],
        refusals={(u, index[k]): why for (u, k), why in problem.refusals.items() if k in index},
        formats=None if problem.formats is None else problem.formats[places],
    )


def fleet_levels(infos: Sequence[AgentInfo | None]) -> dict[str, int]:
    """Returns key of each target -> the feature level that all phones with that target support."""
    levels: dict[str, int] = {}
    for info in infos:
        if info is not None:
            for key, level in levels_of(info).items():
                levels[key] = min(level, levels.get(key, level))
    return levels


def cannot_convert(
    program: Callable[[], Program],
    plan: FleetPlan,
    levels: Mapping[str, int],
    infos: Sequence[AgentInfo | None],
) -> bool:
    """Returns whether some region of a plan cannot be converted at the phones' common feature
    level. Only checked where this is below a phone's own level, at which it can be converted."""
    own = [levels_of(info) for info in infos if info is not None]
    for units, target in plan:
        key = target.base.key
        level = levels.get(key)
        if level is None or all(each.get(key, level) == level for each in own):
            continue
        try:
            convert_region(program(), units, level)
        except UnsupportedOp:
            return True
    return False


def half_ns(costs: Costs, problem: Problem, plan: FleetPlan) -> float:
    """Returns half of the 95 % interval of a plan's predicted latency on a phone, in ns; nan where
    it is unknown."""
    if costs.measured is None or any(target not in problem.targets for _, target in plan):
        return float("nan")
    segments = [
        Segment(
            units,
            target,
            problem.segment_ns(units, problem.target_index(target)),
            "",
            measured=(frozenset(units), problem.target_index(target)) in problem.region_ns,
            estimated=problem.is_estimated(units, problem.target_index(target)),
        )
        for units, target in plan
    ]
    return half_interval_ns(segments, costs.measured)


def plan_set_of(
    plans: Sequence[Plan],
    phones: Sequence[PhoneTraits],
    regret: Matrix,
    share: Matrix,
    objective: FleetObjective,
    made_for: Sequence[tuple[str, str, float]],
    others: int,
    threads: Sequence[int],
) -> PlanSet:
    """Returns the set by which a bundle with these plans chooses one for a phone.

    ``regret`` is [plans, phones], ``share`` the phones' weights. A name that several phones share
    gets the plan that is the best on these together; all other phones run ``others``. ``made_for``
    has each plan's device, for people and in cost tables, and the latency of the CPU alone there in
    ns. ``threads`` is that of the CPU on each phone; a name that several phones share gets that of
    the phone with most weight.
    """
    holders: dict[str, list[int]] = {}
    for number, phone in enumerate(phones):
        for key in phone.keys:
            holders.setdefault(key, []).append(number)
    keys: list[list[str]] = [[] for _ in plans]
    for key, numbers in holders.items():
        part = regret[:, numbers]
        if objective is FleetObjective.MEAN:
            weights = share[numbers] if share[numbers].any() else np.ones(len(numbers))
            value = part[:, weights > 0] @ weights[weights > 0]
        else:
            value = part.max(axis=1)
        keys[int(value.argmin())].append(key)
    keys[others].append(OTHERS)
    choices = []
    for number, plan in enumerate(plans):
        device, fingerprint, all_cpu_ns = made_for[number]
        choices.append(
            PlanChoice(
                number,
                keys=tuple(keys[number]),
                accelerators=tuple(sorted(accelerators_of(plan))),
                device=device,
                fingerprint=fingerprint,
                all_cpu_ns=all_cpu_ns,
                threads={
                    key: threads[max(holders[key], key=lambda n: float(share[n]))]
                    for key in keys[number]
                    if key != OTHERS
                },
            )
        )
    return PlanSet(SelectionRule.PHONES, tuple(choices))


@dataclass(frozen=True)
class FleetPhone:
    """One phone of a fleet, its plan and its regret."""

    name: str
    """Unique name, for people."""
    device: str
    """The phone's name, as :attr:`Costs.device`."""
    fingerprint: str
    """The phone's key in cost tables; empty where it is in none."""
    weight: float
    """Its share of the fleet; the sum is 1."""
    plan: int
    """Index in :attr:`Fleet.plans` of the fastest plan there."""
    predicted_ns: float
    half_ns: float
    """Half of the 95 % interval of the predicted latency; nan where it rests on estimates."""
    least_ns: float
    """Latency of the best plan known for this phone alone."""
    all_cpu_ns: float
    names: PhoneTraits
    """The traits by which a bundle recognises it."""
    simulated: bool
    estimated: bool

    @property
    def regret(self) -> float:
        """Relative slow-down against the best plan known for it alone: 0.1 is 10 %."""
        return self.predicted_ns / self.least_ns - 1


@dataclass(frozen=True)
class Fleet:
    """Few plans of a model, and the plan of each phone; :func:`nnapi_prof.fleet` makes one.

    :meth:`save` writes the bundle for ``nnapi-prof run`` and the library for apps.
    """

    model: Model
    phones: tuple[FleetPhone, ...]
    plans: tuple[Plan, ...] = field(repr=False)
    """The plans, those with most weight first; each has predictions for one phone that uses it,
    which its notes name."""
    objective: FleetObjective
    search: FleetSearch = field(repr=False)
    costs: tuple[Costs, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def choice(self) -> FleetChoice:
        """The choice of the search that has the plans."""
        return self.search.choices[-1]

    @property
    def mean_regret(self) -> float:
        """Mean regret of a phone drawn by the weights: 0.02 is 2 %."""
        return self.choice.mean

    @property
    def worst_regret(self) -> float:
        """Largest regret among phones whose weight is above 0."""
        return self.choice.worst

    @property
    def mean_half(self) -> float:
        """Half of the 95 % interval of :attr:`mean_regret`, if the errors of phones are
        independent; nan where it rests on estimates."""
        parts = [phone.weight * phone.half_ns / phone.least_ns for phone in self.phones]
        return float(np.sqrt(np.square(parts).sum()))

    @property
    def simulated(self) -> bool:
        """Whether some of its latencies are those of simulated phones."""
        return any(phone.simulated for phone in self.phones)

    @property
    def estimated(self) -> bool:
        """Whether some of its latencies are estimates."""
        return any(phone.estimated for phone in self.phones)

    def frame(self) -> pd.DataFrame:
        """Returns one row for each phone: ``phone``, ``weight``, ``plan``, ``predicted_ms``,
        ``low_ms``, ``high_ms`` (95 % interval, NaN where it is estimated), ``least_ms`` (of its own
        best plan), ``all_cpu_ms``, ``regret``, ``simulated``, ``estimated``."""
        import pandas as pd

        rows = [
            {
                "phone": phone.name,
                "weight": phone.weight,
                "plan": self.plans[phone.plan].name,
                "predicted_ms": phone.predicted_ns / 1e6,
                "low_ms": max(0.0, phone.predicted_ns - phone.half_ns) / 1e6
                if phone.half_ns == phone.half_ns
                else float("nan"),
                "high_ms": (phone.predicted_ns + phone.half_ns) / 1e6,
                "least_ms": phone.least_ns / 1e6,
                "all_cpu_ms": phone.all_cpu_ns / 1e6,
                "regret": phone.regret,
                "simulated": phone.simulated,
                "estimated": phone.estimated,
            }
            for phone in self.phones
        ]
        return pd.DataFrame(rows)

    def curve(self) -> pd.DataFrame:
        """Returns one row for each number of plans: ``k``, ``plans`` (how many of them are used),
        ``mean`` and ``worst`` regret, ``bound`` (lower bound of the objective for any ``k`` of the
        candidates)."""
        import pandas as pd

        rows = [
            {
                "k": number,
                "plans": len(choice.plans),
                "mean": choice.mean,
                "worst": choice.worst,
                "bound": choice.bound,
            }
            for number, choice in enumerate(self.search.choices, 1)
        ]
        return pd.DataFrame(rows)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the plans, their regions and the model to a folder, and returns its path. An
        existing bundle is replaced. Raises UsageError where it cannot be written."""
        folder = Path(path)
        save_bundle(folder, self.bundle, self.model.path)
        return folder

    @cached_property
    def bundle(self) -> Bundle:
        """The plans with their regions, at feature levels that all phones which use them support.

        Raises UsageError for a phone of which only latencies are known.
        """
        infos = [info_of(costs) for costs in self.costs]
        places = [self._representative(number) for number in range(len(self.plans))]
        plans, made_for = [*self.plans], [self._made_for(place) for place in places]
        chosen = [self.search.plans[plan] for plan in self.choice.plans]
        on_cpu = next((n for n, plan in enumerate(plans) if is_cpu(plan)), None)
        if on_cpu is None:
            problem = make_problem(self.model.graph, self.costs[places[0]].table)
            cpu = baselines(problem)[0]
            plans.append(cpu)
            made_for.append(made_for[0])
            chosen.append(tuple((s.units, s.target) for s in cpu.segments))
            on_cpu = len(plans) - 1
        levels = fleet_levels(infos)
        for phone, plan in enumerate(p.plan for p in self.phones):
            unknown = [t for t in _targets(plans[plan]) if t.base.key not in levels]
            if unknown or (infos[phone] is None and phone == places[0]):
                raise UsageError(
                    f"{self.phones[phone].name} has only latencies, so its plan cannot be"
                    " converted",
                    "profile() phones, or read_costs() from a table",
                )
        info = infos[places[0]]
        assert info is not None
        rows = np.array([self._latencies(plan) for plan in chosen]) / self.search.least_ns - 1
        plan_set = plan_set_of(
            plans,
            [phone.names for phone in self.phones],
            rows,
            np.array([phone.weight for phone in self.phones]),
            self.objective,
            made_for,
            on_cpu,
            [costs.conditions.threads for costs in self.costs],
        )
        bundle = bundle_of(
            self.model.program,
            f"model{self.model.path.suffix}",
            info,
            tuple(plans),
            self.costs[places[0]].conditions,
            (*self.model.notes, *self.notes),
            forms=self._forms,
            levels=levels,
        )
        return with_open_sizes(replace(bundle, plan_set=plan_set), self.model.inputs)

    @property
    def _forms(self) -> Forms:
        """The forms of products on accelerators for which all phones have the same: a bundle has
        one model for all accelerators of one name. Elsewhere products keep the usual form."""
        own: dict[str, list[Mapping[int, ProductForm]]] = {}
        for costs in self.costs:
            for place in {place_of(target) for target in costs.table.targets}:
                own.setdefault(place, []).append(costs.forms.get(place, {}))
        return {
            place: first
            for place, (first, *others) in own.items()
            if first and all(other == first for other in others)
        }

    def _latencies(self, plan: FleetPlan) -> list[float]:
        if plan in self.search.plans:
            row = self.search.latency_ns[self.search.plans.index(plan)]
            return [float(ns) for ns in row]
        return [latency_of(make_problem(self.model.graph, c.table), plan) for c in self.costs]

    def _representative(self, plan: int) -> int:
        """Returns the phone for which a plan has predictions."""
        return representative([p.plan for p in self.phones], [p.weight for p in self.phones], plan)

    def _made_for(self, number: int) -> tuple[str, str, float]:
        phone = self.phones[number]
        return phone.device, phone.fingerprint, phone.all_cpu_ns

    def __repr__(self) -> str:
        kind = notebook.kind_of(self.simulated, self.estimated)
        return (
            f"Fleet({self.model.name!r}, {count(len(self.plans), 'plan')} for"
            f" {count(len(self.phones), 'phone')}, mean regret {self.mean_regret:.2%}, worst"
            f" {self.worst_regret:.2%}, {kind})"
        )

    def _repr_html_(self) -> str:
        kind = notebook.kind_of(self.simulated, self.estimated)
        rows = [
            [
                str(row["phone"]),
                str(row["plan"]),
                f"{row['predicted_ms']:.3f}",
                f"{row['least_ms']:.3f}",
                f"{row['regret']:.2%}",
            ]
            for row in self.frame().to_dict("records")
        ]
        curve = [
            [str(row["k"]), f"{row['mean']:.2%}", f"{row['worst']:.2%}"]
            for row in self.curve().to_dict("records")
        ]
        return (
            notebook.table(
                f"{self.model.name}: {count(len(self.plans), 'plan')} for the fleet",
                ["phone", "plan", f"latency, {kind}", "with its own best plan", "regret"],
                rows,
                numbers=(2, 3, 4),
            )
            + notebook.table(
                "Regret by the number of plans", ["plans", "mean", "worst"], curve, numbers=(1, 2)
            )
            + notebook.notes(self.notes)
        )


def _targets(plan: Plan) -> set[Target]:
    """Returns the targets that regions are converted for."""
    return {s.target for s in plan.segments if s.target.engine is not Engine.HOST}


def is_cpu(plan: Plan) -> bool:
    """Returns whether a plan uses no accelerator."""
    return all(segment.target.engine is not Engine.NNAPI for segment in plan.segments)


def representative(plan_of: Sequence[int], share: Sequence[float], plan: int) -> int:
    """Returns the phone with most weight among those that use a plan."""
    users = [number for number, own in enumerate(plan_of) if own == plan]
    return max(users, key=lambda number: share[number])
