"""Plans that a search meets, and what it came to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from nnapi_prof.graph.plan import ProofKind
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.ideal_tables import NEGLIGIBLE
from nnapi_prof.partition.problem import Placement, Problem, Region
from nnapi_prof.partition.reduce import Reduced
from nnapi_prof.partition.relaxation import Relaxation

Plan = tuple[Placement, ...]


@dataclass
class Pool:
    """Plans met, and the best of them."""

    problem: Problem
    plans: dict[Plan, float] = field(default_factory=dict)
    best: Plan | None = None
    best_ns: float = math.inf
    found_by: str = ""

    def offer(self, placements: Plan, step: str) -> bool:
        """Notes a plan; whether it is the best so far."""
        if placements in self.plans:
            return False
        ns = total_ns(self.problem, placements)
        if not math.isfinite(ns):
            return False
        self.plans[placements] = ns
        margin = NEGLIGIBLE * abs(self.best_ns) if self.best is not None else 0.0
        fewer = self.best is not None and len(placements) < len(self.best)
        if ns < self.best_ns - margin or (fewer and ns <= self.best_ns):
            self.best, self.best_ns, self.found_by = placements, ns, step
            return True
        return False


@dataclass(frozen=True, slots=True)
class Solution:
    """The best plan found and what is known about it."""

    placements: Plan
    ns: float
    bound_ns: float
    """No plan costs less."""
    kind: ProofKind
    found_by: str
    bounded_by: str
    plans: dict[Plan, float] = field(default_factory=dict, repr=False)
    """Plans met, in ns."""
    dearer: frozenset[Region] = frozenset()
    """Regions that cost more whole than by their parts, and that the search ran into."""
    steps: float = 0.0
    reduced: Reduced | None = field(default=None, repr=False)
    """The problem that was searched, and ..."""
    relaxation: Relaxation | None = field(default=None, repr=False)
    """... its relaxation, where it was solved."""

    @property
    def is_optimal(self) -> bool:
        return self.kind is not ProofKind.GAP

    @property
    def gap(self) -> float:
        """How far the plan can be above the optimum, relative to the bound."""
        if self.is_optimal or self.ns <= self.bound_ns:
            return 0.0
        return self.ns / self.bound_ns - 1 if self.bound_ns > 0 else math.inf
