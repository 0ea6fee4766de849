"""Recipes as data, and quantised programs: what becomes of each unit, and torchao's result."""

import copy
import json
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.errors import ConversionError, SerializationError
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph import Quantisation
from nnapi_prof.graph.program import verify
from nnapi_prof.graph.quantisation import Scheme
from nnapi_prof.graph.unit import graph_to_json
from nnapi_prof.precision import Recipe
from nnapi_prof.precision.calibrate import calibrate
from nnapi_prof.precision.demands import Formats, demands_of
from nnapi_prof.precision.program import quantise
from tests.precision.common import CASES, program, recipe, relative_error, sample

LARGEST_ERROR = {"encoder": 0.15, "mobilenet_v2": 0.15}
"""Of the outputs in 8 bits, relative to their root mean square."""
NORMS = {"layer_norm": 4, "scaled_dot_product_attention": 2}
REFUSED = {
    ("encoder", 28): NORMS,
    ("encoder", 29): NORMS,
    ("encoder", 30): NORMS,
    ("mixture", 28): dict.fromkeys(
        ["conv_transpose2d", "prelu", "tanh", "cat", "minimum", "sub"], 1
    ),
    ("unet", 28): {"upsample_bilinear2d": 1},
    ("unet", 29): {"upsample_bilinear2d": 1},
}
"""Units that cannot be had in 8 bits at a level."""


@pytest.mark.parametrize(("name", "level"), CASES)
def test_every_unit_is_one_quantised_unit_or_what_it_was(name, level):
    floats, stated = program(name), recipe(name, level)
    refused = Counter(floats.units.units[unit].operation for unit in stated.refusals)
    assert refused == REFUSED.get((name, level), {})
    result = quantise(floats, stated)
    units, quantised = floats.units, result.program.units
    verify(result.program.module.graph, types=True)
    assert set(result.unit_of) == stated.units
    assert set(result.unit_of) | set(result.float_unit_of) == set(range(len(units.units)))
    counted = [*result.unit_of.values(), *result.float_unit_of.values(), *result.conversions]
    assert sorted(counted) == list(range(len(quantised.units)))
    for unit, index in result.unit_of.items():
        region = convert_region(result.program, (index,), level)
        assert not region.in_floats
        types = [*region.input_types, *region.output_types]
        assert {type_.dtype for type_ in types} == {stated.dtype}
        assert quantised.units[index].outputs == (result.integers[units.units[unit].outputs[0]],)
    for unit, index in result.float_unit_of.items():
        assert units.units[unit].signature == quantised.units[index].signature
    for index, (value, to_integers) in result.conversions.items():
        (read,), (made,) = quantised.units[index].inputs, quantised.units[index].outputs
        assert (made if to_integers else read) == result.integers[value]
        assert units.values[value].shape == quantised.values[made].shape
        assert to_integers == (units.producer.get(value) not in stated.units)
    assert len({*result.conversions.values()}) == len(result.conversions)
    assert quantised.inputs == units.inputs
    types, float_types = ([g.values[v] for v in g.outputs] for g in (quantised, units))
    assert types == float_types
    outputs = (each.module(*sample(name, 9)) for each in (result.program, floats))
    for actual, expected in zip(*outputs, strict=True):
        assert relative_error(actual, expected) <= LARGEST_ERROR.get(name, 0.04)


