"""Regions in float16, run on the emulator against float32."""

import numpy as np
import pytest
import torch

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import to_float16
from nnapi_prof.errors import ConversionError
from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from tests.convert.facts_check import broken_rules
from tests.convert.harness import image, program_of, run_region

aten = torch.ops.aten
X = image(2, 3, 7, 9)
WEIGHT, BIAS = image(4, 3, 3, 3) / 5, image(4)


def network(x):
    y = aten.convolution.default(x, WEIGHT, BIAS, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return aten.softmax.int(aten.relu.default(y), 1)


@pytest.fixture(scope="module")
def region():
    return convert_region(program_of(network, (X,)), [0], 30)


def run(region):
    (value,) = run_region(region, {"x": X})
    return value.numpy()


def test_halves_between_float32_ends(region, nnapi_library):
    halved = to_float16(region)
    model = halved.model
    assert broken_rules(model, 30) == []
    ends = {*model.inputs, *model.outputs}
    wide = {i for i, o in enumerate(model.operands) if o.type is OperandCode.TENSOR_FLOAT32}
    assert wide == ends
    assert [o.code for o in model.operations][:: len(model.operations) - 1] == [
        OperationCode.CAST
    ] * 2
    assert sum(map(len, halved.buffers)) * 2 == sum(map(len, region.buffers))
    actual, expected = run(halved), run(region)
    error = np.abs(actual - expected).max()
    assert 0 < error < 2e-3  # it is computed in float16, and well


def test_what_does_not_fit(region):
    early = convert_region(program_of(lambda x: aten.relu.default(x), (X,)), [0], 28)
    with pytest.raises(ConversionError, match=r"float16 needs API 29 .*API 28"):
        to_float16(early)
    large = convert_region(program_of(lambda x: aten.add.Tensor(x, 70000.0), (X,)), [0], 30)
    with pytest.raises(ConversionError, match="holds 70000, float16 ends at 65504"):
        to_float16(large)


def test_integers_stay(nnapi_library):
    ids = torch.tensor([[2, 0], [1, 1]])
    program = program_of(lambda i: aten.embedding.default(image(3, 4), i), (ids,))
    region = convert_region(program, [0], 30)
    halved = to_float16(region)
    (result,) = run_region(halved, {"i": ids})
    torch.testing.assert_close(result, image(3, 4)[ids], rtol=1e-3, atol=1e-3)
