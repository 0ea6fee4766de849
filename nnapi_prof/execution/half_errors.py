"""Measure the accuracy cost of float16: regions in float16 on this host, compared with float32.

For a plan every unit runs alone in float16 on the emulator's reference kernels, and is compared
with eager PyTorch in float32. Its inputs are the values that eager PyTorch computes from the
model's example inputs, so that the errors of earlier units do not reach it. The emulator's float16
rounds after every operation: a driver's relaxed float32 is as accurate or better.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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
from nnapi_prof.execution.compare import compare
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.plan import Engine, Target
from nnapi_prof.graph.program import Program, all_values, as_array, constant_outputs
from nnapi_prof.partition import Constraints
from nnapi_prof.precision.simulation import NARROW_DOUBT, EagerUnits, kept_in_float32


def float16_checks(program: Program, region: Region) -> tuple[OutputCheck, ...]:
    """Compares outputs of ``region`` (all of ``program``) in float16 with float32 in eager PyTorch.

    It runs on the program's example inputs, in stock PyTorch on the emulator, whose float16 rounds
    after every operation: a driver may be better, and hardly worse. Raises ConversionError where
    float16 cannot represent the region, NnapiProfError where stock PyTorch cannot run it, and
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
"""Feature level of the host's library."""


@dataclass(frozen=True, slots=True)
class UnitError:
    """The error of a unit's outputs in float16, relative to the largest of their values."""

    relative: float
    message: str | None = None
    """Why ``relative`` is infinite, where it is."""


def unit_errors(program: Program, units: Iterable[int]) -> dict[int, UnitError]:
    """Returns the error of each unit that NNAPI can run; units without a lowering are left out.

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
    """Returns the error of each unit, as :func:`unit_errors` defines it, on a CPU with float16
    sums: one random draw of the sums' errors, times the factor by which that model may be off."""
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
    """Returns the constraints, with units kept off accelerators where less than float32 moves them
    by more than ``max_error``, as computed on this host.

    Raises UsageError where NNAPI is to compute in float32, and where the CPU, which has ``half``,
    runs a unit in float16 that this moves by more.
    """

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
