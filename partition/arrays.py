"""Flat arrays of a problem, for the relaxation, the moves and the exact programme.

Lists of lists become one array of indices and one of offsets ("CSR"): the readers of value v are
``readers[reader_at[v]:reader_at[v + 1]]``. Regions that were measured whole are arrays as well,
with the costs of their parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


GRAPH_INPUT = -1
"""The producer of a value that no unit makes."""


AS_FLOAT, AS_INT8 = 1, 2
"""Formats of a value as bits: ``1 << format`` of the target that makes or reads the value."""


@dataclass(frozen=True, slots=True)
class ValueFlow:
    """A tensor between units. ``producer`` is a unit or GRAPH_INPUT; ``readers`` are distinct."""

    producer: int
    readers: tuple[int, ...]
    n_bytes: int
    is_output: bool = False
    to_int8_ns: float = 0.0
    """Cost of converting it from floats to 8-bit integers, where targets differ in format, ..."""
    to_float_ns: float = 0.0
    """... and back"""
    formats: int = AS_FLOAT
    """Bits of the formats that a graph input arrives in, or that a graph output is needed in."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """Flat arrays of a problem with n units, t targets and m values. Times in ns.

    The tables of the loops in C begin with these arrays: ``NP_ARRAYS`` in kernels/arrays.h has the
    same fields in the same order.
    """

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
    is_output: Bools
    """[m]"""
    in_ns: Floats
    """[m, t] cost of bringing the value into a segment"""
    out_ns: Floats
    """[m, t] cost of handing the value over at the end of a segment"""
    reader_at: Ints
    readers: Ints
    """Readers of each value; ``reader_value`` is the value of each entry."""
    reader_value: Ints
    read_at: Ints
    reads: Ints
    """Indices of each unit's own entries in ``readers``."""
    make_at: Ints
    makes: Ints
    """Values that each unit makes."""
    format: Ints
    """[t] format of the values: 0 for floats, 1 for 8-bit integers"""
    formats_in: Ints
    """[m] bits of the formats that a graph input arrives in; else 0"""
    formats_out: Ints
    """[m] bits of the formats that a graph output is needed in; else 0"""
    to_int8_ns: Floats
    """[m] cost of converting the value once, ..."""
    to_float_ns: Floats
    """... and back; all 0 where the targets have one format"""

    @property
    def n(self) -> int:
        """Number of units."""
        return len(self.unit_ns)

    @property
    def t(self) -> int:
        """Number of targets."""
        return len(self.overhead_ns)

    @property
    def shared(self) -> dict[str, Any]:
        """The arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(Arrays)}

    @cached_property
    def converts(self) -> bool:
        """Whether converting some value has a cost."""
        return bool(self.to_int8_ns.any() or self.to_float_ns.any())

    def conversions_ns(self, target: Ints) -> float:
        """Returns the cost of a plan's conversions, each value converted at most once each way.
        ``target`` is [n], the target of each unit."""
        return float(self.converting_ns(target).sum()) if self.converts else 0.0

    def converting_ns(self, target: Ints) -> Floats:
        """Returns [m]: the cost of converting each value in a plan; ``target`` is [n], by unit."""
        bit = 1 << self.format[target]
        there = self.formats_in.copy()
        of_unit = self.producer >= 0
        there[of_unit] = bit[self.producer[of_unit]]
        needed = self.formats_out.copy()
        np.bitwise_or.at(needed, self.reader_value, bit[self.readers])
        lacking = needed & ~there
        to_int8 = np.where(lacking & AS_INT8 != 0, self.to_int8_ns, 0.0)
        return np.asarray(to_int8 + np.where(lacking & AS_FLOAT != 0, self.to_float_ns, 0.0))


def offsets(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Returns the offsets and the joined entries of some lists."""
    at = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(entries) for entries in lists], out=at[1:])
    joined = np.fromiter((e for entries in lists for e in entries), np.int64, int(at[-1]))
    return at, joined


def grouped(keys: Ints, n: int) -> tuple[Ints, Ints]:
    """Returns offsets, and the positions of ``keys``, numbers below ``n``, in key order."""
    at = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=n), out=at[1:])
    return at, np.argsort(keys, kind="stable").astype(np.int64)


