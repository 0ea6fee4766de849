"""Calibrate a recipe from samples: observe ranges, fit them to NNAPI's rules, and correct biases.

torchao observes and chooses ranges; after all samples were seen, :func:`widen` changes those that
NNAPI forbids. The step of a result may be smaller than the effect of one step of its inputs. Then
its last bits carry no information, which NNAPI forbids in some operations: such ranges are widened,
at almost no loss. So are those of weights so close to zero that the bias would not fit 32 bits.

A layer's bias is corrected by the mean error of its rounded weights. A weight's rounding is the
same for every sample. Where a layer's inputs have a positive mean, as after a ReLU, all of its
results shift in one direction, and so do those of later layers: an error that more samples do not
average out. As a layer is linear, its mean over calibration data and places is the difference of
the weights applied to the mean input (Nagel et al., "Data-Free Quantization Through Weight
Equalization and Bias Correction", ICCV 2019, section 4.2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from nnapi_prof.convert.quantize_rules import composition, error_on_the_way
from nnapi_prof.errors import InputSpecError
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph import Quantisation
from nnapi_prof.graph.node import bound_args, constant_value, describe, is_constant
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE, RANGES, Scheme
from nnapi_prof.nnapi import level_number
from nnapi_prof.precision import Recipe
from nnapi_prof.precision.demands import (
    CHANNELS_LEVEL,
    Demand,
    Formats,
    ScaleGroups,
    demands_of,
    refused,
)
from nnapi_prof.precision.program import (
    QUANTIZE_CHANNELS,
    WEIGHT_RANGES,
    WEIGHTED,
    channels,
    quantise,
    round_weight,
)


class Means(fx.Interpreter):
    """Interpreter that runs a module and adds up the values of some of its nodes."""

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
        """Returns the mean of a value over the samples."""
        return self._sums[name] / self._runs


def corrections(
    program: Program,
    demands: Iterable[Demand],
    weights: Mapping[str, Scheme],
    means: Means,
) -> dict[str, tuple[float, ...]]:
    """Returns layer -> correction of its bias in 8 bits, for each output channel."""
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
    """Calls a node's operator on other values, and with other arguments."""

    def value(source: fx.Node) -> Tensor:
        return values[source.name] if source.name in values else constant_value(source).detach()

    arguments: Any = fx.node.map_arg({**bound_args(node), **(changes or {})}, value)
    assert isinstance(node.target, torch._ops.OpOverload)
    result = node.target(**arguments)
    assert isinstance(result, Tensor)
    return result


def calibrate(
    program: Program,
    samples: Iterable[Sequence[Tensor]],
    level: int,
    *,
    per_channel: bool | None = None,
    observer: str = "histogram",
) -> Recipe:
    """Makes the recipe to quantise ``program`` for accelerators of feature level ``level`` and up.

    ``level`` is that of devices (27, 28, ...). Each of ``samples`` has the program's inputs, with
    its shapes and element types; they determine the ranges of values. ``observer`` chooses ranges:
    ``histogram`` minimises the squared error of rounding, ``minmax`` takes the extremes, in half
    the time. Weights have a scale for each channel where the level supports it, unless
    ``per_channel`` is False. Raises InputSpecError where there is no sample or one does not fit.
    """
    formats = Formats.at(level, per_channel)
    demands, refusals = demands_of(program, formats)
    with quiet_torch(), torch.no_grad():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

        from nnapi_prof.precision.quantizer import NnapiQuantizer, observed_copy

        observed = observed_copy(program, NnapiQuantizer(program, demands, formats, observer))
        means = Means(observed, {name for d in demands.values() for name in d.inputs})
        n_samples = 0
        for sample in samples:
            _check_sample(program, sample)
            means.run_sample(sample)
            n_samples += 1
        if not n_samples:
            raise InputSpecError(
                f"no samples to calibrate {program.name} with", "give one at least, with its inputs"
            )
        widen(program, demands, formats, observed)
        converted = convert_pt2e(observed, fold_quantize=False)
        values, weights = _read_qparams(converted)
        gains = corrections(program, demands.values(), weights, means)
    recipe = Recipe(values, weights, frozenset(demands), refusals, formats.dtype, gains)
    refusals |= refused(quantise(program, recipe), level)
    return _only(program, recipe, refusals)


