"""Costs in, plan out: which units run where, in which segments, and why.

:func:`make_problem` makes a problem of a graph and its costs. :func:`plan_problem` answers it for
least latency, :func:`plan_throughput` for many frames, :func:`plan_parallel` for branches at once,
:func:`front` for every error, and :func:`baselines` by simple rules.

Knows neither torch nor any device; numpy and scipy only.
"""

from __future__ import annotations

from nnapi_prof.costs.table import CompileTimes, Conversions, CostTable
from nnapi_prof.partition.constraints import Constraints, ErrorLimit
from nnapi_prof.partition.front import NoisePoint, best_within, front, uniform
from nnapi_prof.partition.parallel import ParallelPlan, plan_parallel
from nnapi_prof.partition.problem import (
    Problem,
    evaluate,
    make_problem,
)
from nnapi_prof.partition.search import Report, SearchLimits, Watch
from nnapi_prof.partition.search.tradeoff import CurvePoint
from nnapi_prof.partition.solver import (
    TOLERANCE,
    Partitioning,
    WarmStart,
    baselines,
    is_optimum,
    plan_of_placements,
    plan_problem,
)
from nnapi_prof.partition.throughput import ThroughputPlan, plan_throughput

__all__ = [
    "TOLERANCE",
    "CompileTimes",
    "Constraints",
    "Conversions",
    "CostTable",
    "CurvePoint",
    "ErrorLimit",
    "NoisePoint",
    "ParallelPlan",
    "Partitioning",
    "Problem",
    "Report",
    "SearchLimits",
    "ThroughputPlan",
    "WarmStart",
    "Watch",
    "baselines",
    "best_within",
    "evaluate",
    "front",
    "is_optimum",
    "make_problem",
    "plan_of_placements",
    "plan_parallel",
    "plan_problem",
    "plan_throughput",
    "uniform",
]
