"""Networks for bench_bisect.py: those of examples/, one in 8 bits, one of rarer operations."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import models as models
import zoo


class Quantised(nn.Module):
    """A small CNN between conversions to 8 bits. [1, 3, 32, 32] -> [1, 10]"""

    def __init__(self) -> None:
        super().__init__()
        self.quant = torch.ao.quantization.QuantStub()
        layers: list[nn.Module] = []
        for c_in, c_out, stride in ((3, 16, 1), (16, 24, 2), (24, 32, 1), (32, 48, 2)):
            layers += [nn.Conv2d(c_in, c_out, 3, stride, 1), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.pool = nn.AvgPool2d(8)
        self.head = nn.Linear(48, 10)
        self.dequant = torch.ao.quantization.DeQuantStub()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = self.pool(self.features(self.quant(image)))
        return self.dequant(self.head(features.flatten(1)))


class Mixed(nn.Module):
    """Operations that the other networks lack. [1, 3, 32, 32] -> [1, 6, 72, 72] twice, [1, 6]"""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.prelu = nn.PReLU(16)
        self.group = nn.Conv2d(16, 32, 3, padding=1, groups=4)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.up = nn.ConvTranspose2d(16, 12, 2, 2)
        self.head = nn.Conv2d(12, 6, 3, padding=2, dilation=2)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.prelu(self.stem(image))
        x = functional.hardswish(self.group(functional.pad(x, (1, 1, 1, 1))))
        left, right = x.split(16, 1)
        x = torch.maximum(left, right) - 0.1 * left
        tokens = self.norm(x.flatten(2).transpose(1, 2))
        q, k, v = self.qkv(tokens).chunk(3, -1)
        tokens = torch.softmax(q @ k.transpose(1, 2) / 4, -1) @ v
        x = functional.normalize(tokens.transpose(1, 2).reshape(1, 16, 18, 18) + x, dim=1)
        x = functional.interpolate(self.up(x), scale_factor=2, mode="bilinear")
        x = self.head(x)
        return torch.sigmoid(x), x.amax((2, 3)), x.softmax(1)


def quantised() -> nn.Module:
    """Return the network in 8 bits, calibrated on noise."""
    torch.manual_seed(0)
    model = Quantised().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.qconfig = torch.ao.quantization.get_default_qconfig("qnnpack")
        prepared = torch.ao.quantization.prepare(model)
        for _ in range(8):
            prepared(torch.randn(1, 3, 32, 32))
        return torch.ao.quantization.convert(prepared)


@dataclass(frozen=True)
class Network:
    make: Callable[[], nn.Module]
    example: Callable[[], torch.Tensor]
    phone: str = "npu-phone"
    accelerator: str = "sim-npu"


def image(size: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))


NETWORKS = {
    "mobilenet_v2": Network(models.mobilenet_v2, image(96)),
    "resnet18": Network(models.resnet18, image(96)),
    "squeezenet1_1": Network(models.squeezenet1_1, image(96)),
    "unet": Network(models.unet, image(64)),
    "inception": Network(zoo.MODELS["inception"].model, image(224)),
    "ssdlite": Network(zoo.MODELS["ssdlite"].model, image(224)),
    "bert": Network(zoo.MODELS["bert"].model, zoo.MODELS["bert"].examples),
    "mixed": Network(Mixed, image(32), "npu-phone", "nnapi-reference"),
    "int8": Network(quantised, image(32), "dsp-phone", "sim-dsp"),
}


def save(network: Network, path: Path) -> Path:
    """Save a network as TorchScript with its example bundled."""
    example = network.example()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(network.make().eval(), example), str(path))
    return path


def spec_of(network: Network) -> str:
    """Return the ``inputs`` argument of nnapi_prof.load for a network."""
    example = network.example()
    kind = "" if example.dtype.is_floating_point else ":int64"
    return "x".join(map(str, example.shape)) + kind
