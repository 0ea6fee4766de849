"""Networks whose sizes can, or cannot, be left open."""

import importlib.util
import warnings
from pathlib import Path

import torch
from torch import nn

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "models.py"


class Mobile(nn.Module):
    """Depthwise blocks with strides, a residual, squeeze and excitation, global pooling, linear."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish())
        self.depthwise = nn.Conv2d(8, 8, 5, 2, 2, groups=8)
        self.point = nn.Conv2d(8, 8, 1)
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.excite = nn.Conv2d(4, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        y = torch.relu(self.depthwise(self.enter(x)))
        y = y + self.point(y)
        gate = torch.relu(self.squeeze(nn.functional.adaptive_avg_pool2d(y, 1)))
        y = y * torch.sigmoid(self.excite(gate))
        return self.head(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))


class CeilingPools(nn.Module):
    """Pools that round up: windows hang over the edge at some sizes."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Conv2d(3, 4, 3, 2)
        self.pools = nn.Sequential(
            nn.MaxPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(2, 2, ceil_mode=True)
        )

    def forward(self, x):
        return self.pools(torch.relu(self.enter(x)))


class Heads(nn.Module):
    """Two levels, the lower one resized to the upper, and their tokens in one row."""

    def __init__(self):
        super().__init__()
        self.upper = nn.Conv2d(3, 4, 3, 2, 1)
        self.lower = nn.Conv2d(4, 4, 3, 3, 1)

    def forward(self, x):
        upper = self.upper(x)
        lower = self.lower(upper)
        resized = nn.functional.interpolate(lower, size=upper.shape[2:], mode="bilinear")
        tokens = torch.cat([(upper + resized).flatten(2), lower.flatten(2)], 2)
        return tokens, nn.functional.pad(lower, [1, 2, 0, 1])[:, 1:, :-1]


class Crossed(nn.Module):
    """Two inputs with sizes of their own; an output that is a constant, one that is an input."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 2, 3, padding=1)
        self.second = nn.Conv2d(2, 2, 1)
        self.register_buffer("anchors", torch.arange(3.0))

    def forward(self, x, y):
        return self.anchors * 2, y, (self.first(x).mean((2, 3)), self.second(y))


class Flattened(nn.Module):
    """A linear layer over all pixels."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 4, 3, 2, 1)
        self.head = nn.Linear(4 * 8 * 8, 3)

    def forward(self, x):
        return self.head(torch.relu(self.features(x)).flatten(1))


class Averages(nn.Module):
    """Divides by the number of pixels: a float in the model that depends on sizes."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        y = self.features(x)
        return y * (1.0 / (y.shape[2] * y.shape[3]))


def unet():
    spec = importlib.util.spec_from_file_location("example_models", EXAMPLES)
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    return models.unet()


def saved(model, path, *inputs):
    """Saves a model, traced with ``inputs``, scripted where there are none."""
    model.eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        script = torch.jit.trace(model, inputs) if inputs else torch.jit.script(model)
        torch.jit.save(script, str(path))
    return path
