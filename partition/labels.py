"""Labels of the exact programme, level by level (see :mod:`nnapi_prof.partition.search`).

A level holds the labels of all ideals of one size as columns of arrays. Ideals are Python ints
(bit u is unit u); what of a label's values is present in the open segment, and what is still to be
handed over, are rows of bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.partition.ideals import mask
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem

Bits = NDArray[np.uint64]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SPREAD, _SPREAD_MORE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
"""Odd constants that spread small integers over 64 bits."""

OPENED = -1
"""In place of a unit: the label begins a segment after a closed one of its own level."""


@dataclass(frozen=True, slots=True)
class Access:
    """A unit's reading or making of one value: where the value's bit is, and what it weighs."""

    word: int
    bit: np.uint64
    key: np.uint64
    """Random bits for the value's presence; :attr:`pending_key` for its being handed over."""
    pending_key: np.uint64
    n_bytes: float
    readers: int
    """Mask of the units that read it."""
    is_output: bool


@dataclass(frozen=True)
class Tables:
    """What a search looks up again and again."""

    problem: Problem
    reads: tuple[tuple[Access, ...], ...]
    """[n]"""
    makes: tuple[tuple[Access, ...], ...]
    n_words: int
    target_keys: Bits
    entering_matters: NDArray[np.bool_]
    """[t] whether presence saves anything: it does not where nothing is paid for entering."""
    leaving_matters: NDArray[np.bool_]
    entering: bool
    """It does on some target."""
    leaving: bool

    @classmethod
    def of(cls, problem: Problem) -> Tables:
        chance = np.random.default_rng(1)
        reads: list[list[Access]] = [[] for _ in range(problem.n)]
        makes: list[list[Access]] = [[] for _ in range(problem.n)]
        for v, value in enumerate(problem.values):
            key, pending = chance.integers(1, 1 << 63, 2, dtype=np.uint64)
            access = Access(
                word=v // 64,
                bit=np.uint64(1 << (v % 64)),
                key=key,
                pending_key=pending,
                n_bytes=float(value.n_bytes),
                readers=mask(value.readers),
                is_output=value.is_output,
            )
            for u in value.readers:
                reads[u].append(access)
            if value.producer != GRAPH_INPUT:
                makes[value.producer].append(access)
        return cls(
            problem,
            tuple(map(tuple, reads)),
            tuple(map(tuple, makes)),
            max(1, (len(problem.values) + 63) // 64),
            chance.integers(1, 1 << 63, len(problem.targets), dtype=np.uint64),
            problem.in_ns_per_byte > 0,
            problem.out_ns_per_byte > 0,
            bool((problem.in_ns_per_byte > 0).any()),
            bool((problem.out_ns_per_byte > 0).any()),
        )


@dataclass(frozen=True)
class Watch:
    """Regions that cost more than their parts: labels whose segment may become one know it."""

    regions: tuple[tuple[int, int, int, float], ...]
    """(mask, size, target, ns above the parts: inf where the region failed)."""
    member: NDArray[np.bool_]
    """[n, regions]"""
    on: NDArray[np.bool_]
    """[t, regions]"""
    sizes: Ints
    extra: Floats
    """[regions], of ``regions``."""
    keys: Bits

    @classmethod
    def of(cls, problem: Problem, slower: Mapping[tuple[frozenset[int], int], float]) -> Watch:
        regions = tuple(
            (mask(units), len(units), k, ns - problem.additive_ns(units, k))
            for (units, k), ns in slower.items()
        )
        member = np.zeros((problem.n, len(regions)), dtype=np.bool_)
        on = np.zeros((len(problem.targets), len(regions)), dtype=np.bool_)
        for r, ((units, k), _) in enumerate(slower.items()):
            member[sorted(units), r] = True
            on[k, r] = True
        keys = np.random.default_rng(2).integers(1, 1 << 63, len(regions), dtype=np.uint64)
        sizes = np.array([size for _, size, _, _ in regions], dtype=np.int64)
        extra = np.array([above for *_, above in regions], dtype=np.float64)
        return cls(regions, member, on, sizes, extra, keys)


@dataclass(frozen=True, slots=True)
class Record:
    """Three columns of labels; see there."""

    target: Ints
    parent: Ints
    unit: Ints


@dataclass(slots=True)
class Labels:
    """Labels as columns, those of one type in one array: levels are small and many, so that what
    counts is the number of calls of numpy."""

    numbers: Ints
    """[6, n]"""
    amounts: Floats
    """[3, n]"""
    key: Bits
    """[n] Equal where present, pending and may_become are."""
    bits: Bits
    """[2, n, words]"""
    may_become: NDArray[np.bool_]
    """[n, watched regions] all of the open segment, and no unit before it, lies in that region."""

    ideal: Ints = field(init=False)
    """[n] Index of the ideal in its level; this and what follows are views of the arrays above."""
    target: Ints = field(init=False)
    size: Ints = field(init=False)
    """[n] Units in the open segment."""
    segments: Ints = field(init=False)
    """[n] Begun so far, the open one included."""
    parent: Ints = field(init=False)
    """[n] Index of the label before, in the level before, or (OPENED) in this one."""
    unit: Ints = field(init=False)
    """[n] What was executed, or OPENED."""
    cost: Floats = field(init=False)
    """[n] ns"""
    pending_bytes: Floats = field(init=False)
    """[n] Of values made in the open segment that would be handed over if it ended now."""
    held_bytes: Floats = field(init=False)
    """[n] Of values present in the open segment and still to be read."""
    present: Bits = field(init=False)
    """[n, words] Values, by their bits."""
    pending: Bits = field(init=False)
    """[n, words]"""

    def __post_init__(self) -> None:
        self.ideal, self.target, self.size, self.segments, self.parent, self.unit = self.numbers
        self.cost, self.pending_bytes, self.held_bytes = self.amounts
        self.present, self.pending = self.bits

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: Ints) -> Labels:
        return Labels(
            self.numbers.take(rows, axis=1),
            self.amounts.take(rows, axis=1),
            self.key.take(rows),
            self.bits.take(rows, axis=1),
            self.may_become.take(rows, axis=0),
        )

    def record(self) -> Record:
        """What the way back needs; copies, which keep the other columns from staying in memory."""
        return Record(self.target.copy(), self.parent.copy(), self.unit.copy())


