"""Changes of layout at the border of a region, taken out of its model."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.peel import peel, unpeeled
from nnapi_prof.convert.region import ConvertedRegion, Permutes, permutes
from nnapi_prof.convert.serialize import parse
from nnapi_prof.frontend import prepare

TO_NHWC = (0, 2, 3, 1)


def region_of(model: nn.Module, *images: torch.Tensor) -> ConvertedRegion:
    program = prepare(model.eval(), images, "small")
    return convert_region(program, tuple(range(len(program.units.units))), 30)


def test_both_ends_of_a_convolution() -> None:
    region = region_of(nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 8, 9))
    found = peel(region)
    assert region.operations == ("TRANSPOSE", "CONV_2D", "TRANSPOSE")
    assert found.region.operations == ("CONV_2D",)
    # Axis i of the operand [1, 8, 9, 3] is axis (0, 2, 3, 1)[i] of the image [1, 3, 8, 9]; the
    # result [1, 6, 7, 4] stands to [1, 4, 6, 7] alike.
    assert (found.input_axes, found.output_axes) == ((TO_NHWC,), (TO_NHWC,))
    model = parse(found.region.serialized)
    assert [model.operands[i].dims for i in model.inputs] == [(1, 8, 9, 3)]
    assert [model.operands[i].dims for i in model.outputs] == [(1, 6, 7, 4)]
    assert (found.region.inputs, found.region.input_types) == (region.inputs, region.input_types)
    assert permutes(region) == Permutes(2, 4 * (8 * 9 * 3 + 6 * 7 * 4)) == found.copies
    assert permutes(found.region) == Permutes()
    # Nothing that only the permutes needed is left behind.
    named = {i for o in model.operations for i in (*o.inputs, *o.outputs)}
    assert named == set(range(len(model.operands)))


def test_the_permutation_of_an_output_is_turned_round() -> None:
    class Turned(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x).permute(2, 0, 1)

    found = peel(region_of(Turned(), torch.zeros(2, 3, 5)))
    model = parse(found.region.serialized)
    (axes,) = found.output_axes
    assert axes is not None
    value = np.zeros((5, 2, 3))
    assert value.transpose(axes).shape == model.operands[model.outputs[0]].dims == (2, 3, 5)


def test_what_others_read_stays() -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            turned = x.permute(0, 2, 1)
            return torch.relu(turned), x + 1

    class Between(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = torch.relu(x)
            return y.permute(0, 2, 1), y

    for model in (Twice(), Between()):
        region = region_of(model, torch.zeros(1, 3, 4))
        found = peel(region)
        assert "TRANSPOSE" in found.region.operations
        assert found == unpeeled(region)


def test_a_region_that_is_a_permute_keeps_it() -> None:
    class Permute(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.permute(0, 2, 1)

    region = region_of(Permute(), torch.zeros(1, 3, 4))
    assert peel(region) == unpeeled(region)
    assert unpeeled(region).copies == Permutes()
