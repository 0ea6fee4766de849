"""Passes over quantised graphs: what they write, and that the numbers stay."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from nnapi_prof.frontend import prepare
from nnapi_prof.graph import Quantisation, TensorType, quantisation
from nnapi_prof.graph.node import op_name
from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE
from nnapi_prof.graph.unit import type_from_json, type_to_json
from tests.models import Function

aten, decomposed = torch.ops.aten, torch.ops.quantized_decomposed
U8, I8 = (0, 255, torch.uint8), (-128, 127, torch.int8)
CONVERSIONS = ["quantize_per_tensor", "dequantize_per_tensor"]
WEIGHT = torch.arange(-20, 20, dtype=torch.int8).reshape(5, 8)


def prepared(function, *shape, step=None, **constants):
    """The program of ``function(constants, x)``, and its calls by short names."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    module = Function(partial(function, SimpleNamespace(**constants)))
    program = prepare(torch.export.export(module, (x,)), (x,), "function")
    torch.testing.assert_close(program.module(x)[0], module(x), atol=step, rtol=step)
    calls = [node for node in program.module.graph.nodes if node.op == "call_function"]
    return program, [op_name(node.target).split(".")[-2:][0] for node in calls]


def fake(x, scale=0.05, zero=3, limits=I8):
    return DEQUANTIZE(QUANTIZE(x, scale, zero, *limits), scale, zero, *limits)


def test_int8_between_conversions_becomes_uint8():
    program, _ = prepared(lambda _, x: torch.relu(fake(x)), 2, 3)
    (quantize,) = program.module.graph.find_nodes(op="call_function", target=QUANTIZE)
    assert quantize.args[1:] == (0.05, 131, 0, 255, torch.uint8)
    assert quantize.meta["tensor"].quant == Quantisation(0.05, 131)


PART = (-127, 100, torch.int8)


@pytest.mark.parametrize(
    ("function", "bounds"),
    [
        (torch.neg, [(-6.5, 4.85)]),
        (torch.relu, [(None, 4.85)]),
        (lambda x: torch.clamp(x, -1, 1), []),
        (torch.sigmoid, []),
        (lambda x: nn.functional.max_pool2d(fake(x, limits=PART), 2), [(-6.5, 4.85)]),
        (lambda x: nn.functional.max_pool2d(fake(x), 2), [(-6.5, 4.85)]),
        (lambda x: fake(x, limits=PART).flatten(1), [(-6.5, 4.85)]),
    ],
)
def test_a_part_of_a_type_is_the_whole_type_and_a_clamp_where_one_is_needed(function, bounds):
    program, _calls = prepared(lambda _, x: fake(function(10 * x), limits=PART), 1, 3, 4, 4)
    nodes = [node for node in program.module.graph.nodes if node.target is QUANTIZE]
    assert all(node.args[3:] == U8 for node in nodes)
    clamps = [node for node in program.module.graph.nodes if node.name.startswith("clamp")]
    actual = [tuple(node.args[1:]) for node in clamps if quantisation.is_dequantize(node.args[0])]
    assert actual == [pytest.approx(pair) for pair in bounds]


def test_an_output_keeps_its_type():
    program, _ = prepared(lambda _, x: QUANTIZE(x, 0.05, 3, *I8), 2, 3)
    (output,) = program.units.outputs
    output_type = program.units.values[output]
    assert (output_type.dtype, output_type.quant) == ("int8", Quantisation(0.05, 3))


def test_scales_in_tensors_become_numbers():
    quantize = decomposed.quantize_per_tensor.tensor
    dequantize = decomposed.dequantize_per_tensor.tensor

    def function(m, x):
        args = (m.scale, m.zero, *U8)
        return dequantize(quantize(x, *args), *args)

    program, _ = prepared(function, 2, 3, scale=torch.tensor([0.5]), zero=torch.tensor([7]))
    nodes = [node for node in program.module.graph.nodes if node.op == "call_function"]
    assert [node.target for node in nodes] == [QUANTIZE, DEQUANTIZE]


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
    _, (first, *moves, last) = prepared(lambda _, x: fake(move(fake(x))), 2, 3, 4)
    assert [first, last] == CONVERSIONS and not set(CONVERSIONS) & set(moves)


def test_a_move_to_another_scale_is_still_one_of_integers():
    _, calls = prepared(lambda _, x: fake(fake(x).flatten(1), 0.1, 5), 2, 3, 4)
    assert calls == ["quantize_per_tensor", "view", "dequantize_per_tensor", *CONVERSIONS]


def test_weights_stay_integers_where_their_operation_is_quantised():
    def function(m, x):
        w = DEQUANTIZE(m.weight, 0.1, 0, *I8)
        return fake(nn.functional.linear(fake(x), w), 0.5, 0)

    program, calls = prepared(function, 3, 8, weight=WEIGHT)
    assert calls.count("dequantize_per_tensor") == 3
    assert {b.dtype for b in program.module.buffers()} == {torch.int8}
    assert program.units.units[1].label == "quantised linear 8->5 3"


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
    assert "linear" in calls and "permute" not in calls
    (weight,) = [n for n in program.module.graph.nodes if n.target is DEQUANTIZE_CHANNELS]
    assert weight.args[3] == 0
    assert weight.meta["tensor"].shape == (5, 8)