@pytest.mark.parametrize(("name", "level"), CASES)
def test_all_units_give_what_torchao_converts(name, level):
    """Its module computes in floats between quantize and dequantize nodes, everywhere."""
    floats, stated = program(name), recipe(name, level)
    formats = Formats.at(level)
    with quiet_torch(), torch.no_grad():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

        from nnapi_prof.precision.calibrate import widen
        from nnapi_prof.precision.quantizer import NnapiQuantizer, observed_copy

        demands, _ = demands_of(floats, formats)
        demands = {unit: d for unit, d in demands.items() if unit in stated.units}
        observed = observed_copy(floats, NnapiQuantizer(floats, demands, formats, "histogram"))
        for seed in range(4):
            observed(*sample(name, seed))
        widen(floats, demands, formats, observed)
        converted = convert_pt2e(observed)
        expected = converted(*sample(name, 9))
    plain = replace(stated, corrections={})  # of biases, which it has not
    actual = quantise(floats, plain).program.module(*sample(name, 9))
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["unet", "mixture", "encoder"])
def test_some_units_give_what_the_float_units_give_beside_them(name):
    floats, stated = program(name), recipe(name, 30)
    x, units = sample(name, 9), sorted(stated.units)
    expected = floats.module(*x)
    none = quantise(floats, stated, ())
    assert none.program.units == floats.units
    assert all(map(torch.equal, none.program.module(*x), expected))
    for chosen in (units[::2], units[1::2], units[:3], units[-1:], units[2:5]):
        result = quantise(floats, stated, chosen)
        assert set(result.unit_of) == set(chosen)
        for index in result.unit_of.values():
            assert not convert_region(result.program, (index,), 30).in_floats
        for unit, index in result.float_unit_of.items():
            signature = result.program.units.units[index].signature
            assert signature == floats.units.units[unit].signature
        verify(result.program.module.graph, types=True)
        for actual, wanted in zip(result.program.module(*x), expected, strict=True):
            assert relative_error(actual, wanted) <= 0.15


def test_a_segment_in_8_bits_is_a_region_of_the_program_that_is_all_in_8_bits():
    floats, stated = program("squeezenet1_1"), recipe("squeezenet1_1", 30)
    whole, chosen = quantise(floats, stated), [5, 6, 7, 8]
    part = quantise(floats, stated, chosen)
    first, second = (
        convert_region(q.program, [q.unit_of[unit] for unit in chosen], 30) for q in (whole, part)
    )
    assert first.serialized == second.serialized
    assert (first.inputs, first.outputs) == (second.inputs, second.outputs)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Conv2d(16, 8, 3, padding=1), (1, 16, 8, 8)),
        (lambda: nn.Conv2d(16, 16, 3, 2, groups=16), (1, 16, 8, 8)),
        (lambda: nn.ConvTranspose2d(16, 8, 3, 2), (1, 16, 6, 6)),
        (lambda: nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(16, 8, 2)), (1, 16, 8, 8)),
        (lambda: nn.Linear(64, 8), (1, 64)),
        (lambda: nn.Linear(64, 8), (2, 5, 64)),
    ],
)
@pytest.mark.parametrize("level", [28, 30])
def test_biases_give_back_what_rounded_weights_take_in_the_mean(layer, shape, level):
    with quiet_torch(), torch.random.fork_rng():
        torch.manual_seed(0)
        model = layer().eval()
        x = torch.rand(30, *shape) + 1  # as behind a ReLU
        floats = prepare(model, (x[0],), "layer")
    stated = calibrate(floats, [(value,) for value in x], level)
    if level == 28 and stated.refusals:
        return  # a transposed convolution
    expected = torch.stack([floats.module(value)[0] for value in x])
    channel = 2 if "Conv" in repr(model) else expected.ndim - 1
    shifts = []
    for using in (stated, replace(stated, corrections={})):
        module = quantise(floats, using).program.module
        apart = torch.stack([module(value)[0] for value in x]) - expected
        shifts.append(float(apart.transpose(channel, -1).flatten(0, -2).mean(0).abs().mean()))
    assert shifts[0] < 0.4 * shifts[1]


def test_a_layer_without_a_bias_gains_one():
    with quiet_torch(), torch.random.fork_rng():
        torch.manual_seed(0)
        x = torch.rand(4, 1, 8)
        floats = prepare(nn.Linear(8, 6, bias=False).eval(), (x[:1, 0],), "no bias")
    stated = calibrate(floats, [(value,) for value in x], 30)
    assert [len(gains) for gains in stated.corrections.values()] == [6]
    result = quantise(floats, stated)
    node = result.program.nodes[next(iter(stated.corrections))]
    assert node.args[2] is not None
    assert not convert_region(result.program, (result.unit_of[0],), 30).in_floats
    longer = {name: (*gains, 0.0) for name, gains in stated.corrections.items()}
    with pytest.raises(ConversionError, match="made for another model"):
        quantise(floats, replace(stated, corrections=longer))


