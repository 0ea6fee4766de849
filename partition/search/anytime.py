"""The search for the best plan: anytime, with a bound on the gap of the best plan so far.

The steps run in this order, each only while the best plan is above the bound and limits allow:

1. *start plans*: the baselines, and plans of the caller (such as the last round's plan);
2. *relaxation*: a linear programme bounds every plan; rounded, it is a plan, often the best. For
   large graphs a minimum cut comes before it, or replaces it;
3. *exact*: dynamic programming over ideals, pruned by the relaxation's prices and the best plan;
4. *order*: rows of the relaxation for the order of segments;
5. *stretches* between articulation units, each by the exact programme (after a first annealing);
6. *annealing* at several temperatures and *expansions* (moves that are minimum cuts), exact
   programmes over *windows* (stretches of the plan, the rest held fixed), programmes over few
   *phases*, the exact programme of limited width (for its bound), in turn, with growing effort; and
   the exact programme again where it can finish.

Effort is counted in steps of loops, not in time: as long as time and memory suffice, a plan does
not depend on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from nnapi_prof.partition.baselines import find_baselines, merge_by_target, total_ns
from nnapi_prof.partition.problem import Problem, Region
from nnapi_prof.partition.search import Plan, Pool, SearchResult, Watch
from nnapi_prof.partition.search.annealing import Annealer, typical_move
from nnapi_prof.partition.search.articulation import Stretches
from nnapi_prof.partition.search.exact import search_repeatedly
from nnapi_prof.partition.search.expansion import expand, join_segments
from nnapi_prof.partition.search.minimum_cut import minimum_cut
from nnapi_prof.partition.search.relaxation import Relaxation, relax
from nnapi_prof.partition.search.tables import NEGLIGIBLE, Prices, free_prices, unit_shares
from nnapi_prof.partition.search.windows import (
    SHARE_OF_MEMORY,
    chain_about,
    improve_stretch,
    solve_phases,
    windows,
)

FIRST_STEPS = 60_000
"""Steps of the exact programme before the relaxation: enough for chains and small networks."""
LONG = 1_500
"""Units from which the exact programme gets more effort first: the relaxation takes seconds."""
LONG_STEPS = 20_000_000
WHOLE_STEPS = 2_000_000
"""Steps of the exact programme with the relaxation's prices."""
MOST_STEPS = 40_000_000
"""The same, where its progress so far suggests that it can finish."""
OVERRUN = 2.0
"""Multiple of the expected steps at which a run of the exact programme is stopped."""
MOVES = 2_000
"""Moves of each of the first annealings, for each unit."""
WIDTH = 1_000
"""Labels of a level in the first programme of limited width."""
STEPS_OF_WIDTH = 1_500
"""Steps of a programme of limited width, for each label that a level may hold."""
EVERY = 1 << 40
"""Labels of a level where none is left out."""
FIRST_WIDTHS = (50, 1_000, 20_000)
"""Labels of a level while no plan is known: units may run only inside measured regions."""
HEATS = (0.3, 0.1, 1.0, 0.03, 3.0)
"""First temperatures of parallel annealings, as shares of the typical change of a move. The best
one depends on the difference between plans: a unit's own cost or many values' transfers."""
EXPANDED = 2  # results from which expansions continue
RELAXATION_SHARE = 0.85
"""Largest share of the remaining time for the relaxation, the first to give a bound."""
ORDER_SHARE = 0.3
"""The same for rows of the order of segments."""
FEW_SEGMENTS = 50
"""Largest number of segments of a large plan to expand; for others, annealing is faster."""
STRETCHES_SHARE = 0.8
"""Share of the remaining time and effort for the stretches between articulation units."""
PHASES_SHARE = 0.25
"""Share of the remaining time for a programme over phases."""
COOLING = 0.03
"""Last temperature as a share of the first."""
QUICK_MOVES = 300
"""Moves for each unit in annealings before the exact programme over the whole graph."""
GROWTH = 1.6  # of effort, from round to round
PATIENCE = 3
"""Rounds of step 6 without a notable gain before the search ends."""
WORTH_GOING_ON = 2e-4
"""Least relative gain of a round; measurements cannot resolve less."""
CLOSE = 5e-4
"""Gap below which no further round is run."""


