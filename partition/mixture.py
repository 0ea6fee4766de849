"""Find the most frames per second: a mixture of plans, by column generation, with its proof.

With many frames in flight, frames need not share one plan. For plans j with loads L_ij of the
lanes, the best mixture is the linear programme

    minimise sum over sets S of lanes of time_S
    so that  sum over S with i in it of time_S / slowdown_i(S) >= sum_j share_j L_ij  (each lane i)
             sum_j share_j = 1

Its columns, the plans, are generated: given the lane prices of its solution, the plan of least
priced load is the answer of the serial search to :func:`.lanes.priced`. For any prices under which
no set of lanes earns more than 1 per ns, no mixture of any plans takes less than the least priced
load of a plan. The search *bounds* that load; the largest bound over all rounds is the proof (P. C.
Gilmore, R. E. Gomory, Oper. Res. 9, 1961; A. A. Farley, Oper. Res. 38, 1990). A mixture needs no
more plans than there are lanes.

Where the search for one plan takes seconds, a search for every column is too expensive. The linear
relaxation of the same problem (:mod:`.search.relaxation`) takes a tenth of a second; with the lane
prices that are best for it, only a few searches remain. Its bounds hold for mixtures, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linprog

from nnapi_prof.partition.arrays import Floats
from nnapi_prof.partition.baselines import merge_by_target
from nnapi_prof.partition.lanes import Lanes, loads_of, priced
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.search import Plan, SearchResult, Watch
from nnapi_prof.partition.search.anytime import PATIENCE, search
from nnapi_prof.partition.search.relaxation import relax

MOST_DUAL_ROUNDS = 25
CLOSE = 1e-4
"""Relative gap of the relaxed mixture below which no further round is run."""
DUAL_SHARE_OF_TIME = 0.3
"""Largest share of the remaining time for the prices."""

Mix = Callable[[Sequence[Floats]], tuple[float, Floats]]
"""Loads of plans -> the least time of a mixture of these, and the prices that prove it."""


def lp_lane_duals(
    problem: Problem,
    lanes: Lanes,
    loads: Sequence[Floats],
    mix: Mix,
    offer: Callable[[Sequence[Placement]], object],
    watch: Watch,
) -> tuple[Floats, float] | None:
    """Returns the prices of the highest bound of the relaxation, and that bound, in ns; None where
    no relaxation was solved.

    ``loads`` are those of known plans; ``offer`` receives the plans that relaxations round to.
    """
    ends = watch.elapsed_s + watch.seconds_left * DUAL_SHARE_OF_TIME
    points = list(loads)
    best: tuple[Floats, float] | None = None
    runs = np.isfinite(problem.unit_ns)
    for _ in range(MOST_DUAL_ROUNDS):
        ns, prices = mix(points)
        if best is not None and best[1] >= ns * (1 - CLOSE):
            break
        relaxation = relax(priced(problem, lanes, prices), ends - watch.elapsed_s)
        if relaxation is None:
            break
        if best is None or relaxation.bound_ns > best[1]:
            best = prices, relaxation.bound_ns
        if runs.any(axis=1).all():
            share = np.where(runs, relaxation.share, -1.0)
            offer(merge_by_target(problem, share.argmax(axis=1).tolist()))
        point = _loads_of_shares(problem, lanes, relaxation.share)
        told = float(prices @ point)
        if told <= 0.0 or watch.interrupted or watch.elapsed_s >= ends:
            break
        points.append(point * (relaxation.bound_ns / told))
    return best


def _loads_of_shares(problem: Problem, lanes: Lanes, share: Floats) -> Floats:
    """Returns [lanes], ns: the approximate loads of units that run in shares ([n, t]) on several
    targets, without overheads and regions measured whole."""
    a = problem.arrays
    own = np.where(np.isfinite(a.unit_ns), a.unit_ns, 0.0) * share
    by_target = own.sum(axis=0)
    maker = a.producer[a.reader_value]
    made = np.where(maker[:, None] >= 0, share[np.maximum(maker, 0)], 0.0)
    enters, leaves = np.zeros_like(a.in_ns), np.zeros_like(a.out_ns)
    np.maximum.at(enters, a.reader_value, share[a.readers] - made)
    np.maximum.at(leaves, a.reader_value, made - share[a.readers])
    outputs = a.is_output & (a.producer >= 0)
    leaves[outputs] = share[a.producer[outputs]]
    moved = (enters * a.in_ns + leaves * a.out_ns).sum(axis=0)
    loads = np.zeros(lanes.count)
    np.add.at(loads, lanes.of_target, by_target + moved)
    if lanes.mover >= 0:
        loads[lanes.mover] += moved[lanes.of_target != lanes.mover].sum()
    return loads


MOST_ROUNDS = 60
MET = 3e-6
"""Relative gap to its bound below which a mixture counts as proven; the search's own is 1e-6."""
WORTH_GOING_ON = 2e-4
"""Least relative gain of a round whose search left a gap; measurements cannot resolve less."""
LEAST_SHARE = 1e-9
"""Least share of a plan; smaller ones are rounding errors."""
MOST_STARTS = 6
"""Number of plans that a round's search begins with."""
AT_CENTRE = 0.7
"""Weight of the relaxation's prices in those of later searches."""
FIRST_SHARE = 0.15
"""Share of the time for the first search, which shows whether all will be easy."""
SHARE_OF_TIME = 0.5
"""Share of the remaining time for one round's search."""


