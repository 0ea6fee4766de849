"""Corrects a layer's bias by the mean error of its rounded weights.

A weight's rounding is the same for every sample. Where a layer's inputs are positive in the mean,
as behind a ReLU, all of its results move one way, and so do those of the layers behind it: an error
that more samples do not average out. In the mean over the calibration data and over places it is
the difference of the weights applied to the mean input, as a layer is linear (Nagel et al., "Data-
Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019, section 4.2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from nnapi_prof.graph.node import bound_args, constant_value
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, Scheme
from nnapi_prof.precision.demands import Demand
from nnapi_prof.precision.program import WEIGHT_RANGES, WEIGHTED, channels, round_weight


class Means(fx.Interpreter):
    """Runs a module, and adds up the values of some of its nodes."""

    def __init__(self, module: fx.GraphModule, names: Collection[str]) -> None:
        super().__init__(module)
        self._names = frozenset(names)
        self._sums: dict[str, Tensor] = {}
        self._runs = 0

    def run_sample(self, inputs: Sequence[Tensor]) -> None:
        self._runs += 1
        self.run(*inputs)

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.name in self._names:
            value = torch.where(torch.isfinite(result), result, 0.0)
            before = self._sums.get(n.name)
            self._sums[n.name] = value.clone() if before is None else before.add_(value)
        return result

    def of(self, name: str) -> Tensor:
        """The mean of a value over the samples."""
        return self._sums[name] / self._runs


def corrections(
    program: Program,
    demands: Iterable[Demand],
    weights: Mapping[str, Scheme],
    means: Means,
) -> dict[str, tuple[float, ...]]:
    """Layer -> what its bias gains in 8 bits, for each output channel."""
    found: dict[str, tuple[float, ...]] = {}
    for demand in demands:
        core = program.nodes[demand.core]
        if core.target not in WEIGHTED:
            continue
        mean, lost = means.of(demand.inputs[0]), _lost(core, weights)
        for name in program.units.units[demand.unit].nodes:
            node = program.nodes[name]
            if node is core:
                break
            mean = _call(node, {node.all_input_nodes[0].name: mean})
        args = bound_args(core)
        result = _call(core, {args["input"].name: mean, args["weight"].name: lost}, {"bias": None})
        channel = 1 if core.target is torch.ops.aten.convolution.default else result.ndim - 1
        places = [dim for dim in range(result.ndim) if dim != channel]
        found[core.name] = tuple((result.mean(places) if places else result).tolist())
    return found


def _lost(core: fx.Node, weights: Mapping[str, Scheme]) -> Tensor:
    """Returns the part of a layer's weight that rounding removes."""
    constant = bound_args(core)["weight"]
    scheme = weights[constant.name]
    low, high = WEIGHT_RANGES[scheme.dtype]
    integers = round_weight(constant, scheme, low, high)
    if scheme.axis is None:
        restored = DEQUANTIZE(
            integers, scheme.scales[0], scheme.zero_points[0], low, high, integers.dtype
        )
    else:
        restored = DEQUANTIZE_CHANNELS(
            integers, *channels(scheme), scheme.axis, low, high, integers.dtype
        )
    lost: Tensor = constant_value(constant).detach() - restored
    return lost


def _call(
    node: fx.Node, values: Mapping[str, Tensor], changes: Mapping[str, Any] | None = None
) -> Tensor:
    """A node's operator on other values, and with other arguments."""

    def value(source: fx.Node) -> Tensor:
        return values[source.name] if source.name in values else constant_value(source).detach()

    arguments: Any = fx.node.map_arg({**bound_args(node), **(changes or {})}, value)
    assert isinstance(node.target, torch._ops.OpOverload)
    result = node.target(**arguments)
    assert isinstance(result, Tensor)
    return result
