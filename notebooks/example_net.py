"""The network of these notebooks."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    """A small segmentation network: [1, 3, 160, 160] -> [1, 4, 80, 80].

    The simulated NPU lacks its bilinear resize and its sigmoid, so that there is something to
    decide.
    """

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU6(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU6()
        )
        self.middle = nn.Sequential(
            nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU6(), nn.Conv2d(64, 64, 3, 1, 1)
        )
        self.up = nn.Upsample(scale_factor=2, mode="bilinear")
        self.head = nn.Conv2d(64, 4, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        low = self.down(image)
        return self.head(self.up(low + self.middle(low))).sigmoid()


def net() -> nn.Module:
    """The network with the same weights every time."""
    torch.manual_seed(0)
    return Net().eval()
