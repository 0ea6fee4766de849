"""How much converted networks permute."""

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.convert.region import Permutes, permutes
from nnapi_prof.frontend import prepare
from tests.convert.harness import whole

MODELS = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "models.py"))


def converted(module, *inputs):
    return whole(prepare(module.eval(), inputs, "network"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18", "squeezenet1_1"])
def test_convolutions_pools_and_adds_permute_their_input_alone(name):
    region = converted(MODELS[name](), torch.zeros(1, 3, 64, 64))
    assert permutes(region) == Permutes(1, 3 * 64 * 64 * 4)
    assert region.operations[0] == "TRANSPOSE"


class Block(nn.Module):
    """A block in the manner of ConvNeXt: norm and linear layers on channels that stand last."""

    def __init__(self, width=8):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.scale = nn.LayerNorm(width), nn.Parameter(torch.rand(width, 1, 1))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.down(nn.functional.gelu(self.up(y)))
        return x + self.scale * y.permute(0, 3, 1, 2)


class Line(nn.Module):
    """A block in the manner of vision transformers: pixels in a line, and back to an image."""

    def __init__(self, width=8):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        y = self.layer(self.norm(x.flatten(2).transpose(1, 2)))
        return y.transpose(1, 2).reshape(x.shape)


@pytest.mark.parametrize("block", [Block, Line])
def test_layers_on_channels_that_stand_last_permute_nothing(block):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 4, 4), block(), block(), nn.Conv2d(8, 8, 2, 2), nn.AdaptiveAvgPool2d(1)
    )
    assert permutes(converted(model, torch.zeros(1, 3, 32, 32))).count == 1


def test_a_permute_of_the_model_counts():
    class Turned(nn.Module):
        def forward(self, x):
            return x.permute(0, 2, 1) + 1

    assert permutes(converted(Turned(), torch.zeros(2, 3, 5))) == Permutes(1, 2 * 3 * 5 * 4)
