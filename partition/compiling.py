"""What compiling a plan's regions takes, as a budget.

A plan's compile time is the sum over its segments on accelerators: what was measured of a region
compiled whole, else a fixed part for each segment and a part for each unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.graph.plan import Target
from nnapi_prof.partition.budgets import Budget
from nnapi_prof.partition.problem import Problem


class CompileCosts(Protocol):
    """What a limit asks of a cost model (:mod:`nnapi_prof.costs.region` has one)."""

    def compile_overhead(self, target: Target, /) -> float: ...
    def compile_cost(self, unit_index: int, target: Target, /) -> float: ...
    def compiled_regions(self) -> Mapping[tuple[frozenset[int], Target], float]: ...


@dataclass(frozen=True)
class CompileTimes:
    """What compiling regions takes, in ns; all zero on targets that are no accelerators."""

    fixed_ns: NDArray[np.float64]
    """[t], of each segment."""
    unit_ns: NDArray[np.float64]
    """[n, t]"""
    region_ns: Mapping[tuple[frozenset[int], int], float] = field(default_factory=dict)
    """(units, target index) -> ns, compiled whole."""

    @classmethod
    def read(cls, problem: Problem, costs: CompileCosts) -> CompileTimes:
        """A cost model's, as arrays."""
        targets = problem.targets
        return cls(
            np.array([costs.compile_overhead(t) for t in targets], dtype=np.float64),
            np.array(
                [[costs.compile_cost(u, t) for t in targets] for u in range(problem.n)],
                dtype=np.float64,
            ).reshape(problem.n, len(targets)),
            {
                (units, targets.index(target)): ns
                for (units, target), ns in costs.compiled_regions().items()
                if target in targets
            },
        )

    def budget(self, limit_ns: float) -> Budget:
        """A limit on the compile time of a plan, in ns."""
        return Budget("compile time", self.fixed_ns, self.unit_ns, limit_ns, self.region_ns)
