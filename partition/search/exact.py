"""The exact programme for sequential latency: labels over ideals, one unit at a time.

A plan that runs segments one after another executes units in some topological order. The remaining
cost of such an execution depends on only a part of its past:

* the ideal (downward-closed set) of the units that have run,
* the target of the open segment,
* for each value that is alive (made or a graph input, and still to be read): whether it is present
  in the open segment, where reading it again is free; and whether it was made there and not
  handed over yet, so that ending the segment before its last reader costs a hand-over.

This state is a label. Executing a ready unit on the open target, or ending the segment and opening
another, leads from label to label, and the cheapest way to the full set is the optimum over all
plans with convex segments. The search over ideals follows Tarnawski et al., "Efficient Algorithms
for Device Placement of DNN Graph Operators" (NeurIPS 2020), whose programme tries all pairs of
ideals as segments. Growing segments unit by unit needs each ideal only once for each state of its
alive values, of which a network has few.

A label is dropped where another one of the same ideal and target costs no more even after paying
for missing values, or where its cost plus a bound of the rest, by the prices of a relaxation,
reaches a known plan's latency. Where a level (ideals of one size) holds more labels than allowed,
those of the best bound are kept, and the least bound among the others is reported: no plan is
faster.

Regions measured whole have their measured cost. A cheaper one is a step of its own, from one ideal
to another. A costlier one must not be available for the price of its parts: a segment that ends
with a single unit pays the extra cost of that unit alone; labels that may still become one of
several units remember that, and cannot end as it. Only those costlier regions are watched that a
search without them ran into; the search is then repeated (:func:`search_repeatedly`).

Labels carry budgets (a number of segments, compile time); one that uses less is never superfluous.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnapi_prof.partition.arrays import AS_FLOAT, AS_INT8, WORD, Floats, Ints
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import GRAPH_INPUT, Placement, Problem, Region
from nnapi_prof.partition.search import Watch, integers, library, pointers
from nnapi_prof.partition.search.tables import (
    CLOSE,
    DONE,
    EXPAND,
    GROW_IDEALS,
    GROW_JUMPS,
    GROW_LABELS,
    GROW_READY,
    GROW_RECORDS,
    IDEAL_SET,
    LABEL,
    LANDING,
    LANDINGS,
    LEFT_OUT,
    LEVEL,
    MOST_WATCHED,
    NEGLIGIBLE,
    PAUSED,
    RECORD,
    RECORDS,
    STAGE,
    UPPER,
    WIDTH,
    WORK,
    Prices,
    SearchState,
    Tables,
    make_tables,
    value_slots,
)

SLICE = 200_000
"""Steps between two checks of the clock: some 20 ms."""
FEW_STEPS = 100_000
"""Steps that take a few milliseconds."""


@dataclass(frozen=True, slots=True)
class ExactResult:
    """Result of one run of the exact programme."""

    fronts: tuple[tuple[float, tuple[float, ...], tuple[Placement, ...]], ...]
    """Cost in ns, use of each budget, and placements: one plan, or, with budgets, all plans that no
    other dominates; cheapest first. Empty where no plan is below the upper bound."""
    bound_ns: float
    """Lower bound of plans below the upper bound; the upper bound itself where there is none."""
    complete: bool
    """Whether nothing was left out because of limits of width, time or memory."""
    steps: int
    expected_steps: float
    """Expected steps of the whole run, by the levels done; infinite where memory ended it."""

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Placements of the cheapest plan."""
        return self.fronts[0][2] if self.fronts else ()


