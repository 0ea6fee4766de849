"""Layers with weights, activations, pools, resizing, recurrent layers; and eager-mode quantised
operators, as quantised TorchScript models hold them."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.nn import quantized

from nnapi_prof.frontend.eager import quantised_engine
from tests.convert.coverage.rows import Row, layer, numbers, row
from tests.models import Function

X = numbers(1, 8, 9, 11)
ROWS_2D = numbers(3, 16)

LAYERS = {
    "conv2d": layer(lambda: nn.Conv2d(8, 6, 3, 2, 1), X),
    "conv2d groups (1<g<C)": layer(lambda: nn.Conv2d(8, 12, 3, groups=2), X),
    "conv2d depthwise": layer(lambda: nn.Conv2d(8, 16, 3, padding=1, groups=8), X),
    "conv2d dilation>1": layer(lambda: nn.Conv2d(8, 6, 3, dilation=(2, 3), padding=2), X),
    "conv2d padding='same'": layer(lambda: nn.Conv2d(8, 6, (3, 4), padding="same"), X),
    "conv_transpose2d": layer(
        lambda: nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1), X
    ),
    "conv1d": layer(lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1), numbers(2, 4, 15)),
    "conv3d": layer(lambda: nn.Conv3d(2, 3, 3), numbers(1, 2, 5, 6, 7)),
    "linear": layer(lambda: nn.Linear(16, 5, bias=False), numbers(2, 3, 16)),
    "addmm": row(
        lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2.0),
        numbers(5),
        ROWS_2D,
        numbers(16, 5),
    ),
    "mm / matmul / bmm": row(
        lambda x, y: torch.matmul(x, y), numbers(2, 3, 4, 5), numbers(2, 3, 5, 6)
    ),
    "baddbmm / einsum": row(
        lambda x, y: torch.einsum("bij,bkj->bik", x, y), numbers(2, 4, 5), numbers(2, 6, 5)
    ),
    "scaled_dot_product_attention": row(
        F.scaled_dot_product_attention, *(numbers(1, 2, 6, 8, seed=s) for s in range(3))
    ),
    "relu": row(F.relu, X),
    "relu_ (in-place)": row(lambda x: (x * 2).relu_(), X),
    "relu6": row(F.relu6, X),
    "hardtanh": row(lambda x: F.hardtanh(x, -0.5, 0.7), X),
    "hardtanh_ (ReLU6 in-place)": row(lambda x: F.hardtanh_(x * 4, 0.0, 6.0), X),
    "clamp / clamp_min": row(lambda x: x.clamp(-0.3, 0.4) + x.clamp_min(0.2), X),
    "leaky_relu": row(lambda x: F.leaky_relu(x, 0.1), X),
    "prelu": layer(lambda: nn.PReLU(8), X),
    "elu": row(lambda x: F.elu(x, 0.7), X),
    "gelu": row(lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"), X, tolerance=1e-3),
    "silu": row(F.silu, X),
    "hardswish": row(F.hardswish, X),
    "hardsigmoid": row(F.hardsigmoid, X),
    "sigmoid": row(torch.sigmoid, X),
    "tanh": row(torch.tanh, X),
    "softmax": row(lambda x: F.softmax(x, 1), X),
    "log_softmax": row(lambda x: F.log_softmax(x, 1), X),
    "softplus / mish / selu / celu / erf": row(
        lambda x: F.softplus(x) + F.mish(x) + F.selu(x) + F.celu(x, 0.5) + torch.erf(x),
        X,
        tolerance=1e-3,
    ),
    "glu": row(lambda x: F.glu(x, 1), X),
    "batch_norm after conv": layer(
        lambda: nn.Sequential(nn.Conv2d(8, 6, 3), nn.BatchNorm2d(6), nn.ReLU()), X
    ),
    "batch_norm alone": layer(lambda: nn.BatchNorm2d(8), X),
    "layer_norm": layer(lambda: nn.LayerNorm(16), numbers(2, 3, 16)),
    "group_norm / instance_norm": layer(
        lambda: nn.Sequential(nn.GroupNorm(4, 8), nn.InstanceNorm2d(8, affine=True)), X
    ),
    "local_response_norm": layer(lambda: nn.LocalResponseNorm(5), X),
    "dropout (eval, module)": layer(lambda: nn.Sequential(nn.Dropout(), nn.ReLU()), X),
    "max_pool2d": row(lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), X),
    "avg_pool2d": row(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=True), X),
    "adaptive_avg_pool2d(1)": row(lambda x: F.adaptive_avg_pool2d(x, 1), X),
    "adaptive_avg_pool2d(n>1)": row(lambda x: F.adaptive_avg_pool2d(x, (4, 5)), X),
    "adaptive_max_pool2d(1)": row(lambda x: F.adaptive_max_pool2d(x, 1), X),
    "lp_pool2d": row(lambda x: F.lp_pool2d(x, 2.0, 3, 2), X),
    "upsample_nearest2d": row(lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"), X),
    "upsample_bilinear2d": row(
        lambda x: F.interpolate(x, size=(13, 17), mode="bilinear", align_corners=False), X
    ),
    "upsample_bicubic2d / grid_sampler": row(
        lambda x: F.interpolate(x, size=(13, 17), mode="bicubic", align_corners=False), X
    ),
    "lstm": layer(lambda: First(nn.LSTM(6, 5, num_layers=2, bidirectional=True)), numbers(4, 2, 6)),
    "rnn_tanh / rnn_relu": layer(
        lambda: First(nn.RNN(6, 5, nonlinearity="relu", batch_first=True)), numbers(2, 4, 6)
    ),
    "gru": layer(lambda: First(nn.GRU(6, 5)), numbers(4, 2, 6)),
}


class First(nn.Module):
    """The first result of a module: a recurrent layer's outputs without its state."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x)[0]


