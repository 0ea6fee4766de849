"""Small float programs to quantise, and what samples of theirs look like."""

import importlib.util
import sys
from functools import cache
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.program import Program
from nnapi_prof.precision import Recipe
from nnapi_prof.precision.calibrate import calibrate
from tests.conftest import REPO

IMAGE = (1, 3, 32, 32)
LEVELS = (28, 29, 30)


@cache
def script(name: str) -> ModuleType:
    """A program of examples/ as a module."""
    path = REPO / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"nnapi_prof_example_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module
    spec.loader.exec_module(module)
    return module


class Encoder(nn.Module):
    """A transformer's encoder and a head. [1, 12, 16] -> [1, 5]"""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.layers(x).mean(1))
        return y


class Mixture(nn.Module):
    """What the example models lack: gates, scales that NNAPI fixes, branches that share values,
    operands that are constants, weights used twice. [1, 3, 16, 16] -> [1, 6], [1, 8, 8, 8]"""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.twice = nn.Conv2d(8, 8, 3, 1, 1)
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.slope = nn.PReLU(8)
        self.gate = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(24, 6)
        self.register_buffer("shift", torch.linspace(-1, 1, 8).view(1, 8, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = nn.functional.hardswish(self.stem(x))
        y = self.twice(self.twice(x))
        z = torch.sigmoid(self.gate(y)) * (x + self.shift)
        wide = nn.functional.max_pool2d(self.slope(self.up(z)), 3, 2, 1)
        joined = torch.cat([wide, z, torch.tanh(y)], 1).mean((2, 3))
        return torch.softmax(self.head(joined * 0.5), 1), torch.minimum(y, z) - 1.5


FACTORIES = {
    "mobilenet_v2": (lambda: script("models").mobilenet_v2(), IMAGE),
    "resnet18": (lambda: script("models").resnet18(), IMAGE),
    "squeezenet1_1": (lambda: script("models").squeezenet1_1(), IMAGE),
    "unet": (lambda: script("models").unet(), IMAGE),
    "encoder": (Encoder, (1, 12, 16)),
    "mixture": (Mixture, (1, 3, 16, 16)),
}
LARGE = ("mobilenet_v2", "resnet18")
ONCE_MORE = pytest.mark.again("a larger network, or another level, of the same operations")
CASES = [
    pytest.param(name, level, marks=() if level in levels else ONCE_MORE)
    for name, levels in {
        "encoder": (30,),
        "mixture": LEVELS,
        "squeezenet1_1": (30,),
        "unet": (28,),
        **dict.fromkeys(LARGE, ()),
    }.items()
    for level in LEVELS
    if level == 30 or name not in LARGE
]
"""Models and levels; the large ones are at the lower levels as the small ones are."""


def sample(name: str, seed: int) -> tuple[Tensor, ...]:
    """One sample of a model's inputs."""
    shape = FACTORIES[name][1]
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)),)


@cache
def program(name: str) -> Program:
    """A float program."""
    with torch.random.fork_rng(), quiet_torch():
        torch.manual_seed(0)
        return prepare(FACTORIES[name][0]().eval(), sample(name, 0), name)


@cache
def recipe(name: str, level: int) -> Recipe:
    """Its recipe, from four samples."""
    return calibrate(program(name), [sample(name, i) for i in range(4)], level)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """The root of the mean square of differences, relative to that of the values."""
    apart = (actual.double() - expected.double()).square().mean()
    return float((apart / expected.double().square().mean()).sqrt())
