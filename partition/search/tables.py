"""Make the arrays that the exact programme reads and writes, and that its loops in C work on.

:class:`Prices` bound the rest of a plan from below. :class:`Tables` are costs, prices, slots of
values, and times of regions measured whole; :class:`SearchState` is the state (see :mod:`.exact`).
Changing arrays exist twice, for the level that is read and for the one that is written: the first
index of such an array is the level's parity. Sets of units and of slots are bits,
:data:`~nnapi_prof.partition.arrays.WORD` to an int64. ``kernels/ideals.h`` has the same structures,
field by field.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.partition.arrays import WORD, Arrays, Floats, Ints, bit_rows, grouped, offsets
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, Region


@dataclass(frozen=True, eq=False)
class Prices:
    """A relaxation's prices for the rest of a plan, in ns.

    After an ideal has run and with a segment open on k, the rest of a plan costs at least the sum
    of ``least`` over the units that remain, plus ``switch_begin[k]`` and ``switch[u, k]`` of all
    units that have run, minus ``enters[e, k]`` of each remaining reading e of a value that is
    present, plus ``leaves[e, k]`` of each remaining reading of a value still to be handed over.
    With no segment open it is the first sum alone. For each remaining reading of a value that
    exists as 8-bit integers, ``to_int8[e]`` is subtracted as well, and ``to_float[e]`` where it
    exists in floats.
    """

    least: Floats
    """[n]"""
    enters: Floats
    """[readings, t]"""
    leaves: Floats
    switch: Floats
    """[n, t]"""
    switch_begin: Floats
    """[t]"""
    to_int8: Floats
    """[readings]"""
    to_float: Floats
    slack: float = 0.0
    """Term of at most 0, added once to every bound."""


def free_prices(problem: Problem, least: Floats) -> Prices:
    """Returns prices without transfers and overheads; ``least`` is [n], ns."""
    arrays = problem.arrays
    nothing = np.zeros((len(arrays.readers), arrays.t))
    free = np.zeros(len(arrays.readers))
    switch = np.zeros((arrays.n, arrays.t))
    return Prices(least, nothing, nothing, switch, np.zeros(arrays.t), free, free)


def unit_shares(problem: Problem) -> NDArray[np.float64]:
    """Returns [n], ns: shares of the units such that no segment costs less than its units' shares.

    A unit's share is its cheapest marginal cost; where a region measured whole is cheaper than its
    units' shares, all of them shrink in proportion.
    """
    cheapest = problem.unit_ns.min(axis=1, initial=np.inf)
    finite = np.where(np.isfinite(cheapest), cheapest, 0.0)
    factor = np.ones(problem.n)
    for (units, _), ns in problem.region_ns.items():
        rows = sorted(units)
        total = finite[rows].sum()
        if total > ns:
            factor[rows] = np.minimum(factor[rows], ns / total)
    shares: NDArray[np.float64] = finite * factor
    return shares


MOST_WATCHED = WORD
MOST_SLOTS = 8 * WORD
"""Largest number of values alive at once; a graph with more is too wide for ideals anyway."""
NEGLIGIBLE = 1e-9
"""Relative difference below which plans cost the same."""

DONE, PAUSED, GROW_LABELS, GROW_IDEALS, GROW_READY, GROW_JUMPS, GROW_RECORDS = range(7)
"""Results of a slice of a search: the answer, more to do, or an array that has to grow."""

LEVEL, STAGE, IDEAL, WORK, WIDTH, RECORDS, LANDINGS = range(7)
"""Places in ``SearchState.at``: current level, stage and ideal, steps made, labels that a level may
hold, and numbers of records and landings."""
BEGIN, CLOSE, OPEN, EXPAND = range(4)
"""Stages of a level."""
UPPER, LEFT_OUT = range(2)
"""Places in ``SearchState.bounds``."""


@dataclass(frozen=True, eq=False)
class Tables(Arrays):
    """Arrays that a search looks up. n units, t targets, m values, s slots, r budgets, j jumps."""

    slot: Ints
    """[m] Slot of each value, distinct for values alive at once; -1 where nobody reads it."""
    least: Floats
    """[n]; this and the next fields are :class:`~nnapi_prof.partition.search.tables.Prices`."""
    enters: Floats
    leaves: Floats
    switch: Floats
    switch_begin: Floats
    int8_price: Floats
    """[readings], from the prices, too"""
    float_price: Floats
    slack: Floats
    """[1]"""
    unit_use: Floats
    """[n, t, r] of budgets"""
    open_use: Floats
    """[t, r]"""
    budget: Floats
    """[r]"""
    rate: Floats
    """[r] worth of a step of a budget in bounds, in ns"""
    jump_at: Ints
    """[n + 1] jumps by their first unit"""
    jump_bits: Ints
    jump_needs: Ints
    jump_target: Ints
    jump_ns: Floats
    jump_use: Floats
    jump_size: Ints
    jump_least: Floats
    jump_read_at: Ints
    """[j + 1]; values that each jump brings in, in ``jump_reads``, ..."""
    jump_reads: Ints
    jump_make_at: Ints
    """... and values of its own that are read outside, or outputs"""
    jump_makes: Ints
    watch_bits: Ints
    watch_target: Ints
    watch_size: Ints
    watch_member: Ints
    """[n] Bits of the watched regions that hold the unit."""
    unit_key: Ints
    """[n] Random bits."""
    alone_ns: Floats
    """[n, t] Extra cost of a unit measured alone over that of its parts; else 0."""
    most_alone_ns: Floats
    """[t] The largest of these."""


LABEL = np.dtype(
    [
        ("ideal", np.int64),
        ("target", np.int64),
        ("n_units", np.int64),  # units in the open segment
        ("watch", np.int64),  # bits of the watched regions that the open segment may become
        ("cost", np.float64),  # ns
        ("saved", np.float64),  # ns in the bound of the rest, for values present and owed
        ("formats", np.float64),  # the same, for the formats in which values exist
        ("reach", np.float64),  # ns, bound of all plans that go on from here, budgets priced
        ("record", np.int64),  # its own; the one before while its segment is empty
        ("before", np.int64),  # record of the label that it came from
        ("unit", np.int64),  # unit that was executed
        ("following", np.int64),  # next label of its list, -1 at the end
        ("alive", np.int64),
    ]
)
IDEAL_SET = np.dtype(
    [
        ("key", np.int64),
        ("rest", np.float64),  # least cost of the remaining units, in ns
        ("ready_begin", np.int64),  # in ``ready``
        ("ready_end", np.int64),
    ]
)
RECORD = np.dtype(
    [
        ("before", np.int64),
        ("unit", np.int64),  # or -1 - index of a jump
        ("target", np.int64),
        ("first", np.int64),  # whether it begins a segment
    ]
)
LANDING = np.dtype(
    [
        ("following", np.int64),
        ("cost", np.float64),
        ("formats", np.float64),
        ("reach", np.float64),
        ("record", np.int64),
    ]
)


class SearchState(NamedTuple):
    """State of a search. A first index of two is a level's parity."""

    at: Ints
    bounds: Floats
    n_ideals: Ints
    n_labels: Ints
    n_ready: Ints
    ideals: Any
    """[2, ideals] of IDEAL_SET"""
    bits: Ints
    """[2, ideals, words]"""
    joining: Floats
    """[2, ideals, t] amount that an open segment adds to the rest, by the prices of switching"""
    slot_value: Ints
    """[2, ideals, s] value in each slot"""
    ready: Ints
    """[2, ...] units that can run next"""
    head: Ints
    """[2, ideals, t + 1] first label of a list; the last list is of those with no segment open"""
    table: Ints
    """[2, 2^x] index of an ideal by its key, -1 for none"""
    labels: Any
    """[2, labels] of LABEL"""
    use: Floats
    """[2, labels, r]"""
    present: Ints
    """[2, labels, words of slots]"""
    owed: Ints
    """[2, labels, words of slots] Values made in the open segment, handed over if it ends before
    their last reader."""
    as_float: Ints
    """[2, labels, words of slots, or 0 where nothing is converted] Values in floats, ..."""
    as_int8: Ints
    """... and as 8-bit integers"""
    records: Any
    """Records that lead back to a label's plan."""
    landing_head: Ints
    """[n + 1] regions measured whole that end at a level"""
    landings: Any
    landing_bits: Ints
    landing_use: Floats
    landing_float: Ints
    landing_int8: Ints


