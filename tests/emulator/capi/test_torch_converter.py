"""PyTorch's own NNAPI converter, ``torch.backends._nnapi``, on the emulator.

Stock PyTorch converts a traced module and runs it through the library's C API; its results must be
eager PyTorch's. A network, both orders of dimensions and open sizes stand here; each operation's
numbers are AOSP's own, in tests/emulator/vectors.
"""

import pytest
import torch
from torch import nn
from torch.backends._nnapi.prepare import convert_model_to_nnapi

from tests.models import Function

pytestmark = [
    pytest.mark.usefixtures("nnapi_library"),  # which PyTorch finds by its soname
    pytest.mark.filterwarnings("ignore"),  # torch calls its own TorchScript outdated
]


def nhwc(tensor):
    """The tensor in channels-last order, which the converter is told by an attribute."""
    tensor = tensor.contiguous(memory_format=torch.channels_last)
    tensor.nnapi_nhwc = True
    return tensor


def check(module, inputs, examples=None):
    """Converts with ``examples`` (or the inputs), runs the inputs, and compares with eager. Sizes
    of 0 in ``examples`` stand for any."""
    module.eval()
    with torch.no_grad():
        converted = convert_model_to_nnapi(torch.jit.trace(module, inputs), examples or inputs)
        torch.testing.assert_close(converted(*inputs), module(*inputs), atol=1e-4, rtol=1e-4)


CLASSIFIER = nn.Sequential(
    *(nn.Conv2d(4, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, 2)),
    *(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(8, 5), nn.Softmax(-1)),
)


@pytest.mark.parametrize("order", [lambda tensor: tensor, nhwc], ids=["nchw", "nhwc"])
def test_image(order):
    check(CLASSIFIER, [order(torch.randn(2, 4, 32, 32))])


def test_two_orders():
    """1x1 images in one order meet images in the other: a TRANSPOSE comes between."""
    small, large = 1 + torch.rand(2, 4, 1, 1), nhwc(1 + torch.rand(2, 4, 6, 8))
    check(Function(torch.sub), [large, small])
    check(Function(torch.sub), [small, large])


# Module, shapes that it is converted for (0 is any size), shapes that it runs with.
OPEN = {
    "cat": (Function(lambda a, b: torch.cat([a, b], 1)), [(0, 0, 3, 3)] * 2, [(1, 2, 3, 3)] * 2),
    "convolution": (nn.Conv2d(4, 8, 3), [(0, 4, 0, 0)], [(2, 4, 16, 16)]),
}


@pytest.mark.parametrize(("module", "sizes", "shapes"), OPEN.values(), ids=OPEN)
def test_open_sizes(module, sizes, shapes):
    inputs, examples = [torch.randn(s) for s in shapes], [torch.zeros(s) for s in sizes]
    check(module, inputs, examples)
