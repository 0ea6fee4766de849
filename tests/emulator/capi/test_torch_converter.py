"""PyTorch's own NNAPI converter, ``torch.backends._nnapi``, on the emulator.

Stock PyTorch converts a traced module and runs it through the library's C API; its results must be
eager PyTorch's. Each operation that the converter has stands here in one form, and in both orders
of dimensions where it asks; other forms of the operations are tested in tests/emulator/kernels.
Left out is what the converter itself gets wrong or refuses: pooling with ceil_mode or padding that
does not count, output_padding, depthwise transposed convolutions, softmax and slice along the
channels of NHWC data, cat of several scales, and sizes left open in poolings and PRELU.
"""

import copy

import pytest
import torch
from torch import nn
from torch.backends._nnapi.prepare import convert_model_to_nnapi

pytestmark = [
    pytest.mark.usefixtures("torch_finds_the_emulator"),
    pytest.mark.filterwarnings("ignore"),  # torch calls its own TorchScript outdated
]


def nhwc(tensor):
    """The tensor in channels-last order, which the converter is told by an attribute."""
    tensor = tensor.contiguous(memory_format=torch.channels_last)
    tensor.nnapi_nhwc = True
    return tensor


def quantised(tensor, scale=0.125, zero_point=128):
    return torch.quantize_per_tensor(tensor, scale, zero_point, torch.quint8)


def check(module, inputs, *, examples=None, step=0, limit=1e-4):
    """Converts with ``examples`` (or the inputs), runs the inputs, and compares with eager.

    Quantised results may differ by ``step`` steps. Sizes of 0 in ``examples`` stand for any.
    """
    module.eval()
    with torch.no_grad():
        traced = torch.jit.trace(module, inputs)
        converted = convert_model_to_nnapi(traced, examples or inputs)
        expected, results = module(*copy.deepcopy(inputs)), converted(*inputs)
    assert isinstance(expected, tuple) == isinstance(results, tuple)
    if not isinstance(expected, tuple):
        expected, results = (expected,), (results,)
    for eager, ours in zip(expected, results, strict=True):
        assert eager.dtype == ours.dtype and eager.shape == ours.shape
        if eager.is_quantized:
            assert (eager.q_scale(), eager.q_zero_point()) == (ours.q_scale(), ours.q_zero_point())
            off = (eager.int_repr().int() - ours.int_repr().int()).abs().max()
            assert off <= step, f"{off} steps"
        else:
            torch.testing.assert_close(ours, eager, atol=limit, rtol=limit)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


class WithConstant(nn.Module):
    """A function of a tensor and a weight."""

    def __init__(self, function):
        super().__init__()
        self.function, self.constant = function, nn.Parameter(1 + torch.rand(1, 3))

    def forward(self, tensor):
        return self.function(tensor, self.constant)


class SqueezeAndExcite(nn.Module):
    """Weights of channels from their means, as in MobileNetV3."""

    def __init__(self):
        super().__init__()
        self.pool, self.sigmoid = nn.AdaptiveAvgPool2d(1), nn.Sigmoid()
        self.down, self.up = nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1)

    def forward(self, tensor):
        scale = self.up(torch.relu(self.down(self.pool(tensor))))
        return tensor * self.sigmoid(scale)