def test_conversions_that_two_operations_read_are_in_both_units():
    def function(_, x):
        y = fake(x)
        return fake(torch.sigmoid(y), 1 / 256, -128) + fake(torch.tanh(y), 1 / 128, 0)

    program, _ = prepared(function, 2, 3)
    labels = {" ".join(unit.label.split()[:2]) for unit in program.units.units}
    assert {"quantised sigmoid", "quantised tanh"} <= labels


def test_a_quantised_type_as_json():
    quantised = TensorType((2, 3), "uint8", quant=Quantisation(0.05, 128))
    assert type_from_json(type_to_json(quantised)) == quantised
    assert str(quantised) == "uint8[2x3, scale 0.05, zero point 128]"
    assert type_from_json(type_to_json(TensorType((2,)))) == TensorType((2,))


@pytest.mark.parametrize("limits", [(-32768, 32767, torch.int16), (-100000, 100000, torch.int32)])
def test_more_than_8_bits_are_arithmetic_on_floats(limits):
    _, calls = prepared(
        lambda _, x: fake(torch.relu(fake(x, 1e-4, 5, limits)), 1e-4, 0, limits), 2, 3
    )
    assert calls == "mul round add clamp sub mul relu mul round clamp mul".split()


def dynamic(choose, dtype=torch.int8):
    limits = quantisation.RANGES[str(dtype).removeprefix("torch.")]

    def function(_, x):
        x = torch.linspace(0, 5, 3)[:, None] + x
        args = (*choose.tensor(x, *limits, 2**-12, dtype), *limits, dtype)
        q = decomposed.quantize_per_tensor.tensor(x, *args)
        return decomposed.dequantize_per_tensor.tensor(q, *args)

    return function


def by_token(choose):
    def function(_, x):
        args = (*choose(x, torch.int8), *I8)
        return decomposed.dequantize_per_token(
            decomposed.quantize_per_token(x, *args), *args, torch.float32
        )

    return function


@pytest.mark.parametrize(
    "function",
    [
        dynamic(decomposed.choose_qparams),
        dynamic(decomposed.choose_qparams, torch.uint8),
        dynamic(decomposed.choose_qparams_symmetric),
        dynamic(decomposed.choose_qparams_symmetric, torch.uint8),
        by_token(decomposed.choose_qparams_per_token),
        by_token(decomposed.choose_qparams_per_token_asymmetric),
    ],
)
def test_scales_that_are_computed_are_arithmetic_on_floats(function):
    program, calls = prepared(function, 3, 8)
    assert {"amax", "round"} <= set(calls)
    assert {value_type.dtype for value_type in program.units.values.values()} <= {"float32", "bool"}
    x = torch.stack([-torch.rand(8), torch.zeros(8), torch.rand(8)])  # of one sign, and of none
    torch.testing.assert_close(program.module(x)[0], function(None, x))


def test_integers_of_a_computed_scale_that_are_read_stay():
    def function(_, x):
        scale, zero = decomposed.choose_qparams.tensor(x, *I8[:2], 2**-12, torch.int8)
        return decomposed.quantize_per_tensor.tensor(x, scale, zero, *I8)

    _, calls = prepared(function, 3, 8)
    assert "choose_qparams" in calls


@pytest.mark.parametrize("channels", [False, True])
def test_fake_quantisation_is_quantisation(channels):
    def function(m, x):
        w = m.weight
        if channels:
            w = torch.fake_quantize_per_channel_affine(w, m.scales, m.zeros, 0, -127, 127)
        else:
            w = torch.fake_quantize_per_tensor_affine(w, m.scales[:1], m.zeros[:1], -127, 127)
        x = torch.fake_quantize_per_tensor_affine(x, 0.05, 120, 0, 255)
        return torch.fake_quantize_per_tensor_affine(nn.functional.linear(x, w), 0.1, 3, -128, 127)

    numbers = torch.Generator().manual_seed(0)
    weight = torch.randn(5, 8, generator=numbers)
    scales = torch.rand(5, generator=numbers) / 50
    constants = {"weight": weight, "scales": scales, "zeros": torch.zeros(5, dtype=torch.int32)}
    program, _ = prepared(function, 2, 8, step=0.11, **constants)
    assert [unit.label for unit in program.units.units] == [
        "quantize_per_tensor 2x8",
        "quantised linear 8->5 2",
        "dequantize_per_tensor 2x5",
    ]
    (linear,) = program.module.graph.find_nodes(op="call_function", target=aten.linear.default)
    scheme = quantisation.scheme_of(linear.args[1])
    assert len(scheme.scales) == (5 if channels else 1)
