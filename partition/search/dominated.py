"""Targets that another one betters in everything: no plan needs them.

Where a target takes no longer than another of the same format, for every unit, overhead and
hand-over, uses no more of any budget, and no region measured whole says otherwise, each segment on
the other one costs no more on it. An accelerator's preferences often differ by so little.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import Problem


def undominated(problem: Problem, budgets: Sequence[Budget]) -> Problem:
    """The problem without the targets that another one betters; of equals the first stays."""
    t = len(problem.targets)
    gone = np.zeros(t, dtype=np.bool_)
    for k in range(t):
        rivals = [j for j in range(t) if j != k and not gone[j]]
        gone[k] = any(_betters(problem, budgets, j, k) for j in rivals)
    return problem.without(np.broadcast_to(gone, problem.unit_ns.shape))


def _betters(problem: Problem, budgets: Sequence[Budget], j: int, k: int) -> bool:
    """Whether target j takes the place of target k in every segment at no more cost; of equals the
    first does."""
    formats = problem.arrays.format
    if formats[j] != formats[k] or not (problem.unit_ns[:, j] <= problem.unit_ns[:, k]).all():
        return False
    costs = [problem.overhead_ns, problem.in_ns_per_byte, problem.out_ns_per_byte]
    costs += [budget.open_use for budget in budgets]
    if any(cost[j] > cost[k] for cost in costs):
        return False
    runs = np.isfinite(problem.unit_ns[:, k])
    for units, target in problem.region_ns:
        if target == k:
            runs[list(units)] = True
    for budget in budgets:
        if (budget.unit_use[runs, j] > budget.unit_use[runs, k]).any():
            return False
        if any(target in (j, k) for _, target in budget.region_use):
            return False
    for units, target in problem.region_ns:
        if target in (j, k) and problem.segment_ns(units, j) > problem.segment_ns(units, k):
            return False
    alike = (problem.unit_ns[:, j] == problem.unit_ns[:, k]).all() and all(
        cost[j] == cost[k] for cost in costs
    )
    return j < k or not alike
