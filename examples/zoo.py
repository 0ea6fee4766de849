"""Networks with branches, heads and attention, in plain torch.nn: plans that are hard to find.

    python examples/zoo.py vit vit.pt
    python examples/zoo.py backbone_3 backbone_3.pt     # three taps, two heads on each

name                     units  what
mobilenet_v3_large         122  inverted residuals with squeeze and excite
resnet50                    74  residual bottlenecks
inception                   62  six blocks of four branches
vit                        298  a vision transformer, 12 blocks
bert                       145  an encoder that reads ids, 6 layers
decoder                    220  a causal decoder with rotary positions and SwiGLU, 4 layers
ssdlite                    122  six maps, two heads on each
yolo                       174  a neck that goes up and down again, heads on three maps
backbone_1 ... backbone_8   16  and 13 more for each further tap, 11 where its map is a pixel

Architectures are those of the papers named with them, in small sizes, so that a profile on a
simulated phone takes seconds. Weights are seeded and keep activations alive.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from models import initialise
from torch import Tensor, nn
from zoo_detectors import BackboneWithHeads, SsdLite, Yolo
from zoo_text import Bert, Decoder
from zoo_vision import Inception, MobileNetV3Large, ResNet50, ViT


@dataclass(frozen=True)
class Entry:
    """A network of the zoo."""

    factory: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """Shape of the input."""
    words: int | None = None
    """Number of ids for a network that reads ids of int64; None for one that reads float32."""

    @property
    def input(self) -> str:
        """The input as ``nnapi-prof --input`` takes it."""
        return "x".join(map(str, self.shape)) + ("" if self.words is None else ":int64")

    def model(self, seed: int = 0) -> nn.Module:
        """Returns the network with seeded weights, in eval mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = initialise(self.factory(), seed)
        calibrate(model, self.examples(8, seed))
        return model

    def examples(self, n: int = 1, seed: int = 0) -> Tensor:
        """Returns a batch of ``n`` random inputs. [n, ...]"""
        shape = (n, *self.shape[1:])
        random = torch.Generator().manual_seed(seed)
        if self.words is None:
            return torch.randn(shape, generator=random)
        return torch.randint(self.words, shape, generator=random)


def calibrate(model: nn.Module, batch: Tensor) -> None:
    """Gives batch norms the statistics of a batch, so that activations live through any depth."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        model(batch)
    for norm in norms:
        assert norm.running_var is not None
        norm.running_var.clamp_(min=0.1)  # a channel at zero here may be active on other inputs
        norm.eval()


def backbone_with_heads(taps: int) -> Entry:
    """Returns a backbone with two heads on each of its taps."""
    return Entry(functools.partial(BackboneWithHeads, taps), (1, 3, 224, 224))


MODELS = {
    "mobilenet_v3_large": Entry(MobileNetV3Large, (1, 3, 224, 224)),
    "resnet50": Entry(ResNet50, (1, 3, 96, 96)),
    "inception": Entry(Inception, (1, 3, 224, 224)),
    "vit": Entry(ViT, (1, 3, 160, 160)),
    "bert": Entry(Bert, (1, 64), words=1000),
    "decoder": Entry(Decoder, (1, 64), words=1000),
    "ssdlite": Entry(SsdLite, (1, 3, 224, 224)),
    "yolo": Entry(Yolo, (1, 3, 160, 160)),
    **{f"backbone_{taps}": backbone_with_heads(taps) for taps in range(1, 9)},
}
"""Networks by name; backbone_N has N taps."""


def save(name: str, path: Path) -> None:
    """Saves a network of the zoo as traced TorchScript."""
    entry = MODELS[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch.jit announces its retirement on every call
        traced = torch.jit.trace(entry.model(), entry.examples(), check_trace=False)
        torch.jit.save(traced, str(path))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=sorted(MODELS))
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    save(options.name, options.out)
    print(f"saved {options.name} as {options.out}, input {MODELS[options.name].input}")


if __name__ == "__main__":
    main()
