"""Fits one target after the other, and again only those whose samples changed."""

from __future__ import annotations

from collections.abc import Sequence

from nnapi_prof.costs.regression import RegionSample, TargetFit, fit_target
from nnapi_prof.graph.plan import CPU, Target


class Refit:
    """Remembers the last fit of each target: a round of refinement measures on few of them."""

    def __init__(self) -> None:
        self._last: dict[Target, tuple[tuple[RegionSample, ...], TargetFit]] = {}

    def fit(self, target: Target, samples: Sequence[RegionSample]) -> TargetFit:
        """:func:`~nnapi_prof.costs.regression.fit_target` of these samples."""
        now = tuple(samples)
        known = self._last.get(target)
        if known is not None and known[0] == now:
            return known[1]
        fitted = fit_target(now, on_cpu=target == CPU)
        self._last[target] = (now, fitted)
        return fitted
