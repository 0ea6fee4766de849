"""Quantised models whose outputs move far when one rounding goes the other way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from nnapi_prof.graph.program import Program
from nnapi_prof.run.result import OutputCheck

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

    ``steps`` has :func:`~nnapi_prof.run.compare.last_step` of each output.
    """
    doubtful = [not c.ok and step > 0 for c, step in zip(checks, steps, strict=True)]
    if not any(doubtful):
        return tuple(checks), []
    with torch.inference_mode():
        exact = program.module(*inputs)
        moved = [program.module(*_nudged(inputs, sign * NUDGE)) for sign in (1, -1)]
    found, notes = [], []
    for index, (check, doubt) in enumerate(zip(checks, doubtful, strict=True)):
        jump = max(_relative(outputs[index], exact[index]) for outputs in moved) if doubt else 0.0
        if jump > check.tolerance:
            check = replace(check, tolerance=jump)
            notes.append(
                f"{check.name} is quantised and unsteady: in eager PyTorch, too, it moves by "
                f"{jump:.0%} of its largest value when the inputs move by {NUDGE:.1%} of themselves"
            )
        found.append(check)
    return tuple(found), notes


def _nudged(inputs: Sequence[torch.Tensor], nudge: float) -> list[torch.Tensor]:
    return [value * (1 + nudge) if value.is_floating_point() else value for value in inputs]


def _relative(moved: torch.Tensor, exact: torch.Tensor) -> float:
    largest = exact.double().abs().max().item() if exact.numel() else 0.0
    apart = (moved.double() - exact.double()).abs()
    return apart.max().item() / largest if largest > 0 else 0.0
