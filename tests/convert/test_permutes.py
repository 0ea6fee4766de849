"""How much converted networks permute."""

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.permutes import Permutes, permutes
from nnapi_prof.frontend import prepare

MODELS = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "models.py"))


def whole(module, *inputs):
    program = prepare(module.eval(), inputs, "network")
    return convert_region(program, range(len(program.units.units)), 30)


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18", "squeezenet1_1"])
def test_convolutions_pools_and_adds_permute_their_input_alone(name):
    region = whole(MODELS[name](), torch.zeros(1, 3, 64, 64))
    assert permutes(region) == Permutes(1, 3 * 64 * 64 * 4)
    assert region.operations[0] == "TRANSPOSE"


def test_a_permute_of_the_model_counts():
    class Turned(nn.Module):
        def forward(self, x):
            return x.permute(0, 2, 1) + 1

    assert permutes(whole(Turned(), torch.zeros(2, 3, 5))) == Permutes(1, 2 * 3 * 5 * 4)
