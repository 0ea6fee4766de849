"""Networks whose sizes can, or cannot, be left open."""

import warnings

import torch
from torch import nn

from nnapi_prof.convert.dynamic_shapes import FlexibleModel
from nnapi_prof.frontend.inputs import parse_input_spec
from tests.models import Function
from tests.precision.common import script

unet = script("models").unet


def halved():
    """A skip around what is halved and resized: runs at even sizes alone."""

    def function(x, down, up):
        y = nn.functional.interpolate(down(x), scale_factor=2.0, mode="bilinear")
        return up(torch.cat([y, nn.functional.interpolate(down(x), scale_factor=2.0), x], 1))

    down = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    return Function(function, down=down, up=nn.Conv2d(11, 4, 1))


def ceiling_pools():
    """Pools that round up: windows hang over the edge at some sizes."""
    pools = (nn.MaxPool2d(size, 2, ceil_mode=True) for size in (3, 2))
    return nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), *pools)


def flattened():
    """A linear layer over all pixels."""
    features = nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU()
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(4 * 8 * 8, 3))


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


class Averages(nn.Module):
    """Divides by the number of pixels: a float in the model that depends on sizes."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        y = self.features(x)
        return y * (1.0 / (y.shape[2] * y.shape[3]))


def flexible(folder, make, spec, traced=True):
    """A network, traced or scripted and saved as model.pt, with the open sizes of a spec."""
    torch.manual_seed(3)
    specs = [parse_input_spec(word) for word in spec.split()]
    inputs = tuple(torch.randn(reference.shape) for reference in specs)
    model = make().eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        script = torch.jit.trace(model, inputs) if traced else torch.jit.script(model)
        torch.jit.save(script, str(folder / "model.pt"))
    return FlexibleModel(folder / "model.pt", specs)
