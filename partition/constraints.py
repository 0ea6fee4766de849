"""What a plan must keep to, beside being fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import Engine, Preference, Target
from nnapi_prof.partition.problem import Problem


@dataclass(frozen=True)
class Constraints:
    """Limits of a plan; the default is none."""

    forbidden: Mapping[int, frozenset[Target]] = field(default_factory=dict)
    """Unit -> targets that it must not run on."""
    pinned: Mapping[int, Target] = field(default_factory=dict)
    """Unit -> the one target that it must run on."""
    preference: Preference | None = None
    """The only preference that segments on accelerators may have."""
    max_regions: int | None = None
    """Most segments on accelerators."""
    max_compile_ns: float | None = None
    """Most compile time of all segments on accelerators together; needs costs that tell it."""
    reasons: Mapping[int, str] = field(default_factory=dict)
    """Unit -> why it is forbidden where it is, for causes and messages."""

    @property
    def words(self) -> str:
        """What is asked for, for people: ``2 units pinned, preference fast only``; empty for
        nothing."""
        said = [
            f"{len(units)} {'unit' if len(units) == 1 else 'units'} {how}"
            for units, how in (
                (self.pinned, "pinned"),
                ([unit for unit, targets in self.forbidden.items() if targets], "kept off targets"),
            )
            if units
        ]
        if self.preference is not None:
            said.append(f"preference {self.preference.short} only")
        if self.max_regions is not None:
            said.append(f"at most {self.max_regions} on accelerators")
        if self.max_compile_ns is not None:
            said.append(f"at most {self.max_compile_ns / 1e6:.4g} ms of compilation")
        return ", ".join(said)


def constrain(problem: Problem, constraints: Constraints) -> Problem:
    """The problem without what the constraints rule out; ``max_regions`` is the solver's.

    Raises PartitionError where a constraint names a unit or target that is not there, where two
    contradict each other, or where one leaves a unit nowhere to run.
    """
    allowed = np.ones(problem.unit_ns.shape, dtype=np.bool_)
    why: dict[tuple[int, int], str] = {}

    def rule_out(unit: int, k: int, reason: str) -> None:
        allowed[unit, k] = False
        why.setdefault((unit, k), reason)

    for k, target in enumerate(problem.targets):
        wanted = constraints.preference
        if wanted is not None and target.engine is Engine.NNAPI and target.preference != wanted:
            for unit in range(problem.n):
                rule_out(unit, k, f"only preference {wanted.short} is allowed")
    for unit, targets in constraints.forbidden.items():
        _check_unit(problem, unit)
        for target in targets:
            reason = constraints.reasons.get(unit, "forbidden")
            rule_out(unit, problem.target_index(target), reason)
    for unit, target in constraints.pinned.items():
        _check_unit(problem, unit)
        for k in range(len(problem.targets)):
            if k != problem.target_index(target):
                rule_out(unit, k, f"pinned to {target}")
    unit_ns = np.where(allowed, problem.unit_ns, np.inf)
    regions = {
        (units, k): ns
        for (units, k), ns in problem.region_ns.items()
        if all(allowed[u, k] for u in units)
    }
    able: NDArray[np.bool_] = np.array(np.isfinite(unit_ns).any(axis=1))
    for (units, _), ns in regions.items():
        able[[u for u in units if np.isfinite(ns)]] = True
    for unit in np.flatnonzero(~able).tolist():
        off: dict[str, list[str]] = {}
        for k, target in enumerate(problem.targets):
            cause = why.get((unit, k)) or problem.refusals.get((unit, k), "no cost is known")
            off.setdefault(cause, []).append(str(target))
        reasons = "; ".join(
            f"{where[0]}{f' and {len(where) - 1} more' if where[1:] else ''}: {cause}"
            for cause, where in off.items()
        )
        raise PartitionError(
            f"the constraints leave {problem.labels[unit]} nowhere to run ({reasons}): allow it on "
            "one of these targets"
        )
    return replace(problem, unit_ns=unit_ns, region_ns=regions, ruled_out=why)


def _check_unit(problem: Problem, unit: int) -> None:
    if not 0 <= unit < problem.n:
        raise PartitionError(f"a constraint names unit {unit}; there are {problem.n}")