def _check_sample(program: Program, sample: Sequence[Tensor]) -> None:
    expected = [describe(example) for example in program.example_inputs]
    actual = [describe(value) for value in sample]
    if actual != expected:
        raise InputSpecError(
            f"a sample has the inputs {', '.join(map(str, actual))}, {program.name} takes "
            f"{', '.join(map(str, expected))}"
        )


def _only(program: Program, recipe: Recipe, refusals: dict[int, str]) -> Recipe:
    """Returns the recipe without refused units and what only these need."""
    units = recipe.units - set(refusals)
    members = [program.units.units[unit] for unit in units]
    values = {name for unit in members for name in (*unit.inputs, *unit.outputs)}
    inside = {name for unit in members for name in unit.nodes}
    read = {s.name for name in inside for s in program.nodes[name].all_input_nodes}
    return Recipe(
        {name: quant for name, quant in recipe.values.items() if name in values},
        {name: scheme for name, scheme in recipe.weights.items() if name in read},
        units,
        dict(sorted(refusals.items())),
        recipe.dtype,
        {name: gain for name, gain in recipe.corrections.items() if name in inside},
    )


# Results of torchao


def _read_qparams(converted: fx.GraphModule) -> tuple[dict[str, Quantisation], dict[str, Scheme]]:
    """Returns the quantisations of values, and schemes of weights, from a converted module."""
    values: dict[str, Quantisation] = {}
    weights: dict[str, Scheme] = {}
    for node in converted.graph.nodes:
        if node.target not in (QUANTIZE, QUANTIZE_CHANNELS):
            continue
        args, source = bound_args(node), node.args[0]
        assert isinstance(source, fx.Node)
        dtype = str(args["dtype"]).removeprefix("torch.")
        if dtype not in RANGES:
            continue  # a bias, whose scale follows from the others
        if node.target is QUANTIZE_CHANNELS:
            scales = tuple(constant_value(args["scales"]).double().tolist())
            zeros = tuple(constant_value(args["zero_points"]).long().tolist())
            weights[source.name] = Scheme(scales, zeros, int(args["axis"]), dtype)
            continue
        scale, zero = float(args["scale"]), int(args["zero_point"])
        if is_constant(source):
            weights[source.name] = Scheme((scale,), (zero,), None, dtype)
        else:
            quant = values.setdefault(source.name, Quantisation(scale, zero))
            assert quant == Quantisation(scale, zero), f"{source.name} has two scales"
    return values, weights


aten = torch.ops.aten

ABOVE = 1.0 + 2.0**-10
"""Factor by which a scale exceeds its bound: more than rounding to float32 removes."""
LARGEST_RATIO = 128.0
"""Largest scale of a layer's products relative to its result's: CPU kernels allow less than 256."""
SMALLEST_RATIO = 2.0**-30
"""Smallest scale of a layer's products relative to its result's: CPU kernels allow 2^-31."""
LARGEST_BIAS = 2.0**30
"""Largest bias in steps; NNAPI's biases are 32-bit integers."""


def widen(
    program: Program, demands: Mapping[int, Demand], formats: Formats, observed: fx.GraphModule
) -> None:
    """Widens the ranges of a module's observers until scales satisfy the rules of all units.

    A widened result is an input of the next unit, so results are processed until none changes.
    Scales that NNAPI fixes stay.
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
        from nnapi_prof.precision.quantizer import observers_of

        self._program = program
        self._formats = formats
        self._sharing = ScaleGroups(demands.values())
        self._observers = observers_of(observed)

    def widen_result(self, demand: Demand) -> bool:
        """Widens the range of a unit's result if it is too narrow; returns whether it was."""
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
        """Returns the scale that the converter uses for a factor."""
        if isinstance(factor, fx.Node) and factor.name in self._observers:
            return self._scale(factor.name)
        return abs(_first_number(factor)) / 255 or 1.0

    def _scale(self, name: str) -> float:
        return float(self._scales(name))

    def _scales(self, name: str) -> Tensor:
        scales: Tensor = self._observers[name][0].calculate_qparams()[0]
        return scales

    def widen_weight(self, demand: Demand) -> None:
        """Raises scales of a layer's weight until its bias fits and CPU kernels support it."""
        from nnapi_prof.precision.quantizer import FrozenQParamsObserver

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
    """Returns a number itself, or the first number of a constant."""
    return float(constant_value(factor).flatten()[0] if is_constant(factor) else factor)
