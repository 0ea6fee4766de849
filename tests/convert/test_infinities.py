"""Infinities where NNAPI's arithmetic has none, as on phones and on the emulator."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.quiet import quiet_torch
from tests.convert.coverage.rows import Function
from tests.convert.harness import image, run_region

aten = torch.ops.aten
SCORES, HIDES = image(1, 2, 4, 8), image(4, 4) > 0
HIDES[1] = False
ADDED = torch.where(HIDES, image(4, 4), -math.inf)


class Attention(nn.Module):
    def forward(self, q, mask):
        return F.scaled_dot_product_attention(q, q, q, mask)


class Twice(nn.Module):
    """Two masks, one of which hides a row."""

    def forward(self, x, mask):
        masked = x @ x.transpose(-1, -2) + mask + torch.zeros(4)
        return torch.where((masked == -math.inf).all(-1, True), 0.0, masked.softmax(-1))


@pytest.mark.parametrize("level", [29, 30])
@pytest.mark.parametrize(
    ("module", "mask"), [(Attention(), HIDES), (Attention(), ADDED), (Twice(), ADDED)]
)
def test_attention_that_was_taken_apart(module, mask, level, nnapi_library):
    """Its masked scores are asked for rows of minus infinity; the mask can tell them."""
    with quiet_torch():
        exported = torch.export.export(module, (SCORES, mask)).run_decompositions()
    program = prepare(exported, (SCORES, mask), "apart")
    targets = [node.target for node in program.module.graph.nodes]
    assert aten.eq.Scalar in targets and aten.scaled_dot_product_attention.default not in targets
    region = convert_region(program, range(len(program.units.units)), level)
    (found,) = run_region(region, dict(zip(program.units.inputs, (SCORES, mask), strict=True)))
    torch.testing.assert_close(found, module(SCORES, mask), rtol=1e-5, atol=1e-6)


def test_sums_end_at_the_largest_number(nnapi_library):
    with quiet_torch():
        module = torch.jit.trace(Function(lambda x, y: x / y), (torch.ones(3), torch.ones(3)))
    x, y = torch.tensor([1.0, -1.0, 4.0]), torch.tensor([0.0, 0.0, 2.0])
    program = prepare(module, (x, torch.ones(3)), "quotient")
    region = convert_region(program, [0], 30)
    (found,) = run_region(region, dict(zip(program.units.inputs, (x, y), strict=True)))
    most = torch.finfo(torch.float32).max
    assert found.tolist() == [most, -most, 2.0]
