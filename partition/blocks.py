"""Find blocks of a graph that run one after the other, and split plans at them and elsewhere.

A serial plan has the largest possible segments, which other lanes then wait for. A search for
schedules starts from the same targets split at the graph's blocks, or into runs of units that
nothing else reads from, in the order of the longest paths that depend on them (list scheduling: T.
C. Hu, Oper. Res. 9, 1961).

Sets of units are Python ints whose bit u is unit u. A plan that runs segments one after another is
a chain of ideals (downward-closed sets of the DAG), empty set to all units; the segments are the
differences, and each difference of two ideals is convex.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nnapi_prof.partition.arrays import Floats
from nnapi_prof.partition.baselines import find_baselines, merge_by_target
from nnapi_prof.partition.lanes import Lanes
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.search import Plan


def mask(units: Iterable[int]) -> int:
    """Returns a set of units as bits."""
    bits = 0
    for u in units:
        bits |= 1 << u
    return bits


def members(bits: int) -> tuple[int, ...]:
    """Returns the units of a set of bits, ascending."""
    units = []
    while bits:
        low = bits & -bits
        units.append(low.bit_length() - 1)
        bits ^= low
    return tuple(units)


def all_ideals(predecessors: Sequence[Sequence[int]], most: int) -> set[int] | None:
    """Returns every ideal, as bits; None where there are more than ``most``. ``predecessors`` are
    those of units in topological order."""
    needs = [mask(p) for p in predecessors]
    ideals = {0}
    waiting = [0]
    while waiting:
        ideal = waiting.pop()
        for u, need in enumerate(needs):
            larger = ideal | 1 << u
            if larger not in ideals and not need & ~ideal:
                ideals.add(larger)
                waiting.append(larger)
        if len(ideals) > most:
            return None
    return ideals


def convex_sets(predecessors: Sequence[Sequence[int]], most: int) -> set[int] | None:
    """Returns every non-empty convex set of units, as bits; None where there are more than ``most``
    sets or ideals."""
    ideals = all_ideals(predecessors, most)
    if ideals is None:
        return None
    sets: set[int] = set()
    for larger in ideals:
        sets.update(larger & ~smaller for smaller in ideals if not smaller & ~larger)
        if len(sets) > most:
            return None
    sets.discard(0)
    return sets


STRAY_SHARE = 0.02
"""Largest total work of the units beside cuts, as a share of the least work of all units."""
MOST_RUNS = 450
"""Largest number of chains in a start plan; with more, each move takes long."""


@dataclass(frozen=True)
class Blocks:
    """Parts of the graph that run one after the other."""

    block: tuple[int, ...]
    """Block of each unit; -1 for units beside cuts."""
    cuts: tuple[int, ...]
    """The last unit of each block but the last."""

    @property
    def count(self) -> int:
        return len(self.cuts) + 1


def find_blocks(problem: Problem) -> Blocks:
    """Splits a graph at units that all others, except a few cheap ones, precede or follow."""
    n = problem.n
    before, behind = [0] * n, [0] * n
    for u, preds in enumerate(problem.predecessors):
        for p in preds:
            before[u] |= before[p] | 1 << p
    for u in reversed(range(n)):
        for s in problem.successors[u]:
            behind[u] |= behind[s] | 1 << s
    cheapest = problem.unit_ns.min(axis=1)
    least = np.where(np.isfinite(cheapest), cheapest, 0.0)
    every = (1 << n) - 1
    beside = [every & ~(before[u] | behind[u] | 1 << u) for u in range(n)]
    weight = [math.fsum(least[v] for v in members(bits)) for bits in beside]
    stray, room = 0, STRAY_SHARE * float(least.sum())
    cuts: list[int] = []
    for u in sorted(range(n), key=lambda u: (weight[u], u)):
        more = beside[u] & ~stray
        cost = math.fsum(least[v] for v in members(more))
        if cost <= room and not stray >> u & 1 and not any(more >> c & 1 for c in cuts):
            stray |= more
            room -= cost
            cuts.append(u)
    cuts.sort()
    ends = [c for c in cuts if behind[c] & ~stray]
    block = [-1 if stray >> u & 1 else sum(1 for c in ends if before[u] >> c & 1) for u in range(n)]
    return Blocks(tuple(block), tuple(ends))


def starts_of(
    problem: Problem, plan: Sequence[Placement], shares: Sequence[Floats]
) -> Iterator[Plan]:
    """Yields plans to begin with: a serial one, the baselines, and rounded solutions of relaxations
    ([n, t]), both as they are and split up."""
    yield tuple(plan)
    for baseline in find_baselines(problem):
        yield baseline.placements
    runs = np.isfinite(problem.unit_ns)
    if not runs.any(axis=1).all():
        return
    assignments = [_targets_of(problem, plan)]
    for share in shares:
        assignments.append(np.where(runs, share, -1.0).argmax(axis=1).tolist())
    for assignment in assignments:
        if all(runs[u, k] for u, k in enumerate(assignment)):
            yield merge_by_target(problem, assignment)
            yield _by_block(problem, assignment)
            yield from _by_run(problem, assignment)


def best_targets(problem: Problem, lanes: Lanes) -> list[int]:
    """Returns the target of each lane that runs most units; among equals, the fastest."""
    best: dict[int, tuple[int, float, int]] = {}
    for k, lane in enumerate(lanes.of_target.tolist()):
        runs = np.isfinite(problem.unit_ns[:, k])
        rank = (-int(runs.sum()), float(problem.unit_ns[runs, k].sum()), k)
        if lane >= 0 and rank[0] < 0 and (lane not in best or rank < best[lane]):
            best[lane] = rank
    return sorted(k for _, _, k in best.values())


def _targets_of(problem: Problem, plan: Sequence[Placement]) -> list[int]:
    target = [0] * problem.n
    for units, k in plan:
        for u in units:
            target[u] = k
    return target


def _by_block(problem: Problem, assignment: Sequence[int]) -> Plan:
    """Returns the largest possible segments within each block of the graph."""
    blocks = find_blocks(problem)
    block = [0] * problem.n
    for u, preds in enumerate(problem.predecessors):
        block[u] = max([0, blocks.block[u], *(block[p] for p in preds)])
    # Targets count as different in each block: nothing is merged across blocks.
    t = len(problem.targets)
    merged = merge_by_target(problem, [block[u] * t + k for u, k in enumerate(assignment)])
    return tuple((units, k % t) for units, k in merged)


def _by_run(problem: Problem, assignment: Sequence[int]) -> Iterator[Plan]:
    """Yields chains of units on one target without readers or inputs in between, in the order of
    the longest paths that depend on them; nothing where there are too many."""
    n = problem.n
    ns = [float(problem.unit_ns[u, k]) for u, k in enumerate(assignment)]
    rank = [0.0] * n
    for u in reversed(range(n)):
        rank[u] = ns[u] + max((rank[s] for s in problem.successors[u]), default=0.0)
    head = list(range(n))
    for u in range(n):
        preds = problem.predecessors[u]
        if len(preds) == 1 and assignment[preds[0]] == assignment[u]:
            if len(problem.successors[preds[0]]) == 1:
                head[u] = head[preds[0]]
    chains: dict[int, list[int]] = {}
    for u in range(n):
        chains.setdefault(head[u], []).append(u)
    if len(chains) <= MOST_RUNS:
        order = sorted(chains, key=lambda first: (-rank[first], first))
        yield tuple((tuple(chains[first]), assignment[first]) for first in order)
