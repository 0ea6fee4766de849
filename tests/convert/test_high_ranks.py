"""Tensors of more than four dimensions: at the border of a region, and inside."""

import pytest
import torch
from torch import nn

import nnapi_prof
from nnapi_prof.convert.export_json import RegionDescription, to_json
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.errors import InputSpecError
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph import TensorType
from tests.convert.harness import Apply, aten, image, program_of
from tests.convert.region_reader import from_json

SHAPE = (4, 2, 1, 3, 7)
FLATTENS = [(1, -1), (2, 3), (2, 4), (0, -2), (0, 4)]


def converted(model, x, given=None, **options):
    with quiet_torch():
        traced = torch.jit.trace(model.eval(), x)
    return nnapi_prof.convert_model(traced, [x if given is None else given], **options)


def test_the_operand_has_four_dimensions():
    assert TensorType((2, 3, 4, 5, 6)).memory_shape == (6, 4, 5, 6)
    assert TensorType((2, 3, 4, 5, 6, 7)).memory_shape == (24, 5, 6, 7)
    assert TensorType((2, 3, 4, 5)).memory_shape == (2, 3, 4, 5)


@pytest.mark.parametrize("level", [27, 30])
@pytest.mark.parametrize("dims", FLATTENS)
def test_flatten(dims, level, nnapi_library):
    x = image(*SHAPE)
    module = converted(nn.Flatten(*dims), x, level=level, whole=True)
    assert torch.equal(module(x), x.flatten(*dims))


def test_five_dimensions_out(nnapi_library):
    x = image(*SHAPE)
    module = converted(Apply(lambda x: (x.relu(), x.reshape(2, 2, 3, 2, 7))), x, whole=True)
    mirrored = image(7, 3, 1, 2, 4).permute(4, 3, 2, 1, 0)  # the same shape, another order
    for tensors in (x, mirrored):
        first, second = module(tensors)
        assert torch.equal(first, tensors.relu())
        assert torch.equal(second, tensors.reshape(2, 2, 3, 2, 7))


def test_five_quantised_dimensions(nnapi_library):
    with quiet_torch():
        x = torch.quantize_per_tensor(image(*SHAPE), 0.05, 120, torch.quint8)
    module = converted(Apply(lambda x: x.relu().flatten(1, 2)), x, whole=True)
    assert torch.equal(module(x).int_repr(), x.relu().flatten(1, 2).int_repr())


OPEN = [
    ((0, 2, 1, 3, 7), lambda x: x.flatten(1)),
    ((0, 2, 1, 3, 7), lambda x: x.relu()),
    ((4, 0, 1, 0, 7), lambda x: x.flatten(1, -2) * 2),
    ((4, 0, 1, 3, 0), lambda x: x.relu() + x),
]


@pytest.mark.parametrize(("given", "function"), OPEN)
def test_open_sizes(given, function, nnapi_library):
    module = converted(Apply(function), image(*SHAPE), torch.zeros(given))
    for more in (0, 3):
        x = image(*(size if at else size + more for size, at in zip(SHAPE, given, strict=True)))
        torch.testing.assert_close(module(x), function(x), rtol=1e-6, atol=1e-6)


def test_two_open_sizes_that_are_one_to_nnapi():
    with pytest.raises(InputSpecError, match=r"cannot be left open|first 2 dimensions"):
        converted(Apply(torch.relu), image(*SHAPE), torch.zeros(0, 0, 1, 3, 7))


def test_json():
    program = program_of(lambda x: aten.view.default(x, [4, 2, 21]), (image(*SHAPE),))
    text, _ = to_json(RegionDescription(convert_region(program, (0,), 30)), "high.weights")
    result = from_json(text)
    assert result.region.input_types == (TensorType(SHAPE),)
