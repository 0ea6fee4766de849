"""Regions of several units: boundaries, sharing, fusion, and numbers through the emulator."""

import pytest
import torch

from nnapi_prof.convert.lower import convert_region, why_not
from nnapi_prof.errors import UnsupportedOp
from tests.convert.facts_check import broken_rules
from tests.convert.harness import LEVELS, aten, image, program_of, run_region

X = image(1, 4, 6, 6)
W1, B1, W2 = image(8, 4, 1, 1), image(8), image(8, 1, 3, 3)


def inverted_residual(x):
    """Pointwise, depthwise, pointwise and the sum, as MobileNetV2's blocks; 6 calls."""
    a = aten.convolution.default(x, W1, B1, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    b = aten.hardtanh.default(a, 0.0, 6.0)
    c = aten.convolution.default(b, W2, B1, [1, 1], [1, 1], [1, 1], False, [0, 0], 8)
    d = aten.hardtanh.default(c, 0.0, 6.0)
    back = W1.transpose(0, 1)
    e = aten.convolution.default(d, back, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    return aten.add.Tensor(x, e)


def two_results(x):
    left = aten.relu.default(x)
    right = aten.sigmoid.default(left)
    return aten.add.Tensor(left, 1.0), right


@pytest.mark.parametrize("level", LEVELS)
def test_one_unit_of_many_nodes(level, nnapi_library):
    program = program_of(inverted_residual, [X])
    region = convert_region(program, [0], level)
    assert region.operations == ("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D", "ADD")
    assert broken_rules(region.model, level) == []
    (result,) = run_region(region, {"x": X})
    torch.testing.assert_close(result, inverted_residual(X))


def test_a_region_is_bounded_as_the_unit_graph_says(nnapi_library):
    program = program_of(inverted_residual, [X], split=True)
    whole = convert_region(program, range(6), 27)
    assert (whole.inputs, whole.outputs) == (("x",), ("add_tensor",))
    assert whole.operations.count("RELU6") == 2, "units are not fused across their bounds"

    front = convert_region(program, [0, 1, 2], 27)
    back = convert_region(program, [5, 4, 3], 27)
    assert set(back.inputs) == {front.outputs[0], "x"}
    (middle,) = run_region(front, {"x": X})
    (result,) = run_region(back, {"x": X, front.outputs[0]: middle})
    torch.testing.assert_close(result, inverted_residual(X))


def test_a_region_gives_every_value_that_leaves(nnapi_library):
    program = program_of(two_results, [X], split=True)
    region = convert_region(program, [0, 1, 2], 29)
    assert len(region.outputs) == 2
    result = run_region(region, {"x": X})
    expected = dict(zip(program.units.outputs, two_results(X), strict=True))
    for name, tensor in zip(region.outputs, result, strict=True):
        torch.testing.assert_close(tensor, expected[name])


def test_an_activation_with_other_readers_is_not_fused():
    def function(x):
        a = aten.add.Tensor(x, 1.0)
        return aten.mul.Tensor(aten.relu.default(a), a)

    region = convert_region(program_of(function, [X]), [0], 27)
    assert region.operations == ("ADD", "RELU", "MUL")


def test_weights_used_twice_travel_once():
    def function(x):
        y = aten.linear.default(x, torch.ones(6, 6))
        return aten.linear.default(y, torch.ones(6, 6))

    region = convert_region(program_of(function, [image(2, 6)]), [0], 27)
    assert len(region.buffers) == 1


def test_the_same_region_gives_the_same_bytes():
    program = program_of(inverted_residual, [X])
    first, second = (convert_region(program, [0], 29) for _ in range(2))
    assert (first.serialized, first.buffers) == (second.serialized, second.buffers)


def test_a_refusal_names_the_node_and_the_operator():
    def function(x):
        return aten.lgamma.default(aten.relu.default(x))

    program = program_of(function, [X], split=True)
    with pytest.raises(UnsupportedOp) as refusal:
        convert_region(program, [0, 1], 30)
    assert refusal.value.node == "lgamma_default"
    assert refusal.value.op == "aten.lgamma.default"
    assert why_not(program, 0, 30) is None
    assert why_not(program, 1, 30) == refusal.value.refusal
