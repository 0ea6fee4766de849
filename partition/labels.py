"""Labels of the exact programme, level by level (see :mod:`nnapi_prof.partition.search`).

A level holds the labels of all ideals of one size as columns of arrays. Ideals are Python ints
(bit u is unit u); what of a label's values is present in the open segment, and what is still to be
handed over, are rows of bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
        return cls(regions, member, on, keys)


@dataclass(frozen=True, slots=True)
class Record:
    """Three columns of labels; see there."""

    target: Ints
    parent: Ints
    unit: Ints


@dataclass(slots=True)
class Labels:
    """Labels as columns; ``[n]`` where nothing else is said."""

    ideal: Ints
    """Index of the ideal in its level."""
    target: Ints
    cost: Floats
    pending_bytes: Floats
    """Of values made in the open segment that would have to be handed over if it ended now."""
    held_bytes: Floats
    """Of values present in the open segment and still to be read."""
    size: Ints
    """Units in the open segment."""
    segments: Ints
    """Begun so far, the open one included."""
    key: Bits
    """Equal where present, pending and may_become are."""
    present: Bits
    """[n, words]"""
    pending: Bits
    """[n, words]"""
    may_become: NDArray[np.bool_]
    """[n, watched regions] all of the open segment, and no unit before it, lies in that region."""
    parent: Ints
    """Index of the label before, in the level before, or (OPENED) in this one."""
    unit: Ints
    """What was executed, or OPENED."""

    def __len__(self) -> int:
        return len(self.cost)

    def take(self, rows: Ints | NDArray[np.bool_]) -> Labels:
        return Labels(*(getattr(self, name)[rows] for name in Labels.__slots__))

    def record(self) -> Record:
        """What the way back needs."""
        return Record(self.target, self.parent, self.unit)


def joined(parts: list[Labels]) -> Labels:
    """All labels of some batches, in order."""
    if len(parts) == 1:
        return parts[0]
    return Labels(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Labels.__slots__)
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
    return Labels(
        ideal=ideal,
        target=target,
        cost=cost,
        pending_bytes=np.zeros(n),
        held_bytes=np.zeros(n),
        size=np.zeros(n, dtype=np.int64),
        segments=segments,
        key=key,
        present=np.zeros((n, tables.n_words), dtype=np.uint64),
        pending=np.zeros((n, tables.n_words), dtype=np.uint64),
        may_become=may,
        parent=parent,
        unit=np.full(n, OPENED, dtype=np.int64),
    )


def executed(
    tables: Tables, watch: Watch, labels: Labels, rows: Ints, unit: int, child: Ints,
    done: Sequence[NDArray[np.bool_]],
) -> Labels:  # fmt: skip
    """What labels ``rows`` become when ``unit`` runs on their open targets.

    ``child`` is [len(rows)], the ideals with the unit in the next level; ``done[i]`` is, for the
    unit's i-th read, [len(rows)] whether this was the value's last reader.
    """
    problem = tables.problem
    now = labels.take(rows)
    k = now.target
    now.parent, now.unit = rows, np.full(len(rows), unit, dtype=np.int64)
    now.ideal = child
    now.size = now.size + 1
    now.cost = now.cost + problem.unit_ns[unit, k]
    into, out = problem.in_ns_per_byte[k], problem.out_ns_per_byte[k]
    tracked, owing = tables.entering_matters[k], tables.leaving_matters[k]
    for i, value in enumerate(tables.reads[unit]):
        word = now.present[:, value.word]
        absent = (word & value.bit) == 0
        last = done[i]
        now.cost += absent * (value.n_bytes * into)
        # Present from now on, but for a value that nobody reads any more.
        change = np.where(absent, tracked & ~last, last)
        now.held_bytes += np.where(absent, change, -1.0 * change) * value.n_bytes
        now.present[:, value.word] = word ^ (change * value.bit)
        now.key ^= change * value.key
        owed = last & ((now.pending[:, value.word] & value.bit) != 0)
        now.pending[:, value.word] ^= owed * value.bit
        now.pending_bytes -= owed * value.n_bytes
        now.key ^= owed * value.pending_key
    for value in tables.makes[unit]:
        if value.is_output:  # it leaves in any case
            now.cost += out * value.n_bytes
        if not value.readers:
            continue
        now.present[:, value.word] |= tracked * value.bit
        now.held_bytes += tracked * value.n_bytes
        now.key ^= tracked * value.key
        if not value.is_output:
            now.pending[:, value.word] |= owing * value.bit
            now.pending_bytes += owing * value.n_bytes
            now.key ^= owing * value.pending_key
    if now.may_become.shape[1]:
        stray = now.may_become & ~watch.member[unit]
        now.may_become = now.may_become & watch.member[unit]
        now.key ^= np.bitwise_xor.reduce(np.where(stray, watch.keys, np.uint64(0)), axis=1)
    return now


def closing_costs(tables: Tables, watch: Watch, labels: Labels) -> Floats:
    """[labels], ns: with the open segment ended; inf where it is a region that failed whole, or
    holds nothing."""
    problem = tables.problem
    costs: Floats = labels.cost + labels.pending_bytes * problem.out_ns_per_byte[labels.target]
    for r, (_, size, _, extra) in enumerate(watch.regions):
        costs[labels.may_become[:, r] & (labels.size == size)] += extra
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
        for column in (labels.present, labels.pending, labels.may_become):
            alike &= (column[here] == column[before]).all(axis=1)
        same[same] = alike
    kept: Ints = order[np.concatenate([[True], ~same])]
    return kept
