"""PyTorch's own NNAPI converter, ``torch.backends._nnapi``, on the emulator.

Stock PyTorch converts a traced module and runs it through the library's C API; its results must be
eager PyTorch's. The modules are those of the operations that the converter has, as PyTorch's test
suite has them (``test/test_nnapi.py``, whose tests never run without a library), in the forms that
it converts correctly. Left out, since no library can make up for it:

* avg_pool2d with padding: count_include_pad: PyTorch counts the padding, NNAPI does not;
* avg_pool2d, max_pool2d with ceil_mode: ceil_mode is ignored;
* conv_transpose2d with output_padding: output_padding is ignored;
* depthwise conv_transpose2d: becomes a plain depthwise convolution;
* softmax, log_softmax over the channels of NHWC data: the dimension is not remapped;
* slice of NHWC data: the dimension is not remapped;
* slice of a whole dimension with a step: the slice is dropped;
* cat of quantised tensors of several scales: scales are not compared;
* flatten of five dimensions: RESHAPE takes four at most, here and on Android;
* pooling of flexible size: refused;
* upsample_nearest2d of flexible batch or channels: refused; height and width may vary;
* PRELU of flexible size: refused;
* reshape of NHWC data other than [X, -1]: refused, or data in another order.
"""

import pytest
import torch
from torch import nn

from tests.emulator.capi.torch_converter import (
    IMAGE,
    Function,
    check,
    check_flexible,
    nhwc,
    order,
    quantised,
)

pytestmark = [
    pytest.mark.usefixtures("torch_finds_the_emulator"),
    pytest.mark.filterwarnings("ignore"),  # torch calls its own TorchScript outdated
]


# ---- element by element -------------------------------------------------------------------------


@order
def test_prelu(order):
    one = nn.PReLU()
    check(one, order(torch.randn(IMAGE)))
    many = nn.PReLU(4)
    with torch.no_grad():
        many.weight.copy_(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    check(many, nhwc(torch.randn(IMAGE)))  # per channel: for NHWC data only


@pytest.mark.parametrize(
    "function", [torch.relu, torch.sigmoid, nn.functional.relu, nn.ReLU(), nn.Sigmoid()]
)
@pytest.mark.parametrize("dims", [(1,), (2, 3), IMAGE])
def test_unary(function, dims):
    check(Function(function), torch.randn(dims))


@pytest.mark.parametrize("function", [torch.relu, torch.sigmoid])
def test_unary_of_quantised_data(function):
    scale, zero_point = (1 / 256, 0) if function is torch.sigmoid else (0.125, 128)
    tensor = quantised(torch.randn(2, 3), 0.125, 128)
    assert function(tensor).q_scale() == scale and function(tensor).q_zero_point() == zero_point
    check(Function(function), tensor, step=1)


BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}


@pytest.mark.parametrize("function", BINARY.values(), ids=BINARY)
@pytest.mark.parametrize(
    ("left", "right"), [((2, 3), (2, 3)), ((2, 3), (1, 3)), ((2, 1), (1, 3)), (IMAGE, (1, 4, 1, 1))]
)
def test_binary(function, left, right):
    check(Function(function), [torch.randn(left), 1 + torch.rand(right)])
    check(Function(function), [torch.randn(right), 1 + torch.rand(left)])


@pytest.mark.parametrize("function", BINARY.values(), ids=BINARY)
def test_binary_of_two_orders(function):
    """1x1 images in one order meet images in the other: a TRANSPOSE comes between."""
    small, large = 1 + torch.rand(2, 4, 1, 1), 1 + torch.rand(IMAGE)
    check(Function(function), [nhwc(large), nhwc(1 + torch.rand(IMAGE))])
    check(Function(function), [nhwc(large), small])
    check(Function(function), [small, nhwc(large)])


class WithConstant(nn.Module):
    def __init__(self, function, dims):
        super().__init__()
        self.function, self.constant = function, nn.Parameter(1 + torch.rand(dims))

    def forward(self, tensor):
        return self.function(tensor, self.constant)


@pytest.mark.parametrize("function", BINARY.values(), ids=BINARY)
@pytest.mark.parametrize("dims", [(2, 3), (1, 3)])
def test_binary_with_a_constant(function, dims):
    check(WithConstant(function, dims), torch.randn(2, 3))


def test_binary_of_flexible_size():
    convert = [torch.zeros(0, 3), torch.zeros(0, 3)]
    for rows in (1, 5):
        check_flexible(Function(torch.add), convert, [torch.randn(rows, 3), torch.randn(rows, 3)])


@pytest.mark.parametrize("limits", [(-1.0, 1.0), (0.0, 6.0)])
def test_hardtanh(limits):
    check(nn.Hardtanh(*limits), torch.tensor([[-2.0, -0.5, 0.5, 2.0, 7.0]]))


def test_hardtanh_of_other_limits_is_refused_by_the_converter():
    with pytest.raises(Exception, match="hardtanh"):
        check(nn.Hardtanh(0.0, 5.0), torch.tensor([[-2.0, -0.5, 0.5, 2.0, 7.0]]))


