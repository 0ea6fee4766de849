"""Classifiers of the zoo: MobileNetV3-large, ResNet-50, Inception blocks and a small vision
transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv_bn(
    c_in: int,
    c_out: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    act: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """Returns a convolution without bias, batch norm and an activation, if any.

    [N, c_in, H, W] -> [N, c_out, H / stride, W / stride]
    """
    layers: list[nn.Module] = [
        nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(c_out),
    ]
    if act is not None:
        layers.append(act())
    return nn.Sequential(*layers)


class SqueezeExcite(nn.Module):
    """Scales each channel by a factor from all channels' means. [N, C, H, W], same out"""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = (channels // 4 + 4) // 8 * 8  # the nearest multiple of 8 ...
        hidden += 8 if hidden < 0.9 * channels / 4 else 0  # ... not much below
        self.squeeze = nn.Conv2d(channels, hidden, 1)
        self.excite = nn.Conv2d(hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.excite(F.relu(self.squeeze(y))))


class Bottleneck(nn.Module):
    """MobileNetV3's block: expand, filter each channel, squeeze and excite, project; add where
    shapes agree.

    [N, c_in, H, W] -> [N, c_out, H / stride, W / stride]
    """

    def __init__(
        self,
        c_in: int,
        c_out: int,
        kernel: int,
        stride: int,
        hidden: int,
        excites: bool,
        act: type[nn.Module],
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn(c_in, hidden, 1, act=act)] if hidden != c_in else []
        layers.append(conv_bn(hidden, hidden, kernel, stride, groups=hidden, act=act))
        if excites:
            layers.append(SqueezeExcite(hidden))
        layers.append(conv_bn(hidden, c_out, 1, act=None))
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and c_in == c_out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.adds else y


class MobileNetV3Large(nn.Module):
    """MobileNetV3-large (Howard et al., 2019, table 1). [N, 3, H, W] -> [N, classes]"""

    # kernel, hidden channels, channels, squeeze and excite, activation, stride
    blocks = (
        (3, 16, 16, False, nn.ReLU, 1),
        (3, 64, 24, False, nn.ReLU, 2),
        (3, 72, 24, False, nn.ReLU, 1),
        (5, 72, 40, True, nn.ReLU, 2),
        (5, 120, 40, True, nn.ReLU, 1),
        (5, 120, 40, True, nn.ReLU, 1),
        (3, 240, 80, False, nn.Hardswish, 2),
        (3, 200, 80, False, nn.Hardswish, 1),
        (3, 184, 80, False, nn.Hardswish, 1),
        (3, 184, 80, False, nn.Hardswish, 1),
        (3, 480, 112, True, nn.Hardswish, 1),
        (3, 672, 112, True, nn.Hardswish, 1),
        (5, 672, 160, True, nn.Hardswish, 2),
        (5, 960, 160, True, nn.Hardswish, 1),
        (5, 960, 160, True, nn.Hardswish, 1),
    )

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn(3, 16, 3, stride=2, act=nn.Hardswish)]
        channels = 16
        for kernel, hidden, width, excites, act, stride in self.blocks:
            layers.append(Bottleneck(channels, width, kernel, stride, hidden, excites, act))
            channels = width
        layers.append(conv_bn(channels, 960, 1, act=nn.Hardswish))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(960, 1280), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1280, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.features(x), 1)
        y: Tensor = self.classifier(torch.flatten(x, 1))
        return y


class ResidualBottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut.

    [N, c_in, H, W] -> [N, 4 * width, H / stride, W / stride]
    """

    def __init__(self, c_in: int, width: int, stride: int) -> None:
        super().__init__()
        c_out = 4 * width
        self.layers = nn.Sequential(
            conv_bn(c_in, width, 1),
            conv_bn(width, width, 3, stride),
            conv_bn(width, c_out, 1, act=None),
        )
        same = stride == 1 and c_in == c_out
        self.shortcut = nn.Identity() if same else conv_bn(c_in, c_out, 1, stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.layers(x) + self.shortcut(x))


class ResNet50(nn.Module):
    """ResNet-50 (He et al., 2015), with the stride in its 3x3 convolutions, as usual today.

    [N, 3, H, W] -> [N, classes]
    """

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 64, 7, stride=2), nn.MaxPool2d(3, 2, padding=1))
        blocks: list[nn.Module] = []
        channels = 64
        for width, repeats in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for i in range(repeats):
                stride = 2 if i == 0 and width != 64 else 1
                blocks.append(ResidualBottleneck(channels, width, stride))
                channels = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1)
        y: Tensor = self.fc(torch.flatten(x, 1))
        return y


class EncoderBlock(nn.Module):
    """Attention between all tokens and a perceptron, each after a layer norm. [N, T, C], same out

    Queries, keys and values come from one product; attention is written out.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def attention(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        per_head = (n, tokens, self.heads, width // self.heads)
        q, k, v = (part.reshape(per_head).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        weights = (q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5).softmax(-1)
        y: Tensor = self.project((weights @ v).transpose(1, 2).reshape(n, tokens, width))
        return y

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Inception(nn.Module):
    """A classifier of blocks with four branches each, as in C. Szegedy et al., *Going Deeper with
    Convolutions*, CVPR 2015, with 3x3 twice for 5x5.

    [N, 3, H, W] -> [N, 1000]
    """

    WIDTHS = (64, 64, 96, 96, 128, 128)
    """Channels of each branch, by block; the map is halved before blocks 2 and 4."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 32, 3, 2), conv_bn(32, 64, 3, 2))
        blocks: list[nn.Module] = []
        channels = 64
        for number, width in enumerate(self.WIDTHS):
            if number in (2, 4):
                blocks.append(nn.MaxPool2d(3, 2, 1))
            blocks.append(InceptionBlock(channels, width))
            channels = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.classify = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1)
        return self.classify(torch.flatten(x, 1))


class InceptionBlock(nn.Module):
    """[N, c_in, H, W] -> [N, 4 width, H, W]"""

    def __init__(self, c_in: int, width: int) -> None:
        super().__init__()
        self.one = conv_bn(c_in, width, 1)
        self.three = nn.Sequential(conv_bn(c_in, width, 1), conv_bn(width, width, 3))
        self.five = nn.Sequential(
            conv_bn(c_in, width, 1), conv_bn(width, width, 3), conv_bn(width, width, 3)
        )
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_bn(c_in, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.one(x), self.three(x), self.five(x), self.pool(x)), 1)


class ViT(nn.Module):
    """A vision transformer (Dosovitskiy et al., 2020) as narrow as DeiT-tiny (Touvron et al.,
    2021): 12 blocks of width 192, patches of 16x16, a class token.

    [N, 3, size, size] -> [N, classes]
    """

    def __init__(
        self, size: int = 160, width: int = 192, heads: int = 3, classes: int = 1000
    ) -> None:
        super().__init__()
        tokens = (size // 16) ** 2 + 1
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.token = nn.Parameter(0.5 * torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.5 * torch.randn(1, tokens, width))
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        y: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return y
