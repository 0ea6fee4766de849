"""Why a segment stands where it does, in one sentence, with times in ms."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from nnapi_prof.graph.plan import AUTO, CPU, Engine, Target
from nnapi_prof.partition.baselines import Baseline
from nnapi_prof.partition.dp import Placement
from nnapi_prof.partition.problem import Problem

_MANY = 3
"""Of more units or reasons than this, the rest is counted."""


def ms(ns: float) -> str:
    """Three significant digits: ``1.23 ms``, ``0.0456 ms``, ``123 ms``."""
    value = ns / 1e6
    if value == 0:
        return "0 ms"
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:.{min(digits, 6)}f} ms"


def cause_of_optimum(problem: Problem, placement: Placement) -> str:
    """The cause of a segment of the optimal plan."""
    units, k = placement
    target = problem.targets[k]
    here = problem.segment_ns(units, k)
    if target.engine is Engine.HOST:
        return _cause_of_host(problem, units)
    rivals = _rivals(problem, units, k)
    refused = _refused_everywhere(problem, units)
    if target == CPU and refused and not any(_of(t) == "nnapi" for t, _ in rivals):
        return _cause_of_refusal(problem, units, refused)
    if target == CPU and (small := _too_small(problem, units, k)):
        return small
    if not rivals:
        if target == CPU:
            return f"only the CPU has a cost for all of it: {ms(here)}"
        reasons = _reasons(problem, units, CPU)
        return f"only {target} can run all of it: {ms(here)}" + (f"; {reasons}" if reasons else "")
    against = ", ".join(f"{ms(ns)} on {t}" for t, ns in rivals)
    return f"fastest: {ms(here)} here, {against}"


def cause_of_baseline(problem: Problem, placement: Placement, baseline: Baseline) -> str:
    """The cause of a segment of a baseline: its rule, or what broke the rule."""
    units, k = placement
    target = problem.targets[k]
    if target.engine is Engine.HOST:
        return _cause_of_host(problem, units)
    if baseline.favoured is not None:
        favoured = problem.targets[baseline.favoured]
        if k == baseline.favoured:
            return f"{favoured} supports it"
        return _reasons(problem, units, favoured) or f"{favoured} does not run it"
    if baseline.name == "all-cpu":
        if target == CPU:
            return "the rule of this baseline: everything on the CPU"
        return _reasons(problem, units, CPU) or "the CPU does not run it"
    return f"{target} is the fastest for each unit alone, hand-over ignored"


def _of(target: Target) -> str:
    return target.engine.value


def _rivals(problem: Problem, units: tuple[int, ...], k: int) -> list[tuple[Target, float]]:
    """The same segment elsewhere: the CPU and each other accelerator at its best, fastest first."""
    own = problem.targets[k]
    best: dict[str, tuple[Target, float]] = {}
    for j, target in enumerate(problem.targets):
        name = target.accelerator or target.key
        if name == (own.accelerator or own.key):
            continue
        ns = problem.segment_ns(units, j)
        if math.isfinite(ns) and (name not in best or ns < best[name][1]):
            best[name] = (target, ns)
    return sorted(best.values(), key=lambda row: row[1])[:_MANY]


def _accelerators(problem: Problem) -> dict[str, list[int]]:
    """Accelerator name -> its target indices; "auto" counts, for NNAPI's runtime may refuse."""
    found: dict[str, list[int]] = {}
    for k, target in enumerate(problem.targets):
        if target.accelerator is not None:
            found.setdefault(target.accelerator, []).append(k)
    return found


def _refused_everywhere(problem: Problem, units: tuple[int, ...]) -> list[int]:
    """Units of the segment that no named accelerator runs."""
    named = [k for name, ks in _accelerators(problem).items() if name != AUTO for k in ks]
    if not named:
        return []
    return [u for u in units if not np.isfinite(problem.unit_ns[u, named]).any()]


def _cause_of_refusal(problem: Problem, units: tuple[int, ...], refused: list[int]) -> str:
    parts = []
    for name, ks in _accelerators(problem).items():
        reasons = _distinct(
            problem.refusals.get((u, ks[0]), f"no cost for {problem.labels[u]}")
            for u in refused
            if not np.isfinite(problem.unit_ns[u, ks]).any()
        )
        if name != AUTO and reasons:
            parts.append(f"{name} refuses: {reasons}")
    inside = len(units) - len(refused)
    rest = f"; {inside} more would not pay the hand-over" if inside else ""
    return f"stays on the CPU: {'; '.join(parts)}{rest}"


def _cause_of_host(problem: Problem, units: tuple[int, ...]) -> str:
    names = _distinct(problem.labels[u] for u in units)
    return f"no engine of the agent runs {names}: eager PyTorch on the host, estimated"


def _too_small(problem: Problem, units: tuple[int, ...], k: int) -> str | None:
    """Whether some accelerator is faster at the work itself and loses by what surrounds it."""
    work_here = float(problem.unit_ns[list(units), k].sum())
    best: tuple[float, int] | None = None
    for j, target in enumerate(problem.targets):
        if target.engine is not Engine.NNAPI:
            continue
        work = float(problem.unit_ns[list(units), j].sum())
        whole = problem.segment_ns(units, j)
        if work < work_here and math.isfinite(whole) and (best is None or whole < best[0]):
            best = (whole, j)
    if best is None:
        return None
    whole, j = best
    work = float(problem.unit_ns[list(units), j].sum())
    here = problem.segment_ns(units, k)
    return (
        f"too small to pay {ms(whole - work)} of invocation and transfer on "
        f"{problem.targets[j]}: {ms(here)} here, {ms(whole)} there"
    )


def _reasons(problem: Problem, units: tuple[int, ...], target: Target) -> str:
    """``TARGET refuses: ...`` for the units it cannot run; empty where it runs all."""
    if target not in problem.targets:
        return f"{target} was not measured"
    k = problem.targets.index(target)
    reasons = _distinct(
        problem.refusals.get((u, k), f"no cost for {problem.labels[u]}")
        for u in units
        if not math.isfinite(problem.unit_ns[u, k])
    )
    return f"{target.accelerator or target} refuses: {reasons}" if reasons else ""


def _distinct(texts: Iterable[str]) -> str:
    unique = list(dict.fromkeys(texts))
    more = f" and {len(unique) - _MANY} more" if len(unique) > _MANY else ""
    return ", ".join(unique[:_MANY]) + more
