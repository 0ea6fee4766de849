"""Networks as layers for XNNPACK's subgraph API, taken from PyTorch modules: for bench_cpu.py.

Nothing here uses the converter: the reference figures must be independent of it.
"""

from __future__ import annotations

import ctypes
import math
import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.ao.nn import quantized as nnq
from torch.ao.nn.intrinsic import quantized as nniq
from torch.fx.experimental.optimization import fuse
from torch.fx.passes.shape_prop import ShapeProp

FLOAT32, QINT8, QINT32, QCINT8, QCINT32 = 1, 3, 5, 6, 7
MIXED_MEAN_FUNCTIONS = (nn.functional.adaptive_avg_pool2d,)


@dataclass
class Value:
    """A tensor between layers, channels last: [N, H, W, C] or [N, C]."""

    dims: tuple[int, ...]
    scale: float = 0.0
    zero: int = 0


@dataclass
class Layer:
    """One node of an XNNPACK graph."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    window: tuple[int, ...] = ()
    """pad, kernel, stride, groups, channels of a group in and out."""
    weights: np.ndarray | None = None
    bias: np.ndarray | None = None
    scales: np.ndarray | None = None
    """Scales of the weights: one, or one for each output channel."""
    low: float = -math.inf
    high: float = math.inf


@dataclass
class Layers:
    values: dict[str, Value] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)


def _nhwc(shape: torch.Size) -> tuple[int, ...]:
    return (shape[0], shape[2], shape[3], shape[1]) if len(shape) == 4 else tuple(shape)


def _window(conv: Any) -> tuple[int, ...]:
    pad, kernel, stride, groups = conv.padding, conv.kernel_size, conv.stride, conv.groups
    return (pad[0], kernel[0], stride[0], groups, conv.in_channels // groups,
            conv.out_channels // groups)  # fmt: skip


class _Walk:
    """Converts an fx graph; values that a layer only passes on have an alias."""

    def __init__(self, module: fx.GraphModule, shape: tuple[int, ...]) -> None:
        ShapeProp(module).propagate(torch.zeros(shape))
        self.module, self.net = module, Layers()
        self.alias: dict[str, str] = {}
        for node in module.graph.nodes:
            self.visit(node)

    def name(self, node: Any) -> str:
        return self.alias.get(node.name, node.name)

    def value(self, node: fx.Node, scale: float = 0.0, zero: int = 0) -> None:
        dims = _nhwc(node.meta["tensor_meta"].shape)
        self.net.values[node.name] = Value(dims, scale, zero)

    def add(self, layer: Layer, node: fx.Node, scale: float = 0.0, zero: int = 0) -> None:
        self.value(node, scale, zero)
        self.net.layers.append(layer)

    def pass_on(self, node: fx.Node) -> None:
        self.alias[node.name] = self.name(node.args[0])

    def clamp(self, node: fx.Node, low: float, high: float) -> None:
        """Fuses the limits into the layer that makes the node's input."""
        producer = next(x for x in self.net.layers if x.output == self.name(node.args[0]))
        producer.low, producer.high = low, high
        self.pass_on(node)

    def number(self, given: Any) -> float:
        """Returns the value of an argument that is a number or an attribute."""
        return float(getattr(self.module, given.target) if isinstance(given, fx.Node) else given)

    def visit(self, node: fx.Node) -> None:
        target: Any = node.target
        if node.op == "call_module":
            target = self.module.get_submodule(node.target)
        inputs = tuple(self.name(a) for a in node.all_input_nodes)
        if node.op == "placeholder":
            self.value(node)
        elif node.op == "output":
            self.net.values["output"] = self.net.values.pop(inputs[0])
            for layer in self.net.layers:
                layer.output = "output" if layer.output == inputs[0] else layer.output
        elif isinstance(target, nn.Conv2d | nn.Linear) and not hasattr(target, "scale"):
            self.add(self.weighted(target, inputs[0], node.name), node)
        elif isinstance(target, nnq.Conv2d | nnq.Linear):
            layer = self.integers(target, inputs[0], node.name)
            self.add(layer, node, target.scale, target.zero_point - 128)
        elif isinstance(target, nn.MaxPool2d):
            window = (target.padding, target.kernel_size, target.stride)
            value = self.net.values[inputs[0]]
            layer = Layer("max_pool", inputs, node.name, window)
            self.add(layer, node, value.scale, value.zero)
        elif isinstance(target, nn.AdaptiveAvgPool2d) or target in MIXED_MEAN_FUNCTIONS:
            value = self.net.values[inputs[0]]
            self.add(Layer("mean", inputs[:1], node.name), node, value.scale, value.zero)
            n, _, _, c = self.net.values[node.name].dims
            self.net.values[node.name].dims = (n, c)
        elif target in (operator.add, operator.iadd):
            self.add(Layer("add", inputs, node.name), node)
        elif target is torch.ops.quantized.add:
            scale, zero = self.number(node.args[2]), int(self.number(node.args[3]))
            self.add(Layer("add", inputs[:2], node.name), node, scale, zero - 128)
        elif target is torch.quantize_per_tensor:
            scale, zero = self.number(node.args[1]), int(self.number(node.args[2]))
            self.add(Layer("convert", inputs[:1], node.name), node, scale, zero - 128)
        elif node.target == "dequantize":
            self.add(Layer("convert", inputs, node.name), node)
        elif isinstance(target, nn.ReLU6):
            self.clamp(node, 0.0, 6.0)
        elif isinstance(target, nn.ReLU) or target is torch.relu:
            self.clamp(node, 0.0, math.inf)
        elif (
            isinstance(target, nn.Dropout | nn.Identity)
            or target is torch.flatten
            or node.target == "flatten"
        ):
            self.pass_on(node)
        elif node.op != "get_attr":
            raise NotImplementedError(f"{node.op} {node.target} ({type(target).__name__})")

    def weighted(self, module: Any, source: str, made: str) -> Layer:
        weights = module.weight.detach()
        bias = module.bias.detach().numpy()
        if isinstance(module, nn.Linear):
            return Layer("dense", (source,), made, (), weights.numpy(), bias)
        window = _window(module)
        # OIHW; of a depthwise one O1HW.
        deep = window[3] > 1
        order = (1, 2, 3, 0) if deep else (0, 2, 3, 1)
        return Layer("depthwise" if deep else "conv", (source,), made, window,
                     np.ascontiguousarray(weights.permute(order).numpy()), bias)  # fmt: skip

    def integers(self, module: Any, source: str, made: str) -> Layer:
        """Returns a layer for XNNPACK, with weights around 0 and a bias of the products' scale."""
        weights: Tensor = module.weight()
        channels = weights.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric)
        scales = (
            weights.q_per_channel_scales().numpy().astype(np.float32)
            if channels
            else np.array([weights.q_scale()], np.float32)
        )
        product = scales * np.float32(self.net.values[source].scale)
        bias = module.bias()
        bias = np.zeros(weights.shape[0]) if bias is None else bias.detach().numpy()
        layer = Layer("dense", (source,), made)
        order: tuple[int, ...] = (0, 1)
        if isinstance(module, nnq.Conv2d):
            layer.window = _window(module)
            deep = layer.window[3] > 1
            layer.kind = "depthwise" if deep else "conv"
            order = (1, 2, 3, 0) if deep else (0, 2, 3, 1)
        layer.weights = np.ascontiguousarray(weights.int_repr().permute(order).numpy())
        layer.bias = np.rint(bias / product).astype(np.int32)
        layer.scales = scales
        if isinstance(module, nniq.ConvReLU2d | nniq.LinearReLU):
            layer.low = 0.0
        return layer


