"""Outputs that move far by one rounding are allowed to; others, and those of floats, are not."""

import pytest
import torch
from torch import nn

from nnapi_prof.execution.host import allow_unsteady
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE

NUMBERS = (0.05, 128, 0, 255, torch.uint8)


class Rounded(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(DEQUANTIZE(QUANTIZE(x, *NUMBERS), *NUMBERS) * self.factor)


@pytest.mark.parametrize(
    ("factor", "step", "allowed"), [(1000.0, 0.05, True), (0.1, 0.05, False), (1000.0, 0.0, False)]
)
def test_only_what_jumps_in_eager_pytorch_is_allowed_to(
    factor: float, step: float, allowed: bool
) -> None:
    x = torch.linspace(-4, 4, 64).reshape(1, 64)
    program = prepare(torch.export.export(Rounded(factor), (x,)), (x,), "rounded")
    check = OutputCheck("y", (1, 64), 0.15, 0.15, 0.1)
    (result,), notes = allow_unsteady([check], program, (x,), [step])
    assert result.ok is allowed
    assert len(notes) == allowed
    if allowed:
        assert notes[0].startswith(
            "y is quantised and unsteady: in eager PyTorch, too, it moves by"
        )


def test_what_is_right_is_not_asked() -> None:
    x = torch.ones(1, 4)
    program = prepare(torch.export.export(Rounded(1.0), (x,)), (x,), "rounded")
    check = OutputCheck("y", (1, 4), 0.0, 0.0, 0.1)
    assert allow_unsteady([check], program, (x,), [0.05]) == ((check,), [])