def search_ideals(
    problem: Problem,
    prices: Prices,
    upper_ns: float,
    watch: Watch,
    *,
    budgets: Sequence[Budget] = (),
    rates: Sequence[float] | None = None,
    watched: Collection[Region] = (),
    width: int = 1 << 40,
    steps: float = math.inf,
    memory_bytes: float = math.inf,
    insist: bool = False,
) -> ExactResult | None:
    """Returns the cheapest plan of at most ``upper_ns`` that keeps to the budgets.

    ``prices`` are of the problem in which each step of a budget costs its entry of ``rates``. Among
    regions of several units that are costlier than their parts, only those in ``watched`` have
    their real cost: a plan found may cost more than the search assumed. ``insist`` continues for
    :data:`FEW_STEPS` even after the watch's time is over, to find a first plan. None where the
    graph is too wide to begin.
    """
    slots = value_slots(problem)
    if slots is None:
        return None
    tables, regions = make_tables(problem, prices, slots, budgets, rates, watched)
    run = _Run(problem, tables, regions, upper_ns, width)
    return run.until(watch, steps, memory_bytes, FEW_STEPS if insist else 0)


def search_repeatedly(
    problem: Problem,
    prices: Prices,
    upper_ns: Callable[[], float],
    watch: Watch,
    costlier: set[Region],
    *,
    steps: float,
    memory_share: float,
    budgets: Sequence[Budget] = (),
    rates: Sequence[float] | None = None,
    width: int = 1 << 40,
    insist: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[ExactResult, bool]]:
    """Searches until plans cost what the search assumed, within so many steps in all. Yields each
    result, and whether its costs are right.

    ``costlier`` collects the regions that plans ran into. Where they are more than can be watched,
    it is emptied, and the result is only a bound. ``insist`` as in :func:`search_ideals`.
    """
    spent = 0.0
    while spent < steps and (not watch.is_over or insist()):
        result = search_ideals(
            problem,
            prices,
            upper_ns(),
            watch,
            budgets=budgets,
            rates=rates,
            watched=[region for region in costlier if region in problem.region_ns],
            width=width,
            steps=steps - spent,
            memory_bytes=watch.limits.memory_bytes * memory_share,
            insist=insist(),
        )
        if result is None:
            return
        spent += result.steps
        met = {(frozenset(units), k) for _, _, plan in result.fronts for units, k in plan}
        new = {region for region in met - costlier if _costs_more(problem, budgets, *region)}
        costlier |= new
        if len(costlier) > MOST_WATCHED:
            costlier.clear()
        yield result, not new
        if not new or not costlier:
            return


def _costs_more(problem: Problem, budgets: Sequence[Budget], units: frozenset[int], k: int) -> bool:
    """Tells whether a segment costs more, or uses more of a budget, whole than by its parts; a
    search that does not watch it assumes the parts."""
    uses = any(
        budget.of_region(units, k) > budget.additive(units, k) * (1 + NEGLIGIBLE)
        for budget in budgets
    )
    if uses or len(units) == 1 or (units, k) not in problem.region_ns:
        return uses
    parts_ns = problem.region_parts_ns[units, k]
    return problem.region_ns[units, k] > parts_ns * (1 + NEGLIGIBLE)


