"""The tables that the exact programme looks up: costs, prices, slots of values, and what regions
measured whole take (see :mod:`nnapi_prof.partition.search.exact`)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from nnapi_prof.partition.arrays import WORD, Ints, bit_rows, grouped
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.ideal_kernels import Tables
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, Region
from nnapi_prof.partition.search.relaxation import Prices

MOST_WATCHED = WORD
MOST_SLOTS = 8 * WORD
"""Values alive at once; a graph with more is too wide for ideals anyhow."""
NEGLIGIBLE = 1e-9
"""Relative: plans that differ by less cost the same."""


def value_slots(problem: Problem) -> Ints | None:
    """[values]: a number for each value, so that no two that can be alive at once have the same; -1
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
    """The tables, and the region behind each jump."""
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
    chance = np.random.default_rng(1)
    tables = Tables(
        unit_ns=a.unit_ns,
        overhead_ns=a.overhead_ns,
        predecessor_at=a.predecessor_at,
        predecessors=a.predecessors,
        successor_at=a.successor_at,
        successors=a.successors,
        producer=a.producer,
        is_output=a.is_output,
        in_ns=a.in_ns,
        out_ns=a.out_ns,
        reader_at=a.reader_at,
        readers=a.readers,
        reader_value=a.reader_value,
        read_at=a.read_at,
        reads=a.reads,
        make_at=a.make_at,
        makes=a.makes,
        slot=slots,
        least=prices.least,
        enters=prices.enters,
        leaves=prices.leaves,
        switch=prices.switch,
        switch_begin=prices.switch_begin,
        slack=np.array([prices.slack - NEGLIGIBLE * 1e-3 * float(np.abs(prices.least).sum())]),
        unit_use=np.stack([b.unit_use for b in budgets], axis=2) if r else np.zeros((n, t, 0)),
        open_use=np.stack([b.open_use for b in budgets], axis=1) if r else np.zeros((t, 0)),
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
        watch_bits=bit_rows([units for units, _ in own], n),
        watch_target=np.array([k for _, k in own], dtype=np.int64),
        watch_size=np.array([len(units) for units, _ in own], dtype=np.int64),
        watch_member=member,
        unit_key=chance.integers(1, 1 << WORD, n, dtype=np.int64),
        alone_ns=alone_ns,
        most_alone_ns=alone_ns.max(axis=0, initial=0.0),
    )
    return tables, regions


def is_underpriced(problem: Problem, units: Sequence[int], k: int) -> bool:
    """Whether a segment costs more than a search believes that does not watch it."""
    region = (frozenset(units), k)
    if len(units) == 1 or region not in problem.region_ns:
        return False
    return problem.region_ns[region] > problem.region_parts_ns[region] * (1 + NEGLIGIBLE)


def _jumps(
    problem: Problem, budgets: Sequence[Budget], watched: Collection[Region]
) -> list[tuple[Region, float, tuple[float, ...]]]:
    """Regions that are steps of their own: what they cost in ns, and of each budget."""
    own = problem.regions
    cheaper = np.flatnonzero(own.ns < own.parts_ns * (1 - NEGLIGIBLE)).tolist()
    names = list(problem.region_ns)
    known = dict.fromkeys(names[g] for g in cheaper)
    known |= dict.fromkeys(watched)
    for budget in budgets:
        frugal = (r for r, use in budget.region_use.items() if use < budget.additive(*r))
        known |= dict.fromkeys(frugal)
    jumps = []
    for region in known:
        ns = problem.segment_ns(*region)
        if math.isfinite(ns):
            jumps.append((region, ns, tuple(budget.of_region(*region) for budget in budgets)))
    return jumps
