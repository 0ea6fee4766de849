"""The phones that come along, held against the whole models they are shaped after.

Each row names a published figure (the descriptions cite the files); the simulated time of the same
network must be within a factor of it.
"""

import pytest

from tests.emulator.nnapi import Op, T
from tests.emulator.phones.descriptions import Jobs, auto, on, quiet

SAME, VALID, NONE, RELU6 = 1, 2, 0, 3


class Network:
    """A convolutional network as a MODEL of process.py; all weights are zero."""

    def __init__(self, quantised):
        self.type = T.TENSOR_QUANT8_ASYMM if quantised else T.TENSOR_FLOAT32
        self.bias = T.TENSOR_INT32 if quantised else T.TENSOR_FLOAT32
        self.quantised, self.tensors, self.steps = quantised, [], []
        self.input = self.at = self.tensor([1, 224, 224, 3])

    def operand(self, code, dims, scale=0.0, zero_point=0, value=None):
        self.tensors.append([code, dims, scale if self.quantised else 0.0, zero_point, value])
        return len(self.tensors) - 1

    def tensor(self, dims, scale=0.1, value=None):
        return self.operand(self.type, dims, scale, 0, value)

    def scalars(self, *values):
        return [self.operand(T.INT32, [], value=value) for value in values]

    def shape(self, index):
        return self.tensors[index][1]

    def step(self, code, inputs, dims, scale=0.1):
        output = self.tensor(dims, scale)
        self.steps.append([code, inputs, [output]])
        self.at = output

    def convolution(self, depth, kernel=1, stride=1, fuse=RELU6, depthwise=False):
        n, height, width, before = self.shape(self.at)
        filter_dims = [1, kernel, kernel, before] if depthwise else [depth, kernel, kernel, before]
        inputs = [self.at, self.tensor(filter_dims, 0.01, 0)]
        inputs.append(self.operand(self.bias, [depth], 0.1 * 0.01, 0, 0))
        inputs += self.scalars(SAME, stride, stride, *([1] if depthwise else []), fuse)
        dims = [n, -(-height // stride), -(-width // stride), depth]
        self.step(Op.DEPTHWISE_CONV_2D if depthwise else Op.CONV_2D, inputs, dims)

    def depthwise(self, stride):
        self.convolution(self.shape(self.at)[3], 3, stride, depthwise=True)

    def classify(self):
        n, size, _, depth = self.shape(self.at)
        pooling = self.scalars(VALID, 1, 1, size, size, NONE)
        self.step(Op.AVERAGE_POOL_2D, [self.at, *pooling], [n, 1, 1, depth])
        self.convolution(1001, fuse=NONE)
        flat = self.operand(T.TENSOR_INT32, [2], value=[1, 1001])
        self.step(Op.RESHAPE, [self.at, flat], [1, 1001])
        beta = self.operand(T.FLOAT32, [], value=1.0)
        self.step(Op.SOFTMAX, [self.at, beta], [1, 1001], 1 / 256)
        ends = {"inputs": [self.input], "outputs": [self.at]}
        return {"tensors": self.tensors, "steps": self.steps, **ends}


def mobilenet_v1(quantised):
    """Howard et al. 2017, width 1, 224 x 224: 569 million MAC."""
    net = Network(quantised)
    net.convolution(32, 3, 2)
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5]
    for depth, stride in [*blocks, (1024, 2), (1024, 1)]:
        net.depthwise(stride)
        net.convolution(depth)
    return net.classify()


def mobilenet_v2(quantised):
    """Sandler et al. 2018, width 1, 224 x 224: 301 million MAC."""
    net = Network(quantised)
    net.convolution(32, 3, 2)
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)]
    for expand, depth, repeat, first in [*rows, (6, 160, 3, 2), (6, 320, 1, 1)]:
        for index in range(repeat):
            before, stride = net.at, first if index == 0 else 1
            if expand > 1:
                net.convolution(net.shape(before)[3] * expand)
            net.depthwise(stride)
            net.convolution(depth, fuse=NONE)
            if index > 0:
                net.step(Op.ADD, [before, net.at, *net.scalars(NONE)], net.shape(before))
    net.convolution(1280)
    return net.classify()


NETWORKS = {"v1": mobilenet_v1, "v2": mobilenet_v2}
FIGURES = [  # phone, device (None: the CPU engine), network, quantised, ms, factor, whose
    ("npu-phone", "sim-npu", "v1", True, 3.2, 1.25, "Pixel 4, NNAPI"),
    ("npu-phone", "sim-gpu", "v2", False, 14.95, 1.25, "Mi 8 SE, GPU"),
    ("npu-phone", None, "v1", False, 39.54, 1.25, "Pixel 4, one large core"),
    ("npu-phone", None, "v2", False, 28.52, 1.25, "Pixel 4, one large core"),
    ("npu-phone", None, "v1", True, 16.84, 1.25, "Pixel 4, one large core"),
    ("gpu-phone", "sim-gpu", "v1", False, 10.79, 1.25, "Galaxy S10, GPU"),
    ("gpu-phone", "sim-gpu", "v2", False, 10.88, 1.25, "Galaxy S10, GPU"),
    ("gpu-phone", None, "v1", False, 33.23, 1.25, "Galaxy S10, one large core"),
    ("gpu-phone", None, "v2", False, 24.46, 1.25, "Galaxy S10, one large core"),
    ("gpu-phone", None, "v1", True, 15.56, 1.25, "Galaxy S10, one large core"),
    ("dsp-phone", "sim-dsp", "v1", True, 6.0, 1.15, "Pixel 3, NNAPI (Hexagon 685)"),
    ("dsp-phone", None, "v1", False, 54.41, 1.15, "Snapdragon 675, 1 thread"),
    ("dsp-phone", None, "v2", False, 38.97, 1.3, "Snapdragon 675, 1 thread"),
    ("dsp-phone", None, "v1", True, 59.39, 1.15, "Snapdragon 675, 1 thread"),
    ("slow-nnapi-phone", "sim-driver", "v1", False, 800, 1.15, "Mi A2, NNAPI"),
    ("slow-nnapi-phone", "sim-driver", "v1", True, 170, 1.15, "Mi A2, NNAPI"),
    ("slow-nnapi-phone", None, "v1", False, 150, 1.15, "Mi A2, 1 thread"),
    ("slow-nnapi-phone", None, "v1", True, 70, 1.15, "Mi A2, 1 thread"),
]


jobs = Jobs()
for index, (name, device, network, quantised, *_) in enumerate(FIGURES):
    model, description = NETWORKS[network](quantised), quiet(name)
    if device is None:  # NNAPI has its CPU engine alone
        jobs(index, {**description, "accelerators": []}, auto(model))
    else:  # the CPU path takes what the accelerator does not, such as a last SOFTMAX
        jobs(index, description, on(model, device, "nnapi-reference"))


NAMES = ["-".join(map(str, row[:4])) for row in FIGURES]


@pytest.mark.parametrize("index", range(len(FIGURES)), ids=NAMES)
def test_whole_models_take_what_was_published(answers, index):
    *_, figure, factor, whose = FIGURES[index]
    (run,) = answers[index]["runs"]
    assert run["codes"] == ["NO_ERROR"]
    assert figure / factor < run["wall"][0] / 1e6 < figure * factor, whose
