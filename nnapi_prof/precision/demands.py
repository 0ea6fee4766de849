"""Find NNAPI's demands on the scales of units in 8 bits, and units that cannot be in 8 bits.

A unit is lowered in floats; the demands are those of NNAPI's 8-bit operations of the same names
(:mod:`nnapi_prof.convert.quantize_rules`). Whether all rules hold is decided by the converter
itself, with scales that break none by chance.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import fx

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.quantize_rules import FIXED, FREE, SAME_AS_INPUT, composition
from nnapi_prof.convert.region import Region
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.graph import Quantisation
from nnapi_prof.graph.grouping import label
from nnapi_prof.graph.node import (
    bound_args,
    constant_value,
    is_constant,
    makes_tensor,
    op_name,
    type_of,
)
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.quantisation import CONVERSIONS, RANGES, Scheme, is_fused_activation
from nnapi_prof.graph.unit import Unit
from nnapi_prof.nnapi.codes import OperationCode
from nnapi_prof.precision import Recipe
from nnapi_prof.precision.program import WEIGHTED, QuantisedProgram, is_move, quantise

aten = torch.ops.aten

SIGNED_LEVEL = 30
"""Feature level from which NNAPI has signed 8-bit values (Android 11)."""
CHANNELS_LEVEL = 29
"""Feature level from which weights may have a scale for each channel (Android 10)."""


@dataclass(frozen=True)
class Formats:
    """Formats of values and weights in 8 bits at a feature level."""

    level: int
    """Feature level of the devices, as they report it (27, 28, ...)."""
    per_channel: bool
    """True where weights have a scale for each output channel."""

    @classmethod
    def at(cls, level: int, per_channel: bool | None = None) -> Formats:
        """Returns the formats of a level; ``per_channel=False`` for devices and runtimes that
        support only one scale."""
        able = level >= CHANNELS_LEVEL
        return cls(level, able if per_channel is None else per_channel and able)

    @property
    def dtype(self) -> str:
        """Element type of values, and of weights with one scale."""
        return "int8" if self.level >= SIGNED_LEVEL else "uint8"


class WeightKind(enum.Enum):
    """Role of a constant in the operator that reads it."""

    CHANNELS = "weight, a scale for each channel"
    TENSOR = "weight, one scale"
    BIAS = "bias"
    DATA = "an operand like the values"


@dataclass(frozen=True)
class Demand:
    """Demands of a unit that can be in 8 bits."""

    unit: int
    core: str
    """Node that computes, without pad and activation."""
    inputs: tuple[str, ...]
    output: str
    shared: bool
    """True where the output must have the scale and zero point of all inputs."""
    fixed: Quantisation | None
    """Scale and zero point of the output that NNAPI requires, if any."""
    constants: Mapping[str, WeightKind] = field(default_factory=dict)
    axis: int = 0
    """Axis of the weight for output channels."""


def demands_of(program: Program, formats: Formats) -> tuple[dict[int, Demand], dict[int, str]]:
    """Returns the demands of units that can be in 8 bits at this level with the right scales, and
    the reasons why the others cannot."""
    demands: dict[int, Demand] = {}
    refusals: dict[int, str] = {}
    roles: dict[str, tuple[WeightKind, int]] = {}
    for unit in program.units.units:
        try:
            demand = _demand(program, unit, formats)
            for name, kind in demand.constants.items():
                if roles.setdefault(name, (kind, demand.axis)) != (kind, demand.axis):
                    raise _UnmetDemand(f"its constant {name} is read by others in another way")
            demands[unit.index] = demand
        except _UnmetDemand as refusal:
            refusals[unit.index] = str(refusal)
    refusals |= ScaleGroups(demands.values()).refusals
    demands = {unit: demand for unit, demand in demands.items() if unit not in refusals}
    trial = quantise(program, _trial_recipe(program, demands, formats))
    refusals |= refused(trial, formats.level)
    demands = {unit: demand for unit, demand in demands.items() if unit not in refusals}
    return demands, dict(sorted(refusals.items()))


def refused(quantised: QuantisedProgram, level: int) -> dict[int, str]:
    """Returns the units of the float program that are quantised but would be computed in floats,
    with the rule that the 8-bit operation would break."""
    rules: dict[int, str] = {}
    for unit, index in quantised.unit_of.items():
        try:
            region = convert_region(quantised.program, (index,), level)
        except UnsupportedOp as refusal:
            rules[unit] = refusal.reason
            continue
        if region.in_floats:
            rules[unit] = next(iter(region.in_floats.values()))
    return rules


# One unit


class _UnmetDemand(Exception):
    """Error for a unit that cannot be in 8 bits; the message is the reason."""


def _demand(program: Program, unit: Unit, formats: Formats) -> Demand:
    nodes = [program.nodes[name] for name in unit.nodes]
    core = _core(nodes)
    types = [program.units.values[name] for name in (*unit.inputs, *unit.outputs)]
    if len(unit.outputs) != 1:
        raise _UnmetDemand(
            f"it gives {len(unit.outputs)} values, one is what a quantised unit gives"
        )
    if not unit.inputs:
        raise _UnmetDemand("it reads constants alone")
    for value in types:
        if value.dtype != "float32":
            raise _UnmetDemand(f"it works on {value.dtype}, float32 is what is quantised")
    try:
        region = convert_region(program, (unit.index,), formats.level)
    except UnsupportedOp as refusal:
        raise _UnmetDemand(refusal.reason) from refusal
    shared, fixed = _scales(region, formats) if composition(core.target) is None else (False, None)
    weighted = core.target in WEIGHTED
    axis = int(weighted and bool(bound_args(core).get("transposed")))
    return Demand(
        unit.index,
        core.name,
        unit.inputs,
        unit.outputs[0],
        shared,
        fixed,
        dict(_constants(core, weighted, formats)),
        axis,
    )


def _core(nodes: list[fx.Node]) -> fx.Node:
    """Returns the only operation of a unit, besides a pad before it and an activation after it."""
    for node in nodes:
        if node.target in CONVERSIONS or not makes_tensor(node):
            raise _UnmetDemand(f"it is {label(nodes)} already" if makes_tensor(node) else _SEVERAL)
        if not isinstance(node.target, torch._ops.OpOverload):
            raise _UnmetDemand("it is control flow, which stays TorchScript")
    rest = list(nodes)
    if len(rest) > 1 and is_fused_activation(rest[-1]):
        rest.pop()
    if len(rest) > 1 and rest[0].target is aten.constant_pad_nd.default:
        rest.pop(0)
    if len(rest) != 1:
        raise _UnmetDemand(
            f"it is {len(rest)} operations: {', '.join(op_name(n.target) for n in rest)}"
        )
    return rest[0]


_SEVERAL = "it gives several values, one is what a quantised unit gives"


def _scales(region: Region, formats: Formats) -> tuple[bool, Quantisation | None]:
    """Returns whether the result must have the scale of the inputs, and the fixed one, if any."""
    codes = [OperationCode[name] for name in region.operations]
    fixed, shared = None, True
    for code in codes:
        if code not in SAME_AS_INPUT | FREE and code not in FIXED:
            raise _UnmetDemand(f"{code.name} has no quant8 form that is used here")
        joins = code is OperationCode.CONCATENATION and formats.level < CHANNELS_LEVEL
        if code in FREE and not joins:
            fixed, shared = None, False
        elif code in FIXED:
            shift = 0 if formats.dtype == "uint8" else 128
            fixed = Quantisation(FIXED[code].scale, FIXED[code].zero_point - shift)
            shared = False
    return shared, fixed


def _constants(core: fx.Node, weighted: bool, formats: Formats) -> Iterable[tuple[str, WeightKind]]:
    if is_move(core):
        return
    args = bound_args(core)
    for source in core.all_input_nodes:
        if not is_constant(source) or type_of(source).dtype != "float32":
            continue
        if weighted and source is args["weight"]:
            kind = WeightKind.CHANNELS if formats.per_channel else WeightKind.TENSOR
            yield source.name, kind
        elif weighted:
            yield source.name, WeightKind.BIAS
        elif not _is_uniform(source):
            yield source.name, WeightKind.DATA


def _is_uniform(constant: fx.Node) -> bool:
    """Returns whether all elements are one number, which the converter writes without a scheme."""
    value = constant_value(constant)
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())


# Values that share a scale


class ScaleGroups:
    """Groups of values that must have equal scale and zero point."""

    def __init__(self, demands: Iterable[Demand]) -> None:
        self._parents: dict[str, str] = {}
        self._fixed: dict[str, Quantisation] = {}
        self.refusals: dict[int, str] = {}
        """Unit whose values cannot share a scale -> the reason; its values are not grouped."""
        for demand in demands:
            if demand.fixed is not None:
                self._fixed[self.group(demand.output)] = demand.fixed
            if not demand.shared:
                continue
            groups = {self.group(name) for name in demand.inputs}
            if len({self._fixed.get(group) for group in groups}) > 1:
                self.refusals[demand.unit] = (
                    "its inputs must have one scale, and NNAPI fixes those of some of them"
                )
                continue
            first = min(groups)
            for other in (*groups, demand.output):
                self._parents[self.group(other)] = first

    def group(self, value: str) -> str:
        """Returns the name of a value's group, which is one of its values."""
        parent = self._parents.setdefault(value, value)
        if parent != value:
            parent = self._parents[value] = self.group(parent)
        return parent

    def fixed(self, value: str) -> Quantisation | None:
        """Returns the scale and zero point that NNAPI fixes for a value's group, if any."""
        return self._fixed.get(self.group(value))


def _trial_recipe(program: Program, demands: Mapping[int, Demand], formats: Formats) -> Recipe:
    """Returns a recipe that breaks only rules that no scale could satisfy."""
    sharing = ScaleGroups(demands.values())
    low, high = RANGES[formats.dtype]
    usual = Quantisation(1 / 16, (low + high + 1) // 2)
    values: dict[str, Quantisation] = {}
    weights: dict[str, Scheme] = {}
    for demand in demands.values():
        for name in (*demand.inputs, demand.output):
            values[name] = sharing.fixed(name) or usual
        for name, kind in demand.constants.items():
            constant = program.nodes[name]
            if kind is WeightKind.CHANNELS:
                n = type_of(constant).shape[demand.axis]
                weights[name] = Scheme((1 / 64,) * n, (0,) * n, demand.axis, "int8")
            elif kind is not WeightKind.BIAS:
                weights[name] = Scheme((1 / 64,), (usual.zero_point,), None, formats.dtype)
    return Recipe(values, weights, frozenset(demands), {}, formats.dtype)
