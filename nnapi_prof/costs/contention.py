"""Slowdown of a processor while another is busy, fitted to units that ran alone and side by side.

A lane's factor depends on the model at hand: it is the mean of the factors measured for each type
of operation, weighted by the type's share of the lane's time. Types that were not measured are left
out. Intervals cover 95 %, by a bootstrap over rounds.
"""

from __future__ import annotations

import enum
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.costs import Conditions, Mode
from nnapi_prof.costs.measurement import Kind, Measurement, log_ratios, medians
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.costs.table import CostTable
from nnapi_prof.graph.plan import CPU, Target
from nnapi_prof.graph.unit import UnitGraph

ASSUMED = 1.1
"""Factor of pairs that were not measured: HOPE's phones had 1.08 [1.03, 1.16] for the CPU beside
the GPU and 1.11 [1.00, 1.32] for the GPU (quartiles)."""
RESAMPLES = 500
TAILS = (2.5, 97.5)
"""Percentiles of the draws at the ends of an interval: 95 % lie between, as for other costs."""
LASTING_NS = 3e9
"""Total time of a row's samples from which the row shows how clocks change while both are busy."""
_END = 0.1
"""Share of such a row's samples that counts as its beginning, and as its end."""

Floats = NDArray[np.float64]


class ContentionBasis(enum.Enum):
    """Origin of a slowdown."""

    MEASURED = "measured"
    PARTLY = "partly measured"
    ASSUMED = "assumed"
    GIVEN = "given"


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the ends of its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float) -> Interval:
        """Returns an interval without spread."""
        return cls(value, value, value)


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The slowdown of one lane while another one is busy."""

    lane: str
    corunner: str
    """The lane that is busy meanwhile."""
    factor: Interval
    """Time of the lane beside the other divided by its time alone, at least 1."""
    basis: ContentionBasis
    n_units: int = 0
    """Number of different units measured."""
    cpu_share: Interval | None = None
    """CPU time of the agent divided by the time of a run alone: for an accelerator, the share of a
    core that its driver uses in the agent's process."""
    wait_ns: Interval | None = None
    """Extra time of starting an execution and waiting for its event, compared with one call
    (accelerators only)."""
    later: Interval | None = None
    """Time of a run beside the other at the end of a long measurement, divided by the time at its
    beginning."""
    cpu_khz: tuple[int | None, int | None] | None = None
    """The CPU's clock before and after the first round of that measurement, where the device
    reports it."""


@dataclass(frozen=True)
class Slowdowns:
    """Slowdowns of all lanes beside all others."""

    pairs: tuple[Slowdown, ...]

    @property
    def factors(self) -> Mapping[tuple[str, str], float]:
        """(lane, busy lane) -> factor: :data:`nnapi_prof.partition.lanes.Contention`."""
        return {(pair.lane, pair.corunner): pair.factor.value for pair in self.pairs}

    @property
    def measured(self) -> tuple[Slowdown, ...]:
        return tuple(pair for pair in self.pairs if pair.basis is ContentionBasis.MEASURED)

    def among(self, lanes: Collection[str]) -> Slowdowns:
        """Returns the slowdowns among these lanes; those of all lanes where no pair is left."""
        pairs = tuple(p for p in self.pairs if p.lane in lanes and p.corunner in lanes)
        return Slowdowns(pairs) if pairs else self

    @property
    def basis(self) -> ContentionBasis:
        bases = {pair.basis for pair in self.pairs}
        return (
            bases.pop()
            if len(bases) == 1
            else ContentionBasis.PARTLY
            if bases
            else ContentionBasis.GIVEN
        )


def lanes_of(targets: Iterable[Target]) -> tuple[str, ...]:
    """Returns the processors of some targets, the CPU first."""
    names = {lane for target in targets if (lane := target.lane) is not None}
    return tuple(sorted(names, key=lambda name: (name != CPU.key, name)))


def given(
    targets: Iterable[Target], contention: float | Mapping[tuple[str, str], float]
) -> Slowdowns:
    """Returns the slowdowns that a user gave: one factor for all pairs, or a factor for some pairs
    and 1 for the others."""
    pairs = (
        dict(contention)
        if isinstance(contention, Mapping)
        else dict.fromkeys(itertools.permutations(lanes_of(targets), 2), float(contention))
    )
    return Slowdowns(
        tuple(Slowdown(*pair, Interval.of(c), ContentionBasis.GIVEN) for pair, c in pairs.items())
    )


def corun_rows(
    store: CostStore, fingerprint: str, conditions: Conditions
) -> tuple[Measurement, ...]:
    """Returns the rows of units that ran side by side on a device under these conditions, under any
    NNAPI preference."""
    rows = store.select(Selection((fingerprint,), kinds=(Kind.CORUN,), newest=True))
    return tuple(row for row in rows if _without_mode(row, conditions))


def _without_mode(row: Measurement, conditions: Conditions) -> bool:
    own, asked = row.conditions, conditions.on(row.target)
    return (own.precision, own.threads, own.cpus) == (asked.precision, asked.threads, asked.cpus)


