"""What float16 costs single units, computed on the emulator."""

import torch
from torch import nn

from nnapi_prof.execution.half_errors import unit_errors
from nnapi_prof.frontend import prepare
from tests.models import Function


def mixed(x):
    """Products that float16 cannot hold, and a sigmoid that is 1 all over."""
    large = x * 1e4
    return torch.sigmoid(large * large)


def test_each_unit_has_its_own_error() -> None:
    program = prepare(Function(mixed), (torch.linspace(0.5, 20, 48).reshape(1, 3, 4, 4),), "mixed")
    units = program.units.units
    result = unit_errors(program, range(len(units)))
    large, larger, last = (result[u] for u in range(3))
    assert large.relative == larger.relative == float("inf")  # beyond 65504
    assert "beyond what float16 holds" in str(large.message)
    assert last.relative == 0.0  # of what eager PyTorch hands it, not of what came before


def test_halves_move_a_convolution_by_a_thousandth_or_less() -> None:
    torch.manual_seed(0)
    program = prepare(nn.Conv2d(3, 8, 3).eval(), (torch.randn(1, 3, 8, 8),), "conv")
    (error,) = unit_errors(program, [0]).values()
    assert 0 < error.relative < 5e-3 and error.message is None
