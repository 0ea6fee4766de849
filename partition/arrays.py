"""A problem as flat arrays: what the relaxation, the moves and the exact programme compute on.

Lists of lists become one array of indices and one of offsets ("CSR"): the readers of value v are
``readers[reader_at[v]:reader_at[v + 1]]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from nnapi_prof.partition.problem import Problem

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Arrays:
    """Flat arrays of a problem with n units, t targets and m values. Times in ns."""

    n: int
    t: int
    unit_ns: Floats
    """[n, t]"""
    overhead_ns: Floats
    """[t]"""
    predecessor_at: Ints
    predecessors: Ints
    successor_at: Ints
    successors: Ints
    producer: Ints
    """[m], -1 for inputs of the graph"""
    is_output: NDArray[np.bool_]
    """[m]"""
    in_ns: Floats
    """[m, t] of bringing the value into a segment"""
    out_ns: Floats
    """[m, t] of handing it over at a segment's end"""
    reader_at: Ints
    readers: Ints
    """Of each value; ``reader_value`` is the value of each entry."""
    reader_value: Ints
    read_at: Ints
    reads: Ints
    """Of each unit: indices into ``readers``, of its own entries there."""
    make_at: Ints
    makes: Ints
    """Of each unit: values."""


def offsets(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Offsets and joined entries of some lists."""
    at = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(entries) for entries in lists], out=at[1:])
    joined = np.fromiter((e for entries in lists for e in entries), np.int64, int(at[-1]))
    return at, joined


def grouped(keys: Ints, n: int) -> tuple[Ints, Ints]:
    """Offsets, and the positions of ``keys`` (numbers below ``n``) in the order of their keys."""
    at = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=n), out=at[1:])
    return at, np.argsort(keys, kind="stable").astype(np.int64)


def flat_arrays(problem: Problem) -> Arrays:
    """The arrays of a problem."""
    n, values = problem.n, problem.values
    predecessor_at, predecessors = offsets(problem.predecessors)
    successor_at, successors = offsets(problem.successors)
    producer = np.fromiter((v.producer for v in values), np.int64, len(values))
    n_bytes = np.fromiter((v.n_bytes for v in values), np.float64, len(values))
    reader_at, readers = offsets([v.readers for v in values])
    reader_value = np.repeat(np.arange(len(values)), np.diff(reader_at))
    read_at, reads = grouped(readers, n)
    made = np.flatnonzero(producer >= 0)
    make_at, order = grouped(producer[made], n)
    return Arrays(
        n=n,
        t=len(problem.targets),
        unit_ns=np.ascontiguousarray(problem.unit_ns),
        overhead_ns=np.asarray(problem.overhead_ns, dtype=np.float64),
        predecessor_at=predecessor_at,
        predecessors=predecessors,
        successor_at=successor_at,
        successors=successors,
        producer=producer,
        is_output=np.fromiter((v.is_output for v in values), np.bool_, len(values)),
        in_ns=np.outer(n_bytes, problem.in_ns_per_byte),
        out_ns=np.outer(n_bytes, problem.out_ns_per_byte),
        reader_at=reader_at,
        readers=readers,
        reader_value=reader_value.astype(np.int64),
        read_at=read_at,
        reads=reads,
        make_at=make_at,
        makes=made[order].astype(np.int64),
    )


def bit_rows(sets: Sequence[Iterable[int]], n_bits: int) -> Ints:
    """[sets, words]: sets of numbers as bits, :data:`WORD` to an int64."""
    rows = np.zeros((len(sets), max(1, -(-n_bits // WORD))), dtype=np.int64)
    for row, members in zip(rows, sets, strict=True):
        for number in members:
            row[number // WORD] |= np.int64(1 << (number % WORD))
    return rows


WORD = 62
"""Bits of an int64 that are used: neither the sign nor, in Python's own arithmetic, an overflow
ever comes into play."""
