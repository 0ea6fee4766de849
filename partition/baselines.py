"""What one would do without this partitioner, as placements under the same costs.

all-cpu            the CPU runs all it can (the host the rest)
largest-supported  one accelerator gets every unit it supports, in maximal regions, the CPU the
                   rest: what PyTorch, TVM, ONNX Runtime and TFLite do. One per accelerator, under
                   the preference that is best for it; where the accelerator supports everything
                   this is the whole model on one target.
greedy             each unit goes where it alone runs fastest, hand-over ignored; neighbours on one
                   target form segments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnapi_prof.graph.plan import Engine
from nnapi_prof.partition.problem import Placement, Problem, fallback_target


@dataclass(frozen=True, slots=True)
class Baseline:
    """A named placement. ``favoured`` is the target index it is about, None where it has none."""

    name: str
    placements: tuple[Placement, ...]
    predicted_ns: float
    favoured: int | None = None


def merge_by_target(problem: Problem, assignment: Sequence[int]) -> tuple[Placement, ...]:
    """Segments from a target index for each unit.

    Runs all ready units of one target until none is left, then turns to another, so every segment
    is convex and as large as this order allows. Of the ready targets, that of the earliest unit
    goes first.
    """
    missing = [len(preds) for preds in problem.predecessors]
    ready = {u for u in range(problem.n) if not missing[u]}
    segments: list[Placement] = []
    while ready:
        k = assignment[min(ready)]
        inside: list[int] = []
        while here := sorted(u for u in ready if assignment[u] == k):
            for u in here:
                ready.discard(u)
                inside.append(u)
                for s in problem.successors[u]:
                    missing[s] -= 1
                    if not missing[s]:
                        ready.add(s)
        segments.append((tuple(sorted(inside)), k))
    return tuple(segments)


def total_ns(problem: Problem, placements: Sequence[Placement]) -> float:
    """Latency of placements in ns; inf where one cannot run."""
    return sum(problem.segment_ns(units, k) for units, k in placements)


def find_baselines(problem: Problem) -> tuple[Baseline, ...]:
    """All baselines that can run, all-cpu first.

    A baseline with a region that was measured and failed on the device cannot run and is left out.
    None at all where some unit runs only inside a region that was measured whole.
    """
    if not np.isfinite(problem.unit_ns).any(axis=1).all():
        return ()
    fallback = [fallback_target(problem, u) for u in range(problem.n)]
    found = [_baseline(problem, "all-cpu", fallback, None)]
    best: dict[str, Baseline] = {}
    for k, target in enumerate(problem.targets):
        supported = np.isfinite(problem.unit_ns[:, k])
        if target.engine is not Engine.NNAPI or not supported.any():
            continue
        mixed = [k if supported[u] else fallback[u] for u in range(problem.n)]
        candidate = _baseline(problem, f"largest-supported {target}", mixed, k)
        accelerator = target.accelerator or ""
        if accelerator not in best or candidate.predicted_ns < best[accelerator].predicted_ns:
            best[accelerator] = candidate
    found += best.values()
    greedy = [int(k) for k in problem.unit_ns.argmin(axis=1)]
    found.append(_baseline(problem, "greedy", greedy, None))
    return tuple(b for b in found if math.isfinite(b.predicted_ns))


def _baseline(
    problem: Problem, name: str, assignment: Sequence[int], favoured: int | None
) -> Baseline:
    placements = merge_by_target(problem, assignment)
    return Baseline(name, placements, total_ns(problem, placements), favoured)
