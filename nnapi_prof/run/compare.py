"""Outputs of a device against eager PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnapi_prof.run.result import OutputCheck

TOLERANCE = 1e-4
"""Largest allowed ``max |found - wanted| / max |wanted|`` of an output in float32."""


def compare(
    names: Sequence[str],
    found: Sequence[npt.NDArray[np.generic]],
    wanted: Sequence[npt.NDArray[np.generic]],
    tolerance: float = TOLERANCE,
) -> tuple[OutputCheck, ...]:
    """One check per output. A shape that differs or a value that is not finite on one side only
    counts as an infinite difference."""
    checks = []
    for name, mine, theirs in zip(names, found, wanted, strict=True):
        max_abs, relative = _difference(mine, theirs)
        checks.append(OutputCheck(name, tuple(theirs.shape), max_abs, relative, tolerance))
    return tuple(checks)


def _difference(
    found: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic]
) -> tuple[float, float]:
    if found.shape != wanted.shape:
        return float("inf"), float("inf")
    if wanted.size == 0:
        return 0.0, 0.0
    mine, theirs = found.astype(np.float64), wanted.astype(np.float64)
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(mine - theirs))
    apart = np.where(np.isnan(apart), np.inf, apart)
    max_abs = float(apart.max())
    finite = np.abs(theirs[np.isfinite(theirs)])
    scale = float(finite.max()) if finite.size else 0.0
    if max_abs == 0.0:
        return 0.0, 0.0
    return max_abs, max_abs / scale if scale > 0.0 else float("inf")
