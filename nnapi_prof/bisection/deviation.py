"""Measure how far a device's value is from the reference, relative to the allowed error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from nnapi_prof.costs import Precision
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.program import Program, run_units

BUDGETS: Mapping[Precision, float] = {
    Precision.FLOAT32: 1e-4,
    Precision.RELAXED: 2e-2,
    Precision.FLOAT16: 2e-2,
    Precision.INT8: 1e-4,
}
"""Largest error of a region's float value with reference inputs, as a share of its largest one."""
EPSILON: Mapping[Precision, float] = {
    Precision.FLOAT32: 2.0**-22,
    Precision.RELAXED: 2.0**-10,
    Precision.FLOAT16: 2.0**-10,
    Precision.INT8: 2.0**-22,
}
"""Two roundings of a value in that precision, as a share of it."""
MEAN_STEPS, FAR_SHARE = 0.12, 0.02
"""Limits for 8-bit values: the mean error in steps, and the share off by two or more steps. Drivers
round ties differently, which moves about one value in thirty by one step."""
MOST_STEPS, CHANNEL_STEPS, CHANNEL_ELEMENTS = 4.5, 0.5, 16
"""Limits for 8-bit values of a single unit, in steps: the error of the worst element, and the mean
error of the worst channel with at least this many elements. Ties of earlier units do not affect a
single unit, so that one wrong channel of many stands out."""
SYSTEMATIC, SYSTEMATIC_SHARE = 5 * 2.0**-10, 0.5
"""Largest error by a common factor or offset, as a share of the largest value, for a single unit in
less than float32: five steps of float16, as AOSP's tests allow. It counts only if it explains this
share of the squared errors, because roundings have no common direction."""
OTHER_SHARE, OTHER_SHARE_ALONE = 0.02, 0.002
"""Share of integers and Booleans that may differ, for several units and for a single unit: near
ties, rounding changes an argmax. The inputs of a single unit are not rounded."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """Error of one value of a region."""

    value: str
    max_abs: float
    """Largest error in real numbers, also for 8-bit values; infinite if only one side is NaN or
    infinite."""
    relative: float
    """``max_abs`` as a share of the reference's largest finite value."""
    ratio: float
    """The error as a multiple of the allowed error."""


def deviation(
    name: str, mine: torch.Tensor, reference: torch.Tensor, type_: TensorType, budget: float | None,
    precision: Precision, *, n_units: int,
) -> Deviation:  # fmt: skip
    """Compare an output of a region, ``[...]`` of the logical shape, with its reference.

    ``budget`` is relative to the reference's largest value. None uses :data:`BUDGETS`, or for 8-bit
    values :data:`MEAN_STEPS` and :data:`FAR_SHARE`; for a single unit also :data:`MOST_STEPS`,
    :data:`CHANNEL_STEPS` and :data:`SYSTEMATIC`. Roundings of several units add up: their budget
    grows with the square root of their number.
    """
    if mine.shape != reference.shape:
        return Deviation(name, math.inf, math.inf, math.inf)
    if not reference.numel():
        return Deviation(name, 0.0, 0.0, 0.0)
    alone = n_units == 1
    mine, reference = mine.detach().double(), reference.detach().double()
    apart = difference(mine, reference)
    scale = 1.0 if type_.quant is None else type_.quant.scale
    finite = reference[reference.isfinite()]
    if type_.quant is not None:
        finite = finite - type_.quant.zero_point
    largest = finite.abs().max().item() * scale if finite.numel() else 0.0
    max_abs = apart.max().item() * scale
    relative = max_abs / largest if largest > 0 else (math.inf if max_abs > 0 else 0.0)
    if type_.quant is not None and budget is None:
        far = (apart > 1.5).double().mean().item()
        ratio = max(apart.mean().item() / MEAN_STEPS, far / FAR_SHARE)
        if alone:
            ratio = max(
                ratio, apart.max().item() / MOST_STEPS, _channel_steps(apart),
                _outer_steps(mine, reference, type_.quant.zero_point),
            )  # fmt: skip
    elif type_.dtype.startswith("float"):
        ratio = relative / (BUDGETS[precision] if budget is None else budget) / math.sqrt(n_units)
        if alone and budget is None and precision is not Precision.FLOAT32:
            ratio = max(ratio, _systematic(mine, reference))
    else:
        ratio = (apart > 0).double().mean().item() / (OTHER_SHARE_ALONE if alone else OTHER_SHARE)
    return Deviation(name, max_abs, relative, ratio)


