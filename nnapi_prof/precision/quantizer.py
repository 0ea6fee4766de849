"""Prepare a program's graph for torchao's PT2E flow: observers of values and weights.

Importing this module imports torchao, which takes seconds, so other modules import it where they
use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torchao.quantization.pt2e.observer import (
    HistogramObserver,
    MinMaxObserver,
    PerChannelMinMaxObserver,
    UniformQuantizationObserverBase,
)
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from nnapi_prof.graph import Quantisation
from nnapi_prof.graph.node import is_constant, makes_tensor, torch_dtype, type_of
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.quantisation import RANGES
from nnapi_prof.precision.demands import Demand, Formats, ScaleGroups, WeightKind
from nnapi_prof.precision.program import WEIGHT_RANGES, copied

# torchao's observers, with additions for NNAPI and its kernels.

SMALLEST_SCALE = 2.0**-40
"""Scale of an empty range: the product of two is still a normal number of float32."""


class FrozenQParamsObserver(UniformQuantizationObserverBase):  # type: ignore[misc]
    """Observer whose scales may be replaced once all samples were seen."""

    _choice: tuple[Tensor, Tensor] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, eps=SMALLEST_SCALE, **kwargs)

    def settle(self, scales: Tensor, zero_points: Tensor) -> None:
        """Fixes the result of :meth:`calculate_qparams`, as float32 and int64 of rank 1."""
        self._choice = scales.float(), zero_points.long()

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Returns scales and zero points, which are computed only once."""
        if self._choice is None:
            self._choice = super().calculate_qparams()
        return self._choice


class _Finite(FrozenQParamsObserver):
    """Observer of finite values only, as a pad before a maximum writes -inf."""

    def forward(self, x_orig: Tensor) -> Tensor:
        finite = torch.isfinite(x_orig)
        super().forward(x_orig if bool(finite.all()) else x_orig[finite])
        return x_orig


class FiniteMinMaxObserver(_Finite, MinMaxObserver):  # type: ignore[misc]
    """Observer that takes the range from the smallest to the largest value."""


class LeastError(_Finite, HistogramObserver):  # type: ignore[misc]
    """Observer that takes the range with the least squared error of rounding."""


class WeightObserver(FrozenQParamsObserver, MinMaxObserver):  # type: ignore[misc]
    """Observer of a weight with one symmetric range: as many integers below zero as above."""

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        if self._choice is None:
            scale, zero_point = super().calculate_qparams()
            unused = 255 / 254 if self.dtype is torch.uint8 else 1.0
            self.settle(scale * unused, zero_point)
        return super().calculate_qparams()


class PerChannelWeights(FrozenQParamsObserver, PerChannelMinMaxObserver):  # type: ignore[misc]
    """Observer of a weight with a symmetric range for each output channel. torchao knows by the
    name that it takes an axis."""


CHOICES = {"minmax": FiniteMinMaxObserver, "histogram": LeastError}
"""Option -> observer that chooses the range of values."""


def observers_of(observed: fx.GraphModule) -> dict[str, list[Any]]:
    """Returns value or constant -> its observers. All values of a group share one observer; a
    constant has one for each node that reads it."""
    observers: dict[str, list[Any]] = {}
    for node in observed.graph.nodes:
        if node.op != "call_module":
            continue
        source = node.args[0]
        observers.setdefault(source.name, []).append(observed.get_submodule(node.target))
    return observers


