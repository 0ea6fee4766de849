"""Small convolutional networks drawn at random: traced, converted whole, run, compared."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from nnapi_prof.frontend import prepare
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
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
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
