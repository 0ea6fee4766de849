"""Small CNNs trained on real data: the handwritten digits that come with scikit-learn.

    python examples/digits.py residual digits.pt --data data

Training takes seconds on two cores; the same seed gives the same weights. Writes the model, and
with --data the unused data into that folder: `calibration.npz` and `held_out.npz`, each with
`images` [N, 1, 1, 32, 32] and `labels` [N].
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

SIZE = 32
N_TRAIN, N_CALIBRATION = 1000, 200
"""Number of images for training and calibration, of 1,797; the other 597 are held out."""
EPOCHS = 7


@dataclass(frozen=True)
class Images:
    """Some digits: ``images`` [N, 1, 32, 32], about 0 to 1, and ``labels`` [N]."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, indices: Tensor) -> Images:
        return Images(self.images[indices], self.labels[indices])

    @property
    def samples(self) -> list[tuple[Tensor]]:
        """Returns inputs for a model that takes one image at a time."""
        return [(image[None],) for image in self.images]

    @property
    def targets(self) -> list[int]:
        return [int(label) for label in self.labels]


@dataclass(frozen=True)
class Digits:
    """The data in three parts, of which only the first is for training."""

    train: Images
    calibration: Images
    held_out: Images


def read_digits(seed: int = 0) -> Digits:
    """Returns the digits of scikit-learn (1,797 images of 8 x 8, part of the package), four times
    as large.

    ``seed`` chooses the held-out images among those not for training.
    """
    from sklearn.datasets import load_digits

    source = load_digits()
    small = torch.tensor(source.images, dtype=torch.float32)[:, None] / 16
    images = nn.functional.interpolate(small, size=SIZE, mode="bilinear", align_corners=False)
    every = Images(images, torch.tensor(source.target))
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))
    rest = order[N_TRAIN:]
    rest = rest[torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed))]
    return Digits(
        every.part(order[:N_TRAIN]),
        every.part(rest[:N_CALIBRATION]),
        every.part(rest[N_CALIBRATION:]),
    )


def _conv(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(c_out),
    ]


class Plain(nn.Module):
    """Convolutions and pooling. [N, 1, 32, 32] -> [N, 10]"""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(*_conv(1, 32, 3), nn.ReLU(), *_conv(32, 48, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(*_conv(48, 64, 3), nn.ReLU(), *_conv(64, 96, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(*_conv(96, 96, 3), nn.ReLU(), nn.MaxPool2d(2)),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(96 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.classifier(self.features(x))
        return y


class ResidualBlock(nn.Module):
    """[N, c_in, H, W] -> [N, c_out, H / stride, W / stride]"""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_conv(c_in, c_out, 3, stride), nn.ReLU(), *_conv(c_out, c_out, 3)
        )
        same = stride == 1 and c_in == c_out
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv(c_in, c_out, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layers(x) + self.shortcut(x))


class Residual(nn.Module):
    """Four residual blocks. [N, 1, 32, 32] -> [N, 10]"""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_conv(1, 28, 3), nn.ReLU())
        self.blocks = nn.Sequential(
            ResidualBlock(28, 28, 1),
            ResidualBlock(28, 56, 2),
            ResidualBlock(56, 56, 1),
            ResidualBlock(56, 96, 2),
        )
        self.classifier = nn.Linear(96, 10)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.classifier(self.blocks(self.stem(x)).mean((2, 3)))
        return y


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project. [N, c_in, H, W] -> [N, c_out, H / stride, ...]"""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        hidden = 4 * c_in
        self.layers = nn.Sequential(
            *(*_conv(c_in, hidden, 1), nn.ReLU6()),
            *(*_conv(hidden, hidden, 3, stride, hidden), nn.ReLU6()),
            *_conv(hidden, c_out, 1),
        )
        self.adds = stride == 1 and c_in == c_out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.adds else y


class Mobile(nn.Module):
    """Five inverted residuals, as in MobileNetV2. [N, 1, 32, 32] -> [N, 10]"""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(*_conv(1, 40, 3), nn.ReLU6()),
            InvertedResidual(40, 40, 1),
            InvertedResidual(40, 56, 2),
            InvertedResidual(56, 56, 1),
            InvertedResidual(56, 80, 2),
            InvertedResidual(80, 80, 1),
            *(*_conv(80, 128, 1), nn.ReLU6()),
        )
        self.classifier = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.classifier(self.layers(x).mean((2, 3)))
        return y


NETS: dict[str, type[nn.Module]] = {"plain": Plain, "residual": Residual, "mobile": Mobile}


def train(name: str, data: Images, seed: int = 0, epochs: int = EPOCHS) -> nn.Module:
    """Returns a network of :data:`NETS` trained on ``data``, in eval mode; it is reproducible."""
    before = torch.get_rng_state()
    torch.manual_seed(seed)
    model = NETS[name]()
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    batch = 50
    steps = len(data) // batch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the scheduler's, about an optimiser without steps
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, max_lr=6e-3, total_steps=epochs * steps
        )
    for _ in range(epochs):
        for indices in torch.randperm(len(data))[: steps * batch].split(batch):
            shift = torch.randint(-1, 2, (2,)).tolist()
            images = torch.roll(data.images[indices], shift, (2, 3))
            loss = nn.functional.cross_entropy(model(images), data.labels[indices])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    torch.set_rng_state(before)
    return model.eval()


def accuracy(model: nn.Module, data: Images) -> float:
    """Returns the share of images that a model classifies correctly."""
    with torch.no_grad():
        right = model(data.images).argmax(1) == data.labels
    return float(right.float().mean())


def wrong(outputs: Tensor, labels: Tensor) -> float:
    """Returns the share of misclassified images: a metric for `--metric`."""
    return float((outputs.argmax(1) != labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=sorted(NETS))
    parser.add_argument("path", type=Path)
    parser.add_argument("--data", type=Path, metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    digits = read_digits()
    model = train(options.name, digits.train, options.seed, options.epochs)
    print(f"{options.name}: {accuracy(model, digits.held_out):.1%} of held-out images are right")
    torch.jit.save(torch.jit.trace(model, digits.held_out.images[:1]), str(options.path))
    if options.data is not None:
        options.data.mkdir(parents=True, exist_ok=True)
        for name in ("calibration", "held_out"):
            part: Images = getattr(digits, name)
            images = np.stack([image.numpy() for (image,) in part.samples])
            np.savez(options.data / f"{name}.npz", images=images, labels=part.labels.numpy())


if __name__ == "__main__":
    main()
