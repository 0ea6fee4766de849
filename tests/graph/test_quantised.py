"""Passes over quantised graphs: what they write, and that the numbers stay."""

import pytest
import torch
from torch import nn

from nnapi_prof.frontend import prepare
from nnapi_prof.graph.json import type_from_json, type_to_json
from nnapi_prof.graph.node import op_name
from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE
from nnapi_prof.graph.types import Quantisation, TensorType

decomposed = torch.ops.quantized_decomposed
U8, I8 = (0, 255, torch.uint8), (-128, 127, torch.int8)
WEIGHT = torch.arange(-20, 20, dtype=torch.int8).reshape(5, 8)


class Function(nn.Module):
    def __init__(self, function, **constants):
        super().__init__()
        self.function = function
        for name, value in constants.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.function(self, x)


def prepared(function, *shape, step=None, **constants):
    """The program of ``function(module, x)``, and its calls by short names."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    module = Function(function, **constants).eval()
    program = prepare(torch.export.export(module, (x,)), (x,), "function")
    torch.testing.assert_close(program.module(x)[0], module(x), atol=step, rtol=step)
    calls = [node for node in program.module.graph.nodes if node.op == "call_function"]
    return program, [op_name(node.target).split(".")[1] for node in calls]


def fake(x, scale=0.05, zero=3, limits=I8):
    return DEQUANTIZE(QUANTIZE(x, scale, zero, *limits), scale, zero, *limits)


def test_int8_between_conversions_becomes_uint8():
    program, _ = prepared(lambda _, x: torch.relu(fake(x)), 2, 3)
    (quantize,) = [n for n in program.module.graph.nodes if n.target is QUANTIZE]
    assert quantize.args[1:] == (0.05, 131, 0, 255, torch.uint8)
    assert quantize.meta["tensor"].quant == Quantisation(0.05, 131)


def test_an_output_keeps_its_type():
    program, _ = prepared(lambda _, x: QUANTIZE(x, 0.05, 3, *I8), 2, 3)
    (output,) = program.units.outputs
    known = program.units.values[output]
    assert (known.dtype, known.quant) == ("int8", Quantisation(0.05, 3))


def test_scales_in_tensors_become_numbers():
    def function(m, x):
        args = (m.scale, m.zero, *U8)
        return decomposed.dequantize_per_tensor.tensor(
            decomposed.quantize_per_tensor.tensor(x, *args), *args
        )

    scale, zero = torch.tensor([0.5]), torch.tensor([7])
    program, calls = prepared(function, 2, 3, scale=scale, zero=zero)
    assert calls == ["quantize_per_tensor", "dequantize_per_tensor"]
    targets = {n.target for n in program.module.graph.nodes if n.op == "call_function"}
    assert targets == {QUANTIZE, DEQUANTIZE}


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.reshape(2, 12),
        lambda x: x.permute(0, 2, 1),
        lambda x: x[:, 1:, ::2],
        lambda x: torch.cat([x, x], 1),
        lambda x: torch.flip(x, [1]).flatten(1),
    ],
)
def test_moves_are_of_integers(move):
    _, calls = prepared(lambda _, x: fake(move(fake(x))), 2, 3, 4)
    assert calls[0] == "quantize_per_tensor"
    assert calls[-1] == "dequantize_per_tensor"
    assert not {"quantize_per_tensor", "dequantize_per_tensor"} & set(calls[1:-1])


def test_a_move_to_another_scale_is_still_one_of_integers():
    _, calls = prepared(lambda _, x: fake(fake(x).flatten(1), 0.1, 5), 2, 3, 4)
    there_and_back = ["quantize_per_tensor", "dequantize_per_tensor"]
    assert calls == ["quantize_per_tensor", "view", "dequantize_per_tensor", *there_and_back]


def test_weights_stay_integers_where_their_operation_is_quantised():
    def function(m, x):
        w = DEQUANTIZE(m.weight, 0.1, 0, *I8)
        return fake(nn.functional.linear(fake(x), w), 0.5, 0)

    program, calls = prepared(function, 3, 8, weight=WEIGHT)
    assert calls.count("dequantize_per_tensor") == 3
    dtypes = {b.dtype for b in program.module.buffers()}
    assert dtypes == {torch.int8}
    assert [unit.label for unit in program.units.units][1] == "quantised linear 8->5 3"


def test_weights_of_a_float_operation_become_floats():
    def function(m, x):
        return nn.functional.linear(x, DEQUANTIZE(m.weight, 0.1, 0, *I8))

    program, calls = prepared(function, 3, 8, weight=WEIGHT)
    assert calls == ["linear"]
    assert {b.dtype for b in program.module.buffers()} == {torch.float32}


def test_a_transposed_weight_keeps_its_scales():
    def function(m, x):
        w = DEQUANTIZE_CHANNELS(m.weight, m.scales, m.zeros, 0, *I8)
        return fake(torch.mm(fake(x), w.t()), 0.5, 0)

    scales, zeros = torch.linspace(0.1, 0.5, 5), torch.zeros(5, dtype=torch.int64)
    constants = {"weight": WEIGHT, "scales": scales, "zeros": zeros}
    program, calls = prepared(function, 3, 8, step=0.501, **constants)
    assert "linear" in calls
    assert "permute" not in calls
    (weight,) = [n for n in program.module.graph.nodes if n.target is DEQUANTIZE_CHANNELS]
    assert weight.args[3] == 0
    assert weight.meta["tensor"].shape == (5, 8)


def test_conversions_that_two_operations_read_are_in_both_units():
    def function(_, x):
        y = fake(x)
        return fake(torch.sigmoid(y), 1 / 256, -128) + fake(torch.tanh(y), 1 / 128, 0)

    program, _ = prepared(function, 2, 3)
    labels = [unit.label.split()[:2] for unit in program.units.units]
    assert ["quantised", "sigmoid"] in labels
    assert ["quantised", "tanh"] in labels


def test_a_quantised_type_as_json():
    known = TensorType((2, 3), "uint8", quant=Quantisation(0.05, 128))
    assert type_from_json(type_to_json(known)) == known
    assert str(known) == "uint8[2x3, scale 0.05, zero point 128]"
    assert type_from_json(type_to_json(TensorType((2,)))) == TensorType((2,))
