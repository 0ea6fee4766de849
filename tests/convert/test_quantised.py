"""Quantised models end to end, and the table of NNAPI's rules against the facts."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.bundle.torchscript import stock_module
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.quantize_rules import FIXED, FREE, SAME_AS_INPUT
from nnapi_prof.errors import NnapiProfError, UnsupportedOp
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.program import all_values
from nnapi_prof.nnapi.codes import OperandCode
from tests.convert.harness import run_region, whole
from tests.convert.quantised_models import ExportedNet, eager_net

ROOT = Path(__file__).resolve().parents[2]
QUANT8 = OperandCode.TENSOR_QUANT8_ASYMM


@pytest.fixture(scope="module", params=["qnnpack", "x86", "exported", "exported channels"])
def quantised(request):
    """A program, the model it came from and its input."""
    x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    with quiet_torch(), torch.random.fork_rng():
        if request.param.startswith("exported"):
            model = ExportedNet("channels" in request.param).eval()
            return prepare(torch.export.export(model, (x,)), (x,), "net"), model, x
        engine = torch.backends.quantized.engine
        model = eager_net(request.param)
        program = prepare(torch.jit.trace(model, x), (x,), "net")
        torch.backends.quantized.engine = engine
        return program, model, x


@pytest.mark.parametrize("level", [27, 28, 29, 30])
def test_every_unit_is_right_within_a_step(quantised, level, nnapi_library):
    program, _, x = quantised
    values = all_values(program, (x,))
    converted = 0
    for unit in program.units.units:
        try:
            region = convert_region(program, [unit.index], level)
        except UnsupportedOp:
            assert level < 29
            continue
        converted += 1
        outcome = run_region(region, values)
        for name, result in zip(region.outputs, outcome, strict=True):
            expected = values[name]
            if expected.dtype == torch.uint8:
                apart = (result.int() - expected.int()).abs()
                assert apart.max() <= 1
                assert apart.float().mean() < 0.25  # means of few pixels are ties
            else:
                torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    assert converted >= (len(program.units.units) if level >= 29 else 5)


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


def test_units_say_that_they_are_quantised(quantised):
    program, _, _ = quantised
    labels = [unit.label for unit in program.units.units]
    assert sum(label.startswith("quantised conv2d+relu ") for label in labels) >= 1
    assert sum(label.startswith("quantised linear ") for label in labels) == 1


class Edges(nn.Module):
    """Takes and gives quantised tensors."""

    def forward(self, x, y):
        return torch.ops.quantized.add(x, y, 0.1, 20), torch.relu(x)


@pytest.mark.parametrize("level", [27, 30])
def test_quantised_inputs_and_outputs_are_their_integers(level, nnapi_library):
    with quiet_torch():
        inputs = [
            torch.quantize_per_tensor(torch.randn(2, 5), scale, zero, torch.quint8)
            for scale, zero in ((0.03, 120), (0.02, 100))
        ]
        program = prepare(torch.jit.trace(Edges(), inputs), inputs, "edges")
    assert [program.units.values[n].quant.zero_point for n in program.units.inputs] == [120, 100]
    region = whole(program, level)
    model = region.model
    assert {model.operands[i].type for i in (*model.inputs, *model.outputs)} == {QUANT8}
    feeds = dict(zip(program.units.inputs, (x.int_repr() for x in inputs), strict=True))
    actual = dict(zip(region.outputs, run_region(region, feeds), strict=True))
    for name, expected in zip(program.units.outputs, Edges()(*inputs), strict=True):
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
        class Relu(nn.Module):
            def forward(self, x):
                return torch.relu(torch.quantize_per_tensor(x, scale, 10, torch.quint8))

        x = torch.ones(2, 3)
        with quiet_torch():
            program = prepare(torch.jit.trace(Relu(), x), (x,), "relu")
        return program.units.units[-1].signature

    assert signature(0.5) == signature(0.5) != signature(0.25)


def test_the_rules_are_those_of_the_facts():
    facts = json.loads((ROOT / "nnapi_prof/nnapi/data/nnapi_ops.json").read_text())
    rules = {op["name"]: op.get("output_quant_rule") or "" for op in facts}
    for code in SAME_AS_INPUT:
        assert re.match("output scale/zero_point = input0|output = input0", rules[code.name])
    for code in FREE:
        assert re.search("free|must exceed", rules[code.name]), code
    for code, fixed in FIXED.items():
        expected = f"fixed: scale 1/{round(1 / fixed.scale)}, zero_point {fixed.zero_point} "
        assert rules[code.name].startswith(expected)
