"""Networks of images: convolutional classifiers; and those of many pixels or boxes, for
segmentation, detection and super-resolution."""

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
