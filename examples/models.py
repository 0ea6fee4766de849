"""Four CNNs in plain torch.nn, with random weights that keep activations alive.

    python examples/models.py mobilenet_v2 mobilenet_v2.pt
    python examples/models.py unet unet.pt2 --pt2 --size 64

Weights are seeded, so all files have the same contents; batch norms have running statistics other
than 0 and 1, so that folding them is really tested.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn


def _conv_bn(
    c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1, relu6: bool = True
) -> nn.Sequential:
    """Returns a convolution without bias, batch norm, and ReLU6 or ReLU."""
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(c_out),
        nn.ReLU6(inplace=True) if relu6 else nn.ReLU(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Expand by 1x1, filter each channel by 3x3, project by 1x1; add the input where shapes agree.

    [N, c_in, H, W] -> [N, c_out, H / stride, W / stride]
    """

    def __init__(self, c_in: int, c_out: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = c_in * expand
        layers: list[nn.Module] = [_conv_bn(c_in, hidden, 1)] if expand != 1 else []
        layers += [
            _conv_bn(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, c_out, 1, bias=False),
            nn.BatchNorm2d(c_out),
        ]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and c_in == c_out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.adds else y


class MobileNetV2(nn.Module):
    """MobileNetV2, width 1.0 (Sandler et al., 2018, table 2). [N, 3, H, W] -> [N, classes]"""

    # expansion, channels, repeats, stride of the first
    stages = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv_bn(3, 32, 3, stride=2)]
        channels = 32
        for expand, width, repeats, stride in self.stages:
            for i in range(repeats):
                layers.append(InvertedResidual(channels, width, stride if i == 0 else 1, expand))
                channels = width
        layers.append(_conv_bn(channels, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        y: Tensor = self.classifier(torch.flatten(x, 1))
        return y


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut. [N, c_in, H, W] -> [N, c_out, H / stride, W / stride]"""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv_bn(c_in, c_out, 3, stride, relu6=False)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and c_in == c_out
            else nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.conv1(x)))
        y += self.shortcut(x)
        return torch.relu(y)


class ResNet18(nn.Module):
    """ResNet-18 (He et al., 2015). [N, 3, H, W] -> [N, classes]"""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv_bn(3, 64, 7, stride=2, relu6=False), nn.MaxPool2d(3, stride=2, padding=1)
        )
        blocks: list[nn.Module] = []
        channels = 64
        for width in (64, 128, 256, 512):
            blocks.append(BasicBlock(channels, width, 1 if width == 64 else 2))
            blocks.append(BasicBlock(width, width, 1))
            channels = width
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc(self.pool(self.blocks(self.stem(x))).flatten(1))
        return y


class Fire(nn.Module):
    """1x1 squeeze, then 1x1 and 3x3 side by side. [N, c_in, H, W] -> [N, 2 * expand, H, W]"""

    def __init__(self, c_in: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(c_in, squeeze, 1)
        self.expand1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3 = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.expand1(x)), torch.relu(self.expand3(x))], 1)


class SqueezeNet11(nn.Module):
    """SqueezeNet 1.1 (Iandola et al., 2016; the authors' 1.1 release). [N, 3, H, W] -> [N, classes]

    Its pools round up, as the authors' do.
    """

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 64, 3, stride=2), nn.ReLU(inplace=True)),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            *(Fire(64, 16, 64), Fire(128, 16, 64)),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            *(Fire(128, 32, 128), Fire(256, 32, 128)),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            *(Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256)),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(0.5), nn.Conv2d(512, classes, 1), nn.ReLU(inplace=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.classifier(self.features(x))
        return torch.flatten(nn.functional.adaptive_avg_pool2d(x, (1, 1)), 1)


class UNet(nn.Module):
    """Three levels of encoder and decoder with skips (after Ronneberger et al., 2015).

    [N, 3, H, W] -> [N, classes, H, W], H and W multiples of 4. One decoder step resizes bilinearly,
    the other to the nearest pixel.
    """

    def __init__(self, classes: int = 4, width: int = 12) -> None:
        super().__init__()
        self.down1 = self._double(3, width)
        self.down2 = self._double(width, 2 * width)
        self.bottom = self._double(2 * width, 4 * width)
        self.up2 = self._double(6 * width, 2 * width)
        self.up1 = self._double(3 * width, width)
        self.pool = nn.MaxPool2d(2)
        self.bilinear = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.nearest = nn.Upsample(scale_factor=2, mode="nearest")
        self.head = nn.Conv2d(width, classes, 1)

    @staticmethod
    def _double(c_in: int, c_out: int) -> nn.Sequential:
        return nn.Sequential(
            _conv_bn(c_in, c_out, 3, relu6=False), _conv_bn(c_out, c_out, 3, relu6=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        full = self.down1(x)
        half = self.down2(self.pool(full))
        y = self.bilinear(self.bottom(self.pool(half)))
        y = self.up2(torch.cat([y, half], 1))
        y = self.up1(torch.cat([self.nearest(y), full], 1))
        return torch.sigmoid(self.head(y))


def initialise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Seeds weights and batch-norm statistics; returns the model in eval mode.

    He's initialisation keeps the variance through ReLU; statistics and affine parameters of batch
    norms are close enough to 0 and 1 for it to survive fifty layers.
    """
    random = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = module.weight[0].numel()
            nn.init.normal_(module.weight, 0.0, math.sqrt(2.0 / fan_in), generator=random)
            if module.bias is not None:
                nn.init.normal_(module.bias, 0.0, 0.1, generator=random)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.8, 1.2, generator=random)
            nn.init.normal_(module.bias, 0.0, 0.1, generator=random)
            assert module.running_mean is not None and module.running_var is not None
            nn.init.normal_(module.running_mean, 0.0, 0.1, generator=random)
            nn.init.uniform_(module.running_var, 0.7, 1.4, generator=random)
    return model.eval()


def mobilenet_v2() -> nn.Module:
    return initialise(MobileNetV2())


def resnet18() -> nn.Module:
    return initialise(ResNet18())


def squeezenet1_1() -> nn.Module:
    return initialise(SqueezeNet11())


def unet() -> nn.Module:
    return initialise(UNet())


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mobilenet_v2": (mobilenet_v2, (1, 3, 224, 224)),
    "resnet18": (resnet18, (1, 3, 224, 224)),
    "squeezenet1_1": (squeezenet1_1, (1, 3, 224, 224)),
    "unet": (unet, (1, 3, 128, 128)),
}
"""Name -> (factory of the initialised model in eval mode, default input shape)."""


def save(
    name: str, path: Path, size: int | None = None, scripted: bool = False, pt2: bool = False
) -> tuple[int, ...]:
    """Saves a model as traced or scripted TorchScript, or as an ExportedProgram.

    ``size`` replaces height and width. Returns the input shape.
    """
    factory, shape = MODELS[name]
    if size is not None:
        shape = (*shape[:2], size, size)
    model, example = factory(), torch.randn(shape, generator=torch.Generator().manual_seed(0))
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch.jit announces its retirement on every call
        if pt2:
            torch.export.save(torch.export.export(model, (example,)), path)
        elif scripted:
            torch.jit.save(torch.jit.script(model), str(path))
        else:
            torch.jit.save(torch.jit.trace(model, example), str(path))
    return shape


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=sorted(MODELS))
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=int, help="height and width of the input")
    parser.add_argument("--scripted", action="store_true", help="script instead of trace")
    parser.add_argument("--pt2", action="store_true", help="save an ExportedProgram")
    options = parser.parse_args(arguments)
    shape = save(options.name, options.out, options.size, options.scripted, options.pt2)
    print(f"saved {options.name} as {options.out}, input {'x'.join(map(str, shape))}")


if __name__ == "__main__":
    main()
