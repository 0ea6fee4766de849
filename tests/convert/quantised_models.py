"""Small quantised networks: eager-mode modules, and an exported one of quantize nodes; and what
their units must give."""

import torch
import torch.ao.quantization as tq
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.graph.program import all_values
from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE
from tests.convert.harness import run_region

SIGNED = (-128, 127, torch.int8)


def _block(channels_in, channels, kernel, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
    )


class _Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.wide = _block(channels, 2 * channels, 1)
        self.depth = _block(2 * channels, 2 * channels, 3, groups=2 * channels)
        self.narrow = nn.Sequential(nn.Conv2d(2 * channels, channels, 1), nn.BatchNorm2d(channels))
        self.add = nn.quantized.FloatFunctional()

    def forward(self, x):
        return self.add.add(x, self.narrow(self.depth(self.wide(x))))


class _Gate(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.squeeze, self.relu = nn.Conv2d(channels, 4, 1), nn.ReLU()
        self.excite, self.sigmoid = nn.Conv2d(4, channels, 1), nn.Sigmoid()
        self.mul = nn.quantized.FloatFunctional()

    def forward(self, x):
        y = nn.functional.adaptive_avg_pool2d(x, 1)
        return self.mul.mul(x, self.sigmoid(self.excite(self.relu(self.squeeze(y)))))


class _Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.quantize, self.dequantize = tq.QuantStub(), tq.DeQuantStub()
        self.stem, self.residual, self.gate = _block(3, 8, 3, 2), _Residual(8), _Gate(8)
        self.grouped, self.pool = _block(8, 8, 3, groups=2), nn.MaxPool2d(2)
        self.up, self.cat = nn.Upsample(scale_factor=2), nn.quantized.FloatFunctional()
        self.classify = nn.Linear(16, 10)

    def forward(self, x):
        x = self.residual(self.stem(self.quantize(x)))
        x = self.up(self.pool(x))
        x = self.cat.cat([x, self.grouped(self.gate(x))], 1)
        return self.dequantize(self.classify(x.mean([2, 3])))


def eager_net(engine):
    """The network in PyTorch's eager quantisation for the engine in use: weights per tensor by
    qnnpack, per channel by the others. ``step`` is the scale of its result."""
    torch.manual_seed(0)
    net = _Net()
    net(torch.randn(8, 3, 16, 16))  # statistics of the batch norms
    net.eval()
    parts = [name for name, part in net.named_modules() if isinstance(part, nn.Sequential)]
    fused = [[f"{name}.{i}" for i in range(len(net.get_submodule(name)))] for name in parts]
    net = tq.fuse_modules(net, [*fused, ["gate.squeeze", "gate.relu"]])
    net.qconfig = tq.get_default_qconfig(engine)
    tq.prepare(net, inplace=True)
    for _ in range(3):
        net(torch.randn(8, 3, 16, 16))
    net = tq.convert(net)
    net.step = net.classify.scale
    return net


class ExportedNet(nn.Module):
    """What a quantiser of exported programs writes: int8 values, weights per tensor or channel."""

    step = 0.04

    def __init__(self, channels):
        super().__init__()
        random = torch.Generator().manual_seed(0)
        self.channels = channels
        for name, shape in {"first": (8, 3, 3, 3), "depth": (8, 1, 3, 3), "last": (5, 8)}.items():
            weight = torch.randint(-127, 128, shape, generator=random).to(torch.int8)
            self.register_buffer(name, weight)
            self.register_buffer(f"{name}_scales", torch.rand(shape[0], generator=random) / 250)
            self.register_buffer(f"{name}_zeros", torch.zeros(shape[0], dtype=torch.int64))
        self.bias = nn.Parameter(torch.randn(8, generator=random))
        self.last_bias = nn.Parameter(torch.randn(5, generator=random))

    def weight(self, name):
        integers = getattr(self, name)
        if not self.channels:
            return DEQUANTIZE(integers, 0.004, 0, *SIGNED)
        scales, zeros = getattr(self, f"{name}_scales"), getattr(self, f"{name}_zeros")
        return DEQUANTIZE_CHANNELS(integers, scales + 0.001, zeros, 0, *SIGNED)

    def forward(self, x):
        def observed(x, scale, zero):
            return DEQUANTIZE(QUANTIZE(x, scale, zero, *SIGNED), scale, zero, *SIGNED)

        x = observed(x, 0.03, 0)
        x = torch.relu(nn.functional.conv2d(x, self.weight("first"), self.bias, 2, 1))
        x = observed(x, 0.02, -128)
        y = nn.functional.conv2d(x, self.weight("depth"), None, 1, 1, 1, 8)
        x = observed(x + observed(y, 0.03, 0), 0.05, -3)
        x = observed(nn.functional.max_pool2d(x, 2), 0.05, -3)
        x = observed(nn.functional.adaptive_avg_pool2d(x, 1), 0.05, -3)
        x = observed(torch.flatten(x, 1), 0.05, -3)
        x = nn.functional.linear(x, self.weight("last"), self.last_bias)
        return observed(x, 0.04, 10)


def checked_regions(program, x, level):
    """A region of each unit that converts, which is all from level 3 on: run on the emulator, each
    gives what eager PyTorch does, within a step where that is quantised."""
    values = all_values(program, (x,))
    for unit in program.units.units:
        try:
            region = convert_region(program, [unit.index], level)
        except UnsupportedOp as refusal:
            assert level < 29, refusal
            continue
        for name, result in zip(region.outputs, run_region(region, values), strict=True):
            if program.units.values[name].quant is None:
                torch.testing.assert_close(result, values[name], rtol=1e-5, atol=1e-5)
            else:
                apart = (result.int() - values[name].int()).abs()
                assert apart.max() <= 1
                assert apart.float().mean() < 0.25  # means of few pixels are ties
        yield region
