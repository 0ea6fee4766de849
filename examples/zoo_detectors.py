"""Detectors of the zoo, and backbones with any number of heads."""

from __future__ import annotations

import torch
from models import InvertedResidual
from torch import Tensor, nn
from zoo_vision import conv_bn


class SsdHead(nn.Module):
    """Head of SSDLite: a depthwise 3x3 and a 1x1 convolution, then one row for each anchor.

    [N, C, H, W] -> [N, H * W * anchors, values]
    """

    def __init__(self, channels: int, anchors: int, values: int) -> None:
        super().__init__()
        self.values = values
        self.layers = nn.Sequential(
            conv_bn(channels, channels, 3, groups=channels, act=nn.ReLU6),
            nn.Conv2d(channels, anchors * values, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y.permute(0, 2, 3, 1).reshape(y.shape[0], -1, self.values)


class SsdHeads(nn.Module):
    """Classes and boxes of some maps, each with two heads of its own.

    [N, C, H, W] of each map -> a pair for each: classes [N, rows, classes], boxes [N, rows, 4]
    """

    def __init__(self, channels: tuple[int, ...], classes: int, anchors: int) -> None:
        super().__init__()
        self.classes = nn.ModuleList(SsdHead(c, anchors, classes) for c in channels)
        self.boxes = nn.ModuleList(SsdHead(c, anchors, 4) for c in channels)

    def forward(self, maps: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        pairs = zip(maps, self.classes, self.boxes, strict=True)
        return [(classes(x), boxes(x)) for x, classes, boxes in pairs]


class SsdLite(nn.Module):
    """SSDLite on MobileNetV2 (Sandler et al., 2018, section 6.2), at half its width: heads on the
    maps of stride 16 and 32 and on four more after them, each half the size of the last.

    [N, 3, H, W] -> scores [N, rows, classes], which sum to 1, and boxes [N, rows, 4]
    """

    # expansion, channels, repeats, stride of the first
    to_stride_16 = ((1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 3, 2), (6, 32, 4, 2), (6, 48, 3, 1))
    to_stride_32 = ((6, 80, 3, 2), (6, 160, 1, 1))

    def __init__(self, classes: int = 91, anchors: int = 6) -> None:
        super().__init__()
        self.stem = conv_bn(3, 16, 3, stride=2, act=nn.ReLU6)
        self.first, channels = self._blocks(16, self.to_stride_16)
        self.second, deep = self._blocks(channels, self.to_stride_32)
        self.second.append(conv_bn(deep, 320, 1, act=nn.ReLU6))
        taps = [channels, 320]
        self.extras = nn.ModuleList()
        for width in (256, 128, 128, 64):
            self.extras.append(self._extra(taps[-1], width))
            taps.append(width)
        self.heads = SsdHeads(tuple(taps), classes, anchors)

    @staticmethod
    def _blocks(
        channels: int, stages: tuple[tuple[int, int, int, int], ...]
    ) -> tuple[nn.Sequential, int]:
        """Returns the blocks of some stages, and the number of channels after them."""
        blocks = nn.Sequential()
        for expand, width, repeats, stride in stages:
            for i in range(repeats):
                blocks.append(InvertedResidual(channels, width, stride if i == 0 else 1, expand))
                channels = width
        return blocks, channels

    @staticmethod
    def _extra(c_in: int, c_out: int) -> nn.Sequential:
        hidden = c_out // 2
        return nn.Sequential(
            conv_bn(c_in, hidden, 1, act=nn.ReLU6),
            conv_bn(hidden, hidden, 3, stride=2, groups=hidden, act=nn.ReLU6),
            conv_bn(hidden, c_out, 1, act=nn.ReLU6),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        maps = [self.first(self.stem(x))]
        maps.append(self.second(maps[-1]))
        for extra in self.extras:
            maps.append(extra(maps[-1]))
        scores, boxes = zip(*self.heads(maps), strict=True)
        return torch.cat(scores, 1).softmax(-1), torch.cat(boxes, 1)


class Cross(nn.Module):
    """YOLO's bottleneck: two 3x3 convolutions, plus their input. [N, C, H, W], same out"""

    def __init__(self, channels: int, adds: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            conv_bn(channels, channels, 3, act=nn.SiLU), conv_bn(channels, channels, 3, act=nn.SiLU)
        )
        self.adds = adds

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.adds else y


class C2f(nn.Module):
    """Bottlenecks on half of the channels, joined with the output of each.

    [N, c_in, H, W] -> [N, c_out, H, W]
    """

    def __init__(self, c_in: int, c_out: int, repeats: int = 1, adds: bool = False) -> None:
        super().__init__()
        half = c_out // 2
        self.split = conv_bn(c_in, 2 * half, 1, act=nn.SiLU)
        self.blocks = nn.ModuleList(Cross(half, adds) for _ in range(repeats))
        self.join = conv_bn((2 + repeats) * half, c_out, 1, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.split(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        y: Tensor = self.join(torch.cat(parts, 1))
        return y


class Sppf(nn.Module):
    """Maxima over growing windows, side by side. [N, C, H, W], same out"""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = conv_bn(channels, channels // 2, 1, act=nn.SiLU)
        self.pool = nn.MaxPool2d(5, 1, padding=2)
        self.join = conv_bn(2 * channels, channels, 1, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.reduce(x)]
        for _ in range(3):
            maps.append(self.pool(maps[-1]))
        y: Tensor = self.join(torch.cat(maps, 1))
        return y


class YoloHead(nn.Module):
    """Boxes and classes of a map, by two 3x3 convolutions and a 1x1 each.

    [N, C, H, W] -> [N, 4 + classes, H * W]
    """

    def __init__(self, channels: int, width: int, classes: int) -> None:
        super().__init__()
        self.boxes, self.classes = (
            nn.Sequential(
                conv_bn(channels, width, 3, act=nn.SiLU),
                conv_bn(width, width, 3, act=nn.SiLU),
                nn.Conv2d(width, values, 1),
            )
            for values in (4, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.boxes(x), self.classes(x).sigmoid()), 1).flatten(2)


class Yolo(nn.Module):
    """A detector like YOLOv8-nano (Jocher et al., 2023): C2f blocks, SPPF, and a neck that goes up
    and down again (PAN, Liu et al., 2018), with heads on three maps.

    [N, 3, H, W] -> boxes and scores [N, 4 + classes, places]; H and W multiples of 32
    """

    def __init__(self, classes: int = 80, width: int = 16) -> None:
        super().__init__()
        c1, c2, c3, c4, c5 = width, 2 * width, 4 * width, 8 * width, 16 * width
        self.stem = conv_bn(3, c1, 3, stride=2, act=nn.SiLU)
        self.stage2 = self._stage(c1, c2, 1)
        self.stage3 = self._stage(c2, c3, 2)
        self.stage4 = self._stage(c3, c4, 2)
        self.stage5 = self._stage(c4, c5, 1).append(Sppf(c5))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.up4, self.up3 = C2f(c5 + c4, c4), C2f(c4 + c3, c3)
        self.half3 = conv_bn(c3, c3, 3, stride=2, act=nn.SiLU)
        self.half4 = conv_bn(c4, c4, 3, stride=2, act=nn.SiLU)
        self.down4, self.down5 = C2f(c3 + c4, c4), C2f(c4 + c5, c5)
        self.heads = nn.ModuleList(YoloHead(c, c3, classes) for c in (c3, c4, c5))

    @staticmethod
    def _stage(c_in: int, c_out: int, repeats: int) -> nn.Sequential:
        return nn.Sequential(
            conv_bn(c_in, c_out, 3, stride=2, act=nn.SiLU), C2f(c_out, c_out, repeats, adds=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        p3 = self.stage3(self.stage2(self.stem(x)))
        p4 = self.stage4(p3)
        p5 = self.stage5(p4)
        p4 = self.up4(torch.cat((self.up(p5), p4), 1))
        p3 = self.up3(torch.cat((self.up(p4), p3), 1))
        p4 = self.down4(torch.cat((self.half3(p3), p4), 1))
        p5 = self.down5(torch.cat((self.half4(p4), p5), 1))
        pairs = zip((p3, p4, p5), self.heads, strict=True)
        return torch.cat([head(x) for x, head in pairs], 2)


class Stage(nn.Module):
    """An inverted residual that halves its map, so has no sum, and ends in a hard swish.

    [N, C, H, W] -> [N, C, H / 2, W / 2]
    """

    def __init__(self, channels: int, expand: int) -> None:
        super().__init__()
        hidden = expand * channels
        self.layers = nn.Sequential(
            conv_bn(channels, hidden, 1, act=nn.ReLU6),
            conv_bn(hidden, hidden, 3, stride=2, groups=hidden, act=nn.ReLU6),
            conv_bn(hidden, channels, 1, act=nn.Hardswish),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y


class BackboneWithHeads(nn.Module):
    """A small backbone with two SSD-style heads on each stage, with COCO's classes.

    [N, 3, H, W] -> for each tap scores [N, rows, classes], which sum to 1, and boxes [N, rows, 4]
    """

    def __init__(self, taps: int, width: int = 32, classes: int = 91, anchors: int = 6) -> None:
        super().__init__()
        self.stem = conv_bn(3, width, 3, stride=2, act=nn.Hardswish)
        self.stages = nn.ModuleList(Stage(width, expand=6) for _ in range(taps))
        self.heads = SsdHeads((width,) * taps, classes, anchors)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        maps = [self.stem(x)]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        pairs = self.heads(maps[1:])
        return tuple(outputs for scores, boxes in pairs for outputs in (scores.softmax(-1), boxes))