def value_slots(problem: Problem) -> Ints | None:
    """Returns [values]: a slot for each value, distinct for values that can be alive at once; -1
    where nobody reads it. None where that takes more than :data:`MOST_SLOTS`."""
    reached: list[int] = []  # the unit itself and all that it needs, as bits
    for u, predecessors in enumerate(problem.predecessors):
        bits = 1 << u
        for p in predecessors:
            bits |= reached[p]
        reached.append(bits)
    slots = np.full(len(problem.values), -1, dtype=np.int64)
    occupants: list[int] = []  # readers of the last value in each slot, as bits
    order = sorted(range(len(problem.values)), key=lambda v: problem.values[v].producer)
    for v in order:
        value = problem.values[v]
        if not value.readers:
            continue
        before = 0 if value.producer == GRAPH_INPUT else reached[value.producer]
        readers = 0
        for reader in value.readers:
            readers |= 1 << reader
        for slot, occupant in enumerate(occupants):
            if not occupant & ~before:
                occupants[slot] = readers
                slots[v] = slot
                break
        else:
            if len(occupants) == MOST_SLOTS:
                return None
            slots[v] = len(occupants)
            occupants.append(readers)
    return slots


def make_tables(
    problem: Problem,
    prices: Prices,
    slots: Ints,
    budgets: Sequence[Budget],
    rates: Sequence[float] | None,
    watched: Collection[Region],
) -> tuple[Tables, list[Region]]:
    """Returns the tables, and the region of each jump."""
    a = problem.arrays
    n, t, r = a.n, a.t, len(budgets)
    jumps = _jumps(problem, budgets, watched)
    regions = [region for region, *_ in jumps]
    first = np.array([min(units) for units, _ in regions], dtype=np.int64)
    jump_at, order = grouped(first, n)
    jumps = [jumps[i] for i in order]
    regions = [region for region, *_ in jumps]
    needs = [{p for u in units for p in problem.predecessors[u]} - units for units, _ in regions]
    own = list(watched)[:MOST_WATCHED]
    alone_ns = np.zeros((n, t))
    for (units, k), ns in problem.region_ns.items():
        if len(units) == 1:
            (u,) = units
            parts = problem.region_parts_ns[units, k]
            if ns > parts:
                alone_ns[u, k] = ns - parts
    member = np.zeros(n, dtype=np.int64)
    for q, (units, _) in enumerate(own):
        member[list(units)] |= np.int64(1 << q)
    crossing = _crossing(problem, [units for units, _ in regions if problem.arrays.converts])
    chance = np.random.default_rng(1)
    tables = Tables(
        **a.shared,
        slot=slots,
        least=prices.least,
        enters=prices.enters,
        leaves=prices.leaves,
        switch=prices.switch,
        switch_begin=prices.switch_begin,
        int8_price=prices.to_int8,
        float_price=prices.to_float,
        slack=np.array([prices.slack - NEGLIGIBLE * 1e-3 * float(np.abs(prices.least).sum())]),
        unit_use=np.array([b.unit_use for b in budgets]).reshape(r, n, t).transpose(1, 2, 0).copy(),
        open_use=np.array([b.open_use for b in budgets]).reshape(r, t).T.copy(),
        budget=np.array([b.limit * (1 + NEGLIGIBLE) for b in budgets], dtype=np.float64),
        rate=np.zeros(r) if rates is None else np.asarray(rates, dtype=np.float64),
        jump_at=jump_at,
        jump_bits=bit_rows([units for units, _ in regions], n),
        jump_needs=bit_rows(needs, n),
        jump_target=np.array([k for _, k in regions], dtype=np.int64),
        jump_ns=np.array([ns for _, ns, _ in jumps], dtype=np.float64),
        jump_use=np.array([use for *_, use in jumps], dtype=np.float64).reshape(len(jumps), r),
        jump_size=np.array([len(units) for units, _ in regions], dtype=np.int64),
        jump_least=np.array(
            [prices.least[sorted(units)].sum() for units, _ in regions], dtype=np.float64
        ),
        jump_read_at=crossing[0],
        jump_reads=crossing[1],
        jump_make_at=crossing[2],
        jump_makes=crossing[3],
        watch_bits=bit_rows([units for units, _ in own], n),
        watch_target=np.array([k for _, k in own], dtype=np.int64),
        watch_size=np.array([len(units) for units, _ in own], dtype=np.int64),
        watch_member=member,
        unit_key=chance.integers(1, 1 << WORD, n, dtype=np.int64),
        alone_ns=alone_ns,
        most_alone_ns=alone_ns.max(axis=0, initial=0.0),
    )
    return tables, regions


