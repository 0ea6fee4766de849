"""``nnapi_prof.convert_model``: one call, models in memory."""

import pytest
import torch
from torch import nn

import nnapi_prof
from nnapi_prof.convert.deserialize import deserialize
from nnapi_prof.errors import NnapiProfError

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of PyTorch's: tracing is deprecated
    pytest.mark.usefixtures("nnapi_library"),
]


def last(image):
    image = image.contiguous(memory_format=torch.channels_last)
    image.nnapi_nhwc = True
    return image


def operations(module):
    return len(deserialize(module.mod.ser_model.numpy().tobytes()).operations)


def same(module, model, *inputs):
    with torch.no_grad():
        actual, expected = module(*inputs), model(*inputs)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    return actual


@pytest.fixture(scope="module")
def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()).eval()


def test_a_module_a_trace_a_program_and_a_file(net, tmp_path):
    x = torch.randn(1, 3, 6, 8)
    traced = torch.jit.trace(net, x)
    traced.save(str(tmp_path / "net.pt"))
    for model in (net, traced, torch.export.export(net, (x,)), str(tmp_path / "net.pt")):
        same(nnapi_prof.convert_model(model, x), net, x)


@pytest.mark.parametrize("form", ["traced", "module", "text"])
def test_sizes_of_0_are_open(net, form):
    example = "?x3x?x?" if form == "text" else torch.zeros(0, 3, 0, 0)
    model = net if form == "module" else torch.jit.trace(net, torch.randn(1, 3, 6, 8))
    module = nnapi_prof.convert_model(model, [example])
    for shape in ((2, 3, 6, 8), (3, 3, 9, 40)):
        same(module, net, torch.randn(shape))


def test_a_small_size_is_right_where_the_example_was_large():
    module = nnapi_prof.convert_model(torch.jit.script(nn.Softmax(1)), torch.zeros(0, 0))
    same(module, nn.Softmax(1), torch.randn(2, 2))


@pytest.mark.parametrize("shape", [(2, 3, 6, 8), (2, 3, 0, 0)], ids=["fixed", "open"])
def test_images_that_lie_channels_last_are_not_transposed(net, shape):
    x = last(torch.randn(2, 3, 6, 8))
    traced = torch.jit.trace(net, x)
    module = nnapi_prof.convert_model(traced, last(torch.zeros(shape)), whole=True)
    flat = nnapi_prof.convert_model(traced, torch.zeros(shape), whole=True)
    assert [operations(module), operations(flat)] == [1, 3]  # before they run, which drops them
    assert same(module, net, x).is_contiguous(memory_format=torch.channels_last)
    assert same(flat, net, x).is_contiguous()


def test_a_quantised_input_of_another_scale_is_quantised_anew():
    model = torch.jit.trace(nn.MaxPool2d(2), _quantised(torch.randn(1, 2, 4, 4), 0.05))
    module = nnapi_prof.convert_model(model, _quantised(torch.zeros(1, 2, 0, 0), 0.05), whole=True)
    for scale in (0.05, 0.03):
        x = _quantised(torch.randn(1, 2, 4, 6), scale)
        difference = module(x).dequantize() - model(x).dequantize()
        assert difference.abs().max() <= (0.026 if scale == 0.03 else 0)


def _quantised(x, scale):
    return torch.quantize_per_tensor(x, scale, 128, torch.quint8)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"level": 12}, "the level is 12: one of 27, "),
        ({"preference": "best"}, "the preference is 'best': one of low_power, fast, sustained"),
    ],
)
def test_wrong_arguments(net, arguments, said):
    with pytest.raises(NnapiProfError, match=said):
        nnapi_prof.convert_model(net, torch.randn(1, 3, 6, 8), **arguments)


def test_a_model_that_computes_nothing_is_refused_and_the_next_is_not(net):
    with pytest.raises(NnapiProfError, match="model computes nothing"):
        nnapi_prof.convert_model(nn.Identity(), torch.ones(2, 3))
    same(nnapi_prof.convert_model(net, torch.ones(1, 3, 8, 8)), net, torch.ones(1, 3, 8, 8))