def _channel_steps(apart: torch.Tensor) -> float:
    """Return the mean error of the worst channel (axis 1) as a multiple of the allowed steps."""
    means = _by_channel(apart).mean(1)
    return means.max().item() / CHANNEL_STEPS if means.numel() else 0.0


def _by_channel(value: torch.Tensor) -> torch.Tensor:
    """Return a value as [channels, elements]; no channels if each has too few elements."""
    if value.dim() < 3 or value.numel() // value.shape[1] < CHANNEL_ELEMENTS:
        return value.new_empty(0, 1)
    return value.transpose(0, 1).flatten(1)


def _outer_steps(mine: torch.Tensor, reference: torch.Tensor, zero_point: int) -> float:
    """Return the mean steps by which large values moved outwards or inwards, as a multiple of the
    allowed steps.

    A factor near one moves only large values, and all of them in one direction.
    """
    steps = reference - zero_point
    outer = steps.abs() >= steps.abs().max() / 2
    if int(outer.sum()) < CHANNEL_ELEMENTS:
        return 0.0
    moved = ((mine - reference) * steps.sign())[outer]
    return abs(moved.mean().item()) / CHANNEL_STEPS


def _systematic(mine: torch.Tensor, reference: torch.Tensor) -> float:
    """Return the largest common factor or offset of all elements or of a channel, as a multiple of
    the allowed one."""
    largest = reference.abs().max().item()
    if not (largest > 0 and bool(mine.isfinite().all()) and bool(reference.isfinite().all())):
        return 0.0
    found = 0.0
    for actual, expected in (
        (mine.reshape(1, -1), reference.reshape(1, -1)),
        (_by_channel(mine), _by_channel(reference)),
    ):
        if expected.shape[1] < CHANNEL_ELEMENTS or not expected.numel():
            continue
        errors = actual - expected
        squared = (errors**2).sum(1).clamp(min=1e-300)
        energy = (expected**2).sum(1).clamp(min=1e-300)
        factor = (errors * expected).sum(1) / energy
        offset = errors.mean(1)
        for common, peak in (
            (factor**2 * energy, factor.abs() * expected.abs().amax(1)),
            (offset**2 * errors.shape[1], offset.abs()),
        ):
            peaks = torch.where(common >= SYSTEMATIC_SHARE * squared, peak, 0.0)
            found = max(found, peaks.max().item())
    return found / largest / SYSTEMATIC


SMALLEST = torch.finfo(torch.float32).tiny
"""Smallest normal float32; devices may flush smaller numbers to zero."""


def difference(mine: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Return ``|mine - reference|``, infinite where only one side is NaN or infinite.

    NNAPI may return the largest float32 where PyTorch returns infinity; that counts as equal.
    """
    apart = (mine - reference).abs()
    if bool(apart.isfinite().all()):
        return torch.where(apart <= SMALLEST, 0.0, apart)
    limit = torch.finfo(torch.float32).max
    same = (mine == reference) | (mine.isnan() & reference.isnan())
    same |= reference.isinf() & (mine == reference.sign() * limit)
    apart = apart.nan_to_num(nan=math.inf)
    return torch.where(same | (apart <= SMALLEST), 0.0, apart)


def worst(deviations: Iterable[Deviation]) -> Deviation | None:
    """Return the deviation with the largest ratio; None if there are none."""
    return max(deviations, key=lambda each: (each.ratio, each.relative), default=None)


def movement(
    program: Program,
    units: Sequence[int],
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.Tensor],
    precision: Precision,
) -> float:
    """Return how far a region's outputs move in eager PyTorch when its inputs move by a rounding.

    This is the largest relative movement of a float output. If it is as large as an error, rounding
    alone explains the error.
    """
    moved = 0.0
    for sign in (1.0, -1.0):
        nudged = {
            name: value * (1 + sign * EPSILON[precision]) if value.is_floating_point() else value
            for name, value in inputs.items()
        }
        results = run_units(program, units, nudged)
        for name, reference in outputs.items():
            if name in results and reference.is_floating_point() and reference.numel():
                apart = difference(results[name].double(), reference.double())
                largest = reference[reference.isfinite()].abs().max().item()
                finite = apart[apart.isfinite()]
                if largest > 0 and finite.numel():
                    moved = max(moved, finite.max().item() / largest)
    return moved
