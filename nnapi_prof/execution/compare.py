"""Outputs of a device against eager PyTorch, and what the comparison shows, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from nnapi_prof.costs import Precision
from nnapi_prof.execution.report import Evidence, OutputCheck

SMALLEST = float(np.finfo(np.float32).tiny)
"""The smallest normal number of float32. A difference of less is none: devices may flush smaller
numbers to zero, and what rounds to them is rounded coarsely."""

TOLERANCE = 1e-4
"""Largest allowed ``max |found - wanted| / max |wanted|`` of an output in float32."""

HALF_TOLERANCE = 2e-2
"""The same where NNAPI may compute, or holds everything, in float16: a value has 11 bits there, and
what many layers round adds up."""

QUANTISED_TOLERANCE = 0.1
"""The same of an output that quantised values lead to: a device may round a tie the other way, and
what moves by one step can move steps behind it. Two steps of the last scale are always allowed."""


def usual_tolerance(precision: Precision) -> float:
    """Returns the default tolerance."""
    return TOLERANCE if precision is Precision.FLOAT32 else HALF_TOLERANCE


def compare(
    names: Sequence[str],
    actual: Sequence[npt.NDArray[np.generic]],
    expected: Sequence[npt.NDArray[np.generic]],
    tolerance: float = TOLERANCE,
    steps: Sequence[float] | None = None,
    integers: float = 0.0,
) -> tuple[OutputCheck, ...]:
    """One check per output. A shape that differs or a value that is not finite on one side only
    counts as an infinite difference, but for what :func:`limit_notes` tells of. ``steps`` has
    :func:`~nnapi_prof.execution.judgement.last_step` of each output; ``integers`` is the tolerance
    of those that are integers or truth values and stand for no real numbers.

    Differences of SMALLEST at most, of two quantised steps behind quantised values, pass whatever
    the largest value is: it may be zero.
    """
    checks = []
    steps = [0.0] * len(names) if steps is None else steps
    for name, mine, theirs, step in zip(names, actual, expected, steps, strict=True):
        shape, mine, theirs = theirs.shape, _reals(mine), _reals(theirs)
        if theirs.dtype.kind in "biu" and step != 1:
            allowed, step = integers, 0.0
        else:
            allowed = tolerance if step == 0 else max(tolerance, _quantised(theirs, step))
        max_abs, relative = _difference(mine, theirs, allowed, 2.01 * step or SMALLEST)
        evidence = evidence_of(theirs)
        checks.append(OutputCheck(name, shape, max_abs, relative, allowed, evidence))
    return tuple(checks)


def _reals(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Complex numbers as pairs; others as they are."""
    return np.stack([values.real, values.imag], -1) if np.iscomplexobj(values) else values


def limit_notes(
    names: Sequence[str],
    actual: Sequence[npt.NDArray[np.generic]],
    expected: Sequence[npt.NDArray[np.generic]],
) -> list[str]:
    """Says which outputs have the largest float32 where PyTorch has infinity."""
    notes = []
    for name, mine, theirs in zip(names, actual, expected, strict=True):
        mine, theirs = _reals(mine), _reals(theirs)
        n = int(_at_the_limit(mine, theirs).sum()) if mine.shape == theirs.shape else 0
        if n:
            notes.append(
                f"{n} of {theirs.size} values of {name} are infinite in PyTorch and "
                f"{_LARGEST:.4g} or its negative here: on Android, sums, products and quotients "
                "of NNAPI end at the largest float32"
            )
    return notes


_LARGEST = float(np.finfo(np.float32).max)


def _at_the_limit(
    actual: npt.NDArray[np.generic], expected: npt.NDArray[np.generic]
) -> npt.NDArray[np.bool_]:
    """Marks places where an infinity is wanted and the float32 next to it was found."""
    mine, theirs = actual.astype(np.float64), expected.astype(np.float64)
    at_end: npt.NDArray[np.bool_] = np.isinf(theirs) & (mine == np.copysign(_LARGEST, theirs))
    return at_end


def evidence_of(expected: npt.NDArray[np.generic]) -> Evidence:
    """Tells what an output of eager PyTorch gives to compare."""
    if expected.size == 0:
        return Evidence.EMPTY
    values = expected.astype(np.float64).ravel()
    if not np.isfinite(values).any():
        return Evidence.NOT_FINITE
    largest = _largest_finite(values)
    if largest == 0:
        return Evidence.ZEROS
    if largest < SMALLEST:
        return Evidence.DENORMAL
    if values.size > 1 and (values == values[0]).all():
        return Evidence.CONSTANT
    return Evidence.VALUES


def _quantised(expected: npt.NDArray[np.generic], step: float) -> float:
    """The tolerance of an output with quantised values before it."""
    largest = _largest_finite(expected.astype(np.float64))
    return max(QUANTISED_TOLERANCE, 2.01 * step / largest if largest > 0 else 0.0)


def _largest_finite(values: npt.NDArray[np.float64]) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size else 0.0


def _difference(
    actual: npt.NDArray[np.generic],
    expected: npt.NDArray[np.generic],
    allowed: float,
    least: float,
) -> tuple[float, float]:
    """The largest difference, and the same relative to the largest value; to as large a value as
    makes it pass, where it is at most ``least``."""
    if actual.shape != expected.shape:
        return float("inf"), float("inf")
    if expected.size == 0:
        return 0.0, 0.0
    mine, theirs = actual.astype(np.float64), expected.astype(np.float64)
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs)) | _at_the_limit(actual, expected)
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(mine - theirs))
    apart = np.where(np.isnan(apart), np.inf, apart)
    max_abs = float(apart.max())
    if max_abs == 0.0:
        return 0.0, 0.0
    scale = _largest_finite(theirs)
    if max_abs <= least and allowed > 0:
        scale = max(scale, least / allowed)
    return max_abs, max_abs / scale if scale > 0.0 else float("inf")


# ---- in words -----------------------------------------------------------------------------------


_WHAT = {
    Evidence.ZEROS: "is 0 everywhere",
    Evidence.CONSTANT: "is the same number everywhere",
    Evidence.DENORMAL: "is too small for float32 (denormal) everywhere",
    Evidence.NOT_FINITE: "is nowhere a finite number",
    Evidence.EMPTY: "has no elements",
}


def weak_evidence(check: OutputCheck) -> str | None:
    """``is 0 everywhere``: why that an output agrees tells little; None where it tells."""
    return _WHAT.get(check.evidence)


def notes_on(checks: Iterable[OutputCheck]) -> list[str]:
    """A note for each output that agrees and leaves little to compare."""
    return [
        f"output {check.name} {what} for these inputs, in eager PyTorch, too: that it agrees tells"
        " little; run it with other inputs (another seed)"
        for check in checks
        if check.ok and (what := weak_evidence(check)) is not None
    ]


def verdict(check: OutputCheck) -> str:
    """``agrees``, ``agrees, but it is 0 everywhere``, ``differs``."""
    if not check.ok:
        return "differs"
    little = weak_evidence(check)
    return f"agrees, but it {little}" if little else "agrees"
