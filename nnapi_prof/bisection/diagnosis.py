"""Describe the outcome of a bisection: the culprits, their values, and the likely faults."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from nnapi_prof.bisection import FaultKind
from nnapi_prof.bisection.deviation import Deviation, difference
from nnapi_prof.costs import Mode
from nnapi_prof.graph.node import Source
from nnapi_prof.graph.plan import Target


@dataclass(frozen=True, slots=True)
class ValueFacts:
    """Description of a value relative to its reference. Ranges cover finite numbers only."""

    shape: tuple[int, ...]
    range: tuple[float, float]
    reference_range: tuple[float, float]
    share_off: float
    """Share of elements that are off by more than a tenth of the largest error."""
    n_nan: int = 0
    n_infinite: int = 0
    limit: float | None = None
    """Limit at which values are clamped; None if clamping does not explain the error."""
    factor: float | None = None
    """Factor from the right values to these, if that explains the error."""
    offset: float | None = None
    """Constant added to the right values, if that explains the error."""
    channels_off: tuple[int, ...] = ()
    """Channels with errors, if others have none."""
    borders_only: bool = False
    permuted: tuple[int, ...] | None = None
    """Axes in the order in which the device read them, or one reversed axis, if that explains the
    error; all axes in order if the numbers are the same in an unknown order."""
    shift: tuple[int, int] | None = None
    """Rows and columns by which the right values moved, if that explains the error."""


EXPLAINED = 0.05
"""Share of the error that an explanation may leave."""
ROUNDED = 0.25
"""Share of the error that a factor or an offset may leave, on average and at most; it is larger
because roundings to float16 add to it."""


def facts_of(mine: torch.Tensor, reference: torch.Tensor, zero_point: int = 0) -> ValueFacts:
    """Describe a value, ``[...]`` of the logical shape, relative to its reference.

    ``zero_point`` is that of 8-bit values, where a factor multiplies the distance from it.
    """
    mine, reference = mine.detach().double(), reference.detach().double()
    apart = difference(mine, reference)
    both = mine.isfinite() & reference.isfinite()
    error = apart[both].max().item() if both.any() else 0.0
    off = ~both & (apart > 0) | (apart > 0.1 * error)
    factor, offset = _linear_error(mine[both] - zero_point, reference[both] - zero_point, error)
    return ValueFacts(
        shape=tuple(reference.shape),
        range=_range(mine),
        reference_range=_range(reference),
        share_off=off.double().mean().item() if off.numel() else 0.0,
        n_nan=int((mine.isnan() & ~reference.isnan()).sum()),
        n_infinite=int((mine.isinf() & ~reference.isinf()).sum()),
        limit=_limit(mine, reference, error),
        factor=factor,
        offset=offset,
        channels_off=_channels(off),
        borders_only=_borders_only(off),
        permuted=_permuted(mine, reference, error),
        shift=_shift(mine, reference, error),
    )


def _range(value: torch.Tensor) -> tuple[float, float]:
    finite = value[value.isfinite()]
    return (finite.min().item(), finite.max().item()) if finite.numel() else (math.nan, math.nan)


def _limit(mine: torch.Tensor, reference: torch.Tensor, error: float) -> float | None:
    """Return the limit at which values are clamped, if clamping explains the error."""
    finite = mine[mine.isfinite()]
    if error == 0 or finite.numel() < 2:
        return None
    for limit, clamped in (
        (finite.max().item(), reference.clamp(max=finite.max().item())),
        (finite.min().item(), reference.clamp(min=finite.min().item())),
        (finite.abs().max().item(), reference.clamp(-finite.abs().max(), finite.abs().max())),
    ):
        passed = (reference - clamped).abs() > EXPLAINED * error
        rest = difference(mine, clamped)
        if passed.any() and rest.max().item() < EXPLAINED * error:
            return limit
    return None


def _linear_error(
    mine: torch.Tensor, reference: torch.Tensor, error: float
) -> tuple[float | None, float | None]:
    """Return the factor or the offset that explains the error; None for each that does not."""
    if error == 0 or mine.numel() < 3 or reference.min() == reference.max():
        return None, None
    errors = mine - reference
    allowed = max(ROUNDED * error, 0.51 if _is_whole(mine) else 0.0)

    def explains(common: torch.Tensor | float) -> bool:
        rest = errors - common
        on_average = (rest**2).mean() <= ROUNDED**2 * (errors**2).mean()
        return rest.abs().max().item() <= allowed and (bool(on_average) or _is_whole(mine))

    offset = errors.median().item()
    if offset and explains(offset):
        return None, offset
    factor = (mine * reference).sum().item() / max((reference**2).sum().item(), 1e-300)
    if abs(factor - 1) > 1e-6 and explains((factor - 1) * reference):
        return factor, None
    return None, None


def _is_whole(value: torch.Tensor) -> bool:
    return bool((value == value.round()).all())


def _channels(off: torch.Tensor) -> tuple[int, ...]:
    """Return the channels (axis 1) with errors; () if all have errors."""
    if off.dim() < 2 or off.shape[1] < 2:
        return ()
    axes = [axis for axis in range(off.dim()) if axis != 1]
    wrong = off.any(dim=axes[0]) if len(axes) == 1 else off.amax(dim=axes)
    return () if wrong.all() else tuple(map(int, wrong.nonzero().flatten()))


SAME_NUMBERS = 1e-3
"""Share of the error by which sorted values may differ to count as the same in another order."""
BORDER = 3
"""Pixels that a 7x7 window reads beyond an image."""


def _borders_only(off: torch.Tensor) -> bool:
    """Return whether pixels of ``[N, C, H, W]`` are off, and all of them are near an edge."""
    if off.dim() != 4 or min(off.shape[2:]) < 3 or not off.any():
        return False
    margin = min(BORDER, (min(off.shape[2:]) - 1) // 2)
    inside = off[:, :, margin:-margin, margin:-margin]
    return not bool(inside.any())


def _permuted(mine: torch.Tensor, reference: torch.Tensor, error: float) -> tuple[int, ...] | None:
    """Return the order of axes that turns the reference into the device's value.

    A single axis is one that is reversed; all axes in order mean the same numbers in an unknown
    order. The device may have written another order into the same shape: its numbers, read one
    after the other, are then those of the transposed reference.
    """
    if error == 0 or not 2 <= mine.dim() <= 4:
        return None
    mine_sorted, reference_sorted = mine.flatten().sort().values, reference.flatten().sort().values
    if difference(mine_sorted, reference_sorted).max().item() > SAME_NUMBERS * error:
        return None
    for axes in itertools.permutations(range(mine.dim())):
        moved = reference.permute(axes).reshape(reference.shape)
        if difference(mine, moved).max().item() < EXPLAINED * error:
            return axes
    for axis in range(mine.dim()):
        if difference(mine, reference.flip(axis)).max().item() < EXPLAINED * error:
            return (axis,)
    return tuple(range(mine.dim()))


def _shift(mine: torch.Tensor, reference: torch.Tensor, error: float) -> tuple[int, int] | None:
    """Return the rows and columns by which ``[N, C, H, W]`` moved, at most one of each."""
    if error == 0 or mine.dim() != 4 or min(mine.shape[2:]) < 4:
        return None
    height, width = mine.shape[2:]
    inside = mine[:, :, 1:-1, 1:-1]
    for rows, columns in itertools.product((-1, 0, 1), repeat=2):
        moved = reference[:, :, 1 - rows : height - 1 - rows, 1 - columns : width - 1 - columns]
        rest = difference(inside, moved).max().item()
        if (rows or columns) and rest < EXPLAINED * error:
            return rows, columns
    return None


def kind_of(
    facts: Sequence[ValueFacts],
    *,
    runs: bool,
    repeats: bool,
    repeats_alike: bool = False,
    n_units: int,
    error: float,
    half_movement: float,
) -> FaultKind:
    """Return the likely kind of a fault.

    ``runs``: the region ran. ``repeats``: equal inputs gave equal outputs; ``repeats_alike``: they
    did among executions that were all first or all reused. ``half_movement`` is how far a rounding
    to float16 moves the outputs, relative like ``error``.
    """
    if not runs:
        return FaultKind.DOES_NOT_RUN
    if not repeats:
        return FaultKind.STATE if repeats_alike else FaultKind.RACE
    if any(each.n_nan or each.n_infinite for each in facts):
        return FaultKind.NOT_FINITE
    scaled = [each.factor is not None or each.offset is not None for each in facts]
    if error <= 2 * half_movement and not any(scaled):  # roundings have no common factor
        return FaultKind.PRECISION
    tests: tuple[tuple[FaultKind, Callable[[ValueFacts], bool]], ...] = (
        (FaultKind.PADDING, lambda f: f.borders_only or f.shift is not None),
        (FaultKind.LAYOUT, lambda f: f.permuted is not None),
        (FaultKind.SATURATION, lambda f: f.limit is not None),
        (FaultKind.SCALE, lambda f: f.factor is not None or f.offset is not None),
        (FaultKind.CHANNELS, lambda f: bool(f.channels_off)),
    )
    for kind, holds in tests:
        if any(holds(each) for each in facts):
            return kind
    return FaultKind.FUSION if n_units > 1 else FaultKind.KERNEL


REUSED_RUNS, MANY_RUNS = 2, 16
"""Executions of a reused compilation: usually, and where nothing differed."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way in which executions reach the driver. A fault may show in some ways only."""

    mode: Mode
    pointers: bool = False
    """Tensors are passed as addresses instead of in shared memory."""
    delegate: bool = False
    """ExecuTorch's delegate runs the region on this host and decides how to pass tensors."""
    runs: int = REUSED_RUNS
    """Executions of a compilation in every second process."""

    @property
    def name(self) -> str:
        """Name of the way: ``burst, shared memory``."""
        memory = "addresses" if self.pointers else "shared memory"
        many = "" if self.runs == REUSED_RUNS else f", {self.runs} runs"
        return f"{self.mode.value}, {'ExecuTorch' if self.delegate else memory}{many}"