class NnapiQuantizer(Quantizer):  # type: ignore[misc]
    """Quantizer that annotates units of a program for torchao, as NNAPI computes them in 8 bits.

    Values are asymmetric and have one scale; those of a group share theirs (pools, moves,
    concatenations below API 29), and some groups have a scale that NNAPI fixes. Weights of layers
    are symmetric, with one scale or one for each output channel. A bias has 32-bit integers in
    steps of the input's scale times the weight's. Other constants are quantised like values.
    """

    def __init__(
        self, program: Program, demands: Mapping[int, Demand], formats: Formats, observer: str
    ) -> None:
        super().__init__()
        self._program = program
        self._demands = demands
        self._formats = formats
        self._observer = CHOICES[observer]
        self._sharing = ScaleGroups(demands.values())
        self._roots: dict[str, Any] = {}
        """Group of values -> the edge or node whose observer it shares."""

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        nodes = {node.name: node for node in model.graph.nodes}
        demand_of = {
            name: demand
            for demand in self._demands.values()
            for name in self._program.units.units[demand.unit].nodes
        }
        for node in model.graph.nodes:  # in the order in which torchao makes observers
            demand = demand_of.get(node.name)
            if demand is None:
                continue
            specs: dict[fx.Node, Any] = {}
            for source in node.all_input_nodes:
                if source.name in demand.inputs:
                    specs[source] = self._shared(source.name, (source, node))
                elif is_constant(source) and source.name in demand.constants:
                    specs[source] = self._constant(source, node, demand, nodes)
            output = self._shared(node.name, node) if node.name == demand.output else None
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(
                specs, output, allow_implicit_sharing=False, _annotated=True
            )
        return model

    def validate(self, model: fx.GraphModule) -> None:
        """Does nothing, since the converter has checked the annotated units before."""

    def _shared(self, value: str, place: Any) -> Any:
        group = self._sharing.group(value)
        if group in self._roots:
            return SharedQuantizationSpec(self._roots[group])
        self._roots[group] = place
        fixed = self._sharing.fixed(value)
        return self._values() if fixed is None else self._fixed(fixed)

    def _values(self) -> QuantizationSpec:
        low, high = RANGES[self._formats.dtype]
        return QuantizationSpec(
            torch_dtype(self._formats.dtype),
            self._observer,
            quant_min=low,
            quant_max=high,
            qscheme=torch.per_tensor_affine,
        )

    def _fixed(self, quant: Quantisation) -> FixedQParamsQuantizationSpec:
        low, high = RANGES[self._formats.dtype]
        return FixedQParamsQuantizationSpec(
            torch_dtype(self._formats.dtype),
            quant.scale,
            quant.zero_point,
            low,
            high,
            torch.per_tensor_affine,
        )

    def _constant(
        self, constant: fx.Node, reader: fx.Node, demand: Demand, nodes: Mapping[str, fx.Node]
    ) -> Any:
        kind = demand.constants[constant.name]
        if kind is WeightKind.DATA:
            low, high = RANGES[self._formats.dtype]
            return QuantizationSpec(
                torch_dtype(self._formats.dtype),
                FiniteMinMaxObserver,
                low,
                high,
                torch.per_tensor_affine,
            )
        if kind is WeightKind.BIAS:
            weight = next(n for n, k in demand.constants.items() if k is not WeightKind.BIAS)
            data = self._roots[self._sharing.group(demand.inputs[0])]
            per_channel = demand.constants[weight] is WeightKind.CHANNELS
            return DerivedQuantizationSpec(
                [data, (nodes[weight], reader)],
                _bias_qparams,
                torch.int32,
                -(2**31),
                2**31 - 1,
                torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric,
                0 if per_channel else None,
            )
        per_channel = kind is WeightKind.CHANNELS
        dtype = "int8" if per_channel else self._formats.dtype
        return QuantizationSpec(
            torch_dtype(dtype),
            PerChannelWeights if per_channel else WeightObserver,
            *WEIGHT_RANGES[dtype],
            torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric,
            demand.axis if per_channel else None,
        )


def _bias_qparams(observers: list[Any]) -> tuple[Tensor, Tensor]:
    """Returns scale and zero point of a bias from the observers of the input and the weight."""
    (data, _), (weight, _) = (observer.calculate_qparams() for observer in observers)
    scales = data * weight
    return scales, torch.zeros_like(scales, dtype=torch.int64)


def observed_copy(program: Program, quantizer: NnapiQuantizer) -> fx.GraphModule:
    """Returns a copy of the program's module with torchao's observers."""
    module = copied(program.module)
    with FakeTensorMode():
        for node in module.graph.nodes:
            if makes_tensor(node):  # torchao reads "val" before it observes a result
                type_ = type_of(node)
                node.meta["val"] = torch.empty(type_.shape, dtype=torch_dtype(type_.dtype))
    observed = prepare_pt2e(module, quantizer)
    assert isinstance(observed, fx.GraphModule)
    return observed
