"""Eager-mode quantised operators, as quantised TorchScript models hold them."""

import torch
from torch import nn

from tests.convert.coverage.rows import Function, Row, numbers

X = numbers(1, 4, 6, 8)
FOUR = numbers(4)
SCALE, ZERO = 0.05, 128


def quantised(function, *inputs, **options):
    """A row of a function of quint8 tensors: quantize, the function, dequantize."""

    def whole(*values):
        arguments = [torch.quantize_per_tensor(v, SCALE, ZERO, torch.quint8) for v in values]
        return function(*arguments).dequantize()

    options.setdefault("tolerance", 0.11)  # a step of the output's scale, and a half
    return Row(lambda: (Function(whole), inputs), **options)


class Layer(nn.Module):
    """A quantised layer between quantize and dequantize."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.layer.scale, self.layer.zero_point = 0.1, 120

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.quantize_per_tensor(x, SCALE, ZERO, torch.quint8)).dequantize()


def quantised_layer(make, *inputs, **options):
    """A row of a module of torch.ao.nn.quantized, made under the qnnpack engine."""

    def whole():
        engine = torch.backends.quantized.engine
        torch.backends.quantized.engine = "qnnpack"
        try:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                return Layer(make()).eval(), inputs
        finally:  # it is one for the process
            torch.backends.quantized.engine = engine

    options.setdefault("tolerance", 0.21)
    return Row(whole, **options)


def _filled(layer, shape, channels=None):
    weight = numbers(*shape) / 4
    if channels is None:
        packed = torch.quantize_per_tensor(weight, 0.01, 0, torch.qint8)
    else:
        scales = torch.linspace(0.005, 0.02, channels, dtype=torch.float64)
        zeros = torch.zeros(channels, dtype=torch.int64)
        packed = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
    layer.set_weight_bias(packed, numbers(shape[0]))
    return layer


Q = torch.ops.quantized

ROWS = {
    "quantize_per_tensor": quantised(lambda x: x, X),
    "dequantize": quantised(
        lambda x: torch.quantize_per_tensor(x.dequantize() * 2, 0.1, 128, torch.quint8), X
    ),
    "quantized::linear": quantised_layer(
        lambda: _filled(torch.ao.nn.quantized.Linear(8, 5), (5, 8)), numbers(3, 8)
    ),
    "quantized::conv2d / conv2d_relu": quantised_layer(
        lambda: _filled(torch.ao.nn.quantized.Conv2d(4, 6, 3, padding=1), (6, 4, 3, 3), 6), X
    ),
    "quantized::conv_transpose2d": quantised_layer(
        lambda: _transposed(torch.ao.nn.quantized.ConvTranspose2d(4, 6, 3, stride=2)), X
    ),
    "quantized::add / add_relu": quantised(lambda x, y: Q.add(x, y, 0.1, 100), X, X * 0.7),
    "quantized::mul": quantised(lambda x, y: Q.mul(x, y, 0.1, 100), X, X * 0.7),
    "quantized::cat": quantised(lambda x, y: Q.cat([x, y], 1, 0.05, 128), X, X * 0.7),
    "quantized::batch_norm2d": quantised(
        lambda x: Q.batch_norm2d(x, FOUR.abs(), FOUR, FOUR, FOUR.abs() + 0.5, 1e-5, 0.1, 100), X
    ),
}


def _transposed(layer):
    weight = torch.quantize_per_tensor(numbers(4, 6, 3, 3) / 4, 0.01, 0, torch.qint8)
    layer.set_weight_bias(weight, numbers(6))
    return layer
