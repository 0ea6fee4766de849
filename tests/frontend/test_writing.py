"""TorchScript and exported programs that write in place."""

import pytest
import torch
from torch import Tensor, nn

from nnapi_prof import frontend
from nnapi_prof.errors import FrontendError
from tests.frontend.common import IMAGE, agree

EXAMPLE = torch.ones(1, 4, 6, 6)


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        z = y
        y += 1
        y.relu_()
        return z + y  # z is y


class WritesView(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        y[:, 0] = 0.0
        return y


class Masked(nn.Module):
    """Constants that are written to in place, as in windows that are shifted."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias.clone()
        bias[2:4].zero_()
        mask = x.new_zeros([6, 6])
        mask[:3, 3:] = 2.0
        mask[3:] -= 1
        return x * mask.mul_(2) + torch.relu_(bias)


class CountsSizes(nn.Module):
    """Windows whose number is worked out in place: in a trace sizes are tensors."""

    def forward(self, x: Tensor) -> Tensor:
        n, windows = x.shape[0], 1
        for size in x.shape[2:]:
            windows *= size // 2
        n *= windows
        return x.reshape(n, -1) * 2.0


def test_sizes_are_written_to_in_place(saved):
    path = saved(CountsSizes(), EXAMPLE)
    assert [u.label for u in agree(path, IMAGE).units.units][-1] == "mul 9x16"


class WritesParts(nn.Module):
    """Boxes, every second, picked elements and whole views, of values and of constants."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out = torch.zeros(1, 6, 8)
        early = out[..., 2:4]
        every = x.flatten(2)[:, :, :8]
        out[:, 1:5:2, 2:6] = every[:, :2, ::2]
        out[:, 0] = x.sum((1, 2)).mean(-1, keepdim=True)
        out[0, :, 3].add_(1.0)
        out.transpose(1, 2)[:, 7] = 5.0
        y = x * 2.0
        part = y[:, 1, 2:]
        part.mul_(part)
        y[:, :, -1, 0] = out[:, 2, 2:6]
        hidden = torch.zeros_like(x).masked_fill_(x > 0, -1.0)
        square = torch.zeros(3, 3)
        square.diagonal().copy_(x[0, 0, 0, :3])
        return out * 2.0, early + y.sum(), hidden + square.sum() + part.sum()


LABELS = {
    InPlace: ["mul 1x4x6x6", "add+relu 1x4x6x6", "add 1x4x6x6"],
    Masked: ["mul 1x4x6x6", "add 1x4x6x6"],
}


@pytest.mark.parametrize("kind", [InPlace, WritesView, Masked, WritesParts])
@pytest.mark.parametrize("example", [(), (EXAMPLE,)], ids=["scripted", "traced"])
def test_writing_reaches_every_name(saved, kind, example):
    """Values, views and constants are written."""
    labels = [unit.label for unit in agree(saved(kind(), *example), IMAGE).units.units]
    assert labels == LABELS.get(kind, labels)


def test_parts_are_written_to_in_exported_programs():
    x = torch.randn(1, 4, 6, 6)
    program = frontend.prepare(WritesParts(), [x], "writes")
    for ours, theirs in zip(program.module(x + 1), WritesParts()(x + 1), strict=True):
        torch.testing.assert_close(ours, theirs)


class ChangesItsBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(1)
        return x + self.total.sum()


def test_buffers_are_not_written_to(saved):
    with pytest.raises(FrontendError):
        frontend.load(saved(ChangesItsBuffer()), [IMAGE])
