"""The smallest case in which a complaint still holds, printed as Python."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from nnapi_prof.costs.table import CompileTimes
from nnapi_prof.graph.plan import Target
from nnapi_prof.partition.constraints import Constraints
from nnapi_prof.partition.problem import Problem, ValueFlow
from tests.partition.judge import Case
from tests.partition.verdict import Planner, ask, judge

SHRINKING_S = 60.0

Region = tuple[frozenset[int], int]
"""Units and a target's index."""


def shrink(case: Case, planner: Planner = ask, seconds: float = SHRINKING_S) -> Case:
    """The smallest case met, by taking parts away one by one, with a complaint of the same kind."""
    kinds = judge(case, planner).kinds
    deadline = time.monotonic() + seconds
    smaller: Case | None = case
    while smaller is not None:
        case = smaller
        smaller = next(
            (
                candidate
                for candidate in _simpler(case)
                if time.monotonic() < deadline and kinds & judge(candidate, planner).kinds
            ),
            None,
        )
    return case


def _simpler(case: Case) -> Iterator[Case]:
    """Cases with one part less, large parts first; those that are no problem are left out."""
    problem, constraints = case.problem, case.constraints
    for plain in fields(Constraints):
        default = getattr(Constraints(), plain.name)
        if getattr(constraints, plain.name) != default:
            asked = replace(constraints, **{plain.name: default})
            yield replace(
                case,
                constraints=asked,
                compiling=None if asked.max_compile_ns is None else case.compiling,
            )
    for u in reversed(range(problem.n)):
        if problem.n > 1:
            yield _without_unit(case, u)
    for k in range(len(problem.targets)):
        if len(problem.targets) > 1:
            yield _without_target(case, k)
    for region in problem.region_ns:
        yield replace(case, problem=replace(problem, region_ns=_less(problem.region_ns, region)))
    if case.compiling is not None:
        for region in case.compiling.region_ns:
            regions = _less(case.compiling.region_ns, region)
            yield replace(case, compiling=replace(case.compiling, region_ns=regions))
    if case.tolerance:
        yield replace(case, tolerance=0.0)
    for values in _simpler_values(problem):
        yield replace(case, problem=replace(problem, values=values))
    for u, preds in enumerate(problem.predecessors):
        for p in preds:
            if not any(value.producer == p and u in value.readers for value in problem.values):
                rest = tuple(q for q in preds if q != p)
                order = (*problem.predecessors[:u], rest, *problem.predecessors[u + 1 :])
                yield replace(case, problem=replace(problem, predecessors=order))
    for numbers in _simpler_numbers(problem):
        yield replace(case, problem=numbers)


def _less(regions: Mapping[Region, float], region: Region) -> dict[Region, float]:
    return {other: ns for other, ns in regions.items() if other != region}


def _without_unit(case: Case, u: int) -> Case:
    """Its readers read from nobody; regions go on without it."""
    problem, constraints = case.problem, case.constraints

    def moved(units: Sequence[int] | frozenset[int]) -> tuple[int, ...]:
        return tuple(sorted(w - (w > u) for w in units if w != u))

    def regions(many: Mapping[Region, float]) -> dict[Region, float]:
        return {(frozenset(moved(units)), k): ns for (units, k), ns in many.items() if units != {u}}

    values = tuple(
        replace(value, producer=value.producer - (value.producer > u), readers=moved(value.readers))
        for value in problem.values
        if value.producer != u
    )
    return replace(
        case,
        problem=replace(
            problem,
            labels=problem.labels[:-1],
            predecessors=tuple(moved(p) for w, p in enumerate(problem.predecessors) if w != u),
            values=values,
            unit_ns=np.delete(problem.unit_ns, u, axis=0),
            region_ns=regions(problem.region_ns),
        ),
        constraints=replace(
            constraints,
            pinned={w - (w > u): t for w, t in constraints.pinned.items() if w != u},
            forbidden={w - (w > u): t for w, t in constraints.forbidden.items() if w != u},
        ),
        compiling=case.compiling
        and CompileTimes(
            case.compiling.fixed_ns,
            np.delete(case.compiling.unit_ns, u, axis=0),
            regions(case.compiling.region_ns),
        ),
    )


