"""This host: eager PyTorch's outputs, units no engine of the agent runs, what float16 costs."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx

from nnapi_prof.bundle.torchscript import stock_module
from nnapi_prof.convert.float16 import to_float16
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region
from nnapi_prof.device.build import build_host
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.errors import ConversionError, DeviceError, UnsupportedOp
from nnapi_prof.execution.compare import compare
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.eager import all_values, as_array, constant_outputs
from nnapi_prof.graph.node import bound_args
from nnapi_prof.graph.program import Program


def choose_inputs(program: Program, seed: int | None) -> tuple[torch.Tensor, ...]:
    """The inputs to run with: the program's examples (bundled ones where the file has them), or
    with a seed new ones of the same shapes: normal floats, integers and truth values kept."""
    if seed is None:
        return program.example_inputs
    random = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(value.shape, generator=random).to(value.dtype)
        if value.dtype.is_floating_point
        else value
        for value in program.example_inputs
    )


# ---- quantised models whose outputs move far when one rounding goes the other way ----------------


NUDGE = 1 / 512
"""Half a step of 8 bits, of each input's values."""


def allow_unsteady(
    checks: Sequence[OutputCheck],
    program: Program,
    inputs: Sequence[torch.Tensor],
    steps: Sequence[float],
) -> tuple[tuple[OutputCheck, ...], list[str]]:
    """The checks, those of quantised outputs that failed with a tolerance as large as eager PyTorch
    itself moves them when the inputs move by NUDGE; and what to tell of these.

    ``steps`` has :func:`~nnapi_prof.execution.compare.last_step` of each output.
    """
    doubtful = [not c.ok and step > 0 for c, step in zip(checks, steps, strict=True)]
    if not any(doubtful):
        return tuple(checks), []
    with torch.inference_mode():
        exact = program.module(*inputs)
        moved = [program.module(*_nudged(inputs, sign * NUDGE)) for sign in (1, -1)]
    allowed, notes = [], []
    for index, (check, doubt) in enumerate(zip(checks, doubtful, strict=True)):
        jump = max(_relative(outputs[index], exact[index]) for outputs in moved) if doubt else 0.0
        if jump > check.tolerance:
            check = replace(check, tolerance=jump)
            notes.append(
                f"{check.name} is quantised and unsteady: in eager PyTorch, too, it moves by "
                f"{jump:.0%} of its largest value when the inputs move by {NUDGE:.1%} of themselves"
            )
        allowed.append(check)
    return tuple(allowed), notes


def excused(
    checks: Sequence[OutputCheck],
    program: Program,
    inputs: Sequence[torch.Tensor],
    steps: Sequence[float],
    actual: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
) -> tuple[tuple[OutputCheck, ...], list[str]]:
    """:func:`allow_unsteady`, then :func:`allow_ties`: the checks, and what to tell of those that
    pass all the same."""
    checks, unsteady = allow_unsteady(checks, program, inputs, steps)
    checks, tied = allow_ties(checks, program, inputs, actual, expected)
    return checks, [*unsteady, *tied]


aten = torch.ops.aten
_RANKS = (aten.topk.default, aten.sort.default, aten.argsort.default)
"""What gives positions in the order of values; that of equal ones is left open."""


def allow_ties(
    checks: Sequence[OutputCheck],
    program: Program,
    inputs: Sequence[torch.Tensor],
    actual: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
) -> tuple[tuple[OutputCheck, ...], list[str]]:
    """The checks, those that failed of positions which name other ones of equal values allowed; and
    what to tell of these."""
    doubtful = {
        index: node
        for index, check in enumerate(checks)
        if not check.ok and (node := _ranking(program, check.name)) is not None
    }
    if not doubtful:
        return tuple(checks), []
    values = dict(zip(program.units.inputs, inputs, strict=True)) | all_values(program, inputs)
    allowed, notes = list(checks), []
    for index, node in doubtful.items():
        arguments = bound_args(node)
        ranked, dim = values.get(arguments["self"].name), arguments["dim"]
        mine, theirs = actual[index].long(), expected[index].long()
        if ranked is None or not ranked.dim() or mine.shape != theirs.shape:
            continue
        if mine.min() < 0 or mine.max() >= ranked.shape[dim]:
            continue
        if (mine.sort(dim).values.diff(dim=dim) == 0).any():
            continue  # a place that is named twice
        if torch.equal(ranked.gather(dim, mine), ranked.gather(dim, theirs)):
            check = checks[index]
            allowed[index] = replace(check, tolerance=check.relative)
            notes.append(
                f"{check.name} names other places of equal values than eager PyTorch: which of them"
                " comes first is left open"
            )
    return tuple(allowed), notes


def _ranking(program: Program, output: str) -> fx.Node | None:
    """The node that ranks values, of which an output is the positions; None of any other."""
    node = program.nodes[output]
    if node.target is operator.getitem and node.args[1] == 1:
        (node,) = node.all_input_nodes
    elif node.target is not aten.argsort.default:
        return None
    return node if node.target in _RANKS else None


def _nudged(inputs: Sequence[torch.Tensor], nudge: float) -> list[torch.Tensor]:
    return [value * (1 + nudge) if value.is_floating_point() else value for value in inputs]


def _relative(moved: torch.Tensor, exact: torch.Tensor) -> float:
    largest = exact.double().abs().max().item() if exact.numel() else 0.0
    apart = (moved.double() - exact.double()).abs()
    return apart.max().item() / largest if largest > 0 else 0.0


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