@dataclass(frozen=True, slots=True)
class WayCheck:
    """Whether a fault shows in one way."""

    way: Way
    differs: bool


@dataclass(frozen=True, slots=True)
class Cure:
    """A plan without the fault. Latencies are predicted, in ns, for one frame."""

    name: str
    """Description: the target or way that runs the units instead, or the rewrite's name."""
    target: str | None
    """Key of the target that runs them; None if the plan is unchanged."""
    before_ns: float | None = None
    after_ns: float | None = None
    code: str = ""
    """PyTorch code of a rewrite, one line or several."""

    @property
    def costs_ns(self) -> float | None:
        """The extra latency of the plan with the cure; None if costs were not measured."""
        if self.before_ns is None or self.after_ns is None:
            return None
        return self.after_ns - self.before_ns


@dataclass(frozen=True)
class Culprit:
    """The smallest part of a model that differs: one unit, or several that only differ together."""

    units: tuple[int, ...]
    names: tuple[str, ...]
    """Names of the units in the graph."""
    label: str
    target: Target
    driver_version: str
    source: Source
    kind: FaultKind
    worst: Deviation
    """Largest deviation of its values, with reference inputs."""
    final_error: float | None
    """Relative error of the model's outputs if nothing else were wrong; None if the region does not
    run."""
    final_share: float | None
    """``final_error`` as a share of the whole model's error on the device."""
    facts: tuple[tuple[str, ValueFacts], ...] = ()
    """Name and description of each value that is off."""
    way: Way = Way(Mode.SYNC)
    """Way in which it was found."""
    ways: tuple[WayCheck, ...] = ()
    message: str | None = None
    """Message of the device, if the region does not run."""
    sample: int = 0
    """Number of the sample with the largest error."""
    cures: tuple[Cure, ...] = ()

    @property
    def only_in(self) -> tuple[Way, ...]:
        """The ways in which the fault shows; empty if it shows in all that were tried."""
        showing = tuple(check.way for check in self.ways if check.differs)
        return showing if len(showing) < len(self.ways) else ()


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A unit that a target does not execute, so that nothing is known about its results."""

    unit: int
    label: str
    target: str
    """Key of the target."""
    reason: str


@dataclass(frozen=True)
class Bisection:
    """Outcome of :func:`nnapi_prof.bisect`."""

    model: str
    device: str
    fingerprint: str
    simulated: bool
    targets: tuple[str, ...]
    """Keys of the targets that were searched."""
    n_units: int
    n_samples: int
    budget: float | None
    """Requested error budget; None uses the default of each precision."""
    culprits: tuple[Culprit, ...]
    unchecked: tuple[Unchecked, ...]
    """Units that targets did not execute; their results are unknown."""
    runs: int
    """Requests to the device until the search ended."""
    executions: int
    """Executions on the device, counting every sample and repeat."""
    notes: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing differs."""
        return not self.culprits
