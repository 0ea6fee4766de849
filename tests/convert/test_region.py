"""Regions: in float16, how much they permute, and what is told of a model that grows."""

import math

import pytest
import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import MANY, VERY_MANY, Permutes, growth_note, permutes, to_float16
from nnapi_prof.errors import ConversionError
from nnapi_prof.frontend import prepare
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.nnapi.codes import OperandCode
from tests.convert.architectures.images import ConvNeXtBlock
from tests.convert.cases.convolution import convolve
from tests.convert.coverage.rows import Function
from tests.convert.harness import aten, broken_rules, image, program_of, run_region, whole
from tests.precision.common import script

X = image(2, 3, 7, 9)
WEIGHT, BIAS = image(4, 3, 3, 3) / 5, image(4)


def network(x):
    return aten.softmax.int(aten.relu.default(convolve(WEIGHT, BIAS, padding=1)(x)), 1)


def test_halves_between_float32_ends(nnapi_library):
    region = convert_region(program_of(network, (X,)), [0], 30)
    halved = to_float16(region)
    model = halved.model
    assert broken_rules(model, 30) == []
    ends = {*model.inputs, *model.outputs}
    wide = {i for i, o in enumerate(model.operands) if o.type is OperandCode.TENSOR_FLOAT32}
    assert wide == ends
    assert halved.operations[0] == halved.operations[-1] == "CAST"
    assert sum(map(len, halved.buffers)) * 2 == sum(map(len, region.buffers))
    (actual,), (expected,) = run_region(halved, {"x": X}), run_region(region, {"x": X})
    assert 0 < (actual - expected).abs().max() < 2e-3  # it is computed in float16, and well


def test_what_does_not_fit():
    early = convert_region(program_of(lambda x: aten.relu.default(x), (X,)), [0], 28)
    with pytest.raises(ConversionError, match=r"float16 needs API 29 .*API 28"):
        to_float16(early)
    large = convert_region(program_of(lambda x: aten.add.Tensor(x, 70000.0), (X,)), [0], 30)
    with pytest.raises(ConversionError, match="holds 70000, float16 ends at 65504"):
        to_float16(large)


def test_integers_stay(nnapi_library):
    ids = torch.tensor([[2, 0], [1, 1]])
    program = program_of(lambda i: aten.embedding.default(image(3, 4), i), (ids,))
    (result,) = run_region(to_float16(convert_region(program, [0], 30)), {"i": ids})
    torch.testing.assert_close(result, image(3, 4)[ids], rtol=1e-3, atol=1e-3)


def converted(module, *inputs):
    return whole(prepare(module.eval(), inputs, "network"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18", "squeezenet1_1", "unet"])
def test_convolutions_pools_and_adds_permute_their_ends_alone(name):
    """The input; the U-Net's output, too, which is an image."""
    program = prepare(getattr(script("models"), name)().eval(), (torch.zeros(1, 3, 64, 64),), name)
    region = whole(program)
    turned = [program.units.values[end] for end in program.units.inputs + program.units.outputs]
    n_bytes = [4 * math.prod(value.shape) for value in turned if len(value.shape) == 4]
    assert permutes(region) == Permutes(len(n_bytes), sum(n_bytes))
    assert region.operations[0] == "TRANSPOSE"


def test_layers_on_channels_that_stand_last_permute_nothing():
    blocks = ConvNeXtBlock(8), ConvNeXtBlock(8)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 4, 4), *blocks, nn.Conv2d(8, 8, 2, 2), nn.AdaptiveAvgPool2d(1)
    )
    assert permutes(converted(model, torch.zeros(1, 3, 32, 32))).count == 1


def test_a_permute_of_the_model_counts():
    turned = Function(lambda x: x.permute(0, 2, 1) + 1)
    assert permutes(converted(turned, torch.zeros(2, 3, 5))) == Permutes(1, 2 * 3 * 5 * 4)


def graph(*labels: str, nodes: int = 10) -> UnitGraph:
    """A chain of units of so many nodes each."""
    units = tuple(
        Unit(i, f"u{i}", label, tuple(f"n{i}.{k}" for k in range(nodes)), (f"v{i}",),
             (f"v{i + 1}",), label)
        for i, label in enumerate(labels)
    )  # fmt: skip
    values = {f"v{i}": TensorType((1,)) for i in range(len(units) + 1)}
    return UnitGraph(units, values, ("v0",), (f"v{len(units)}",))


@pytest.mark.parametrize(
    ("nodes", "operations", "told"),
    [
        (1, MANY - 1, False),
        (1, MANY, True),
        (MANY // 4, MANY, True),
        (MANY // 4 + 1, MANY, False),
        (VERY_MANY, VERY_MANY - 1, False),
        (VERY_MANY, VERY_MANY, True),
    ],
)
def test_what_is_worth_a_word(nodes: int, operations: int, told: bool) -> None:
    note = growth_note(graph("lstm", nodes=nodes), [((0,), operations)])
    assert (note is not None) == told


def test_regions_are_counted_together() -> None:
    note = growth_note(graph("lstm", "linear", nodes=1), [((0,), 3000), ((1,), 121)], "the plan")
    assert note is not None
    assert note.startswith(
        "the plan becomes 3,121 NNAPI operations, for 2 of its own (lstm, linear)"
    )
    assert growth_note(graph("lstm"), []) is None
