"""Images through PyTorch's own NNAPI converter; see test_torch_converter.py."""

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
)

pytestmark = [
    pytest.mark.usefixtures("torch_finds_the_emulator"),
    pytest.mark.filterwarnings("ignore"),  # torch calls its own TorchScript outdated
]


# ---- images -------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [(2, 2), ((3, 4), (3, 4)), ((3, 4), (1, 2)), (3, 2, 1)])
@order
def test_max_pool2d(window, order):
    check(nn.MaxPool2d(*window), order(torch.randn(2, 3, 12, 16)))


@pytest.mark.parametrize("window", [(2, 2), ((3, 4), (3, 4)), ((3, 4), (1, 2))])
@order
def test_avg_pool2d(window, order):
    check(nn.AvgPool2d(*window), order(torch.randn(2, 3, 12, 16)))


@order
def test_adaptive_avg_pool2d(order):
    check(nn.AdaptiveAvgPool2d((1, 1)), order(torch.randn(2, 3, 12, 16)))


@pytest.mark.parametrize(
    "how",
    [
        {"size": (16, 20)},
        {"size": (24, 32)},
        {"size": (36, 48)},
        {"scale_factor": (2.0, 2.0)},
        {"scale_factor": (3.0, 3.0)},
    ],
    ids=str,
)
@order
def test_upsample_nearest2d(how, order):
    check(nn.UpsamplingNearest2d(**how), order(torch.randn(2, 3, 12, 16)))


def test_upsample_of_flexible_size():
    convert, given = [torch.zeros(2, 3, 0, 0)], [torch.randn(2, 3, 12, 16)]
    check_flexible(nn.UpsamplingNearest2d(size=(24, 32)), convert, given)
    check_flexible(nn.UpsamplingNearest2d(scale_factor=(2.0, 2.0)), convert, given)


# in, out, kernel, stride, padding, groups, bias
CONVOLUTIONS = {
    "3x3": (4, 8, 3, 1, 0, 1, True),
    "3x3 without bias": (4, 8, 3, 1, 0, 1, False),
    "3x3 padded": (4, 16, 3, 1, 1, 1, True),
    "3x3 stride 2": (8, 8, 3, 2, 0, 1, True),
    "5x5": (4, 8, 5, 1, 0, 1, True),
    "3x5": (4, 8, (3, 5), (2, 1), (1, 2), 1, True),
    "1x1": (8, 4, 1, 1, 0, 1, True),
    "depthwise": (4, 4, 3, 1, 0, 4, True),
    "depthwise stride 2": (8, 8, 3, 2, 1, 8, True),
}
convolutions = pytest.mark.parametrize("sizes", CONVOLUTIONS.values(), ids=CONVOLUTIONS)


def quantised_twin(module, data):
    """The module between a quantisation and its reverse, calibrated with the data."""
    twin = nn.Sequential(torch.ao.quantization.QuantStub(), module)
    twin.append(torch.ao.quantization.DeQuantStub())
    twin.qconfig = torch.ao.quantization.get_default_qconfig("qnnpack")
    twin.eval()
    torch.ao.quantization.prepare(twin, inplace=True)
    twin(data)
    return torch.ao.quantization.convert(twin)


@convolutions
@order
def test_conv2d(sizes, order):
    module = nn.Conv2d(*sizes[:5], groups=sizes[5], bias=sizes[6])
    check(module, order(torch.randn(2, sizes[0], 16, 16)))


@convolutions
def test_conv2d_of_quantised_data(sizes):
    data = torch.randn(2, sizes[0], 16, 16)
    module = nn.Conv2d(*sizes[:5], groups=sizes[5], bias=sizes[6])
    twin = quantised_twin(module, data)
    check(twin, nhwc(data), limit=1.01 * twin[1].scale)  # a step of the output


@order
def test_conv2d_of_flexible_size(order):
    check_flexible(
        nn.Conv2d(4, 8, 3), [order(torch.zeros(0, 4, 0, 0))], [order(torch.randn(2, 4, 16, 16))]
    )


TRANSPOSED = {
    "3x3": (4, 8, 3, 1, 0),
    "3x3 padded": (4, 16, 3, 1, 1),
    "3x3 stride 2": (8, 8, 3, 2, 0),
    "5x5 stride 2 padded": (4, 8, 5, 2, 2),
    "1x1": (8, 4, 1, 1, 0),
}
transposed = pytest.mark.parametrize("sizes", TRANSPOSED.values(), ids=TRANSPOSED)


@transposed
@pytest.mark.parametrize("bias", [False, True])
@order
def test_conv_transpose2d(sizes, bias, order):
    module = nn.ConvTranspose2d(*sizes, bias=bias)
    check(module, order(torch.randn(2, sizes[0], 7, 9)))


@transposed
def test_conv_transpose2d_of_quantised_data(sizes):
    data = torch.randn(2, sizes[0], 7, 9)
    twin = quantised_twin(nn.ConvTranspose2d(*sizes), data)
    check(twin, nhwc(data), limit=1.01 * twin[1].scale)


# ---- whole modules ------------------------------------------------------------------------------


class SqueezeAndExcite(nn.Module):
    """Weights of channels from their means, as in MobileNetV3."""

    def __init__(self):
        super().__init__()
        self.pool, self.sigmoid = nn.AdaptiveAvgPool2d(1), nn.Sigmoid()
        self.down, self.up = nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1)

    def forward(self, tensor):
        scale = self.up(torch.relu(self.down(self.pool(tensor))))
        return tensor * self.sigmoid(scale)


@order
def test_squeeze_and_excite(order):
    check(SqueezeAndExcite(), order(torch.randn(IMAGE)))
    weights = [order(torch.randn(IMAGE)), order(torch.randn(2, 4, 1, 1))]
    check(Function(torch.mul), weights)


def test_several_outputs():
    both = Function(lambda a, b: (a + b, a - b))
    check(both, [torch.randn(2, 3), torch.randn(2, 3)])
    check(both, [torch.randn(2, 3), torch.randn(1, 3)])


class Small(nn.Module):
    """A classifier: convolution, batch norm, ReLU, pooling, linear."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, 2)
        )
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 5)

    def forward(self, image):
        return torch.softmax(self.head(self.pool(self.features(image)).flatten(1)), -1)


@order
def test_classifier(order):
    check(Small(), order(torch.randn(2, 3, 32, 32)))
