"""Checks NNAPI's demands on the scales of a unit in 8 bits, and finds units that cannot be in 8
bits.

A unit is lowered in floats; the operations it becomes say what NNAPI's 8-bit ones of the same names
demand (:mod:`nnapi_prof.convert.quantize_rules`). Whether all of its rules hold is asked of the
converter itself, with scales that break none by chance.
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
    """How values and weights are held in 8 bits at a feature level."""

    level: int
    """Feature level of the devices, as they report it (27, 28, ...)."""
    per_channel: bool
    """Whether weights have a scale for each output channel."""

    @classmethod
    def at(cls, level: int, per_channel: bool | None = None) -> Formats:
        """Those of a level; ``per_channel=False`` for devices and runtimes that take one scale."""
        able = level >= CHANNELS_LEVEL
        return cls(level, able if per_channel is None else per_channel and able)

    @property
    def dtype(self) -> str:
        """Element type of values, and of weights with one scale."""
        return "int8" if self.level >= SIGNED_LEVEL else "uint8"


class WeightKind(enum.Enum):
    """The role of a constant in the operator that reads it."""

    CHANNELS = "weight, a scale for each channel"
    TENSOR = "weight, one scale"
    BIAS = "bias"
    DATA = "an operand like the values"


@dataclass(frozen=True)
class Demand:
    """A unit that may be had in 8 bits, and what that takes."""

    unit: int
    core: str
    """The node that computes."""
    inputs: tuple[str, ...]
    output: str
    shared: bool
    """Whether the output has the scale and zero point of all inputs."""
    fixed: Quantisation | None
    """The only scale and zero point of the output that NNAPI has."""
    constants: Mapping[str, WeightKind] = field(default_factory=dict)
    axis: int = 0
    """Of the weight: the one of output channels."""


def demands_of(program: Program, formats: Formats) -> tuple[dict[int, Demand], dict[int, str]]:
    """The units that can be had in 8 bits at this level with the right scales, and why the others
    cannot."""
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
    """Units of the float program that are quantised but would be computed in floats, and the rule
    that the 8-bit operation would break."""
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
    """A unit cannot be had in 8 bits; the message is why."""


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
    """The one operation of a unit, beside a pad before it and an activation behind."""
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
    """Whether the result shares the scale of what is read, else the fixed one it must have."""
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
    """Whether all elements are one number, which the converter writes without a scheme."""
    value = constant_value(constant)
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())


# Values that share a scale


class ScaleGroups:
    """Values of equal scale and zero point, as groups."""

    def __init__(self, demands: Iterable[Demand]) -> None:
        self._parents: dict[str, str] = {}
        self._fixed: dict[str, Quantisation] = {}
        self.refusals: dict[int, str] = {}
        """Units whose values cannot share a scale, and why; they join none."""
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
        """The name of the group that a value is in: one of its values."""
        parent = self._parents.setdefault(value, value)
        if parent != value:
            parent = self._parents[value] = self.group(parent)
        return parent

    def fixed(self, value: str) -> Quantisation | None:
        """The scale and zero point that NNAPI fixes for a value's group."""
        return self._fixed.get(self.group(value))


def _trial_recipe(program: Program, demands: Mapping[int, Demand], formats: Formats) -> Recipe:
    """A recipe by which only rules that no scale could satisfy are broken."""
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
