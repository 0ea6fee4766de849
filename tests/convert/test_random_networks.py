"""Small convolutional networks, and expressions of pointwise operators that broadcast, drawn at
random: traced, converted whole, run, compared."""

import random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.frontend import prepare
from tests.convert.coverage.rows import Function
from tests.convert.harness import run_whole, traced

ACTIVATIONS = {
    "none": nn.Identity,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "leaky": lambda: nn.LeakyReLU(0.1),
    "hardswish": nn.Hardswish,
    "sigmoid": nn.Sigmoid,
    "elu": nn.ELU,
}
LAYERS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["conv", "depthwise", "grouped", "max", "mean", "resize"]),
        "channels": st.sampled_from([4, 6, 8]),
        "kernel": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "stride": st.integers(1, 2),
        "padding": st.integers(0, 1),
        "dilation": st.integers(1, 2),
        "norm": st.booleans(),
        "activation": st.sampled_from(sorted(ACTIVATIONS)),
        "join": st.sampled_from(["none", "add", "cat", "gate"]),
    }
)


class Layer(nn.Module):
    """One drawn layer, with its input joined to its result where shapes allow."""

    def __init__(self, drawn, channels):
        super().__init__()
        self.drawn = drawn
        self.main, self.out = self._main(channels)
        self.norm = nn.BatchNorm2d(self.out) if drawn["norm"] else nn.Identity()
        self.act = ACTIVATIONS[drawn["activation"]]()
        if drawn["join"] == "cat":
            self.out += channels

    def _main(self, channels):
        drawn = self.drawn
        kernel, stride = drawn["kernel"], drawn["stride"]
        padding = min(drawn["padding"], min(kernel) // 2)
        if drawn["kind"] == "max":
            return nn.MaxPool2d(kernel, stride, padding), channels
        if drawn["kind"] == "mean":
            return nn.AvgPool2d(kernel, stride, padding, count_include_pad=False), channels
        if drawn["kind"] == "resize":
            return nn.Upsample(scale_factor=2, mode="nearest"), channels
        groups = {"conv": 1, "depthwise": channels, "grouped": 2}[drawn["kind"]]
        if channels % groups:
            groups = 1
        out = channels if groups == channels else drawn["channels"]
        rest = {"padding": drawn["padding"], "dilation": drawn["dilation"], "groups": groups}
        return nn.Conv2d(channels, out, kernel, stride, **rest), out

    def forward(self, x):
        y = self.act(self.norm(self.main(x)))
        join = self.drawn["join"]
        if join == "cat":
            return torch.cat([y, F.interpolate(x, size=y.shape[2:], mode="nearest")], 1)
        if join == "gate":
            return y * torch.sigmoid(y.mean((2, 3), keepdim=True))
        return y + x if join == "add" and y.shape == x.shape else y


def network(layers):
    """The layers one after the other, and a classifier; batch norms have their own statistics."""
    channels, modules = 4, []
    for drawn in layers:
        modules.append(Layer(drawn, channels))
        channels = modules[-1].out
    net = nn.Sequential(*modules, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5))
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return net.eval()


@pytest.mark.slow("converts 60 networks and runs each on the emulator")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LAYERS, min_size=1, max_size=5), st.sampled_from([29, 30]), st.integers(0, 99))
def test_random_networks(nnapi_library, layers, level, seed):
    torch.manual_seed(seed)
    model, x = network(layers), torch.randn(2, 4, 11, 13)
    try:
        with torch.inference_mode():
            expected = model(x)
    except RuntimeError:
        return  # the drawn layers left no pixel: PyTorch refuses that network too
    (result,) = run_whole(prepare(traced(model, (x,)), (x,), "network"), [x], level)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


UNARY = [
    *(torch.relu, torch.tanh, torch.sigmoid, torch.abs, torch.sin, torch.cos),
    *(F.gelu, F.silu, F.mish, F.elu, F.softplus, F.hardswish),
    lambda a: a.clamp(-0.5, 0.7),
    lambda a: a * 1.5 - 0.2,
    lambda a: 2 - a,
    lambda a: a**2,
    lambda a: F.leaky_relu(a, 0.2),
    lambda a: a.mean(-1, keepdim=True),
    lambda a: a.masked_fill(a > 0.3, -1.0),
    lambda a: torch.where(a < 0, a, 0.1),
    lambda a: (a > 0).float(),
]
BINARY = [
    *(torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum),
    lambda a, b: a / (b.abs() + 1),
    lambda a, b: torch.where(a > b, a, b),
    lambda a, b: a * (b > 0),
    lambda a, b: torch.atan2(a, b + 0.013),
]
IMAGE = [6, 5, 4]


def drawn(seed):
    """A function of two tensors, the tensors and a level."""
    draw = random.Random(seed)
    random_numbers = torch.Generator().manual_seed(seed)
    full = [draw.choice([1, 2, 3, 5]) for _ in range(draw.choice([1, 2, 3, 4, 4]))]
    if len(full) == 4:
        full[1:] = IMAGE
    smaller = [n if draw.random() < 0.7 else 1 for n in full]
    cut = draw.choice([0, 1]) if len(full) > 1 else 0
    inputs = tuple(torch.randn(s, generator=random_numbers) for s in (full, smaller[cut:]))
    weight = torch.randn(6, 6, 3, 3, generator=random_numbers) / 10
    convolves = len(full) == 4 and draw.random() < 0.7
    steps = []
    for _ in range(draw.randint(3, 8)):
        one = draw.random() < 0.5
        steps.append((one, draw.choice(UNARY if one else BINARY), draw.random(), draw.random()))

    def function(x, y):
        values = [x, y]
        if convolves:
            values.append(F.conv2d(x, weight, padding=1))
        for one, step, first, second in steps:
            late = values[-3:]
            a, b = late[int(first * len(late))], values[int(second * len(values))]
            values.append(step(a) if one else step(a, b))
        return values[-1] + 0.5

    return function, inputs, draw.choice([28, 29, 30, 30, 1000007])


@pytest.mark.parametrize("seed", range(100))
def test_an_expression_is_right_or_refused_below_level_3(seed, nnapi_library):
    function, inputs, level = drawn(seed)
    program = prepare(traced(Function(function), inputs), inputs, "expression")
    try:
        (result,) = run_whole(program, inputs, level)
    except UnsupportedOp:
        assert level == 28
        return
    torch.testing.assert_close(result, function(*inputs), rtol=1e-4, atol=1e-5)