def joined(parts: list[Labels]) -> Labels:
    """All labels of some batches, in order."""
    if len(parts) == 1:
        return parts[0]
    return Labels(
        np.concatenate([part.numbers for part in parts], axis=1),
        np.concatenate([part.amounts for part in parts], axis=1),
        np.concatenate([part.key for part in parts]),
        np.concatenate([part.bits for part in parts], axis=1),
        np.concatenate([part.may_become for part in parts]),
    )


def opened(
    tables: Tables, watch: Watch, ideal: Ints, target: Ints, cost: Floats, segments: Ints,
    parent: Ints, ideals: Sequence[int],
) -> Labels:  # fmt: skip
    """Labels of segments that hold nothing yet; ``ideals`` are the level's."""
    n = len(ideal)
    may = watch.on[target]
    if watch.regions:
        regions = [region for region, *_ in watch.regions]
        # Shaped by hand: a level may have no ideals.
        untouched = np.array([not region & done for done in ideals for region in regions], np.bool_)
        may &= untouched.reshape(len(ideals), len(regions))[ideal]
    key = tables.target_keys[target].copy()
    if may.shape[1]:
        key ^= np.bitwise_xor.reduce(np.where(may, watch.keys, np.uint64(0)), axis=1)
    numbers = np.zeros((6, n), dtype=np.int64)
    amounts = np.zeros((3, n))
    bits = np.zeros((2, n, tables.n_words), dtype=np.uint64)
    made = Labels(numbers, amounts, key, bits, may)
    made.ideal[:], made.target[:], made.segments[:] = ideal, target, segments
    made.parent[:], made.unit[:], made.cost[:] = parent, OPENED, cost
    return made