class _Run:
    """A search, its arrays, and how they grow."""

    def __init__(
        self, problem: Problem, tables: Tables, regions: list[Region], upper_ns: float, width: int
    ) -> None:
        self._problem = problem
        self._tables = tables
        self._regions = regions
        paid = tables.rate > 0
        self._priced = float(tables.rate[paid] @ tables.budget[paid])
        self._search = _initial_search(tables, upper_ns + self._priced, width)
        self._upper_ns = upper_ns

    def until(self, watch: Watch, steps: float, memory_bytes: float, least: int) -> ExactResult:
        """Searches to the end, or until time, steps or memory are spent."""
        spent = 0
        while True:
            before = int(self._search.at[WORK])
            # A slice that paused or had to grow continues where it stopped.
            code = library().np_ideals_advance(
                ctypes.byref(_sizes(self._tables, self._search)),
                ctypes.byref(pointers(self._tables)),
                ctypes.byref(pointers(self._search)),
                ctypes.c_int64(SLICE),
            )
            spent = int(self._search.at[WORK])
            watch.spend(spent - before)
            if code == DONE:
                return self._found(spent)
            if code != PAUSED and not self._grow(code, memory_bytes):
                return self._unfinished(spent, math.inf)
            if (watch.is_over and spent >= least) or spent > steps:
                level = int(self._search.at[LEVEL])
                return self._unfinished(spent, spent * self._problem.n / max(1, level))

    def _grow(self, code: int, memory_bytes: float) -> bool:
        """Doubles full arrays; returns False where that takes too much memory."""
        grown = {
            GROW_LABELS: ("labels", "use", "present", "owed", "as_float", "as_int8"),
            GROW_IDEALS: ("ideals", "bits", "joining", "slot_value", "head", "table"),
            GROW_READY: ("ready",),
            GROW_JUMPS: (
                "landings",
                "landing_bits",
                "landing_use",
                "landing_float",
                "landing_int8",
            ),
            GROW_RECORDS: ("records",),
        }[code]
        used = sum(array.nbytes for array in self._search)
        more = sum(getattr(self._search, name).nbytes for name in grown)
        if used + 2 * more > memory_bytes:  # old and new arrays exist together for a moment
            return False
        axis = 0 if code in (GROW_JUMPS, GROW_RECORDS) else 1
        changed = {}
        for name in grown:
            array = getattr(self._search, name)
            shape = list(array.shape)
            shape[axis] *= 2
            larger = np.empty_like(array, shape=shape)
            if axis:
                larger[:, : array.shape[1]] = array
            else:
                larger[: array.shape[0]] = array
            changed[name] = larger
        self._search = self._search._replace(**changed)
        if code == GROW_IDEALS:
            library().np_ideals_rehash(
                ctypes.byref(_sizes(self._tables, self._search)),
                ctypes.byref(pointers(self._search)),
            )
        return True

    def _unfinished(self, steps: int, expected_steps: float) -> ExactResult:
        """Returns the result of a stopped run: every plan not left out continues from a label, or
        is a landing under way."""
        st = self._search
        least = float(st.bounds[LEFT_OUT])
        c = int(st.at[LEVEL]) & 1
        levels = (c, 1 - c) if st.at[STAGE] == EXPAND else (c,)
        for side in levels:
            count = int(st.n_labels[side])
            alive = st.labels[side, :count].alive == 1
            least = min(least, float(st.labels[side, :count].reach[alive].min(initial=math.inf)))
        waiting = st.landings.reach[: int(st.at[LANDINGS])]
        least = min(least, float(waiting.min(initial=math.inf)))
        bound_ns = min(self._upper_ns, least - self._priced)
        return ExactResult((), bound_ns, False, steps, expected_steps)

    def _found(self, steps: int) -> ExactResult:
        st = self._search
        t = len(self._tables.overhead_ns)
        c = int(st.at[LEVEL]) & 1
        left_out = float(st.bounds[LEFT_OUT]) - self._priced
        labels: list[int] = []
        if st.n_ideals[c]:
            label = int(st.head[c, 0, t])
            while label >= 0:
                if st.labels[c, label].alive:
                    labels.append(label)
                label = int(st.labels[c, label].following)
        labels.sort(key=lambda one: (float(st.labels[c, one].cost), *st.use[c, one].tolist()))
        fronts = tuple(
            (
                float(st.labels[c, label].cost),
                tuple(st.use[c, label].tolist()),
                self._trace(int(st.labels[c, label].record)),
            )
            for label in labels
        )
        least = fronts[0][0] if fronts else self._upper_ns
        return ExactResult(fronts, min(least, left_out), math.isinf(left_out), steps, steps)

    def _trace(self, record: int) -> tuple[Placement, ...]:
        """Returns the placements that lead to a record, first one first."""
        steps = self._search.records.view(np.ndarray)
        path: list[Placement] = []
        units: list[int] = []
        while record >= 0:
            before, unit, k, first = steps[record].item()
            if unit < 0:
                region, _ = self._regions[-1 - unit]
                path.append((tuple(sorted(region)), k))
            else:
                units.append(unit)
                if first:
                    path.append((tuple(sorted(units)), k))
                    units = []
            record = before
        return tuple(path[::-1])


