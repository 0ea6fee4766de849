"""Segmentation, detection and super-resolution: outputs of many pixels or boxes."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.convert.architectures.classifiers import conv_bn, image


class DeepLab(nn.Module):
    """Dilated convolutions side by side, and an image pooled and spread again."""

    def __init__(self):
        super().__init__()
        self.stem = conv_bn(3, 8, 3, 2)
        self.branches = nn.ModuleList(
            nn.Conv2d(8, 8, 3, padding=rate, dilation=rate) for rate in (1, 2, 4)
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.ReLU())
        self.project = conv_bn(32, 8, 1)
        self.head = nn.Conv2d(8, 5, 1)

    def forward(self, x):
        size = x.shape[-2:]
        x = self.stem(x)
        maps = [F.relu(branch(x)) for branch in self.branches]
        pooled = F.interpolate(self.pool(x), size=x.shape[-2:], mode="bilinear")
        x = self.head(self.project(torch.cat([*maps, pooled], 1)))
        x = F.interpolate(x, size=size, mode="bilinear", align_corners=False)
        return {"out": x, "classes": x.argmax(1)}


class SSD(nn.Module):
    """Heads on two scales; boxes decoded from anchors, scores by softmax."""

    def __init__(self):
        super().__init__()
        self.first, self.second = conv_bn(3, 8, 3, 4), conv_bn(8, 8, 3, 2)
        self.boxes = nn.ModuleList(nn.Conv2d(8, 2 * 4, 3, padding=1) for _ in range(2))
        self.scores = nn.ModuleList(nn.Conv2d(8, 2 * 3, 3, padding=1) for _ in range(2))
        self.register_buffer("anchors", torch.rand(2 * (64 + 16), 4) + 0.1)

    def forward(self, x):
        maps = [self.first(x)]
        maps.append(self.second(maps[0]))
        boxes, scores = [], []
        for i, (of_boxes, of_scores) in enumerate(zip(self.boxes, self.scores, strict=True)):
            boxes.append(of_boxes(maps[i]).permute(0, 2, 3, 1).reshape(x.size(0), -1, 4))
            scores.append(of_scores(maps[i]).permute(0, 2, 3, 1).reshape(x.size(0), -1, 3))
        box, score = torch.cat(boxes, 1), torch.cat(scores, 1).softmax(-1)
        centre = self.anchors[:, :2] + box[..., :2] * 0.1 * self.anchors[:, 2:]
        size = self.anchors[:, 2:] * torch.exp(box[..., 2:] * 0.2)
        corners = torch.cat([centre - size / 2, centre + size / 2], -1)
        best, classes = score[..., 1:].max(-1)
        top, order = best.topk(5, dim=1)
        return corners.clamp(0, 1), top, classes.gather(1, order)


class FPN(nn.Module):
    """Top-down: upsample by nearest, add, smooth; a list of maps."""

    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.c3 = conv_bn(3, 4, 3, 2), conv_bn(4, 8, 3, 2), conv_bn(8, 8, 3, 2)
        self.inner = nn.ModuleList(nn.Conv2d(c, 6, 1) for c in (4, 8, 8))
        self.smooth = nn.ModuleList(nn.Conv2d(6, 6, 3, padding=1) for _ in range(3))

    def forward(self, x):
        maps = [self.c1(x)]
        maps.append(self.c2(maps[-1]))
        maps.append(self.c3(maps[-1]))
        inner = [layer(m) for layer, m in zip(self.inner, maps, strict=True)]
        last = inner[2]
        result = [self.smooth[2](last)]
        for i, level in ((1, inner[1]), (0, inner[0])):
            last = level + F.interpolate(last, size=level.shape[-2:], mode="nearest")
            result.append(self.smooth[i](last) if i else self.smooth[0](last))
        result.append(F.max_pool2d(result[0], 1, 2, 0))
        return result


class YOLO(nn.Module):
    """CSP splits, spatial pyramid pooling, and a head with grids made of the map's size."""

    def __init__(self):
        super().__init__()
        self.stem = conv_bn(12, 8, 3, act=nn.SiLU)
        self.split = conv_bn(8, 8, 1, act=nn.SiLU)
        self.inner = conv_bn(4, 4, 3, act=nn.SiLU)
        self.join = conv_bn(12, 8, 1, act=nn.SiLU)
        self.head = nn.Conv2d(32, 3 * 7, 1)
        self.register_buffer("anchors", torch.rand(1, 3, 1, 1, 2) + 0.5)

    def forward(self, x):
        x = torch.cat(
            [x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1
        )
        x = F.max_pool2d(self.stem(x), 2)
        first, second = self.split(x).split((4, 4), 1)
        x = self.join(torch.cat([first, second, second + self.inner(second)], 1))
        pools = [x]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        x = self.head(torch.cat(pools, 1))
        n, _, h, w = x.shape
        x = x.view(n, 3, 7, h, w).permute(0, 1, 3, 4, 2).contiguous()
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((xs, ys), 2).view(1, 1, h, w, 2).float()
        y = x.sigmoid()
        xy, wh = (y[..., 0:2] * 2 - 0.5 + grid) * 4, (y[..., 2:4] * 2) ** 2 * self.anchors
        return torch.cat((xy, wh, y[..., 4:]), -1).view(n, -1, 7)


class SuperResolution(nn.Module):
    """Pixel shuffle, PReLU, and a bicubic picture under the result."""

    def __init__(self):
        super().__init__()
        self.first, self.act = nn.Conv2d(3, 8, 5, padding=2), nn.PReLU(8)
        self.last = nn.Conv2d(8, 12, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x):
        y = self.shuffle(self.last(self.act(self.first(x))))
        return torch.clamp(y + F.interpolate(x, scale_factor=2.0, mode="bicubic"), 0.0, 1.0)


class Generator(nn.Module):
    """A GAN's: style by instance norm, upsampling by transposed convolution, tanh."""

    def __init__(self):
        super().__init__()
        self.pad, self.conv = nn.ReflectionPad2d(3), nn.Conv2d(3, 8, 7)
        self.norm = nn.InstanceNorm2d(8, affine=True)
        self.group = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.norm(self.conv(self.pad(x))), 0.2)
        return torch.tanh(self.up(self.group(x)))


class Flow(nn.Module):
    """Optical flow: a correlation by shifted products, and a warp by grid_sample."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(conv_bn(3, 8, 3, 2), conv_bn(8, 8))
        self.estimate = nn.Conv2d(9, 2, 3, padding=1)

    def forward(self, first, second):
        a, b = self.features(first), self.features(second)
        padded = F.pad(b, (1, 1, 1, 1))
        _n, _, h, w = a.shape
        shifts = [
            (a * padded[:, :, dy : dy + h, dx : dx + w]).mean(1, keepdim=True)
            for dy in range(3)
            for dx in range(3)
        ]
        flow = self.estimate(torch.cat(shifts, 1))
        ys = torch.linspace(-1, 1, h)[:, None].expand(h, w)
        xs = torch.linspace(-1, 1, w)[None, :].expand(h, w)
        grid = torch.stack([xs, ys], -1)[None] + flow.permute(0, 2, 3, 1) * 0.1
        return F.grid_sample(b, grid, align_corners=True), flow


DENSE = {
    "deeplab": lambda: (DeepLab(), image()),
    "ssd": lambda: (SSD(), image()),
    "fpn": lambda: (FPN(), image()),
    "yolo": lambda: (YOLO(), image()),
    "super_resolution": lambda: (SuperResolution(), image(size=12)),
    "generator": lambda: (Generator(), image(size=12)),
    "flow": lambda: (Flow(), image(size=16) + image(size=16)),
}