def flat_arrays(
    predecessors_of: Sequence[Sequence[int]],
    successors_of: Sequence[Sequence[int]],
    values: Sequence[ValueFlow],
    unit_ns: Floats,
    overhead_ns: Floats,
    ns_per_byte: tuple[Floats, Floats],
    formats: Ints | None = None,
) -> Arrays:
    """Returns the arrays of a problem. ``ns_per_byte`` are [t], into and out of segments; so are
    the ``formats`` of the targets, where they differ."""
    n, t = unit_ns.shape
    predecessor_at, predecessors = offsets(predecessors_of)
    successor_at, successors = offsets(successors_of)
    producer = np.fromiter((v.producer for v in values), np.int64, len(values))
    n_bytes = np.fromiter((v.n_bytes for v in values), np.float64, len(values))
    reader_at, readers = offsets([v.readers for v in values])
    reader_value = np.repeat(np.arange(len(values)), np.diff(reader_at))
    read_at, reads = grouped(readers, n)
    with_maker = np.flatnonzero(producer >= 0)
    is_output = np.fromiter((v.is_output for v in values), np.bool_, len(values))
    outside = np.fromiter((v.formats for v in values), np.int64, len(values))
    prices = np.zeros((2, len(values)))
    if formats is not None and formats.any():
        prices[0] = [v.to_int8_ns for v in values]
        prices[1] = [v.to_float_ns for v in values]
    make_at, order = grouped(producer[with_maker], n)
    return Arrays(
        unit_ns=np.ascontiguousarray(unit_ns),
        overhead_ns=np.asarray(overhead_ns, dtype=np.float64),
        predecessor_at=predecessor_at,
        predecessors=predecessors,
        successor_at=successor_at,
        successors=successors,
        producer=producer,
        is_output=is_output,
        in_ns=np.outer(n_bytes, ns_per_byte[0]),
        out_ns=np.outer(n_bytes, ns_per_byte[1]),
        reader_at=reader_at,
        readers=readers,
        reader_value=reader_value.astype(np.int64),
        read_at=read_at,
        reads=reads,
        make_at=make_at,
        makes=with_maker[order].astype(np.int64),
        format=np.zeros(t, np.int64) if formats is None else np.asarray(formats, dtype=np.int64),
        formats_in=np.where(producer < 0, outside, 0),
        formats_out=np.where(is_output, outside, 0),
        to_int8_ns=prices[0],
        to_float_ns=prices[1],
    )


