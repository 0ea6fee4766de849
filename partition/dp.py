"""The exact programme for sequential latency: shortest path over a family of ideals.

``best[J] = min over ideals I < J and targets t of best[I] + cost(J - I, t)``. Over all ideals of
the graph this is the optimum of every plan whose segments run one after another; over the ideals of
some linear orders it is the optimum of those orders. The idea of searching over ideals is that of
Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020).

For one I, the costs of all J at once are array operations: sums over J - I are differences of sums
over J and over I, and only the few values alive at I decide what crosses into and through J - I.
O(ideals^2 x (targets + alive values)) in numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.partition.ideals import mask, members
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem

Placement = tuple[tuple[int, ...], int]
"""Units of a segment, ascending, and its target's index."""

_SLACK = 1e-9
"""Relative room for rounding wherever two sums of the same costs are compared."""


@dataclass(frozen=True)
class _Tables:
    """Per ideal: membership, sums over its units, and the values alive after it."""

    words: NDArray[np.uint64]
    """[ideals, words], bit u of the row is unit u."""
    sums: NDArray[np.float64]
    """[ideals, t], sum of finite marginal costs."""
    unsupported: NDArray[np.int64]
    """[ideals, t], how many units the target cannot run."""
    reads: NDArray[np.int32]
    """[ideals, values], how many readers of a value have run."""
    alive: NDArray[np.bool_]
    """[ideals, values], made (or a graph input) and still wanted by a unit or as an output."""
    leaving: NDArray[np.float64]
    """[ideals], bytes of the alive values that units made."""


def shortest_path(
    problem: Problem,
    ideals: Sequence[int],
    upper_bound: float = math.inf,
    max_segments: int | None = None,
) -> dict[int, list[Placement]]:
    """Cheapest chains through ``ideals``, which hold the empty set and the full one, by size.

    Without ``max_segments``: the cheapest of all, of equal ones one with fewest segments. With it:
    the cheapest of each number of segments up to that, where there is one. The result maps the
    number of segments to the chain, and is empty where no chain costs at most ``upper_bound`` ns.
    Of equal targets the earlier is taken. Ideals that cannot lead below the bound are skipped.
    """
    tables = _tabulate(problem, ideals)
    position = {ideal: i for i, ideal in enumerate(ideals)}
    remaining = _remaining_bound(problem, ideals)
    measured = [(mask(units), k, ns) for (units, k), ns in problem.region_ns.items()]
    count = len(ideals)
    # One layer holds chains of any length; else layer s holds those of s segments.
    layers = 1 if max_segments is None else max_segments + 1
    step = 0 if max_segments is None else 1
    best = np.full((layers, count), np.inf)
    steps = np.zeros(count, dtype=np.int64)
    came_from = np.full((layers, count), -1, dtype=np.int64)
    placed_on = np.full((layers, count), -1, dtype=np.int64)
    best[0, 0] = 0.0
    limit = upper_bound * (1 + _SLACK)
    for i, ideal in enumerate(ideals[:-1]):
        open_layers = np.flatnonzero(best[: layers - step, i] + remaining[i] <= limit)
        if not len(open_layers) or not np.isfinite(best[open_layers, i]).any():
            continue
        after = (
            i
            + 1
            + np.flatnonzero(
                ((tables.words[i + 1 :] & tables.words[i]) == tables.words[i]).all(axis=1)
            )
        )
        costs = _costs_after(problem, tables, i, after)
        for region, k, ns in measured:
            j = position.get(ideal | region, -1) if not ideal & region else -1
            if j > i:
                costs[np.searchsorted(after, j), k] = ns
        k_best = costs.argmin(axis=1)
        cheapest = costs[np.arange(len(after)), k_best]
        for layer in open_layers:
            into = layer + step
            total = best[layer, i] + cheapest
            better = total < best[into, after]
            if not step:
                equal = (total == best[into, after]) & np.isfinite(total)
                better |= equal & (steps[i] + 1 < steps[after])
            chosen = after[better]
            best[into, chosen] = total[better]
            steps[chosen] = steps[i] + 1
            came_from[into, chosen] = i
            placed_on[into, chosen] = k_best[better]
    chains = [
        _trace(ideals, came_from, placed_on, layer, step)
        for layer in range(layers)
        if best[layer, -1] <= limit and math.isfinite(best[layer, -1])
    ]
    return {len(chain): chain for chain in chains}