# ---- values and shapes --------------------------------------------------------------------------


def test_quantize():
    tensor = nhwc(torch.tensor([[[[1.0]], [[2.0]], [[-3.3]], [[900.0]]]]))
    check(torch.ao.nn.quantized.Quantize(0.25, 2, torch.quint8), tensor)


def test_dequantize():
    tensor = nhwc(quantised(torch.tensor([[[[1.0]], [[2.0]], [[-3.25]]]]), 0.25, 64))
    check(torch.ao.nn.quantized.DeQuantize(), tensor)


@pytest.mark.parametrize("dim", [-2, -1, 0, 1, 2])
def test_unsqueeze(dim):
    check(Function(lambda tensor: tensor.unsqueeze(dim)), torch.randn(4, 2, 2))


def test_reshape():
    check(Function(lambda tensor: tensor.reshape(2, 4)), torch.randn(4, 2, 1, 1))
    check(Function(lambda tensor: tensor.reshape(8, -1)), nhwc(torch.randn(8, 2, 1, 1)))


@pytest.mark.parametrize("dims", [(1, -1), (2, 3), (1, 2), (0, -2), (0, 3)])
def test_flatten(dims):
    check(nn.Flatten(*dims), torch.randn(4, 2, 3, 7))


def test_flatten_of_flexible_size():
    check_flexible(nn.Flatten(), [torch.zeros(0, 2, 3, 7)], [torch.randn(4, 2, 3, 7)])


def test_slice():
    check(Function(lambda tensor: tensor[1:, 1:5:2, :]), torch.randn(4, 6, 2))
    check(Function(lambda tensor: tensor[3:]), torch.randn(5))
    check(Function(lambda tensor: tensor[:, -3:-1]), torch.randn(2, 5))


def test_slice_of_flexible_size():
    part = Function(lambda tensor: tensor[1:, 1:5:2, :])
    check_flexible(part, [torch.zeros(4, 6, 0)], [torch.randn(4, 6, 2)])


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@order
def test_cat(dim, order):
    longer = list(IMAGE)
    longer[dim] += 1
    tensors = [order(torch.randn(IMAGE)), order(torch.randn(longer))]
    check(Function(lambda a, b: torch.cat([a, b], dim)), tensors)


def test_cat_of_flexible_size():
    convert = [torch.zeros(0, 0, 3, 3), torch.zeros(0, 0, 3, 3)]
    given = [torch.randn(1, 2, 3, 3), torch.randn(1, 2, 3, 3)]
    check_flexible(Function(lambda a, b: torch.cat([a, b], 1)), convert, given)


class Through(nn.Module):
    """A function without an operation of its own, and a PRELU: an input cannot be an output."""

    def __init__(self, function):
        super().__init__()
        self.function, self.prelu = function, nn.PReLU()

    def forward(self, tensor):
        return self.prelu(self.function(tensor))


def test_to():
    check(Through(lambda tensor: tensor.to("cpu")), torch.randn(1, 2, 3, 3))


def test_detach():
    check(Through(lambda tensor: tensor.detach()), torch.randn(1, 2, 3, 3))


# ---- over dimensions ----------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("function", [nn.Softmax, nn.LogSoftmax])
def test_softmax(function, dim):
    check(function(dim=dim), torch.randn(4, 5, 6))
    check(function(dim=dim), torch.randn(3, 10))


def test_softmax_of_flexible_size():
    check_flexible(nn.Softmax(dim=1), [torch.zeros(0, 0)], [torch.randn(4, 3)])


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dims", [(2, 3), (3, 2), (-1, -2)])
@order
def test_mean(dims, keep, order):
    check(Function(lambda tensor: tensor.mean(dims, keep)), order(torch.randn(IMAGE)))


def test_mean_of_other_dimensions():
    check(Function(lambda tensor: tensor.mean((0, 1))), torch.randn(2, 3, 4))
    check(Function(lambda tensor: tensor.mean((1,))), torch.randn(2, 3, 4))


# ---- matrices -----------------------------------------------------------------------------------


def test_linear():
    check(nn.Linear(16, 32), torch.randn(2, 16))
    check_flexible(nn.Linear(16, 32), [torch.zeros(0, 16)], [torch.randn(5, 16)])


def test_quantised_linear():
    module = torch.ao.nn.quantized.Linear(32, 16)
    weight = torch.quantize_per_tensor(torch.randn(16, 32), 0.125, 0, torch.qint8)
    module.set_weight_bias(weight, torch.randn(16))
    module.scale, module.zero_point = 0.5, 120
    check(module, quantised(torch.randn(2, 32), 0.05, 130), step=1)


@pytest.mark.parametrize("name", ["add", "add_relu", "mul"])
def test_quantised_functions(name):
    function = torch.ao.nn.quantized.QFunctional()
    function.scale, function.zero_point = 0.5, 120
    left = quantised(torch.tensor([1.0, 2.0, -30.0]), 0.25, 128)
    right = quantised(torch.tensor([3.0, 4.0, 2.5]), 0.5, 0 if name == "mul" else 64)
    check(Function(getattr(function, name)), [left, right], step=1)
