"""Reasons for the target of each segment, as facts (see :mod:`nnapi_prof.graph.causes`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nnapi_prof.costs.table import Objective
from nnapi_prof.graph.causes import Cause, CauseKind, ReasonSource, detail, source_of
from nnapi_prof.graph.plan import AUTO, CPU, Engine, Plan, Rule, Segment, Target
from nnapi_prof.partition.baselines import Baseline
from nnapi_prof.partition.problem import Placement, Problem

_MANY = 3
"""Largest number of rivals that a cause names."""


def cause_of_optimum(problem: Problem, placement: Placement) -> Cause:
    """Returns the cause of a segment of the optimal plan, against other targets of its format only:
    the cost of another format depends on the neighbours, and on the error allowed."""
    units, k = placement
    target = problem.targets[k]
    here_ns = problem.segment_ns(units, k)
    if target.engine is Engine.HOST:
        return _on_host(problem, units)
    problem = _in_format(problem, k)
    is_cpu, cpu = target.engine is Engine.CPU, CPU
    if problem.formats is not None and problem.formats[k] and not problem.copies:
        cpu = CPU.at(target.precision)
    if is_cpu and (refusals := tuple(_refusal_causes(problem, units))):
        because = (*refusals, *_and_elsewhere(problem, units, k))
        return Cause(CauseKind.STAYS_ON_CPU, because=because)
    if is_cpu and (small := _too_small(problem, units, k)):
        return small
    rivals = _rivals(problem, units, k)
    if not rivals:
        because = () if is_cpu else _reasons(problem, units, cpu)
        return Cause(CauseKind.ONLY_TARGET, target.key, here_ns, because=because)
    return Cause(CauseKind.FASTEST, target.key, here_ns, _by_key(rivals))


def _in_format(problem: Problem, k: int) -> Problem:
    """Returns the problem with one target's format only; all targets where formats are memory."""
    if problem.formats is None or problem.copies:
        return problem
    others = problem.formats != problem.formats[k]
    why = "it runs in floats only" if problem.formats[k] else "it runs in 8 bits only"
    ruled_out = {(u, j): why for u in range(problem.n) for j in np.flatnonzero(others).tolist()}
    alike = problem.without(np.broadcast_to(others, problem.unit_ns.shape))
    return replace(alike, ruled_out={**ruled_out, **problem.ruled_out})


_NOT_FAVOURED = {
    Rule.LISTED: CauseKind.LISTED,
    Rule.LARGEST_SUPPORTED: CauseKind.NOT_SUPPORTED,
    Rule.LARGEST_FEW: CauseKind.NOT_LARGEST,
}
"""Reasons why units that an accelerator supports do not run there, by rule."""


def cause_of_baseline(problem: Problem, placement: Placement, baseline: Baseline) -> Cause:
    """Returns the cause of a segment of a baseline: its rule, or what broke the rule."""
    units, k = placement
    target = problem.targets[k]
    if target.engine is Engine.HOST:
        return _on_host(problem, units)
    if baseline.favoured is not None:
        favoured = problem.targets[baseline.favoured]
        if baseline.rule is Rule.BEST_SINGLE:
            return Cause(CauseKind.BEST_SINGLE, favoured.key)
        if k == baseline.favoured:
            return Cause(CauseKind.SUPPORTED, favoured.key)
        because = _reasons(problem, units, favoured)
        kind = CauseKind.NOT_SUPPORTED if because else _NOT_FAVOURED[baseline.rule]
        return Cause(kind, favoured.key, because=because)
    if baseline.rule is Rule.ALL_CPU:
        if target == CPU:
            return Cause(CauseKind.ALL_CPU, target.key)
        return Cause(CauseKind.NOT_ON_CPU, CPU.key, because=_reasons(problem, units, CPU))
    return Cause(CauseKind.GREEDY, target.key)


def _rivals(problem: Problem, units: tuple[int, ...], k: int) -> list[tuple[Target, float]]:
    """Returns a segment's times on the CPU and each other accelerator at its best, fastest
    first."""
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


def _by_key(rivals: list[tuple[Target, float]]) -> tuple[tuple[str, float], ...]:
    return tuple((target.key, ns) for target, ns in rivals)


def _named_accelerators(problem: Problem) -> dict[str, list[int]]:
    """Returns accelerator name -> its target indices; without "auto"."""
    named: dict[str, list[int]] = {}
    for k, target in enumerate(problem.targets):
        if target.accelerator is not None and target.accelerator != AUTO:
            named.setdefault(target.accelerator, []).append(k)
    return named


def _refusal_causes(problem: Problem, units: tuple[int, ...]) -> Iterator[Cause]:
    """Yields the units of the segment that constraints keep off accelerators, then the refusals of
    each named accelerator."""
    kept_off: dict[tuple[str, ...], list[str]] = {}
    refusals: list[Cause] = []
    for name, ks in _named_accelerators(problem).items():
        refused = [u for u in units if not np.isfinite(problem.unit_ns[u, ks]).any()]
        constrained = [u for u in refused if (u, ks[0]) in problem.ruled_out]
        if constrained:
            reasons = tuple(dict.fromkeys(problem.ruled_out[u, ks[0]] for u in constrained))
            kept_off.setdefault(reasons, []).append(name)
        rest = [u for u in refused if u not in constrained]
        explained = [u for u in rest if (u, ks[0]) in problem.refusals]
        if explained:
            refusals += _refused(problem, name, explained, ks[0])
        elif rest:  # a trial of a few units showed it to be far slower
            places = (name,)
            refusals.append(Cause(CauseKind.NOT_MEASURED_ON_IT, units=tuple(rest), places=places))
    for reasons, names in kept_off.items():
        yield Cause(CauseKind.KEPT_OFF, places=tuple(names), reasons=reasons)
    yield from refusals