def search(
    problem: Problem,
    watch: Watch,
    *,
    starts: Iterable[tuple[str, Plan]] = (),
    costlier: Collection[Region] = (),
    patience: int = PATIENCE,
    with_baselines: bool = False,
    with_stretches: bool = True,
) -> SearchResult | None:
    """Returns the fastest plan found within the watch's limits; None where no plan was found.

    ``starts`` are plans with the names of the steps that made them, ``costlier`` regions that an
    earlier search of a similar problem ran into. ``patience`` 0 skips steps 5 and 6. The baselines
    are among the starts with ``with_baselines``, or where there are no starts. ``with_stretches``
    false skips step 5: with little time, the later steps gain more.
    """
    run = _Search(problem, watch, costlier, with_stretches)
    starts = list(starts)
    if with_baselines or not starts:
        for baseline in find_baselines(problem):
            run.pool.offer(baseline.placements, "baseline")
    for step, placements in starts:
        run.pool.offer(placements, step)
    try:
        run.solve(patience)
    except KeyboardInterrupt:
        if run.pool.best is None:
            raise
        watch.interrupted = True
    return run.solution()


@dataclass
class _Rung:
    """One of the annealings side by side."""

    heat: float
    plan: Plan
    """Last result of this annealing."""
    ns: float = math.inf