@dataclass(frozen=True, eq=False)
class MixtureColumn:
    """A plan and its loads of the lanes."""

    placements: Plan
    loads: Floats
    """[lanes], ns"""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Plans with the shares of the frames that take them."""

    columns: tuple[MixtureColumn, ...]
    shares: tuple[float, ...]
    """Share of each plan; above 0, with a sum of 1."""
    busy_ns: float
    """Least time in ns of the busiest lanes for one frame, with many in flight."""

    @property
    def loads(self) -> Floats:
        """[lanes], ns: average loads of one frame."""
        rows = np.array([column.loads for column in self.columns])
        return np.asarray(np.array(self.shares) @ rows, dtype=np.float64)


class Columns:
    """Plans of a search for mixtures, without those that load every lane at least like another."""

    def __init__(self, problem: Problem, lanes: Lanes) -> None:
        self._problem = problem
        self._lanes = lanes
        self._met: set[Plan] = set()
        self.columns: list[MixtureColumn] = []

    def offer(self, placements: Sequence[Placement]) -> MixtureColumn | None:
        """Notes a plan; returns None where it adds nothing, or cannot run."""
        plan = tuple((tuple(units), k) for units, k in placements)
        if plan in self._met:
            return None
        self._met.add(plan)
        loads = loads_of(self._problem, self._lanes, plan)
        if not np.isfinite(loads).all():
            return None
        if any((known.loads <= loads).all() for known in self.columns):
            return None
        self.columns = [known for known in self.columns if not (loads <= known.loads).all()]
        column = MixtureColumn(plan, loads)
        self.columns.append(column)
        return column


def mix(lanes: Lanes, columns: Sequence[MixtureColumn]) -> tuple[Mixture, Floats]:
    """Returns the best mixture of some plans, and the lane prices ([lanes]) that prove it: no plan
    has a priced load below ``busy_ns``."""
    loads = np.array([column.loads for column in columns])
    scale = float(loads.max(initial=0.0)) or 1.0
    rates = lanes.rates
    n_sets = len(rates)
    solve: Any = linprog
    answer = solve(
        np.concatenate([np.ones(n_sets), np.zeros(len(columns))]),
        A_ub=np.concatenate([-rates.T, loads.T / scale], axis=1),
        b_ub=np.zeros(lanes.count),
        A_eq=np.concatenate([np.zeros(n_sets), np.ones(len(columns))])[None, :],
        b_eq=np.ones(1),
        method="highs-ds",
    )
    shares = np.where(answer.x[n_sets:] > LEAST_SHARE, answer.x[n_sets:], 0.0)
    shares /= shares.sum()
    chosen = sorted(np.flatnonzero(shares).tolist(), key=lambda j: -shares[j])
    prices = np.maximum(0.0, -answer.ineqlin.marginals)
    earned = float((rates @ prices).max())
    prices = prices / earned if earned > 0 else np.full(lanes.count, 1.0 / lanes.count)
    mixture = Mixture(
        tuple(columns[j] for j in chosen),
        tuple(float(shares[j]) for j in chosen),
        lanes.busy_ns(shares @ loads),
    )
    return mixture, prices


@dataclass(frozen=True, eq=False)
class MixtureResult:
    """The best mixture found, and its proof."""

    mixture: Mixture
    bound_ns: float
    """Lower bound of the time in ns for a frame in any mixture."""
    columns: Columns
    """All plans found that may be useful."""
    rounds: int

    @property
    def is_optimal(self) -> bool:
        return self.mixture.busy_ns <= self.bound_ns * (1 + MET)


def best_mixture(
    problem: Problem, lanes: Lanes, watch: Watch, starts: Iterable[Sequence[Placement]]
) -> MixtureResult:
    """Returns the mixture of plans with the most frames per second.

    All targets of the problem belong to lanes (:func:`.lanes.on_lanes`); ``starts`` are known
    plans, at least one of which can run. The search ends when the mixture is proven, no round finds
    a better plan, or the limits are reached.
    """
    columns = Columns(problem, lanes)
    for placements in starts:
        columns.offer(placements)
    generation = _Generation(problem, lanes, columns, watch)
    try:
        generation.run()
    except KeyboardInterrupt:
        watch.interrupted = True
    mixture, _ = mix(lanes, columns.columns)
    bound_ns = min(generation.bound_ns, mixture.busy_ns)
    return MixtureResult(mixture, bound_ns, columns, generation.rounds)


class _Generation:
    """Column generation, and its progress."""

    def __init__(self, problem: Problem, lanes: Lanes, columns: Columns, watch: Watch) -> None:
        self._problem = problem
        self._lanes = lanes
        self._columns = columns
        self._watch = watch
        self.bound_ns = 0.0
        self.rounds = 0

    def run(self) -> None:
        """Runs rounds until the mixture is proven, nothing is gained, or the limits end it."""
        lanes, columns, watch = self._lanes, self._columns, self._watch
        mixture, prices = mix(lanes, columns.columns)
        centre: Floats | None = None
        patience = 0
        while self.rounds < MOST_ROUNDS and not (watch.is_over and self.rounds):
            self.rounds += 1
            watch.stage = "mixture"
            share = SHARE_OF_TIME if self.rounds > 1 else FIRST_SHARE
            result = _cheapest(self._problem, lanes, prices, columns, patience, share, watch)
            if result is None:
                break
            self.bound_ns = max(self.bound_ns, result.bound_ns)
            before = mixture.busy_ns
            for plan in result.plans:
                columns.offer(plan)
            mixture, prices = mix(lanes, columns.columns)
            watch.best_ns, watch.bound_ns = mixture.busy_ns, self.bound_ns
            watch.spend(result.steps - watch.steps)
            if mixture.busy_ns <= self.bound_ns * (1 + MET):
                break
            if not result.is_optimal and centre is None:
                relaxed = _relaxed(self._problem, lanes, columns, watch)
                centre, bound_ns = (prices, 0.0) if relaxed is None else relaxed
                prices, self.bound_ns = centre, max(self.bound_ns, bound_ns)
                patience = PATIENCE
                continue
            least = MET if result.is_optimal else WORTH_GOING_ON
            gains = min(mixture.busy_ns, result.ns) < before * (1 - least)
            if not gains and (patience or result.is_optimal):
                break
            patience = 0 if result.is_optimal else PATIENCE
            if centre is not None:
                prices = AT_CENTRE * centre + (1 - AT_CENTRE) * prices


def _relaxed(
    problem: Problem, lanes: Lanes, columns: Columns, watch: Watch
) -> tuple[Floats, float] | None:
    """Returns the best prices of the relaxation, and its bound."""
    watch.stage = "relaxation"

    def mixed(loads: Sequence[Floats]) -> tuple[float, Floats]:
        mixture, prices = mix(lanes, [MixtureColumn((), each) for each in loads])
        return mixture.busy_ns, prices

    loads = [column.loads for column in columns.columns]
    return lp_lane_duals(problem, lanes, loads, mixed, columns.offer, watch)


def _cheapest(
    problem: Problem,
    lanes: Lanes,
    prices: Floats,
    columns: Columns,
    patience: int,
    share_of_time: float,
    watch: Watch,
) -> SearchResult | None:
    """Returns the plan of least priced load; the search begins with the best known plans."""
    ordered = sorted(columns.columns, key=lambda column: float(prices @ column.loads))
    own = replace(watch.part(share_of_time, SHARE_OF_TIME), report=None)
    result = search(
        priced(problem, lanes, prices),
        own,
        starts=[("known", column.placements) for column in ordered[:MOST_STARTS]],
        patience=patience,
    )
    watch.interrupted |= own.interrupted
    return result
