"""Quantised models end to end, operators composed of several quant8 operations, and the table of
NNAPI's rules against the facts."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves

from nnapi_prof.bundle.torchscript import stock_module
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.quantize_rules import FIXED, FREE, SAME_AS_INPUT, error_on_the_way
from nnapi_prof.errors import NnapiProfError, UnsupportedOp
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.eager import quantised_engine
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE
from nnapi_prof.nnapi.codes import OperandCode
from tests.convert.harness import FIRST, OPERATIONS, aten, program_of, run_region, traced, whole
from tests.convert.quantised_models import ExportedNet, checked_regions, eager_net
from tests.models import Function


@pytest.fixture(scope="module", params=["qnnpack", "x86", "exported", "exported channels"])
def quantised(request):
    """A program, the model it came from and its input."""
    x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    with quiet_torch(), torch.random.fork_rng():
        if request.param.startswith("exported"):
            model = ExportedNet("channels" in request.param).eval()
            return prepare(torch.export.export(model, (x,)), (x,), "net"), model, x
        with quantised_engine(request.param):
            model = eager_net(request.param)
            return prepare(torch.jit.trace(model, x), (x,), "net"), model, x


@pytest.mark.parametrize("level", [27, 28, 29, 30])
def test_every_unit_is_right_within_a_step(quantised, level, nnapi_library):
    program, _, x = quantised
    assert len(list(checked_regions(program, x, level))) >= 5


@pytest.mark.parametrize("level", [29, 30])
def test_the_whole_model(quantised, level, nnapi_library):
    program, model, x = quantised
    region = whole(program, level)
    assert region.operations.count("QUANTIZE") == region.operations.count("DEQUANTIZE") == 1
    assert region.operations.count("TRANSPOSE") <= 1
    (result,) = run_region(region, {program.units.inputs[0]: x})
    expected = model(x)
    assert (result - expected).abs().max() <= 1.01 * model.step


def test_stock_pytorch_runs_it_with_channel_scales_in_floats(quantised, nnapi_library):
    program, model, x = quantised
    every = range(len(program.units.units))
    region = convert_region(program, every, 29)
    assert not region.in_floats
    layers = {"CONV_2D", "DEPTHWISE_CONV_2D", "GROUPED_CONV_2D"}
    n_layers = sum(name in layers for name in region.operations)
    if any(operand.channels for operand in region.model.operands):
        assert int.from_bytes(region.serialized[:4], "little") == 2
        with pytest.raises(NnapiProfError, match="a scale for each channel, which the format"):
            stock_module(program.units, region, {})
        region = convert_region(program, every, 29, for_stock=True)
        assert set(region.in_floats) <= set(program.units.producer)
        assert len(region.in_floats) == n_layers  # a linear layer is a CONV_2D there
        assert all("a scale for each channel" in why for why in region.in_floats.values())
        assert region.operations.count("QUANTIZE") == 1 + n_layers
    with quiet_torch():
        result = stock_module(program.units, region, {})(x)
    assert (result - model(x)).abs().max() <= 1.01 * model.step


EDGES = Function(lambda x, y: (torch.ops.quantized.add(x, y, 0.1, 20), torch.relu(x)))
"""Takes and gives quantised tensors."""


@pytest.mark.parametrize("level", [27, 30])
def test_quantised_inputs_and_outputs_are_their_integers(level, nnapi_library):
    with quiet_torch():
        inputs = [
            torch.quantize_per_tensor(torch.randn(2, 5), scale, zero, torch.quint8)
            for scale, zero in ((0.03, 120), (0.02, 100))
        ]
        program = prepare(torch.jit.trace(EDGES, inputs), inputs, "edges")
    assert [program.units.values[n].quant.zero_point for n in program.units.inputs] == [120, 100]
    region = whole(program, level)
    model = region.model
    ends = {model.operands[i].type for i in (*model.inputs, *model.outputs)}
    assert ends == {OperandCode.TENSOR_QUANT8_ASYMM}
    feeds = dict(zip(program.units.inputs, (x.int_repr() for x in inputs), strict=True))
    actual = dict(zip(region.outputs, run_region(region, feeds), strict=True))
    for name, expected in zip(program.units.outputs, EDGES(*inputs), strict=True):
        apart = actual[name].int() - expected.int_repr().int()
        assert apart.abs().max() <= 1
    with quiet_torch():
        stock = stock_module(program.units, region, {})
        for feeds in (inputs, [x.int_repr() for x in inputs]):
            for result, name in zip(stock(*feeds), program.units.outputs, strict=True):
                assert torch.equal(result.int_repr(), actual[name])
                assert result.q_scale() == program.units.values[name].quant.scale


def test_scales_are_part_of_signatures():
    def signature(scale):
        relu = Function(lambda x: torch.relu(torch.quantize_per_tensor(x, scale, 10, torch.quint8)))
        inputs = (torch.ones(2, 3),)
        return prepare(traced(relu, inputs), inputs, "relu").units.units[-1].signature

    assert signature(0.5) == signature(0.5) != signature(0.25)


def test_the_rules_are_those_of_the_facts():
    rules = {op["name"]: op.get("output_quant_rule") or "" for op in OPERATIONS.values()}
    for code in SAME_AS_INPUT:
        assert re.match("output scale/zero_point = input0|output = input0", rules[code.name])
    for code in FREE:
        assert re.search("free|must exceed", rules[code.name]), code
    for code, fixed in FIXED.items():
        expected = f"fixed: scale 1/{round(1 / fixed.scale)}, zero_point {fixed.zero_point} "
        assert rules[code.name].startswith(expected)


OPERATORS = {
    "gelu": (aten.gelu.default, lambda x: aten.gelu.default(x)),
    "gelu by tanh": (aten.gelu.default, lambda x: aten.gelu.default(x, approximate="tanh")),
    "silu": (aten.silu.default, aten.silu.default),
    "hardsigmoid": (aten.hardsigmoid.default, aten.hardsigmoid.default),
    "hardswish": (aten.hardswish.default, aten.hardswish.default),
    "neg": (aten.neg.default, aten.neg.default),
    "div": (aten.div.Tensor, lambda x: aten.div.Tensor(x, -3.7)),
}
NUMBERS = {28: (2, torch.uint8), 29: (3, torch.uint8), 30: (4, torch.int8)}


def rescaled(function, given, out, limits):
    """A function of quantised values, from a scale and zero point to others."""
    return lambda x: QUANTIZE(function(DEQUANTIZE(x, *given, *limits)), *out, *limits)


@pytest.mark.parametrize("level", NUMBERS)
@pytest.mark.parametrize("name", OPERATORS)
def test_every_integer_within_a_step(name, level, nnapi_library):
    """Operators composed of several quant8 operations."""
    number, dtype = NUMBERS[level]
    info = torch.iinfo(dtype)
    every = torch.arange(info.min, info.max + 1, dtype=dtype).reshape(1, 256)
    target, function = OPERATORS[name]

    @settings(max_examples=12)
    @given(
        st.floats(-3, -0.5).map(lambda power: float(np.float32(10**power))),
        st.integers(info.min, info.max),
        st.floats(1.001, 4),
    )
    def check(scale, zero, coarse):
        low, high = ((end - zero) * scale for end in (info.min, info.max))
        result = function(torch.linspace(low, high, 2000))
        least, most = min(float(result.min()), 0.0), max(float(result.max()), 0.0)
        bound = max(
            error_on_the_way(target, number, low, high), scale / 255, (most - least) / 255, 1e-4
        )
        step = float(np.float32(bound * coarse))
        out = (step, min(max(round(info.min - least / step), info.min), info.max))
        limits = (info.min, info.max, dtype)
        program = program_of(rescaled(function, (scale, zero), out, limits), (every,), FIRST)
        region = convert_region(program, [0], level)
        assert not region.in_floats
        (actual,) = run_region(region, {region.inputs[0]: every})
        (expected,) = tree_leaves(program.module(every))
        assert int((actual.int() - expected.int()).abs().max()) <= 1

    check()


U8 = (0, 255, torch.uint8)
ZEROS = torch.zeros(1, 8, dtype=torch.uint8)


@pytest.mark.parametrize("name", ["gelu", "silu", "hardsigmoid"])
def test_a_result_of_finer_steps_than_the_way_is_refused(name):
    function = rescaled(OPERATORS[name][1], (0.05, 128), (0.001, 20), U8)
    program = program_of(function, (ZEROS,), FIRST)
    (why,) = convert_region(program, [0], 29).in_floats.values()
    assert "roundings on the way would move results by" in why
    with pytest.raises(UnsupportedOp, match="less than one is allowed"):
        convert_region(program, [0], 28)


def test_division_by_what_is_computed_is_refused():
    def divided(x, y):
        quotient = aten.div.Tensor(DEQUANTIZE(x, 0.05, 128, *U8), DEQUANTIZE(y, 0.05, 0, *U8))
        return QUANTIZE(quotient, 0.1, 20, *U8)

    program = program_of(divided, (ZEROS, ZEROS + 1), FIRST)
    (why,) = convert_region(program, [0], 29).in_floats.values()
    assert "DIV by a computed value has no quant8 form" in why