def float_layers(module: nn.Module, shape: tuple[int, ...]) -> Layers:
    """Returns the layers of a float network, batch norms folded into the convolutions."""
    return _Walk(fuse(module), shape).net


def quantised_layers(module: nn.Module, shape: tuple[int, ...]) -> Layers:
    """Returns the layers of a result of convert_fx; uint8 x is int8 x - 128."""
    assert isinstance(module, fx.GraphModule)
    return _Walk(module, shape).net


class Direct:
    """XNNPACK's runtime of a network, without the agent."""

    def __init__(
        self, lib: ctypes.CDLL, layers: Layers, planar: bool, threads: int, flags: int
    ) -> None:
        lib.direct_new.restype = ctypes.c_void_p
        lib.direct_data.restype = ctypes.c_void_p
        self._lib, self._references, self._layers = lib, [], layers
        self._planar = planar
        self._handle = ctypes.c_void_p(lib.direct_new())
        first = next(iter(layers.values))
        self._ids = {}
        if planar:
            n, h, w, c = layers.values[first].dims
            source = self._value(Value((n, c, h, w)), 0)
        for name, value in layers.values.items():
            external = {"output": 1}.get(name, 0 if name == first and not planar else -1)
            self._ids[name] = self._value(value, external)
        if planar:
            lib.direct_transpose(self._handle, _u32(source, self._ids[first]))
        for layer in layers.layers:
            self._define(layer)
        lib.direct_ready(self._handle, threads, flags)

    def _value(self, value: Value, external: int) -> int:
        kind = FLOAT32 if value.scale == 0.0 else QINT8
        return self._tensor(kind, value.dims, None, value.scale, value.zero, None, 0, external)

    def _tensor(self, kind: int, dims: tuple[int, ...], data: np.ndarray | None, scale: float,
                zero: int, scales: np.ndarray | None, axis: int, external: int) -> int:  # fmt: skip
        if data is not None:
            padded = np.concatenate([data.ravel().view(np.uint8), np.zeros(16, np.uint8)])
            self._references += [padded, scales]
            data = padded
        return int(
            self._lib.direct_value(
                *(self._handle, kind, len(dims), (ctypes.c_size_t * len(dims))(*dims)),
                None if data is None else ctypes.c_void_p(data.ctypes.data),
                *(ctypes.c_float(scale), zero),
                None if scales is None else ctypes.c_void_p(scales.ctypes.data),
                *(axis, external),
            )
        )

    def _weights(self, layer: Layer) -> tuple[int, int]:
        assert layer.weights is not None and layer.bias is not None
        shape = layer.weights.shape
        if layer.scales is None:
            return (
                self._tensor(FLOAT32, shape, layer.weights, 0.0, 0, None, 0, -1),
                self._tensor(FLOAT32, layer.bias.shape, layer.bias, 0.0, 0, None, 0, -1),
            )
        product = layer.scales * np.float32(self._layers.values[layer.inputs[0]].scale)
        if len(product) == 1:
            scale, product_scale = float(layer.scales[0]), float(product[0])
            return (
                self._tensor(QINT8, shape, layer.weights, scale, 0, None, 0, -1),
                self._tensor(QINT32, layer.bias.shape, layer.bias, product_scale, 0, None, 0, -1),
            )
        axis = 3 if layer.kind == "depthwise" else 0
        return (
            self._tensor(QCINT8, shape, layer.weights, 0.0, 0, layer.scales, axis, -1),
            self._tensor(QCINT32, layer.bias.shape, layer.bias, 0.0, 0, product, 0, -1),
        )

    def _define(self, layer: Layer) -> None:
        inputs = [self._ids[name] for name in layer.inputs]
        identifier = self._ids[layer.output]
        low, high = ctypes.c_float(layer.low), ctypes.c_float(layer.high)
        lib, handle = self._lib, self._handle
        if layer.weights is not None:
            values = _u32(inputs[0], *self._weights(layer), identifier)
            if layer.kind == "dense":
                lib.direct_dense(handle, values)
            else:
                define = lib.direct_depthwise if layer.kind == "depthwise" else lib.direct_conv
                define(handle, _u32(*layer.window), low, high, values)
        elif layer.kind == "add":
            lib.direct_add(handle, low, high, _u32(*inputs, identifier))
        elif layer.kind == "max_pool":
            lib.direct_max_pool(handle, _u32(*layer.window), _u32(*inputs, identifier))
        else:
            {"mean": lib.direct_mean, "convert": lib.direct_convert}[layer.kind](
                handle, _u32(*inputs, identifier)
            )

    def _array(self, which: int, n: int) -> np.ndarray:
        raw = (ctypes.c_float * n).from_address(self._lib.direct_data(self._handle, which))
        return np.frombuffer(raw, np.float32)

    def set_input(self, image: Tensor) -> None:
        """image [N, C, H, W]"""
        pixels = image if self._planar else image.permute(0, 2, 3, 1)
        self._array(0, image.numel())[:] = pixels.numpy().ravel()

    def output(self) -> np.ndarray:
        return self._array(1, math.prod(self._layers.values["output"].dims)).copy()

    def run(self, runs: int) -> list[float]:
        """Returns the microseconds of each run."""
        times = (ctypes.c_double * runs)()
        self._lib.direct_run(self._handle, runs, times)
        return list(times)

    def close(self) -> None:
        self._lib.direct_close(self._handle)


def _u32(*values: int) -> Any:
    return (ctypes.c_uint32 * len(values))(*values)
