"""Compare outputs of a device with eager PyTorch, and describe the result in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from nnapi_prof.costs import Precision
from nnapi_prof.execution.report import Evidence, OutputCheck

SMALLEST = float(np.finfo(np.float32).tiny)
"""The smallest normal number of float32. Smaller differences are ignored: devices may flush smaller
numbers to zero, and results near them are rounded coarsely."""

TOLERANCE = 1e-4
"""Largest allowed ``max |found - wanted| / max |wanted|`` of an output in float32."""

HALF_TOLERANCE = 2e-2
"""The same where NNAPI may compute in float16, or stores everything in it: a value has 11 bits
there, and the rounding errors of many layers add up."""

QUANTISED_TOLERANCE = 0.1
"""The same for an output computed from quantised values: a device may round a tie the other way,
and one step can grow to several in later layers. Two steps of the last scale are always allowed."""


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
    """Returns one check per output.

    A different shape, or a value that is finite on one side only, counts as an infinite difference,
    except where :func:`limit_notes` reports it. ``steps`` has
    :func:`~nnapi_prof.execution.judgement.last_step` of each output; ``integers`` is the tolerance
    of integers and truth values that do not stand for real numbers.

    Differences up to SMALLEST, or up to two steps after quantised values, pass whatever the largest
    value is: it may be zero.
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
    """Returns complex numbers as pairs, others unchanged."""
    return np.stack([values.real, values.imag], -1) if np.iscomplexobj(values) else values


def limit_notes(
    names: Sequence[str],
    actual: Sequence[npt.NDArray[np.generic]],
    expected: Sequence[npt.NDArray[np.generic]],
) -> list[str]:
    """Returns a note for each output that has the largest float32 where PyTorch has infinity."""
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
    """Marks places where infinity is expected and the largest float32 was found."""
    mine, theirs = actual.astype(np.float64), expected.astype(np.float64)
    at_end: npt.NDArray[np.bool_] = np.isinf(theirs) & (mine == np.copysign(_LARGEST, theirs))
    return at_end


def evidence_of(expected: npt.NDArray[np.generic]) -> Evidence:
    """Returns the kind of evidence that an output of eager PyTorch gives."""
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
    """Returns the tolerance of an output that is computed from quantised values."""
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
    """Returns the largest difference, absolute and relative to the largest value. A difference of
    at most ``least`` is relative to a value that is large enough for it to pass."""
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
    """Returns why an output's agreement proves little (``is 0 everywhere``), or None."""
    return _WHAT.get(check.evidence)


def notes_on(checks: Iterable[OutputCheck]) -> list[str]:
    """Returns a note for each output that agrees but leaves little to compare."""
    return [
        f"output {check.name} {what} for these inputs, in eager PyTorch, too: that it agrees tells"
        " little; run it with other inputs (another seed)"
        for check in checks
        if check.ok and (what := weak_evidence(check)) is not None
    ]


def verdict(check: OutputCheck) -> str:
    """Returns ``agrees``, ``agrees, but it is 0 everywhere`` or ``differs``."""
    if not check.ok:
        return "differs"
    little = weak_evidence(check)
    return f"agrees, but it {little}" if little else "agrees"
