"""Outputs against eager PyTorch's: a device's, and on this host those of float16 and 8 bits; and
what the comparison shows, in words."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from nnapi_prof.bundle.torchscript import stock_module
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region, to_float16
from nnapi_prof.costs import Conditions, Precision
from nnapi_prof.costs.table import CostTable
from nnapi_prof.device.build import build_host
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.device.protocol import HalfArithmetic
from nnapi_prof.errors import (
    ConversionError,
    DeviceError,
    UnsupportedOp,
    UsageError,
    for_caller,
    option_name,
)
from nnapi_prof.execution.report import Evidence, OutputCheck
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.plan import Engine, Target
from nnapi_prof.graph.program import Program, all_values, as_array, constant_outputs
from nnapi_prof.partition import Constraints
from nnapi_prof.precision.simulation import NARROW_DOUBT, EagerUnits, kept_in_float32

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


# What float16 costs in accuracy: regions in halves, run on this host against float32.
#
# For a plan every unit runs alone, in float16 and in float32, on the emulator's reference kernels
# and
# on the values that eager PyTorch computes for it from the model's example inputs, so that one
# unit's
# error is not the next one's. The emulator's float16 rounds after every operation: what a driver
# does
# with relaxed float32 is as good or better.


def float16_checks(program: Program, region: Region) -> tuple[OutputCheck, ...]:
    """Each output of ``region`` (all of ``program``) in float16, against float32 in eager PyTorch.

    It runs on the program's example inputs, in stock PyTorch on the emulator, whose float16
    rounds after every operation: a driver may be better, and hardly worse. Raises ConversionError
    where float16 cannot hold the region, NnapiProfError where stock PyTorch cannot carry it, and
    BuildError where the emulator cannot be built.
    """
    halved = to_float16(region)
    module = stock_module(program.units, halved, constant_outputs(program))
    ctypes.CDLL(str(build_host().library), mode=ctypes.RTLD_GLOBAL)
    with torch.inference_mode(), quiet_torch():
        actual = module(*program.example_inputs)
        expected = program.module(*program.example_inputs)
    actual = actual if isinstance(actual, tuple) else (actual,)
    expected = expected if isinstance(expected, tuple | list) else (expected,)
    return compare(
        program.units.outputs,
        list(map(as_array, actual)),
        list(map(as_array, expected)),
    )


LEVEL = 30
"""What the host's library has."""


@dataclass(frozen=True, slots=True)
class UnitError:
    """How far a unit's outputs move in float16, relative to the largest of their values."""

    relative: float
    message: str | None = None
    """Why ``relative`` is infinite, where it is."""


def unit_errors(program: Program, units: Iterable[int]) -> dict[int, UnitError]:
    """The error of each unit that NNAPI can have; units that no lowering takes are left out.

    Raises BuildError where the emulator cannot be built, DeviceError where it cannot be loaded.
    """
    values = all_values(program, program.example_inputs)
    nnapi = HostNnapi(build_host().library)
    errors: dict[int, UnitError] = {}
    for unit in units:
        try:
            region = to_float16(convert_region(program, (unit,), LEVEL))
        except UnsupportedOp:
            continue
        except ConversionError as error:
            errors[unit] = UnitError(float("inf"), str(error))
            continue
        try:
            outputs = nnapi.compile(region).run([values[name] for name in region.inputs])
        except DeviceError as error:
            errors[unit] = UnitError(float("inf"), f"in float16 it failed: {error}")
            continue
        errors[unit] = _error(region, values, outputs)
    return errors


def narrow_errors(program: Program, units: Iterable[int]) -> dict[int, float]:
    """The error of each unit, as :func:`unit_errors` has it, on a CPU that adds up in float16: one
    draw of what its sums are off by, times what the model of these may be off itself."""
    values = all_values(program, program.example_inputs)
    narrow = EagerUnits(program, narrow=True)
    errors: dict[int, float] = {}
    for unit in units:
        moved = dict(values)
        narrow.run([unit], moved)
        names = program.units.units[unit].outputs
        actual = [moved[name].numpy(force=True) for name in names]
        expected = [values[name].numpy(force=True) for name in names]
        checks = compare(names, actual, expected)
        worst = max((check.relative for check in checks), default=0.0)
        errors[unit] = NARROW_DOUBT * worst
    return errors


def _error(
    region: Region, values: Mapping[str, torch.Tensor], outputs: Sequence[torch.Tensor]
) -> UnitError:
    checks = compare(
        region.outputs,
        [output.numpy() for output in outputs],
        [values[name].detach().numpy() for name in region.outputs],
    )
    worst = max((check.relative for check in checks), default=0.0)
    beyond = "its result is beyond what float16 holds" if math.isinf(worst) else None
    return UnitError(worst, beyond)


def accuracy_constraint(
    program: Program,
    costs: CostTable,
    conditions: Conditions,
    max_error: float,
    half: HalfArithmetic,
    constraints: Constraints,
) -> Constraints:
    """The constraints, and no accelerator for units that less than float32 moves by more than
    ``max_error``; computed on this host. Raises UsageError where NNAPI is to compute in float32,
    and where the CPU, which has ``half``, runs a unit in float16 that this moves by more."""

    if conditions.precision is Precision.FLOAT32:
        raise UsageError(
            f"{option_name('max-error')} guards what {option_name('relaxed')} or"
            f" {option_name('float16')} allow",
            for_caller("add one of them", "profile() with one of them"),
        )
    accelerators = frozenset(t for t in costs.targets if t.engine is Engine.NNAPI)
    in_half = frozenset(t for t in costs.targets if t.engine is Engine.CPU)
    if not half.serves(conditions.precision):
        in_half = frozenset()

    def run_by(targets: frozenset[Target]) -> list[int]:
        units = [unit.index for unit in program.units.units]
        return [u for u in units if any(costs.unit_cost(u, t) is not None for t in targets)]

    errors = unit_errors(program, run_by(accelerators | in_half))
    in_float32 = kept_in_float32(program, run_by(in_half), half is HalfArithmetic.NATIVE)
    on_cpu = [unit for unit in run_by(in_half) if unit not in in_float32]
    summed = {} if half.has_wide_sums else narrow_errors(program, on_cpu)
    for unit in on_cpu:
        own = [errors[unit].relative] if unit in errors else []
        worst = max([*own, summed.get(unit, 0.0)])
        if worst > max_error:
            raise UsageError(
                f"{program.units.units[unit].label} is moved by {worst:.1e} in float16,"
                f" more than {max_error:g}, and the CPU of this device computes in float16, too:"
                f" use {option_name('precisions')} float32,{conditions.precision.value} and"
                f" {option_name('accuracy-budget')}"
            )
    forbidden, reasons = dict(constraints.forbidden), dict(constraints.reasons)
    for unit in run_by(accelerators):
        error = errors.get(unit)
        if error is None or error.relative <= max_error:
            continue
        forbidden[unit] = forbidden.get(unit, frozenset()) | accelerators
        reasons[unit] = error.message or (
            f"float16 moves its result by {error.relative:.1e} of its largest value, more than"
            f" {max_error:g}"
        )
    return replace(constraints, forbidden=forbidden, reasons=reasons)