def _sizes(tables: Tables, search: SearchState) -> Any:
    """Returns ``struct np_ideal_sizes``."""
    return integers(
        *tables.unit_ns.shape,
        len(tables.slot),
        search.slot_value.shape[2],
        search.present.shape[2],
        search.as_float.shape[2],
        search.bits.shape[2],
        len(tables.budget),
        len(tables.jump_ns),
        len(tables.watch_size),
        search.ideals.shape[1],
        search.table.shape[1],
        search.labels.shape[1],
        search.ready.shape[1],
        len(search.records),
        len(search.landings),
    )


def _initial_search(tables: Tables, upper_ns: float, width: int) -> SearchState:
    """Returns arrays with one label: nothing has run, no segment is open."""
    n, t = tables.unit_ns.shape
    r = len(tables.budget)
    n_slots = max(1, int(tables.slot.max(initial=-1)) + 1)
    slot_words = -(-n_slots // WORD)
    format_words = slot_words if tables.converts else 0
    words = max(1, -(-n // WORD))
    labels, ideals, ready, jumps, records = 4096, 512, max(4096, 8 * n), 1024, 16_384

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    def floats(*shape: int) -> Floats:
        return np.zeros(shape)

    search = SearchState(
        at=ints(7),
        bounds=np.array([upper_ns, np.inf]),
        n_ideals=ints(2),
        n_labels=ints(2),
        n_ready=ints(2),
        ideals=np.recarray((2, ideals), dtype=IDEAL_SET),
        bits=ints(2, ideals, words),
        joining=floats(2, ideals, t),
        slot_value=ints(2, ideals, n_slots),
        ready=ints(2, ready),
        head=np.full((2, ideals, t + 1), -1, dtype=np.int64),
        table=np.full((2, 4 * ideals), -1, dtype=np.int64),
        labels=np.recarray((2, labels), dtype=LABEL),
        use=floats(2, labels, r),
        present=ints(2, labels, slot_words),
        owed=ints(2, labels, slot_words),
        as_float=ints(2, labels, format_words),
        as_int8=ints(2, labels, format_words),
        records=np.recarray(records, dtype=RECORD),
        landing_head=np.full(n + 1, -1, dtype=np.int64),
        landings=np.recarray(jumps, dtype=LANDING),
        landing_bits=ints(jumps, words),
        landing_use=floats(jumps, r),
        landing_float=ints(jumps, format_words),
        landing_int8=ints(jumps, format_words),
    )
    search.at[WIDTH] = width
    search.at[STAGE] = CLOSE
    search.at[RECORDS] = search.at[LANDINGS] = 0
    search.bounds[UPPER] = upper_ns
    search.n_ideals[0] = search.n_labels[0] = 1
    search.table[0, 0] = 0
    start = search.ideals[0, 0]
    start.key = 0
    start.rest = float(tables.least.sum()) + float(tables.slack[0])
    search.joining[0, 0] = tables.switch_begin
    first = [u for u in range(n) if tables.predecessor_at[u] == tables.predecessor_at[u + 1]]
    search.ready[0, : len(first)] = first
    start.ready_begin, start.ready_end = 0, len(first)
    search.n_ready[0] = len(first)
    label = search.labels[0, 0]
    label.formats = 0.0
    for value, slot in enumerate(tables.slot.tolist()):
        if slot < 0 or tables.producer[value] != GRAPH_INPUT:
            continue
        search.slot_value[0, 0, slot] = value
        if not tables.converts:
            continue
        own = slice(tables.reader_at[value], tables.reader_at[value + 1])
        word, bit = slot // WORD, np.int64(1 << (slot % WORD))
        for there, price, of_format in (
            (search.as_float, tables.float_price, AS_FLOAT),
            (search.as_int8, tables.int8_price, AS_INT8),
        ):
            if tables.formats_in[value] & of_format:
                there[0, 0, word] |= bit
                label.formats -= float(price[own].sum())
    label.ideal, label.target, label.n_units, label.watch = 0, t, 0, 0
    label.cost = label.saved = 0.0
    label.reach = start.rest + label.formats
    label.record = label.following = -1
    label.alive = 1
    search.head[0, 0, t] = 0
    return search
