"""Programs as the front end makes them: every unit alone on the emulator."""

import pytest
import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region, why_not
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.program import all_values
from tests.convert.facts_check import broken_rules
from tests.convert.harness import LEVELS, image, run_region


class Attention(nn.Module):
    """A squeeze-and-excitation block between convolutions of every kind."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, padding=1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()
        )
        self.same = nn.Conv2d(8, 8, 4, padding="same", groups=8)
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.excite = nn.Conv2d(4, 8, 1)
        self.grouped = nn.Conv2d(8, 12, 3, padding=2, dilation=2, groups=2)
        self.norm = nn.BatchNorm2d(12)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.enter(x)
        x = nn.functional.silu(self.same(x))
        gate = nn.functional.relu(self.squeeze(x.mean((2, 3), keepdim=True)))
        x = x * nn.functional.hardsigmoid(self.excite(gate))
        x = self.norm(torch.relu(self.grouped(x)) - 0.5)
        x = nn.functional.avg_pool2d(x, 3, 2, 1)
        return torch.softmax(self.head(x.flatten(2).transpose(1, 2)), -1)


class Pyramid(nn.Module):
    """Two resolutions, joined and resized; several results."""

    def __init__(self):
        super().__init__()
        self.left = nn.Conv2d(3, 4, 3, padding=1)
        self.right = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        a = nn.functional.relu6(self.left(x))
        b = self.right(nn.functional.max_pool2d(a, 3, 2, ceil_mode=True))
        up = nn.functional.interpolate(b, size=a.shape[2:], mode="bilinear")
        near = nn.functional.interpolate(b, scale_factor=2)
        both = torch.cat([a, up, 2 / (1 + up.abs())], 1)
        return both[:, 1:9, ::2], nn.functional.pad(near, (1, 2), value=3.0), both.argmax(1)


NOT_AT_28 = {"aten.argmax.default"}
NOT_AT_27 = NOT_AT_28 | {"aten.clone.default", "aten.reciprocal.default", "aten.slice.Tensor"}
REFUSED = {
    ("Attention", 27): {"aten.clone.default", "aten.convolution.default"},
    ("Pyramid", 27): NOT_AT_27,
    ("Pyramid", 28): NOT_AT_28,
}
"""The operators of each network that a level cannot say (in Attention a dilated convolution);
none at higher levels."""


@pytest.fixture(scope="module", params=[Attention, Pyramid], ids=lambda kind: kind.__name__)
def prepared(request):
    torch.manual_seed(5)
    module = request.param().eval()
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.running_mean, -1, 1)
            nn.init.uniform_(norm.running_var, 0.5, 2)
    x = image(2, 3, 18, 22)
    program = prepare(module, (x,), request.param.__name__)
    return program, all_values(program, (x,))


@pytest.mark.parametrize("level", LEVELS)
def test_every_unit_is_right_or_refused(prepared, level, nnapi_library):
    program, values = prepared
    refused = set()
    for unit in program.units.units:
        reason = why_not(program, unit.index, level)
        if reason is not None:
            refused.add(reason.operation)
            continue
        region = convert_region(program, [unit.index], level)
        assert broken_rules(region.model, level) == []
        for name, result in zip(region.outputs, run_region(region, values), strict=True):
            torch.testing.assert_close(result, values[name], rtol=1e-4, atol=1e-5)
    assert refused == REFUSED.get((program.name, level), set())