class Classifier(nn.Module):
    """Convolution, batch norm, ReLU, pooling, linear."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(4, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, 2)
        )
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 5)

    def forward(self, image):
        return torch.softmax(self.head(self.pool(self.features(image)).flatten(1)), -1)


IMAGE = (2, 4, 6, 8)
BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}

# What takes an image, in both orders: module, shape.
IMAGES = {
    "prelu": (nn.PReLU(), IMAGE),
    "mean": (Function(lambda x: x.mean((2, 3), True)), IMAGE),
    "mean, dimensions dropped": (Function(lambda x: x.mean((-1, -2), False)), IMAGE),
    "max pooling": (nn.MaxPool2d((3, 4), (1, 2)), (2, 3, 12, 16)),
    "max pooling, padded": (nn.MaxPool2d(3, 2, 1), (2, 3, 12, 16)),
    "average pooling": (nn.AvgPool2d((3, 4), (1, 2)), (2, 3, 12, 16)),
    "adaptive pooling": (nn.AdaptiveAvgPool2d((1, 1)), (2, 3, 12, 16)),
    "upsampling to a size": (nn.UpsamplingNearest2d(size=(16, 20)), (2, 3, 12, 16)),
    "upsampling by a factor": (nn.UpsamplingNearest2d(scale_factor=(2.0, 3.0)), (2, 3, 12, 16)),
    "convolution": (nn.Conv2d(4, 8, 3), (2, 4, 16, 16)),
    "convolution, 3x5 without bias": (
        nn.Conv2d(4, 8, (3, 5), (2, 1), (1, 2), bias=False),
        (2, 4, 16, 16),
    ),
    "1x1 convolution": (nn.Conv2d(8, 4, 1), (2, 8, 16, 16)),
    "depthwise convolution": (nn.Conv2d(8, 8, 3, 2, 1, groups=8), (2, 8, 16, 16)),
    "transposed convolution": (nn.ConvTranspose2d(4, 8, 5, 2, 2), (2, 4, 7, 9)),
    "squeeze and excite": (SqueezeAndExcite(), IMAGE),
    "classifier": (Classifier(), (2, 4, 32, 32)),
}


@pytest.mark.parametrize("order", [lambda tensor: tensor, nhwc], ids=["nchw", "nhwc"])
@pytest.mark.parametrize(("module", "shape"), IMAGES.values(), ids=IMAGES)
def test_image(module, shape, order):
    check(module, [order(torch.randn(shape))])


# Module, shapes of its inputs.
TENSORS = {
    "relu": (nn.ReLU(), (2, 3)),
    "sigmoid": (nn.Sigmoid(), IMAGE),
    "hardtanh": (nn.Hardtanh(0.0, 6.0), (3, 5)),
    "unsqueeze": (Function(lambda x: x.unsqueeze(-2)), (4, 2, 2)),
    "reshape": (Function(lambda x: x.reshape(2, -1)), (4, 2, 1, 1)),
    "flatten": (nn.Flatten(0, -2), (4, 2, 3, 7)),
    "slice": (Function(lambda x: x[1:, 1:5:2, :]), (4, 6, 2)),
    "slice from the end": (Function(lambda x: x[:, -3:-1]), (2, 5)),
    "softmax": (nn.Softmax(dim=1), (4, 5, 6)),
    "log softmax": (nn.LogSoftmax(dim=-1), (4, 5, 6)),
    "mean of other dimensions": (Function(lambda x: x.mean((0, 1))), (2, 3, 4)),
    "linear": (nn.Linear(16, 32), (2, 16)),
    "to, of what follows": (Function(lambda x: torch.relu(x.to("cpu"))), (1, 2, 3, 3)),
    "detach, of what follows": (Function(lambda x: torch.relu(x.detach())), (1, 2, 3, 3)),
    "two outputs": (Function(lambda a, b: (a + b, a - b)), (2, 3), (1, 3)),
    **{f"{name}, broadcast": (Function(f), IMAGE, (1, 4, 1, 1)) for name, f in BINARY.items()},
    **{f"{name}, both ways": (Function(f), (2, 1), (1, 3)) for name, f in BINARY.items()},
    **{f"{name}, a constant": (WithConstant(f), (2, 3)) for name, f in BINARY.items()},
}


@pytest.mark.parametrize("case", TENSORS.values(), ids=TENSORS)
def test_tensors(case):
    module, *shapes = case
    check(module, [0.5 + torch.rand(shape) for shape in shapes])


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@pytest.mark.parametrize("order", [lambda tensor: tensor, nhwc], ids=["nchw", "nhwc"])
def test_cat(dim, order):
    longer = list(IMAGE)
    longer[dim] += 1
    tensors = [order(torch.randn(IMAGE)), order(torch.randn(longer))]
    check(Function(lambda a, b: torch.cat([a, b], dim)), tensors)


@pytest.mark.parametrize("function", BINARY.values(), ids=BINARY)
def test_two_orders(function):
    """1x1 images in one order meet images in the other: a TRANSPOSE comes between."""
    small, large = 1 + torch.rand(2, 4, 1, 1), nhwc(1 + torch.rand(IMAGE))
    check(Function(function), [large, small])
    check(Function(function), [small, large])


def test_prelu_of_channels():
    module = nn.PReLU(4)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    check(module, [nhwc(torch.randn(IMAGE))])  # for NHWC data only


def test_other_limits_are_refused_by_the_converter():
    with pytest.raises(Exception, match="hardtanh"):
        check(nn.Hardtanh(0.0, 5.0), [torch.tensor([[-2.0, -0.5, 0.5, 2.0, 7.0]])])


# Module, shapes that it is converted for (0 is any size), shapes that it runs with.
OPEN = {
    "add": (Function(torch.add), [(0, 3), (0, 3)], [(5, 3), (5, 3)]),
    "flatten": (nn.Flatten(), [(0, 2, 3, 7)], [(4, 2, 3, 7)]),
    "slice": (Function(lambda x: x[1:, 1:5:2, :]), [(4, 6, 0)], [(4, 6, 2)]),
    "cat": (Function(lambda a, b: torch.cat([a, b], 1)), [(0, 0, 3, 3)] * 2, [(1, 2, 3, 3)] * 2),
    "softmax": (nn.Softmax(dim=1), [(0, 0)], [(4, 3)]),
    "linear": (nn.Linear(16, 32), [(0, 16)], [(5, 16)]),
    "upsampling": (nn.UpsamplingNearest2d(size=(24, 32)), [(2, 3, 0, 0)], [(2, 3, 12, 16)]),
    "convolution": (nn.Conv2d(4, 8, 3), [(0, 4, 0, 0)], [(2, 4, 16, 16)]),
}


@pytest.mark.parametrize(("module", "sizes", "shapes"), OPEN.values(), ids=OPEN)
def test_open_sizes(module, sizes, shapes):
    inputs, examples = [torch.randn(s) for s in shapes], [torch.zeros(s) for s in sizes]
    check(module, inputs, examples=examples)


# ---- quantised data ------------------------------------------------------------------------------


def test_quantize_and_dequantize():
    tensor = nhwc(torch.tensor([[[[1.0]], [[2.0]], [[-3.25]], [[900.0]]]]))
    check(torch.ao.nn.quantized.Quantize(0.25, 2, torch.quint8), [tensor])
    check(torch.ao.nn.quantized.DeQuantize(), [nhwc(quantised(tensor, 0.25, 64))])


@pytest.mark.parametrize("function", [torch.relu, torch.sigmoid])
def test_quantised_unary(function):
    check(Function(function), [quantised(torch.randn(2, 3))], step=1)


@pytest.mark.parametrize("name", ["add", "add_relu", "mul"])
def test_quantised_binary(name):
    function = torch.ao.nn.quantized.QFunctional()
    function.scale, function.zero_point = 0.5, 120
    left = quantised(torch.tensor([1.0, 2.0, -30.0]), 0.25, 128)
    right = quantised(torch.tensor([3.0, 4.0, 2.5]), 0.5, 0 if name == "mul" else 64)
    check(Function(getattr(function, name)), [left, right], step=1)


def test_quantised_linear():
    module = torch.ao.nn.quantized.Linear(32, 16)
    weight = torch.quantize_per_tensor(torch.randn(16, 32), 0.125, 0, torch.qint8)
    module.set_weight_bias(weight, torch.randn(16))
    module.scale, module.zero_point = 0.5, 120
    check(module, [quantised(torch.randn(2, 32), 0.05, 130)], step=1)


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(4, 8, 3),
        nn.Conv2d(4, 16, 3, 2, 1, bias=False),
        nn.Conv2d(4, 4, 3, 2, 1, groups=4),
        nn.ConvTranspose2d(4, 8, 3),
        nn.ConvTranspose2d(4, 8, 5, 2, 2),
    ],
    ids=["plain", "padded", "depthwise", "transposed", "transposed stride 2"],
)
def test_quantised_convolution(module):
    """The module between a quantisation and its reverse, calibrated with the data."""
    data = torch.randn(2, 4, 16, 16)
    stages = [torch.ao.quantization.QuantStub(), copy.deepcopy(module)]
    twin = nn.Sequential(*stages, torch.ao.quantization.DeQuantStub())
    twin.qconfig = torch.ao.quantization.get_default_qconfig("qnnpack")
    twin.eval()
    torch.ao.quantization.prepare(twin, inplace=True)
    twin(data)
    twin = torch.ao.quantization.convert(twin)
    check(twin, [nhwc(data)], limit=1.01 * twin[1].scale)  # a step of the output
