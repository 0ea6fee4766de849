"""Convolutional classifiers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def image(channels=3, size=32):
    return (torch.randn(1, channels, size, size),)


def conv_bn(c_in, c_out, kernel=3, stride=1, groups=1, act=nn.ReLU):
    """Convolution, batch norm with statistics of its own, activation."""
    norm = nn.BatchNorm2d(c_out)
    nn.init.uniform_(norm.running_mean, -0.3, 0.3)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    padding = kernel // 2
    conv = nn.Conv2d(c_in, c_out, kernel, stride, padding, groups=groups, bias=False)
    return nn.Sequential(conv, norm, act())


class SqueezeExcite(nn.Module):
    def __init__(self, channels, gate=nn.Sigmoid, act=nn.SiLU):
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels // 4, 1)
        self.expand = nn.Conv2d(channels // 4, channels, 1)
        self.act, self.gate = act(), gate()

    def forward(self, x):
        return x * self.gate(self.expand(self.act(self.reduce(x.mean((2, 3), keepdim=True)))))


class MBConv(nn.Module):
    """EfficientNet's block: expand, depthwise, squeeze and excite, project."""

    def __init__(self, channels, stride, act=nn.SiLU, gate=nn.Sigmoid):
        super().__init__()
        wide = 4 * channels
        self.layers = nn.Sequential(
            conv_bn(channels, wide, 1, act=act),
            conv_bn(wide, wide, 5, stride, groups=wide, act=act),
            SqueezeExcite(wide, gate, act if act is not nn.Hardswish else nn.ReLU),
            conv_bn(wide, channels, 1, act=nn.Identity),
        )
        self.drop = nn.Dropout(0.2)
        self.stride = stride

    def forward(self, x):
        y = self.drop(self.layers(x))
        return x + y if self.stride == 1 else y


def efficient_net():
    return nn.Sequential(
        conv_bn(3, 8, 3, 2, act=nn.SiLU), MBConv(8, 1), MBConv(8, 2), MBConv(8, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 10),
    ), image()  # fmt: skip


def mobilenet_v3():
    hard = {"act": nn.Hardswish, "gate": nn.Hardsigmoid}
    return nn.Sequential(
        conv_bn(3, 8, 3, 2, act=nn.Hardswish), MBConv(8, 1, nn.ReLU, nn.Hardsigmoid),
        MBConv(8, 2, **hard), MBConv(8, 1, **hard), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 16), nn.Hardswish(), nn.Linear(16, 10),
    ), image()  # fmt: skip


class ShuffleUnit(nn.Module):
    """Half of the channels pass by; then the channels of both halves are shuffled."""

    def __init__(self, channels):
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            conv_bn(half, half, 1), conv_bn(half, half, 3, groups=half, act=nn.Identity),
            conv_bn(half, half, 1),
        )  # fmt: skip

    def forward(self, x):
        first, second = x.chunk(2, 1)
        x = torch.cat([first, self.branch(second)], 1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


class ShuffleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv_bn(3, 16, 3, 2)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.stage = nn.Sequential(ShuffleUnit(16), ShuffleUnit(16))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(self.stage(self.pool(self.stem(x))).mean([2, 3]))


class DenseNet(nn.Module):
    """Norm and ReLU before each convolution; all earlier maps are read again."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8 + 4 * i) for i in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(8 + 4 * i, 4, 3, padding=1) for i in range(3))
        self.down = nn.Sequential(nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 10, 1))
        self.fc = nn.Linear(10, 5)

    def forward(self, x):
        maps = [F.max_pool2d(self.stem(x), 3, 2, 1)]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            maps.append(conv(F.relu(norm(torch.cat(maps, 1)))))
        x = F.avg_pool2d(self.down(torch.cat(maps, 1)), 2, 2)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(F.relu(x), (1, 1)), 1))


class Inception(nn.Module):
    """Branches of other kernels, pools that leave out their padding, uneven filters."""

    def __init__(self):
        super().__init__()
        self.stem = conv_bn(3, 8, 3, 2)
        self.one = conv_bn(8, 4, 1)
        self.tall = nn.Conv2d(8, 4, (7, 1), padding=(3, 0))
        self.wide = nn.Conv2d(4, 4, (1, 7), padding=(0, 3))
        self.pooled = conv_bn(8, 4, 1)
        self.fc = nn.Linear(20, 6)

    def forward(self, x):
        x = x[:, [2, 1, 0]] * 2 - 1  # other order of colours
        x = self.stem(x)
        pool = F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
        x = torch.cat([self.one(x), self.wide(self.tall(x)), self.pooled(pool), x], 1)
        x = F.max_pool2d(x, kernel_size=3, stride=2, ceil_mode=True)
        return F.log_softmax(self.fc(x.mean(-1).mean(-1)), 1)


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depth = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.rand(channels, 1, 1))

    def forward(self, x):
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.down(F.gelu(self.up(y)))
        return x + self.scale * y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.Sequential(ConvNeXtBlock(8), ConvNeXtBlock(8))
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 10)

    def forward(self, x):
        x = self.stem(x)
        mean = x.mean(1, keepdim=True)  # a layer norm over channels, written out
        x = (x - mean) / torch.sqrt((x - mean).pow(2).mean(1, keepdim=True) + 1e-6)
        return self.fc(self.norm(self.blocks(x).mean([-2, -1])))


class GhostNet(nn.Module):
    """Cheap maps beside real ones, cut to size; strided depthwise; padding of one side."""

    def __init__(self):
        super().__init__()
        self.primary = conv_bn(3, 6, 1)
        self.cheap = conv_bn(6, 6, 3, groups=6)
        self.down = nn.Conv2d(10, 10, 3, 2, groups=10)
        self.fc = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        first = self.primary(x)
        x = torch.cat([first, self.cheap(first)], dim=1)[:, :10, :, :]
        x = self.down(F.pad(x, (0, 1, 0, 1)))
        return torch.softmax(self.fc(x.amax((2, 3))), -1)


CLASSIFIERS = {
    "efficientnet": efficient_net,
    "mobilenet_v3": mobilenet_v3,
    "shufflenet_v2": lambda: (ShuffleNet(), image()),
    "densenet": lambda: (DenseNet(), image()),
    "inception": lambda: (Inception(), image()),
    "convnext": lambda: (ConvNeXt(), image()),
    "ghostnet": lambda: (GhostNet(), image()),
}
