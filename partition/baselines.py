"""Plans by simple rules instead of a search, as placements under the same costs.

all-cpu            the CPU runs all it can (the host the rest)
best-single        the whole model on the one target that is fastest for it. On real phones this is
                   within 3 % of the optimum in the median: the rule that a plan has to beat
largest-supported  one accelerator gets every unit it supports, in maximal regions, and the CPU
                   the rest, as in PyTorch, TVM and ONNX Runtime. One baseline per accelerator,
                   under its best preference; the whole model where that ran there
largest-3          the same with only the three regions of most units, where there are more: the
                   TFLite delegate's default
listed             the same for the best accelerator, without the units of a given list and their
                   dependents: ONNX Runtime's partitioning_stop_ops
greedy             each unit goes where it alone runs fastest, ignoring hand-over; neighbours on
                   one target form segments, as in Android's own runtime with drivers' ratings
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.graph.plan import BaselineName, Engine, Rule
from nnapi_prof.partition.problem import Placement, Problem, fallback_target

MOST_REGIONS = 3
"""Default limit of partitions in TFLite's NNAPI delegate."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A named placement; ``favoured`` is the index of the rule's target, None where it has none."""

    name: BaselineName
    placements: tuple[Placement, ...]
    predicted_ns: float
    favoured: int | None = None

    @property
    def rule(self) -> Rule:
        return self.name.rule


def merge_by_target(problem: Problem, assignment: Sequence[int]) -> tuple[Placement, ...]:
    """Returns segments from a target index for each unit.

    Runs all ready units of one target until none is left, then turns to another, so every segment
    is convex and as large as this order allows. The target of the earliest ready unit goes first.
    """
    missing = [len(preds) for preds in problem.predecessors]
    ready: dict[int, list[int]] = {}  # target -> heap of units
    for u in range(problem.n):
        if not missing[u]:
            heapq.heappush(ready.setdefault(assignment[u], []), u)
    segments: list[Placement] = []
    while ready:
        k = min(ready, key=lambda target: ready[target][0])
        inside: list[int] = []
        heap = ready[k]
        while heap:
            u = heapq.heappop(heap)
            inside.append(u)
            for s in problem.successors[u]:
                missing[s] -= 1
                if not missing[s]:
                    heapq.heappush(ready.setdefault(assignment[s], []), s)
        del ready[k]
        segments.append((tuple(sorted(inside)), k))
    return tuple(segments)


def total_ns(problem: Problem, placements: Sequence[Placement]) -> float:
    """Returns the latency of a plan in ns, conversions included; inf where a segment cannot run."""
    return segments_ns(problem, placements) + problem.conversions_ns(placements)


def segments_ns(problem: Problem, placements: Sequence[Placement]) -> float:
    """Returns the latency of segments in ns; inf where one cannot run."""
    is_part = sum(len(u) for u, _ in placements) < problem.n
    if is_part or (len(placements) < FEW_SEGMENTS and problem.n < MANY_UNITS):
        return sum(problem.segment_ns(units, k) for units, k in placements)
    return _total_at_once(problem, placements)


FEW_SEGMENTS, MANY_UNITS = 32, 300
"""From these sizes on, segments are priced all at once with arrays."""


def _total_at_once(problem: Problem, placements: Sequence[Placement]) -> float:
    a = problem.arrays
    counts = [len(units) for units, _ in placements]
    order = np.fromiter((u for units, _ in placements for u in units), np.int64, sum(counts))
    segment, target = np.zeros(a.n, dtype=np.int64), np.zeros(a.n, dtype=np.int64)
    ks = np.fromiter((k for _, k in placements), np.int64, len(counts))
    segment[order] = np.repeat(np.arange(len(counts)), counts)
    target[order] = np.repeat(ks, counts)
    unit_ns = a.unit_ns[np.arange(a.n), target]
    own = np.bincount(segment, unit_ns, len(counts)) + a.overhead_ns[ks]
    has_maker = a.producer >= 0
    home = np.where(has_maker, segment[np.maximum(a.producer, 0)], -1)
    away = segment[a.readers] != home[a.reader_value]
    pairs = np.unique(a.reader_value[away] * len(counts) + segment[a.readers[away]])
    value, at = pairs // len(counts), pairs % len(counts)
    own += np.bincount(at, a.in_ns[value, ks[at]], len(counts))
    leaves = a.is_output.copy()
    leaves[a.reader_value[away]] = True
    leaves &= has_maker
    maker = a.producer[leaves]
    own += np.bincount(segment[maker], a.out_ns[np.flatnonzero(leaves), target[maker]], len(counts))
    if problem.region_ns:
        for i, (units, k) in enumerate(placements):
            measured = problem.region_ns.get((frozenset(units), k))
            if measured is not None:
                own[i] = measured
    return float(own.sum())


def find_baselines(problem: Problem, listed: Collection[int] = ()) -> tuple[Baseline, ...]:
    """Returns all baselines that can run, all-cpu first and greedy last.

    ``listed`` are the units that the baseline of that name keeps off accelerators. A baseline with
    a region that failed when measured on the device is left out. There are no baselines where some
    unit runs only inside a region that was measured whole.
    """
    if not np.isfinite(problem.unit_ns).any(axis=1).all():
        return ()
    fallback = [fallback_target(problem, u) for u in range(problem.n)]
    every = [_baseline(problem, Rule.ALL_CPU, fallback, None), *_best_single(problem)]
    supported = np.isfinite(problem.unit_ns)
    whole = frozenset(range(problem.n))
    whole_on = [
        math.isfinite(problem.region_ns.get((whole, k), math.inf))
        for k in range(len(problem.targets))
    ]
    largest = _best_of_each(
        problem,
        Rule.LARGEST_SUPPORTED,
        lambda k: _assignment(supported[:, k] | whole_on[k], k, fallback),
    )
    every += largest
    for baseline in largest:
        if baseline.favoured is not None and _regions(baseline) > MOST_REGIONS:
            every.append(_limited(problem, baseline, fallback))
    if listed:
        free = supported & ~_with_dependents(problem, listed)[:, None]
        rivals = _best_of_each(problem, Rule.LISTED, lambda k: _assignment(free[:, k], k, fallback))
        every += sorted(rivals, key=lambda b: b.predicted_ns)[:1]
    greedy = [int(k) for k in problem.unit_ns.argmin(axis=1)]
    every.append(_baseline(problem, Rule.GREEDY, greedy, None))
    return tuple(b for b in every if math.isfinite(b.predicted_ns))


def _assignment(supported: NDArray[np.bool_], k: int, fallback: Sequence[int]) -> list[int]:
    return [k if able else other for able, other in zip(supported.tolist(), fallback, strict=True)]


def _best_single(problem: Problem) -> list[Baseline]:
    """Returns the whole model on its fastest target; nothing where no target runs all of it."""
    whole = tuple(range(problem.n))
    singles = [
        _baseline_of(problem, Rule.BEST_SINGLE, ((whole, k),), total_ns(problem, ((whole, k),)), k)
        for k in range(len(problem.targets))
    ]
    best = min(singles, key=lambda b: b.predicted_ns)
    return [best] if math.isfinite(best.predicted_ns) else []


def _best_of_each(
    problem: Problem, rule: Rule, assign: Callable[[int], list[int]]
) -> list[Baseline]:
    """Returns a baseline for each accelerator that gets any units, under its best preference."""
    best: dict[str, Baseline] = {}
    for k, target in enumerate(problem.targets):
        assignment = assign(k)
        if target.engine is not Engine.NNAPI or k not in assignment:
            continue
        candidate = _baseline(problem, rule, assignment, k)
        accelerator = target.accelerator or ""
        if accelerator not in best or candidate.predicted_ns < best[accelerator].predicted_ns:
            best[accelerator] = candidate
    return list(best.values())


def _regions(baseline: Baseline) -> int:
    return sum(k == baseline.favoured for _, k in baseline.placements)


def _limited(problem: Problem, baseline: Baseline, fallback: Sequence[int]) -> Baseline:
    """Returns a baseline with its largest regions only; the units of the others fall back."""
    k = baseline.favoured
    assert k is not None
    own = sorted((units for units, t in baseline.placements if t == k), key=lambda u: (-len(u), u))
    inside = {u for units in own[:MOST_REGIONS] for u in units}
    assignment = [k if u in inside else fallback[u] for u in range(problem.n)]
    return _baseline(problem, Rule.LARGEST_FEW, assignment, k)


def _with_dependents(problem: Problem, units: Collection[int]) -> NDArray[np.bool_]:
    """Returns [n]: true for some units and all that depend on them, directly or not."""
    dependent = np.zeros(problem.n, dtype=np.bool_)
    for u in range(problem.n):
        dependent[u] = u in units or any(dependent[p] for p in problem.predecessors[u])
    return dependent


def _baseline(
    problem: Problem, rule: Rule, assignment: Sequence[int], favoured: int | None
) -> Baseline:
    placements = merge_by_target(problem, assignment)
    return _baseline_of(problem, rule, placements, total_ns(problem, placements), favoured)


def _baseline_of(
    problem: Problem,
    rule: Rule,
    placements: tuple[Placement, ...],
    predicted_ns: float,
    favoured: int | None,
) -> Baseline:
    name = BaselineName(rule, None if favoured is None else problem.targets[favoured])
    return Baseline(name, placements, predicted_ns, favoured)