def executed(
    tables: Tables, watch: Watch, labels: Labels, rows: Ints, unit: int, child: Ints | int,
    done: Sequence[NDArray[np.bool_] | np.bool_],
) -> Labels:  # fmt: skip
    """What labels ``rows`` become when ``unit`` runs on their open targets.

    ``child`` is [len(rows)], the ideals with the unit in the next level; ``done[i]`` is, for the
    unit's i-th read, [len(rows)] whether this was the value's last reader. Either may be one for
    all rows.
    """
    problem = tables.problem
    now = labels.take(rows)
    k, cost, held, pending, key = now.target, now.cost, now.held_bytes, now.pending_bytes, now.key
    now.parent[:], now.unit[:], now.ideal[:] = rows, unit, child
    now.size += 1
    cost += problem.unit_ns[unit, k]
    into, out = problem.in_ns_per_byte[k], problem.out_ns_per_byte[k]
    tracked, owing = tables.entering_matters[k], tables.leaving_matters[k]
    entering, leaving = tables.entering, tables.leaving
    for last, value in zip(done, tables.reads[unit], strict=True):
        if entering:
            here = now.present[:, value.word]
            absent = (here & value.bit) == 0
            cost += absent * (value.n_bytes * into)
            # Present from now on, but for a value that nobody reads any more.
            change = np.where(absent, tracked & ~last, last)
            held += np.where(absent, change, -1.0 * change) * value.n_bytes
            here ^= change * value.bit
            key ^= change * value.key
        if leaving:
            owed_here = now.pending[:, value.word]
            owed = last & ((owed_here & value.bit) != 0)
            owed_here ^= owed * value.bit
            pending -= owed * value.n_bytes
            key ^= owed * value.pending_key
    for value in tables.makes[unit]:
        if value.is_output:  # it leaves in any case
            cost += out * value.n_bytes
        if not value.readers:
            continue
        if entering:
            here = now.present[:, value.word]
            here |= tracked * value.bit
            held += tracked * value.n_bytes
            key ^= tracked * value.key
        if leaving and not value.is_output:
            owed_here = now.pending[:, value.word]
            owed_here |= owing * value.bit
            pending += owing * value.n_bytes
            key ^= owing * value.pending_key
    if now.may_become.shape[1]:
        stray = now.may_become & ~watch.member[unit]
        now.may_become = now.may_become & watch.member[unit]
        key ^= np.bitwise_xor.reduce(np.where(stray, watch.keys, np.uint64(0)), axis=1)
    return now


def closing_costs(tables: Tables, watch: Watch, labels: Labels) -> Floats:
    """[labels], ns: with the open segment ended; inf where it is a region that failed whole, or
    holds nothing."""
    problem = tables.problem
    costs: Floats = labels.cost + labels.pending_bytes * problem.out_ns_per_byte[labels.target]
    if watch.regions:
        is_whole = labels.may_become & (labels.size[:, None] == watch.sizes)
        costs += np.where(is_whole, watch.extra, 0.0).sum(axis=1)
    costs[labels.size == 0] = math.inf
    return costs


def cheapest_of_each(labels: Labels, by_segments: bool) -> Ints:
    """Of labels that stand alike, the index of the cheapest; of equal ones, the one with the
    fewest segments. ``by_segments``: labels with other numbers of segments do not stand alike."""
    where = labels.key ^ (labels.ideal.astype(np.uint64) * _SPREAD)
    if by_segments:
        where ^= labels.segments.astype(np.uint64) * _SPREAD_MORE
    order = np.lexsort((labels.segments, labels.cost, where))
    if len(order) < 2:
        return order
    here, before = order[1:], order[:-1]
    same = where[here] == where[before]
    if same.any():
        # Equal keys are checked: two that differ but for a coincidence of random bits both stay.
        here, before = here[same], before[same]
        alike = labels.ideal[here] == labels.ideal[before]
        alike &= labels.target[here] == labels.target[before]
        if by_segments:
            alike &= labels.segments[here] == labels.segments[before]
        alike &= (labels.bits[:, here] == labels.bits[:, before]).all(axis=(0, 2))
        alike &= (labels.may_become[here] == labels.may_become[before]).all(axis=1)
        same[same] = alike
    kept: Ints = order[np.concatenate([[True], ~same])]
    return kept
