"""PyTorch modules through its own NNAPI converter, compared with eager PyTorch."""

import copy

import pytest
import torch
from torch import nn
from torch.backends._nnapi.prepare import convert_model_to_nnapi


def nhwc(tensor):
    """The tensor in channels-last order, which the converter is told by an attribute."""
    tensor = tensor.contiguous(memory_format=torch.channels_last)
    tensor.nnapi_nhwc = True
    return tensor


def quantised(tensor, scale=0.125, zero_point=128):
    return torch.quantize_per_tensor(tensor, scale, zero_point, torch.quint8)


def check(module, inputs, *, other=None, step=0.0, limit=1e-4):
    """Converts with ``inputs``, runs with ``other`` (or the same) and compares with eager.

    ``step``: quantised results may differ by that many steps.
    """
    inputs = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    module.eval()
    with torch.no_grad():
        traced = torch.jit.trace(module, inputs)
        converted = convert_model_to_nnapi(traced, inputs)
        given = inputs if other is None else other
        wanted, found = module(*copy.deepcopy(given)), converted(*given)
    assert isinstance(wanted, tuple) == isinstance(found, tuple)
    pairs = zip(wanted, found, strict=True) if isinstance(wanted, tuple) else [(wanted, found)]
    for eager, ours in pairs:
        assert eager.dtype == ours.dtype and eager.shape == ours.shape
        if eager.is_quantized:
            assert eager.q_scale() == ours.q_scale()
            assert eager.q_zero_point() == ours.q_zero_point()
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


def check_flexible(module, convert, given, limit=1e-5):
    """Converts with sizes of 0, which stand for any, and runs with others."""
    module.eval()
    with torch.no_grad():
        traced = torch.jit.trace(module, given)
        converted = convert_model_to_nnapi(traced, convert)
        torch.testing.assert_close(converted(*given), module(*given), atol=limit, rtol=limit)


IMAGE = (2, 4, 6, 8)
ORDERS = {"nchw": lambda tensor: tensor, "nhwc": nhwc}
order = pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