class _Search:
    """State of one search."""

    def __init__(
        self, problem: Problem, watch: Watch, costlier: Collection[Region], with_stretches: bool
    ) -> None:
        self._watch = watch
        self._with_stretches = with_stretches
        self._problem = problem
        self.pool = Pool(problem)
        self._costlier = {region for region in costlier if region in problem.region_ns}
        self._expected_steps = math.inf
        self._steps_per_second = math.inf
        """Speed of the last run of the exact programme."""
        self._tried_phases = 0
        self._between: Stretches | None = None
        self._rounded: Plan | None = None
        self._relaxation: Relaxation | None = None
        self._prices: Prices = free_prices(self._problem, unit_shares(self._problem))
        self._raise(float(unit_shares(self._problem).sum()) * (1 - 1e-12), "unit costs")

    # ---- the state -----------------------------------------------------------------------

    def solution(self) -> SearchResult | None:
        """Returns the result of the search."""
        return self.pool.result(self._costlier, self._watch.steps, self._relaxation)

    @property
    def _is_done(self) -> bool:
        enough = max(NEGLIGIBLE, self._watch.limits.gap)
        return self.pool.is_within(enough) or self._watch.is_over

    @property
    def _is_close(self) -> bool:
        return self.pool.best_ns <= self.pool.bound_ns * (1 + CLOSE)

    def _raise(self, bound_ns: float, step: str) -> None:
        self.pool.raise_bound(bound_ns, step)
        self._watch.bound_ns = self.pool.bound_ns

    def _offer(self, placements: Plan, step: str) -> None:
        """Notes a plan."""
        self.pool.offer(placements, step)
        self._watch.best_ns = self.pool.best_ns

    @property
    def _best(self) -> Plan:
        assert self.pool.best is not None
        return self.pool.best

    # ---- the steps ---------------------------------------------------------------------------

    def solve(self, patience: int) -> None:
        """Runs all steps, in order."""
        n = self._problem.n
        self._watch.stage = "exact"
        self._exact(FIRST_STEPS if n <= LONG else LONG_STEPS)
        if not self._watch.is_over:
            if self._is_done:
                return
            self._watch.stage = "relaxation"
            self._relax()
        if self._is_done and (self.pool.best is not None or self.pool.is_exact):
            return
        self._watch.stage = "exact"
        for width in FIRST_WIDTHS:
            if self.pool.best is not None:
                break
            self._exact(WHOLE_STEPS, width)  # without a known plan, nothing prunes
        if self._is_done:
            return
        self._exact(WHOLE_STEPS)
        if self._is_done or self.pool.best is None:
            return
        if n <= LONG:
            self._tighten()
        if self._is_done:
            return
        used = np.isfinite(self._fixed().unit_ns).any(axis=0)
        annealer = Annealer(self._problem, np.flatnonzero(used).tolist())
        ladder = [_Rung(heat, self._rounded or self._best) for heat in HEATS]
        if n <= LONG:  # a better plan lets the exact programme prune more
            self._anneal(annealer, ladder, QUICK_MOVES * max(100, n), 0)
        if not self._is_done and self._ends_within(MOST_STEPS):
            self._watch.stage = "exact"
            self._exact(OVERRUN * self._expected_steps)
        if patience and not self._is_done:
            self._stretches()
        if patience and not self._is_done:
            self._improve(patience, annealer, ladder)

    def _relax(self) -> None:
        if self._problem.n > LONG:
            cut = minimum_cut(self._problem)
            if cut is not None:
                self._raise(cut.ns, "cut")
                self._offer(cut.plan(self._problem), "cut")
            if self._is_close:
                return
        relaxation = relax(self._problem, self._watch.seconds_left * RELAXATION_SHARE)
        if relaxation is None:
            return
        self._prices = relaxation.prices
        self._take(relaxation, "relaxation")

    def _tighten(self) -> None:
        """Solves the relaxation with rows of the order of segments."""
        self._watch.stage = "relaxation"
        seconds = self._watch.seconds_left * ORDER_SHARE
        relaxation = relax(self._problem, seconds, in_order=True)
        if relaxation is not None:
            self._take(relaxation, "order")

    def _take(self, relaxation: Relaxation, step: str) -> None:
        """Notes a relaxation's bound and its rounded plan."""
        self._relaxation = relaxation
        self._raise(relaxation.bound_ns, step)
        share = np.where(np.isfinite(self._problem.unit_ns), relaxation.share, -1.0)
        rounded = merge_by_target(self._problem, share.argmax(axis=1).tolist())
        self._offer(rounded, step)
        if math.isfinite(total_ns(self._problem, rounded)):
            self._rounded = rounded
        self._offer(join_segments(self._problem, rounded), step)

    def _fixed(self) -> Problem:
        """Returns the problem without the placements that no better plan than the best one has."""
        if self._relaxation is None:
            return self._problem
        return self._relaxation.fixed(self._problem, self.pool.best_ns * (1 + NEGLIGIBLE))

    def _ends_within(self, steps: float) -> bool:
        """Tells whether the exact programme ends within some steps and the remaining time, judging
        by its last run."""
        seconds = OVERRUN * self._expected_steps / self._steps_per_second
        return self._expected_steps <= steps and seconds <= self._watch.seconds_left

    def _exact(self, steps: float, width: int = EVERY) -> None:
        """Runs the exact programme over the whole graph."""
        pool, watch = self.pool, self._watch
        began_s = watch.elapsed_s
        for result, is_true in search_repeatedly(
            self._fixed(),
            self._prices,
            lambda: pool.best_ns * (1 - NEGLIGIBLE / 2),
            watch,
            self._costlier,
            width=width,
            steps=steps,
            memory_share=SHARE_OF_MEMORY,
            insist=lambda: pool.best is None,
        ):
            self._steps_per_second = result.steps / max(watch.elapsed_s - began_s, 1e-6)
            if not result.complete and width == EVERY:
                self._expected_steps = result.expected_steps
            if math.isfinite(result.bound_ns):
                self._raise(min(result.bound_ns, pool.best_ns) * (1 - 1e-12), "exact")
            if result.placements:
                self._offer(result.placements, "exact")
            if is_true and result.placements and not result.complete:
                self._offer(join_segments(self._problem, result.placements), "exact")
            pool.is_exact = is_true and result.complete and pool.best is not None
            began_s = watch.elapsed_s

    def _improve(self, patience: int, annealer: Annealer, ladder: list[_Rung]) -> None:
        """Runs annealing, expansions, windows and phases in turn; where the graph allows it, the
        exact programme after all."""
        if self._problem.n > LONG and len(self._best) <= FEW_SEGMENTS:
            self._offer(expand(self._problem, self._best, self._watch), "expansion")
        idle, turn, width = 0, 0, WIDTH
        moves = float(MOVES * max(100, self._problem.n))
        while idle < patience and not self._is_done and not self._is_close:
            before = self.pool.best_ns
            self._watch.stage = "annealing"
            self._anneal(annealer, ladder, int(moves), turn)
            if not self._is_done:
                self._watch.stage = "windows"
                self._windows(turn)
            if not self._is_done:
                self._watch.stage = "phases"
                self._phases()
            if not self._is_done:
                self._watch.stage = "exact"
                self._exact(STEPS_OF_WIDTH * width, width)
            self._offer(join_segments(self._problem, self._best), "joining")
            gained = 1 - self.pool.best_ns / before if before > 0 else 0.0
            idle = 0 if gained > WORTH_GOING_ON else idle + 1
            moves, width = moves * GROWTH, int(width * GROWTH)
            turn += 1
        if not self._is_done and not self._is_close:
            self._stretches()
        self._watch.stage = "exact"
        while not self._is_done and self._ends_within(self._watch.steps_left / OVERRUN):
            self._exact(OVERRUN * self._expected_steps)

    def _anneal(self, annealer: Annealer, ladder: list[_Rung], moves: int, turn: int) -> None:
        """Anneals at several first temperatures, each from its own last plan or, every other turn,
        from the best of all; the best results are expanded. The least successful temperature is
        dropped."""
        typical = typical_move(self._problem, self.pool.best_ns)
        for number, rung in enumerate(ladder):
            if self._is_done:
                return
            hot = typical * rung.heat
            begin = self._best if turn % 2 else rung.plan
            seed = turn * len(HEATS) + number
            rung.plan = annealer.run(begin, moves, hot, hot * COOLING, seed, self._watch)
            rung.ns = total_ns(self._problem, rung.plan)
            self._offer(rung.plan, "annealing")
        ladder.sort(key=lambda rung: rung.ns)
        self._watch.stage = "expansion"
        for rung in ladder[:EXPANDED]:
            if not self._is_done:
                rung.plan = expand(self._problem, rung.plan, self._watch)
                self._offer(rung.plan, "expansion")
        if turn and len(ladder) > EXPANDED:
            ladder.pop()

    def _stretches(self) -> None:
        """Solves the stretches between articulation units."""
        if not self._with_stretches:
            return
        if self._between is None:
            problem, relaxation = self._fixed(), self._relaxation
            if relaxation is not None:  # regions of no better plan must not separate stretches
                problem = relaxation.without_regions(problem, self.pool.best_ns * (1 + NEGLIGIBLE))
            self._between = Stretches(problem, self._prices)
        if self._between.count == 1:
            return
        self._watch.stage = "stretches"
        own = self._watch.part(STRETCHES_SHARE, STRETCHES_SHARE)
        bound_ns, plan = self._between.solve(self._best, own)
        self._watch.absorb(own)
        self._offer(plan, "stretches")
        self._raise(min(bound_ns, self.pool.best_ns) * (1 - 1e-12), "stretches")

    def _phases(self) -> None:
        """Searches all plans of about as few phases, where few segments of two targets are best."""
        chain = chain_about(self._problem, self._best)
        if len(chain) <= self._tried_phases:
            return
        self._tried_phases = len(chain)
        seconds = PHASES_SHARE * self._watch.seconds_left
        plan = solve_phases(self._fixed(), chain, seconds)
        if plan is not None:
            self._offer(plan, "phases")
            self._offer(join_segments(self._problem, plan), "phases")

    def _windows(self, turn: int) -> None:
        """Solves stretches of the plan exactly, with the rest held fixed."""
        plan = list(self._best)
        for first, last in windows(self._problem, plan, turn):
            if self._watch.is_over:
                break
            if last > len(plan):
                continue
            changed = improve_stretch(self._problem, plan, first, last, self._costlier, self._watch)
            if changed != tuple(plan[first:last]):
                self._offer((*plan[:first], *changed, *plan[last:]), "windows")
                plan = list(self._best)