def _and_elsewhere(problem: Problem, units: tuple[int, ...], k: int) -> tuple[Cause, ...]:
    """Returns why no accelerator that runs all of the segment, or part of it, was chosen."""
    if small := _too_small(problem, units, k):
        return (small,)
    rivals = [(t, ns) for t, ns in _rivals(problem, units, k) if t.engine is Engine.NNAPI]
    if rivals:
        here_ns, target = problem.segment_ns(units, k), problem.targets[k]
        return (Cause(CauseKind.SLOWER, target.key, here_ns, _by_key(rivals)),)
    named = [j for ks in _named_accelerators(problem).values() for j in ks]
    more = tuple(u for u in units if np.isfinite(problem.unit_ns[u, named]).any())
    return (Cause(CauseKind.OUTWEIGHED, units=more),) if more else ()


def _refused(problem: Problem, name: str, units: list[int], k: int) -> list[Cause]:
    """Returns why a target does not run units; first, those that the costs keep off."""
    reasons = {u: problem.refusals.get((u, k), f"no cost for {problem.labels[u]}") for u in units}
    causes = []
    sources = {u: source_of(reason) for u, reason in reasons.items()}
    if by_costs := tuple(u for u in reasons if sources[u] is ReasonSource.COST_FUNCTION):
        causes.append(Cause(CauseKind.KEPT_OFF_BY_COSTS, units=by_costs, places=(name,)))
    if rest := tuple(u for u in reasons if u not in by_costs):
        failed = any(sources[u] is ReasonSource.FAILURE for u in rest)
        kind = CauseKind.FAILED if failed else CauseKind.REFUSED
        details = tuple(detail(reasons[u]) for u in rest)
        causes.append(Cause(kind, units=rest, places=(name,), reasons=details))
    return causes


def _on_host(problem: Problem, units: tuple[int, ...]) -> Cause:
    names = tuple(problem.labels[u] for u in units)
    return Cause(CauseKind.ON_HOST, units=units, reasons=names)


def _too_small(problem: Problem, units: tuple[int, ...], k: int) -> Cause | None:
    """Returns the cause that some accelerator is faster at the work itself but loses by overhead
    and transfers; None if there is no such accelerator."""
    work_here = float(problem.unit_ns[list(units), k].sum())
    best: tuple[float, int, float] | None = None
    for j, target in enumerate(problem.targets):
        if target.engine is not Engine.NNAPI:
            continue
        work = float(problem.unit_ns[list(units), j].sum())
        whole = problem.segment_ns(units, j)
        # A region measured whole can take less than its units' sum: nothing surrounds it then.
        loses_around = work < work_here and work < whole and math.isfinite(whole)
        if loses_around and (best is None or whole < best[0]):
            best = (whole, j, work)
    if best is None:
        return None
    whole, j, work = best
    there, here_ns = problem.targets[j].key, problem.segment_ns(units, k)
    return Cause(CauseKind.TOO_SMALL, there, here_ns, ((there, whole),), whole - work)


def _reasons(problem: Problem, units: tuple[int, ...], target: Target) -> tuple[Cause, ...]:
    """Returns why a target cannot run units; nothing where it runs all."""
    if target not in problem.targets:
        return (Cause(CauseKind.NOT_MEASURED, target.key),)
    k = problem.targets.index(target)
    refused = [u for u in units if not math.isfinite(problem.unit_ns[u, k])]
    causes = []
    if constrained := tuple(u for u in refused if (u, k) in problem.ruled_out):
        reasons = tuple(problem.ruled_out[u, k] for u in constrained)
        causes.append(
            Cause(CauseKind.KEPT_OFF, units=constrained, places=(target.key,), reasons=reasons)
        )
    if rest := [u for u in refused if (u, k) not in problem.ruled_out]:
        causes += _refused(problem, target.accelerator or target.key, rest, k)
    return tuple(causes)


def as_latency(plan: Plan, base: Problem, objective: Objective) -> Plan:
    """Returns a plan that was found under changed costs, with the latencies of the base problem.
    Numbers in its causes and notes stay in the objective's unit, and a note describes them. Its
    proof remains one of the objective, and is marked so."""
    segments = tuple(_as_latency(segment, base, objective) for segment in plan.segments)
    note = (
        f"chosen for the least {objective}: {plan.predicted_ns / 1e6:.4g} {objective.unit}; causes"
        " and notes use it, too, latencies are those of the costs as they are"
    )
    own = (each if isinstance(each, str) else each.words(objective.unit) for each in plan.remarks)
    remarks = (*(f"{objective.name}: {text}" for text in own), note)
    proof = plan.proof and replace(plan.proof, constrained=True, objective=str(objective))
    return replace(plan, segments=segments, remarks=remarks, proof=proof)


def _as_latency(segment: Segment, base: Problem, objective: Objective) -> Segment:
    why = segment.why
    if isinstance(why, Cause):
        why = replace(why, unit=objective.unit)
    ns = base.segment_ns(segment.units, base.target_index(segment.target))
    return replace(segment, why=why, predicted_ns=ns)
