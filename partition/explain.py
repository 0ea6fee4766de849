"""Why a segment stands where it does, in one sentence, with times in ms."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from nnapi_prof.graph.plan import AUTO, CPU, Engine, Proof, Target
from nnapi_prof.partition.baselines import Baseline
from nnapi_prof.partition.problem import Placement, Problem

_MANY = 3
"""Of more units or reasons than this, the rest is counted."""


def ms(ns: float) -> str:
    """Three significant digits: ``1.23 ms``, ``0.0456 ms``, ``123 ms``."""
    value = ns / 1e6
    if value == 0:
        return "0 ms"
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:.{min(digits, 6)}f} ms"


def proof_words(proof: Proof, asked: str) -> str:
    """What is proven about the best plan, in a sentence; ``asked`` are the constraints in words."""
    if proof.is_optimal:
        if asked:
            return f"optimal over all plans that keep to what was asked ({asked})"
        return "optimal over all plans under these costs"
    which = f"no plan that keeps to what was asked ({asked})" if asked else "no plan at all"
    return (
        f"{which} is faster than {ms(proof.bound_ns)}; the best one found takes "
        f"{ms(proof.least_ns)}, at most {proof.gap:.2%} more"
    )


def cause_of_optimum(problem: Problem, placement: Placement) -> str:
    """The cause of a segment of the optimal plan."""
    units, k = placement
    target = problem.targets[k]
    here = problem.segment_ns(units, k)
    if target.engine is Engine.HOST:
        return _cause_of_host(problem, units)
    if target == CPU and (refusals := _refusals(problem, units)):
        return f"stays on the CPU: {'; '.join([*refusals, *_and_elsewhere(problem, units, k)])}"
    if target == CPU and (small := _too_small(problem, units, k)):
        return small
    rivals = _rivals(problem, units, k)
    if not rivals:
        reasons = "" if target == CPU else _reasons(problem, units, CPU)
        return f"only {target} can run all of it: {ms(here)}" + (f"; {reasons}" if reasons else "")
    return f"fastest: {_against(here, rivals)}"


def cause_of_baseline(problem: Problem, placement: Placement, baseline: Baseline) -> str:
    """The cause of a segment of a baseline: its rule, or what broke the rule."""
    units, k = placement
    target = problem.targets[k]
    if target.engine is Engine.HOST:
        return _cause_of_host(problem, units)
    if baseline.favoured is not None:
        favoured = problem.targets[baseline.favoured]
        if baseline.name.startswith("best-single"):
            return f"of all targets that run the whole model, {favoured} is the fastest"
        if k == baseline.favoured:
            return f"{favoured} supports it"
        return _reasons(problem, units, favoured) or _left_out(baseline, favoured)
    if baseline.name == "all-cpu":
        if target == CPU:
            return "the rule of this baseline: everything on the CPU"
        return _reasons(problem, units, CPU) or "the CPU does not run it"
    return f"{target} is the fastest for each unit alone, hand-over ignored"


def _left_out(baseline: Baseline, favoured: Target) -> str:
    """Why units that an accelerator supports are not given to it."""
    if baseline.name.startswith("listed"):
        return "on the list of what stays off accelerators, or behind it"
    if baseline.name.startswith("largest-supported"):
        return f"{favoured} does not run it"
    return "not among the largest regions, which are all that this baseline offloads"


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


def _refusals(problem: Problem, units: tuple[int, ...]) -> list[str]:
    """What each named accelerator says to the units of the segment that it does not run, after what
    the constraints keep off accelerators."""
    named = {name: ks for name, ks in _accelerators(problem).items() if name != AUTO}
    found = []
    kept_off: dict[str, list[str]] = {}
    for name, ks in named.items():
        refused = [u for u in units if not np.isfinite(problem.unit_ns[u, ks]).any()]
        ruled_out = [u for u in refused if (u, ks[0]) in problem.ruled_out]
        if ruled_out:
            why = _distinct(problem.ruled_out[u, ks[0]] for u in ruled_out)
            kept_off.setdefault(why, []).append(name)
        rest = [u for u in refused if u not in ruled_out]
        if told := [problem.refusals[u, ks[0]] for u in rest if (u, ks[0]) in problem.refusals]:
            found.append(_refusal(name, told))
        elif rest:  # a trial of a few units showed it to lie far behind
            found.append(f"{name} was not measured on it")
    return [f"kept off {', '.join(names)}: {why}" for why, names in kept_off.items()] + found


def _and_elsewhere(problem: Problem, units: tuple[int, ...], k: int) -> list[str]:
    """After the refusals: why no accelerator that runs all of the segment has it, or part of it."""
    if small := _too_small(problem, units, k):
        return [small]
    rivals = [(t, ns) for t, ns in _rivals(problem, units, k) if t.engine is Engine.NNAPI]
    if rivals:
        return [_against(problem.segment_ns(units, k), rivals)]
    named = [j for name, ks in _accelerators(problem).items() if name != AUTO for j in ks]
    able = int(np.isfinite(problem.unit_ns[np.ix_(units, named)]).any(axis=1).sum())
    return [f"{able} more would not pay the hand-over"] if able else []


def _against(here: float, rivals: list[tuple[Target, float]]) -> str:
    return f"{ms(here)} here, " + ", ".join(f"{ms(ns)} on {target}" for target, ns in rivals)


def _reason(problem: Problem, unit: int, k: int) -> str:
    return problem.refusals.get((unit, k), f"no cost for {problem.labels[unit]}")


def _refusal(name: str, reasons: Iterable[str]) -> str:
    """``NAME refuses: ...``; ``NAME cannot run it: ...`` where it crashed, failed or hung; the
    reasons alone where they name it."""
    told = list(reasons)
    ended_badly = any(reason.startswith(("crashed", "failed", "timeout")) for reason in told)
    said = _distinct(reason.removeprefix("refused: ") for reason in told)
    if said.startswith(f"{name} "):
        return said
    return f"{name} {'cannot run it' if ended_badly else 'refuses'}: {said}"


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
        # A region measured whole can take less than its units' sum: nothing surrounds it then.
        loses_around = work < work_here and work < whole and math.isfinite(whole)
        if loses_around and (best is None or whole < best[0]):
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
    refused = [u for u in units if not math.isfinite(problem.unit_ns[u, k])]
    ruled_out = [problem.ruled_out[u, k] for u in refused if (u, k) in problem.ruled_out]
    told = [f"kept off {target}: {_distinct(ruled_out)}"] if ruled_out else []
    if rest := [u for u in refused if (u, k) not in problem.ruled_out]:
        name = target.accelerator or target.key
        told.append(_refusal(name, (_reason(problem, u, k) for u in rest)))
    return "; ".join(told)


def _distinct(texts: Iterable[str]) -> str:
    unique = list(dict.fromkeys(texts))
    more = f" and {len(unique) - _MANY} more" if len(unique) > _MANY else ""
    return ", ".join(unique[:_MANY]) + more