def _quantised(function, *inputs):
    """A row of a function of quint8 tensors: quantize, the function, dequantize."""

    def whole(*values):
        arguments = [torch.quantize_per_tensor(v, 0.05, 128, torch.quint8) for v in values]
        return function(*arguments).dequantize()

    # a step of the output's scale, and a half
    return Row(lambda: (Function(whole), inputs), tolerance=0.11)


def _quantised_layer(make, *inputs):
    """A row of a module of torch.ao.nn.quantized, made under the qnnpack engine."""

    def whole():
        with quantised_engine("qnnpack"):
            return make(), inputs

    return Row(whole, tolerance=0.21)


class _Between(nn.Module):
    """A quantised layer between quantize and dequantize."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.layer.scale, self.layer.zero_point = 0.1, 120

    def forward(self, x):
        return self.layer(torch.quantize_per_tensor(x, 0.05, 128, torch.quint8)).dequantize()


def _filled(layer, n_outputs, weight, by_channels=False):
    weight = weight / 4
    if by_channels:
        scales = torch.linspace(0.005, 0.02, n_outputs, dtype=torch.float64)
        zeros = torch.zeros(n_outputs, dtype=torch.int64)
        packed = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
    else:
        packed = torch.quantize_per_tensor(weight, 0.01, 0, torch.qint8)
    layer.set_weight_bias(packed, numbers(n_outputs))
    return _Between(layer).eval()


IMAGE, FOUR = numbers(1, 4, 6, 8), numbers(4)
Q = torch.ops.quantized

QUANTISED = {
    "quantize_per_tensor": _quantised(lambda x: x, IMAGE),
    "dequantize": _quantised(
        lambda x: torch.quantize_per_tensor(x.dequantize() * 2, 0.1, 128, torch.quint8), IMAGE
    ),
    "quantized::linear": _quantised_layer(
        lambda: _filled(quantized.Linear(8, 5), 5, numbers(5, 8)), numbers(3, 8)
    ),
    "quantized::conv2d / conv2d_relu": _quantised_layer(
        lambda: _filled(quantized.Conv2d(4, 6, 3, padding=1), 6, numbers(6, 4, 3, 3), True), IMAGE
    ),
    "quantized::conv_transpose2d": _quantised_layer(
        lambda: _filled(quantized.ConvTranspose2d(4, 6, 3, stride=2), 6, numbers(4, 6, 3, 3)), IMAGE
    ),
    "quantized::add / add_relu": _quantised(lambda x, y: Q.add(x, y, 0.1, 100), IMAGE, IMAGE * 0.7),
    "quantized::mul": _quantised(lambda x, y: Q.mul(x, y, 0.1, 100), IMAGE, IMAGE * 0.7),
    "quantized::cat": _quantised(lambda x, y: Q.cat([x, y], 1, 0.05, 128), IMAGE, IMAGE * 0.7),
    "quantized::batch_norm2d": _quantised(
        lambda x: Q.batch_norm2d(x, FOUR.abs(), FOUR, FOUR, FOUR.abs() + 0.5, 1e-5, 0.1, 100), IMAGE
    ),
}