def bit_rows(sets: Sequence[Iterable[int]], n_bits: int) -> Ints:
    """Returns [sets, words]: sets of numbers as bits, :data:`WORD` to an int64."""
    rows = np.zeros((len(sets), max(1, -(-n_bits // WORD))), dtype=np.int64)
    for row, members in zip(rows, sets, strict=True):
        for number in members:
            row[number // WORD] |= np.int64(1 << (number % WORD))
    return rows


WORD = 62
"""Number of bits used of an int64: this avoids the sign, and overflows in Python's arithmetic."""


# ---- regions measured whole ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of a problem in the order of its ``region_ns``. Times in ns."""

    n_units: int
    unit_at: Ints
    units: Ints
    """Units of each region, ascending: ``units[unit_at[g]:unit_at[g + 1]]``."""
    target: Ints
    ns: Floats
    """Measured latency; inf where the region did not run."""
    border_ns: Floats
    """Overhead of the region, and cost of the values that cross its border."""
    parts_ns: Floats
    """``border_ns`` plus the units' costs; inf where a unit cannot run there."""

    @property
    def count(self) -> int:
        return len(self.target)

    @cached_property
    def region(self) -> Ints:
        """The region of each entry of ``units``."""
        return np.repeat(np.arange(self.count), np.diff(self.unit_at))

    def subset(self, chosen: Ints) -> Regions:
        """Returns some of the regions."""
        sizes = np.diff(self.unit_at)[chosen]
        unit_at = np.zeros(len(chosen) + 1, dtype=np.int64)
        np.cumsum(sizes, out=unit_at[1:])
        entry = np.repeat(self.unit_at[chosen] - unit_at[:-1], sizes) + np.arange(unit_at[-1])
        return Regions(
            self.n_units,
            unit_at,
            self.units[entry],
            self.target[chosen],
            self.ns[chosen],
            self.border_ns[chosen],
            self.parts_ns[chosen],
        )

    def holding(self, inside: Ints, outside: Ints) -> tuple[Ints, Ints]:
        """Returns (pair, region) for all regions that hold unit ``inside[pair]``, but not unit
        ``outside[pair]``; -1 stands for no unit."""
        at, order = grouped(self.units, self.n_units)
        queried = np.flatnonzero(inside >= 0)
        counts = np.diff(at)[inside[queried]]
        ends = np.cumsum(counts)
        pair = np.repeat(queried, counts)
        position = np.arange(len(pair)) - np.repeat(ends - counts, counts)
        region = self.region[order[at[inside[pair]] + position]]
        width = self.n_units + 1
        members = np.sort(self.region * width + self.units)
        sought = region * width + np.where(outside[pair] < 0, self.n_units, outside[pair])
        position_of = np.minimum(np.searchsorted(members, sought), max(0, len(members) - 1))
        apart = members[position_of] != sought if len(members) else np.zeros(0, dtype=np.bool_)
        return pair[apart], region[apart]


def flat_regions(
    a: Arrays,
    values: Sequence[ValueFlow],
    region_ns: Mapping[tuple[frozenset[int], int], float],
    ns_per_byte: tuple[Floats, Floats],
) -> Regions:
    """Returns the regions of a problem."""
    unit_at, units = offsets([sorted(members) for members, _ in region_ns])
    target = np.fromiter((k for _, k in region_ns), np.int64, len(region_ns))
    region = np.repeat(np.arange(len(target)), np.diff(unit_at))
    entering, leaving = _border_bytes(a, values, region, units, len(target))
    border_ns = (
        a.overhead_ns[target] + entering * ns_per_byte[0][target] + leaving * ns_per_byte[1][target]
    )
    own = a.unit_ns[units, target[region]]
    return Regions(
        n_units=a.n,
        unit_at=unit_at,
        units=units,
        target=target,
        ns=np.fromiter(region_ns.values(), np.float64, len(target)),
        border_ns=border_ns,
        parts_ns=border_ns + np.bincount(region, own, len(target)),
    )


def _border_bytes(
    a: Arrays, values: Sequence[ValueFlow], region: Ints, units: Ints, count: int
) -> tuple[Floats, Floats]:
    """Returns the bytes that enter and that leave each region."""
    n_values = len(a.producer)
    n_bytes = np.fromiter((value.n_bytes for value in values), np.float64, n_values)
    n_readers = np.diff(a.reader_at)
    member = csr_array((np.ones(len(units)), (region, units)), shape=(count, a.n))
    reads = csr_array((np.ones(len(a.readers)), (a.readers, a.reader_value)), shape=(a.n, n_values))
    of_units = np.flatnonzero(a.producer >= 0)
    makes = csr_array(
        (np.ones(len(of_units)), (a.producer[of_units], of_units)), shape=(a.n, n_values)
    )
    read, makes_bytes = csr_array(member @ reads), csr_array(member @ makes)
    inside = csr_array(
        makes_bytes.multiply(read)
    )  # for values made in the region: the number of readers in it
    inner: Bools = (inside.data == n_readers[inside.indices]) & ~a.is_output[inside.indices]
    kept_bytes = _sums(inside, np.where(inner, n_bytes[inside.indices], 0.0))
    both = _sums(inside, n_bytes[inside.indices])
    entering = _sums(read, n_bytes[read.indices]) - both
    needed = n_bytes * (a.is_output | (n_readers > 0))
    leaving = _sums(makes_bytes, needed[makes_bytes.indices]) - kept_bytes
    return entering, leaving


def _sums(matrix: csr_array, weight: Floats) -> Floats:
    """Returns [rows]: the sum of the weights of each row's entries."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return np.asarray(np.bincount(rows, weight, matrix.shape[0]), dtype=np.float64)
