"""What is infinite in PyTorch where NNAPI's arithmetic, on phones, is not."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.convert.harness import image, run_whole

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
    asked = [n for n in program.module.graph.nodes if n.target is aten.eq.Scalar]
    assert asked and all(node.args[0].target is not aten.add.Tensor for node in asked)
    (result,) = run_whole(program, (SCORES, mask), level)
    torch.testing.assert_close(result, module(SCORES, mask), rtol=1e-5, atol=1e-6)
