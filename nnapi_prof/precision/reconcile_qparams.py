"""Ranges that break NNAPI's rules are widened, after all samples were seen.

A step of a result may stand for less than one step of its inputs makes of it. Its last bits say
nothing then, and NNAPI forbids that in places: such ranges are widened, which loses next to
nothing. So are those of weights that are nearly nothing, whose bias would not fit 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from nnapi_prof.convert.quantize.composed import composition, error_on_the_way
from nnapi_prof.graph.node import bound_args, constant_value, is_constant
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.quantisation import RANGES
from nnapi_prof.nnapi.facts import level_number
from nnapi_prof.precision.demands import CHANNELS_LEVEL, Demand, Formats, ScaleGroups
from nnapi_prof.precision.program import WEIGHTED
from nnapi_prof.precision.quantizer import FrozenQParamsObserver, observers_of

aten = torch.ops.aten

ABOVE = 1.0 + 2.0**-10
"""How far above its bound a scale is put: more than float32 rounds away."""
LARGEST_RATIO = 128.0
"""Of a layer's products to steps of its result: CPU kernels rescale by less than 256."""
SMALLEST_RATIO = 2.0**-30
"""The same at the least; theirs is 2^-31."""
LARGEST_BIAS = 2.0**30
"""In steps; NNAPI's are integers of 32 bits."""


def widen(
    program: Program, demands: Mapping[int, Demand], formats: Formats, observed: fx.GraphModule
) -> None:
    """Has the observers of a module say scales that satisfy the rules of all units, where any do.

    What is widened for one unit is an input of the next: results are gone through until none
    changes. Scales that NNAPI fixes stay.
    """
    ranges = _Ranges(program, demands, formats, observed)
    for _ in demands:
        changes = [ranges.widen_result(demand) for demand in demands.values()]
        if not any(changes):
            break
    for demand in demands.values():
        ranges.widen_weight(demand)


class _Ranges:
    def __init__(
        self,
        program: Program,
        demands: Mapping[int, Demand],
        formats: Formats,
        observed: fx.GraphModule,
    ) -> None:
        self._program = program
        self._formats = formats
        self._sharing = ScaleGroups(demands.values())
        self._observers = observers_of(observed)

    def widen_result(self, demand: Demand) -> bool:
        """Whether the range of a unit's result was too narrow."""
        if demand.shared or self._sharing.fixed(demand.output) is not None:
            return False
        bound, observer = self._bound(demand), self._observers[demand.output][0]
        scale, zero_point = (float(value) for value in observer.calculate_qparams())
        if scale > bound:
            return False
        low, high = RANGES[self._formats.dtype]
        wider = bound * ABOVE
        zero = round(low - (low - zero_point) * scale / wider)
        observer.settle(torch.tensor([wider]), torch.tensor([min(max(zero, low), high)]))
        return True

    def _bound(self, demand: Demand) -> float:
        """Returns the bound that the scale of a unit's result must exceed."""
        core = self._program.nodes[demand.core]
        if core.target in WEIGHTED:
            weight = bound_args(core)["weight"].name
            product = self._scale(demand.inputs[0]) * float(self._scales(weight).max())
            return product if self._formats.level < CHANNELS_LEVEL else product / LARGEST_RATIO
        if core.target is aten.mul.Tensor:
            first, second = core.args[:2]
            return self._scale_of(first) * self._scale_of(second)
        if composition(core.target) is None:
            return 0.0
        scale, zero_point = map(float, self._observers[demand.inputs[0]][0].calculate_qparams())
        low, high = ((end - zero_point) * scale for end in RANGES[self._formats.dtype])
        error = error_on_the_way(core.target, level_number(self._formats.level), low, high)
        factor = 1.0
        if core.target is aten.div.Tensor:
            factor = 1 / abs(_first_number(core.args[1])) if _first_number(core.args[1]) else 1.0
        return max(error, scale * factor / 255)

    def _scale_of(self, factor: object) -> float:
        """The scale that a factor has for the converter."""
        if isinstance(factor, fx.Node) and factor.name in self._observers:
            return self._scale(factor.name)
        return abs(_first_number(factor)) / 255 or 1.0

    def _scale(self, name: str) -> float:
        return float(self._scales(name))

    def _scales(self, name: str) -> Tensor:
        scales: Tensor = self._observers[name][0].calculate_qparams()[0]
        return scales

    def widen_weight(self, demand: Demand) -> None:
        """Raises scales of a layer's weight so far that its bias fits, and CPU kernels take it."""
        core = self._program.nodes[demand.core]
        if core.target not in WEIGHTED:
            return
        args = bound_args(core)
        step, result = self._scale(demand.inputs[0]), self._scale(demand.output)
        scales = self._scales(args["weight"].name)
        least = torch.full_like(scales, result * SMALLEST_RATIO / step)
        if is_constant(args["bias"]):
            bias = constant_value(args["bias"]).detach().abs() / (step * LARGEST_BIAS)
            if bias.numel() != scales.numel():
                bias = bias.max()
            least = torch.maximum(least, bias.to(scales.dtype))
        if bool((scales < least).any()):
            for observer in self._observers[args["weight"].name]:
                assert isinstance(observer, FrozenQParamsObserver)
                zero_points = observer.calculate_qparams()[1]
                observer.settle(torch.maximum(scales, least), zero_points)


def _first_number(factor: Any) -> float:
    """A number, or the first of a constant."""
    return float(constant_value(factor).flatten()[0] if is_constant(factor) else factor)
