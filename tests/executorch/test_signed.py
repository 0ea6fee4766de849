"""Quantised values in signed bytes, as XNNPACK's delegate wants them."""

import torch
from torch import fx

from nnapi_prof.executorch.signed import sign_bytes
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE
from tests.parts import need

need("executorch", "executorch")
UNSIGNED, SIGNED = (0.05, 140, 0, 255, torch.uint8), (0.05, 12, -128, 127, torch.int8)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.tensor([7, 0]))
        self.register_buffer("weight", torch.arange(0, 256, 2, dtype=torch.uint8).view(16, 8))

    def forward(self, x, given):
        q = QUANTIZE(x, *UNSIGNED)
        moved = torch.ops.aten.permute.default(torch.ops.aten.view.default(q, [8, 8]), [1, 0])
        ours, theirs = (torch.ops.aten.cat.default([moved, y]) for y in (self.weight, given))
        chosen = torch.ops.aten.index_select.default(moved, 0, self.order)
        quantised = q, moved, given, ours, theirs, chosen
        floats = [DEQUANTIZE(each, *UNSIGNED) for each in quantised]
        return *floats, moved, QUANTIZE(floats[0] * 2, *UNSIGNED)


def test_results_are_the_same_and_converted_only_for_others():
    module = fx.symbolic_trace(Net())
    inputs = torch.linspace(-9, 9, 64), torch.arange(192, 256, dtype=torch.uint8).view(8, 8)
    before = module(*inputs)
    sign_bytes(module)
    torch.testing.assert_close(module(*inputs), before, rtol=0, atol=0)
    calls = [node for node in module.graph.nodes if node.target in (QUANTIZE, DEQUANTIZE)]
    assert [node.args[1:] for node in calls] == [SIGNED] * 8
    sources = [str(node.args[0].target) for node in calls if node.target is DEQUANTIZE]
    names = ["quantize_per_tensor", "permute", "_to_copy", "cat", "cat", "_to_copy"]
    assert [source.split(".")[1] for source in sources] == names
    # Two values come from others, and two go to them.
    assert sum("bitwise_xor" in str(node.target) for node in module.graph.nodes) == 4


def test_what_is_joined_has_one_scale_and_rounds_the_same():
    def join(a, b):
        floats = [DEQUANTIZE(a, *UNSIGNED), DEQUANTIZE(b, 0.02, 7, 0, 255, torch.uint8)]
        return QUANTIZE(torch.ops.aten.cat.default(floats), *UNSIGNED)

    module, every = fx.symbolic_trace(join), torch.arange(256, dtype=torch.uint8)
    before = module(every, every)
    sign_bytes(module)
    torch.testing.assert_close(module(every, every), before, rtol=0, atol=0)
    (cat,) = [node for node in module.graph.nodes if node.target is torch.ops.aten.cat.default]
    assert [source.args[1:] for source in cat.all_input_nodes] == [SIGNED] * 2