def test_equal_recipes_make_equal_programs():
    floats, stated = program("mixture"), recipe("mixture", 29)
    again = Recipe.from_json(stated.to_json())
    first, second = quantise(floats, stated), quantise(floats, again)
    assert graph_to_json(first.program.units) == graph_to_json(second.program.units)
    assert (first.unit_of, first.conversions) == (second.unit_of, second.conversions)


def test_weights_are_shared_between_programs():
    floats, stated = program("squeezenet1_1"), recipe("squeezenet1_1", 30)
    first, second = (
        dict(quantise(floats, stated, units).program.module.named_buffers())
        for units in (None, [1, 2])
    )
    shared = [name for name in first.keys() & second if name.endswith("_int8")]
    assert shared and all(first[name].data_ptr() == second[name].data_ptr() for name in shared)


def test_a_recipe_of_another_model_is_refused():
    with pytest.raises(ConversionError, match="made for another model"):
        quantise(program("squeezenet1_1"), recipe("unet", 30))
    with pytest.raises(ConversionError, match=r"has 20 units, the recipe is for more"):
        quantise(program("unet"), recipe("squeezenet1_1", 30))


def test_a_unit_that_is_refused_says_why():
    stated = recipe("encoder", 30)
    unit = min(stated.refusals)
    with pytest.raises(ConversionError, match=rf"unit {unit} of encoder cannot run in 8 bits: "):
        quantise(program("encoder"), stated, [unit])


# ---- recipes as data ----------------------------------------------------------------------------

RECIPE = Recipe(
    values={"x": Quantisation(0.1, -3), "y": Quantisation(1 / 256, -128)},
    weights={
        "w": Scheme((0.5, 0.25), (0, 0), 1, "int8"),
        "v": Scheme((0.1,), (7,), None, "int8"),
    },
    units=frozenset({0, 2}),
    refusals={1: "LSTM has no quant8 form that is used here"},
    dtype="int8",
    corrections={"convolution": (0.5, -0.25)},
)


def test_what_is_written_is_read():
    written = json.loads(json.dumps(RECIPE.to_json()))
    assert Recipe.from_json(written) == RECIPE
    assert "zero_points" not in written["weights"]["w"]


def changed(*path_and_value):
    *path, last, value = path_and_value
    data = copy.deepcopy(RECIPE.to_json())
    place = data
    for key in path:
        place = place[key]
    place[last] = value
    return data


@pytest.mark.parametrize(
    "data",
    [
        *(None, [], "int8", {}),
        changed("version", 2),
        changed("dtype", "int16"),
        changed("dtype", ["int8"]),
        changed("values", []),
        *(changed("values", "x", [0.1, *zero]) for zero in ([], [128], [0.0], [True])),
        *(
            changed("values", "x", [scale, 0])
            for scale in ("0.1", 0.0, -1.0, math.nan, math.inf, 10**400)
        ),
        changed("weights", "w", {"dtype": "int8"}),
        *(changed("weights", "w", "axis", axis) for axis in (-1, 1.5, None)),
        changed("weights", "w", "scales", []),
        changed("weights", "w", "zero_points", [0]),
        changed("weights", "w", "dtype", "float32"),
        *(changed("units", units) for units in ([0, "2"], [-1], [0, 1])),
        changed("refusals", [[1, 2]]),
        changed("refusals", {"1": "why"}),
        changed("corrections", "convolution", [math.inf]),
        changed("corrections", "convolution", 0.5),
        changed("corrections", [0.5]),
    ],
)
def test_anything_else_is_refused(data):
    with pytest.raises(SerializationError, match="not a recipe for 8 bits"):
        Recipe.from_json(data)