def slowdowns(graph: UnitGraph, table: CostTable, rows: Sequence[Measurement]) -> Slowdowns:
    """Returns how the lanes of ``table`` slow each other down with the graph's mix of operations.

    ``rows`` are :func:`corun_rows` of any model. Where none of them has an operation of the graph,
    the mean of all rows counts. A pair without rows has :data:`ASSUMED`.
    """
    ran: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for row in rows:
        if row.usable and row.alone_ns and row.corunner is not None:
            ran[row.target.lane or "", row.corunner.lane or ""].append(row)
    return Slowdowns(
        tuple(
            _slowdown(lane, other, ran[lane, other], _ns_by_operation(graph, table, lane))
            if ran[lane, other]
            else Slowdown(lane, other, Interval.of(ASSUMED), ContentionBasis.ASSUMED)
            for lane, other in itertools.permutations(lanes_of(table.targets), 2)
        )
    )


def _ns_by_operation(graph: UnitGraph, table: CostTable, lane: str) -> dict[str, float]:
    """Returns type of operation -> total ns of its units on a lane."""
    targets = [target for target in table.targets if target.lane == lane]
    shares: dict[str, float] = defaultdict(float)
    for unit in graph.units:
        costs = [ns for t in targets if (ns := table.unit_cost(unit.index, t)) is not None]
        if costs and unit.work is not None:
            shares[unit.work.kind] += min(costs)
    return shares


def _slowdown(
    lane: str, other: str, rows: Sequence[Measurement], shares: Mapping[str, float]
) -> Slowdown:
    random = np.random.default_rng(0)
    steady = [row for row in rows if row.conditions.mode is not Mode.ASYNC] or list(rows)
    short = [row for row in steady if sum(row.samples_ns) < LASTING_NS] or steady
    by_type: dict[str, list[Floats]] = defaultdict(list)
    for row in short:
        logs = log_ratios(medians(row.alone_ns, row.rounds), medians(row.samples_ns, row.rounds))
        if logs:
            by_type[row.operation or ""].append(_draws(np.array(logs), random))
    weights = {kind: shares.get(kind, 0.0) for kind in by_type}
    if not sum(weights.values()):
        weights = dict.fromkeys(by_type, 1.0)
    total = sum(weights.values())
    factor = None
    if by_type:
        factor = np.zeros(RESAMPLES + 1)
        for kind, draws in by_type.items():
            factor += weights[kind] / total * np.mean(np.exp(draws), axis=0)
    lasting = [row for row in steady if sum(row.samples_ns) >= LASTING_NS]
    on_cpu = lane == CPU.key
    return Slowdown(
        lane,
        other,
        Interval.of(ASSUMED) if factor is None else _interval_of_draws(np.maximum(factor, 1.0)),
        ContentionBasis.ASSUMED if factor is None else ContentionBasis.MEASURED,
        n_units=len({_what(row) for row in short}),
        cpu_share=_mean_interval([_cpu_shares(row) for row in steady], random),
        wait_ns=None if on_cpu else _wait(rows, random),
        later=_mean_interval([_later(row) for row in lasting], random),
        cpu_khz=next((row.rounds[0].cpu_khz for row in lasting if row.rounds), None),
    )


def _draws(values: Floats, random: np.random.Generator) -> Floats:
    """Returns the median of the values, then medians of draws from them. [1 + RESAMPLES]"""
    drawn = values[random.integers(len(values), size=(RESAMPLES, len(values)))]
    return np.concatenate([[np.median(values)], np.median(drawn, axis=1)])


def _interval_of_draws(draws: Floats) -> Interval:
    """Returns the interval of a value from the value and its draws. [1 + RESAMPLES]"""
    low, high = np.percentile(draws[1:], TAILS)
    return Interval(float(draws[0]), float(min(low, draws[0])), float(max(high, draws[0])))


def _mean_interval(
    values: Sequence[Sequence[float]], random: np.random.Generator
) -> Interval | None:
    """Returns the mean of several medians, without those of empty sequences."""
    draws = [_draws(np.array(each, dtype=np.float64), random) for each in values if len(each)]
    return _interval_of_draws(np.mean(draws, axis=0)) if draws else None


def _cpu_shares(row: Measurement) -> list[float]:
    pairs = zip(row.cpu_ns, row.alone_ns, strict=False)
    return [cpu / alone for cpu, alone in pairs if alone > 0]


def _later(row: Measurement) -> list[float]:
    n = max(1, math.ceil(_END * len(row.samples_ns)))
    began = statistics.median(row.samples_ns[:n])
    return [ns / began for ns in row.samples_ns[-n:]] if began else []


def _wait(rows: Sequence[Measurement], random: np.random.Generator) -> Interval | None:
    """Returns the extra time of units that were started and waited for, over those in one call."""
    in_call = {_what(row): row for row in rows if row.conditions.mode is Mode.SYNC}
    more = [
        _draws(np.array(row.alone_ns, dtype=np.float64), random)
        - _draws(np.array(in_call[_what(row)].alone_ns, dtype=np.float64), random)
        for row in rows
        if row.conditions.mode is Mode.ASYNC and _what(row) in in_call
    ]
    return _interval_of_draws(np.mean(more, axis=0)) if more else None


def _what(row: Measurement) -> tuple[object, ...]:
    """Returns a key that rows of one unit share under all conditions."""
    return row.operation, row.macs, row.input_bytes, row.output_bytes, row.target, row.n_operations