def _without_target(case: Case, k: int) -> Case:
    problem, constraints = case.problem, case.constraints
    gone = problem.targets[k]

    def regions(many: Mapping[Region, float]) -> dict[Region, float]:
        return {(units, j - (j > k)): ns for (units, j), ns in many.items() if j != k}

    return replace(
        case,
        problem=replace(
            problem,
            targets=problem.targets[:k] + problem.targets[k + 1 :],
            unit_ns=np.delete(problem.unit_ns, k, axis=1),
            overhead_ns=np.delete(problem.overhead_ns, k),
            in_ns_per_byte=np.delete(problem.in_ns_per_byte, k),
            out_ns_per_byte=np.delete(problem.out_ns_per_byte, k),
            region_ns=regions(problem.region_ns),
        ),
        constraints=replace(
            constraints,
            pinned={u: t for u, t in constraints.pinned.items() if t != gone},
            forbidden={u: t - {gone} for u, t in constraints.forbidden.items()},
        ),
        compiling=case.compiling
        and CompileTimes(
            np.delete(case.compiling.fixed_ns, k),
            np.delete(case.compiling.unit_ns, k, axis=1),
            regions(case.compiling.region_ns),
        ),
    )


def _simpler_values(problem: Problem) -> Iterator[tuple[ValueFlow, ...]]:
    for v, value in enumerate(problem.values):
        before, after = problem.values[:v], problem.values[v + 1 :]
        yield before + after
        for reader in value.readers:
            readers = tuple(r for r in value.readers if r != reader)
            yield (*before, replace(value, readers=readers), *after)
        if value.is_output:
            yield (*before, replace(value, is_output=False), *after)
        for n_bytes in (0, 1):
            if value.n_bytes > n_bytes:
                yield (*before, replace(value, n_bytes=n_bytes), *after)


def _simpler_numbers(problem: Problem) -> Iterator[Problem]:
    """Costs of 0 and 1 and fewer digits."""
    names = ("overhead_ns", "in_ns_per_byte", "out_ns_per_byte", "unit_ns")
    for name in names:
        array = getattr(problem, name)
        for index in np.ndindex(array.shape):
            ns = float(array[index])
            for simpler in (0.0, 1.0, float(f"{ns:.1g}"), float(f"{ns:.2g}")):
                if math.isfinite(ns) and _digits(simpler) < _digits(ns):
                    changed = array.copy()
                    changed[index] = simpler
                    yield replace(problem, **{name: changed})
    for region, ns in problem.region_ns.items():
        for simpler in (0.0, 1.0, float(f"{ns:.1g}"), float(f"{ns:.2g}")):
            if math.isfinite(ns) and _digits(simpler) < _digits(ns):
                yield replace(problem, region_ns={**problem.region_ns, region: simpler})


def _digits(ns: float) -> tuple[int, float]:
    """Falls with each step to a simpler number, so that shrinking ends."""
    return len(f"{ns:.17g}"), ns


def literals(case: Case) -> str:
    """The case as Python; ``Case``, ``np``, ``inf`` and the classes of its fields must be there."""
    problem, constraints = case.problem, case.constraints

    def targets(many: Sequence[Target] | frozenset[Target]) -> str:
        return "".join(f"Target({target.key!r}), " for target in many)

    lines = ["Case(", "    Problem("]
    lines.append(f"        labels={problem.labels!r},")
    lines.append(f"        predecessors={problem.predecessors!r},")
    lines.append("        values=(")
    lines += [f"            {value!r}," for value in problem.values]
    lines += ["        ),", f"        targets=({targets(problem.targets)}),"]
    for name in ("unit_ns", "overhead_ns", "in_ns_per_byte", "out_ns_per_byte"):
        lines.append(f"        {name}=np.array({getattr(problem, name).tolist()!r}),")
    lines.append(f"        region_ns={dict(problem.region_ns)!r},")
    pins = ", ".join(f"{u}: Target({t.key!r})" for u, t in constraints.pinned.items())
    bans = ", ".join(
        f"{u}: frozenset([{targets(many)}])" for u, many in constraints.forbidden.items()
    )
    lines += ["    ),", "    Constraints("]
    lines.append(f"        forbidden={{{bans}}}, pinned={{{pins}}},")
    lines.append(f"        preference={constraints.preference and str(constraints.preference)},")
    lines.append(f"        max_regions={constraints.max_regions!r},")
    lines += [f"        max_compile_ns={constraints.max_compile_ns!r},", "    ),"]
    if case.compiling is not None:
        lines.append("    CompileTimes(")
        for name in ("fixed_ns", "unit_ns"):
            lines.append(f"        np.array({getattr(case.compiling, name).tolist()!r}),")
        lines += [f"        {dict(case.compiling.region_ns)!r},", "    ),"]
    lines += [f"    tolerance={case.tolerance!r}, seconds={case.seconds!r},", ")"]
    return "\n".join(lines)


def report(case: Case, planner: Planner = ask) -> str:
    """A failure: the smallest case, and what is false about its answer."""
    smallest = shrink(case, planner)
    verdict = judge(smallest, planner)
    return "\n".join([literals(smallest), *(f"-> {c}" for c in verdict.complaints)])
