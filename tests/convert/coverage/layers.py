"""Layers with weights, activations, pools, resizing, recurrent layers."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.convert.coverage.rows import layer, numbers, row

X = numbers(1, 8, 9, 11)
ROWS_2D = numbers(3, 16)

ROWS = {
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