def _trace(
    ideals: Sequence[int],
    came_from: NDArray[np.int64],
    placed_on: NDArray[np.int64],
    layer: int,
    step: int,
) -> list[Placement]:
    """The chain that ends at the full set in ``layer``, first segment first."""
    path: list[Placement] = []
    j = len(ideals) - 1
    while j > 0:
        i = int(came_from[layer, j])
        path.append((members(ideals[j] & ~ideals[i]), int(placed_on[layer, j])))
        layer, j = layer - step, i
    return path[::-1]


def lower_bound(problem: Problem) -> float:
    """No plan is faster, in ns: each unit at its cheapest, invocations and hand-over free."""
    return float(_unit_bound(problem).sum())


def _unit_bound(problem: Problem) -> NDArray[np.float64]:
    """[n]: shares of the units such that no segment costs less than the shares of its units.

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
    bound: NDArray[np.float64] = finite * factor
    return bound


def _remaining_bound(problem: Problem, ideals: Sequence[int]) -> NDArray[np.float64]:
    share = _unit_bound(problem)
    inside = _membership(ideals, problem.n)
    rest: NDArray[np.float64] = share.sum() - inside @ share
    return np.maximum(rest, 0.0) * (1 - _SLACK)


def _membership(ideals: Sequence[int], n: int) -> NDArray[np.float64]:
    """[ideals, n] of 0 and 1."""
    width = max(1, (n + 7) // 8)
    packed = np.frombuffer(b"".join(i.to_bytes(width, "little") for i in ideals), dtype=np.uint8)
    bits = np.unpackbits(packed.reshape(len(ideals), width), axis=1, bitorder="little")
    return bits[:, :n].astype(np.float64)


def _tabulate(problem: Problem, ideals: Sequence[int]) -> _Tables:
    n, values = problem.n, problem.values
    width = max(1, (n + 63) // 64) * 8
    words = np.frombuffer(b"".join(i.to_bytes(width, "little") for i in ideals), dtype="<u8")
    inside = _membership(ideals, n)
    finite = np.isfinite(problem.unit_ns)
    reader = np.zeros((n, len(values)))
    maker = np.zeros((n, len(values)))
    for v, value in enumerate(values):
        reader[list(value.readers), v] = 1
        if value.producer != GRAPH_INPUT:
            maker[value.producer, v] = 1
    from_unit = maker.any(axis=0)
    reads = inside @ reader
    wanted = (reads < reader.sum(axis=0)) | np.array([v.is_output for v in values], dtype=np.bool_)
    alive = ((inside @ maker > 0) | ~from_unit) & wanted
    sizes = np.array([v.n_bytes for v in values], dtype=np.float64)
    return _Tables(
        words=words.reshape(len(ideals), -1),
        sums=inside @ np.where(finite, problem.unit_ns, 0.0),
        unsupported=(inside @ ~finite).astype(np.int64),
        reads=reads.astype(np.int32),
        alive=alive,
        leaving=(alive & from_unit) @ sizes,
    )


def _costs_after(
    problem: Problem, tables: _Tables, i: int, after: NDArray[np.intp]
) -> NDArray[np.float64]:
    """[len(after), t]: cost of ideal j minus ideal i as one segment, for each j in ``after``."""
    alive = np.flatnonzero(tables.alive[i])
    sizes = np.array([problem.values[v].n_bytes for v in alive], dtype=np.float64)
    made = np.array([problem.values[v].producer != GRAPH_INPUT for v in alive], dtype=np.bool_)
    read_inside = tables.reads[np.ix_(after, alive)] > tables.reads[i, alive]
    entering = read_inside @ sizes
    passing = tables.alive[np.ix_(after, alive)] @ (sizes * made)
    leaving = tables.leaving[after] - passing
    costs: NDArray[np.float64] = (
        problem.overhead_ns
        + entering[:, None] * problem.in_ns_per_byte
        + leaving[:, None] * problem.out_ns_per_byte
        + (tables.sums[after] - tables.sums[i])
    )
    costs[tables.unsupported[after] != tables.unsupported[i]] = np.inf
    return costs
