"""All that a plan's latency is made of, as arrays: what cost models hand to the partitioner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.graph.plan import Target


@dataclass(frozen=True, eq=False)
class CostArrays:
    """Costs of n units on t targets, in ns."""

    targets: tuple[Target, ...]
    unit_ns: NDArray[np.float64]
    """[n, t]; inf where the target cannot run the unit, or nobody knows what it costs there."""
    overhead_ns: NDArray[np.float64]
    """[t], of each segment"""
    in_ns_per_byte: NDArray[np.float64]
    """[t], of values that enter a segment, ..."""
    out_ns_per_byte: NDArray[np.float64]
    """... and of those that leave it"""
    region_ns: Mapping[tuple[frozenset[int], Target], float]
    """Regions that were measured whole; inf where one did not run."""
    estimated: NDArray[np.bool_]
    """[n, t]: costs that rest on the static model"""