def _crossing(problem: Problem, regions: Sequence[frozenset[int]]) -> tuple[Ints, Ints, Ints, Ints]:
    """Returns the values that regions bring in, and those that they make for others, each as
    offsets and entries; none where nothing is converted."""
    values = problem.values
    reads: list[list[int]] = []
    makes: list[list[int]] = []
    for units in regions:
        touched = {v for u in units for v in problem.values_of[u]}
        own = {v for v in touched if values[v].producer in units}
        reads.append(sorted(touched - own))
        makes.append(
            sorted(v for v in own if values[v].is_output or set(values[v].readers) - units)
        )
    return *offsets(reads), *offsets(makes)


def _jumps(
    problem: Problem, budgets: Sequence[Budget], watched: Collection[Region]
) -> list[tuple[Region, float, tuple[float, ...]]]:
    """Returns regions that are steps of their own, their cost in ns and use of each budget."""
    own = problem.regions
    cheaper = np.flatnonzero(own.ns < own.parts_ns * (1 - NEGLIGIBLE)).tolist()
    names = list(problem.region_ns)
    regions = dict.fromkeys(names[g] for g in cheaper)
    regions |= dict.fromkeys(watched)
    for budget in budgets:
        frugal = (r for r, use in budget.region_use.items() if use < budget.additive(*r))
        regions |= dict.fromkeys(frugal)
    jumps = []
    for region in regions:
        ns = problem.segment_ns(*region)
        if math.isfinite(ns):
            jumps.append((region, ns, tuple(budget.of_region(*region) for budget in budgets)))
    return jumps
