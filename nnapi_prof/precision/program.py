"""Quantise a float program: the same program with some of its units in 8 bits.

The float graph is in normal form, and so is the copy that :func:`quantise` makes, with quantize and
dequantize nodes at the borders of units, as :mod:`nnapi_prof.graph.quantisation` describes them. No
pass runs on it again: signed values stay signed, and units stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx

from nnapi_prof.errors import ConversionError
from nnapi_prof.graph.grouping import unit_graph
from nnapi_prof.graph.node import (
    TENSOR,
    UNIT,
    add_constant,
    bound_args,
    constant_value,
    is_constant,
    torch_dtype,
    type_of,
)
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.quantisation import (
    DEQUANTIZE,
    DEQUANTIZE_CHANNELS,
    MOVES,
    QUANTIZE,
    RANGES,
    Scheme,
)
from nnapi_prof.graph.unit import Unit
from nnapi_prof.precision import Recipe

aten = torch.ops.aten

QUANTIZE_CHANNELS = torch.ops.quantized_decomposed.quantize_per_channel.default
WEIGHTED = frozenset({aten.convolution.default, aten.linear.default})
"""Operators with arguments (data, weight, bias, ...)."""
WEIGHT_RANGES = {"uint8": (0, 255), "int8": (-127, 127)}
"""Ranges of integers that weights of layers are rounded to; 0 of uint8 is not used, either."""


@dataclass(frozen=True)
class QuantisedProgram:
    """Program with quantised units, and its mapping from the float program."""

    program: Program
    """The quantised program, whose inputs and outputs have the types of the float program's."""
    unit_of: Mapping[int, int]
    """Unit of the float program that is in 8 bits -> the unit here."""
    float_unit_of: Mapping[int, int]
    """Unit of the float program that is unchanged -> the unit here, of the same signature."""
    conversions: Mapping[int, tuple[str, bool]]
    """Unit here that converts -> the value of the float program, and True for floats to integers,
    False for integers to floats."""
    integers: Mapping[str, str]
    """Value of the float program that exists in 8 bits -> its integers here. If it exists in
    floats, too, these keep its name or are the result of a conversion."""


def quantise(
    program: Program, recipe: Recipe, units: Collection[int] | None = None
) -> QuantisedProgram:
    """Quantises ``units`` of ``program``; None for all units of the recipe.

    Every value is converted at most once each way. The same program, recipe and units give equal
    graphs with equal names. Weights are shared with ``program``, and their integers with all other
    programs that this makes from it. Raises ConversionError where the recipe was made for another
    program, or lacks some of ``units``.
    """
    chosen = recipe.units if units is None else frozenset(units)
    _check_recipe(program, recipe, chosen)
    return _Builder(program, recipe, chosen).build()


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """Copies a module's nodes, with their names; the copy shares the constants."""
    graph = fx.Graph()
    nodes: dict[fx.Node, fx.Node] = {}
    result = graph.graph_copy(module.graph, nodes)
    copied_output = graph.output(result)
    copied_output.meta.update(module.graph.output_node().meta)
    return fx.GraphModule(module, graph)


def is_move(node: fx.Node) -> bool:
    """Returns whether a node's unit in 8 bits is the same operator on integers, as it moves
    elements of one value."""
    return node.target in MOVES and node.target is not aten.cat.default


class _Builder:
    """Builder for :func:`quantise`, which changes a copy of the graph unit by unit."""

    def __init__(self, program: Program, recipe: Recipe, units: frozenset[int]) -> None:
        self._program = program
        self._recipe = recipe
        self._chosen = units
        self._units = sorted(units)
        self._module = copied(program.module)
        self._graph = self._module.graph
        self._nodes = {node.name: node for node in self._graph.nodes}
        self._integers: dict[str, fx.Node] = {}
        """Value of the float program -> the node of its integers."""
        self._conversions: dict[str, tuple[str, bool]] = {}
        """Node that converts -> value, and True for floats to integers."""

    def build(self) -> QuantisedProgram:
        units = self._program.units.units
        for index in self._units:
            self._quantise_unit(units[index])
        for index in reversed(self._units):  # a move's float node is erased before what it reads
            self._restore_floats(units[index].outputs[0])
        self._graph.lint()
        self._module.recompile()
        graph = unit_graph(self._graph)
        by_name = {unit.name: unit.index for unit in graph.units}
        return QuantisedProgram(
            program=replace(self._program, module=self._module, units=graph),
            unit_of={
                index: by_name[self._integers[units[index].outputs[0]].name]
                for index in self._units
            },
            float_unit_of={
                unit.index: by_name[unit.name] for unit in units if unit.index not in self._chosen
            },
            conversions={by_name[name]: what for name, what in self._conversions.items()},
            integers={name: node.name for name, node in self._integers.items()},
        )

    # Units

    def _quantise_unit(self, unit: Unit) -> None:
        members = [self._nodes[name] for name in unit.nodes]
        (output,) = unit.outputs
        sources = {name: self._integers_of(name) for name in unit.inputs}
        last = members[-1]
        if is_move(last):
            self._integers[output] = self._moved(last, sources)
            return
        own = list(members)
        for member in members:
            own += self._read_integers(member, sources)
            own += self._quantise_constants(member, unit.inputs[0])
        with self._graph.inserting_after(last):
            quantize = self._convert(QUANTIZE, last, output, f"{output}_int8")
        self._integers[output] = quantize
        for node in (*own, quantize):
            node.meta[UNIT] = quantize.name

    def _integers_of(self, name: str) -> fx.Node:
        """Returns the node of a value's integers, a conversion if no quantised unit makes them."""
        if name not in self._integers:
            value = self._nodes[name]
            place = value
            if value.op == "placeholder":  # after all placeholders
                place = self._graph.find_nodes(op="placeholder")[-1]
            with self._graph.inserting_after(place):
                node = self._convert(QUANTIZE, value, name, f"{name}_int8")
            self._integers[name] = node
            self._conversions[node.name] = (name, True)
        return self._integers[name]

    def _moved(self, move: fx.Node, sources: Mapping[str, fx.Node]) -> fx.Node:
        """Inserts the same operator on integers, after the one on floats."""

        def integers(node: fx.Node) -> fx.Node:
            return sources.get(node.name, node)

        args: Any = fx.node.map_arg(move.args, integers)
        kwargs: Any = fx.node.map_arg(move.kwargs, integers)
        with self._graph.inserting_after(move):
            node = self._graph.create_node(
                "call_function", move.target, args, kwargs, name=f"{move.name}_int8"
            )
        quant = self._recipe.values[move.name]
        node.meta[TENSOR] = replace(type_of(move), dtype=self._recipe.dtype, quant=quant)
        node.meta[UNIT] = node.name
        return node

    def _read_integers(self, node: fx.Node, sources: Mapping[str, fx.Node]) -> list[fx.Node]:
        """Inserts a unit's dequantize nodes between one of its nodes and the integers it reads."""
        own = []
        for source in node.all_input_nodes:
            if source.name in sources:
                with self._graph.inserting_before(node):
                    floats = self._convert(
                        DEQUANTIZE, sources[source.name], source.name, f"{source.name}_read"
                    )
                node.replace_input_with(source, floats)
                own.append(floats)
        return own

    def _restore_floats(self, name: str) -> None:
        """Lets the other readers of a quantised unit's result read its conversion to floats."""
        value, integers = self._nodes[name], self._integers[name]
        own = integers.meta[UNIT]
        readers = [user for user in value.users if user.meta.get(UNIT) != own]
        if readers:
            with self._graph.inserting_after(integers):
                floats = self._convert(DEQUANTIZE, integers, name, f"{name}_float")
            self._conversions[floats.name] = (name, False)
            for reader in readers:
                reader.replace_input_with(value, floats)
        if not value.users:  # a move, whose copy on integers replaces it
            self._graph.erase_node(value)

    def _convert(
        self, target: torch._ops.OpOverload, source: fx.Node, value: str, name: str
    ) -> fx.Node:
        """Creates a quantize or dequantize node of a value, at first as a unit of its own."""
        quant = self._recipe.values[value]
        dtype = self._recipe.dtype
        numbers = (quant.scale, quant.zero_point, *RANGES[dtype], torch_dtype(dtype))
        node = self._graph.create_node("call_function", target, (source, *numbers), name=name)
        made = (dtype, quant) if target is QUANTIZE else ("float32", None)
        node.meta[TENSOR] = replace(type_of(source), dtype=made[0], quant=made[1])
        node.meta[UNIT] = node.name
        return node

    # Constants

    def _quantise_constants(self, node: fx.Node, data: str) -> list[fx.Node]:
        """Replaces a node's constants that have a scheme by dequantized integers, and its bias by
        one rounded as NNAPI's is; returns the dequantize nodes."""
        weighted = node.target in WEIGHTED
        if weighted:
            self._round_bias(node, data)
        own = []
        for source in node.all_input_nodes:
            scheme = self._recipe.weights.get(source.name)
            if is_constant(source) and scheme is not None:
                with self._graph.inserting_before(node):
                    floats = self._quantised(source, scheme, weighted)
                node.replace_input_with(source, floats)
                own.append(floats)
        return own

    def _round_bias(self, node: fx.Node, data: str) -> None:
        """Replaces a layer's bias by that in 8 bits, corrected and rounded as NNAPI's is."""
        args = bound_args(node)
        bias, correction = args["bias"], self._recipe.corrections.get(node.name)
        if bias is None and correction is None:
            return
        if bias is not None and not is_constant(bias):
            return
        scheme = self._recipe.weights[args["weight"].name]
        step = self._recipe.values[data].scale

        def rounded() -> Tensor:
            value = torch.zeros(len(correction or ())) if bias is None else constant_value(bias)
            return round_bias(value.detach() + torch.tensor(correction or 0.0), step, scheme)

        value = _remember(self._program, (node.name, step, scheme, correction), rounded)
        with self._graph.inserting_before(node):
            constant = add_constant(self._graph, value, f"{node.name}_bias")
        position = [argument.name for argument in node.target._schema.arguments].index("bias")  # type: ignore[union-attr]
        node.args = (*node.args[:position], constant, *node.args[position + 1 :])

    def _quantised(self, source: fx.Node, scheme: Scheme, weighted: bool) -> fx.Node:
        low, high = (WEIGHT_RANGES if weighted else RANGES)[scheme.dtype]
        integers = _remember(
            self._program, (source.name, scheme), lambda: round_weight(source, scheme, low, high)
        )
        stored = add_constant(self._graph, integers, f"{source.name}_int8")
        limits = (low, high, torch_dtype(scheme.dtype))
        args: tuple[Any, ...] = (stored, scheme.scales[0], scheme.zero_points[0], *limits)
        target = DEQUANTIZE
        if scheme.axis is not None:
            scales, zeros = channels(scheme)
            scale_node = add_constant(self._graph, scales, f"{source.name}_scales")
            zero_node = add_constant(self._graph, zeros, f"{source.name}_zeros")
            target = DEQUANTIZE_CHANNELS
            args = (stored, scale_node, zero_node, scheme.axis, *limits)
        node = self._graph.create_node("call_function", target, args, name=f"{source.name}_read")
        node.meta[TENSOR] = type_of(source)
        return node


# Numbers, rounded by PyTorch's own operators.


def channels(scheme: Scheme) -> tuple[Tensor, Tensor]:
    """Returns the scales and zero points of a scheme as tensors for the operators."""
    return torch.tensor(scheme.scales), torch.tensor(scheme.zero_points, dtype=torch.int64)


def round_weight(constant: fx.Node, scheme: Scheme, low: int, high: int) -> Tensor:
    """Rounds a float constant to integers."""
    limits = (low, high, torch_dtype(scheme.dtype))
    value = constant_value(constant).detach()
    if scheme.axis is None:
        integers = QUANTIZE(value, scheme.scales[0], scheme.zero_points[0], *limits)
    else:
        integers = QUANTIZE_CHANNELS(value, *channels(scheme), scheme.axis, *limits)
    assert isinstance(integers, Tensor)
    return integers


def round_bias(bias: Tensor, step: float, scheme: Scheme) -> Tensor:
    """Rounds a bias to multiples of the input's scale, ``step``, times the weight's, in floats."""
    scales = torch.tensor(scheme.scales) * step
    steps = (bias / scales).round()
    return steps.clamp(-(2.0**31), 2.0**31) * scales


_INTEGERS: WeakKeyDictionary[fx.GraphModule, dict[Any, Tensor]] = WeakKeyDictionary()


def _remember(program: Program, key: Any, make: Callable[[], Tensor]) -> Tensor:
    """Calls ``make`` once, and caches the result as long as the float program's module lives."""
    integers = _INTEGERS.setdefault(program.module, {})
    if key not in integers:
        integers[key] = make()
    return integers[key]


def _check_recipe(program: Program, recipe: Recipe, units: frozenset[int]) -> None:
    """Raises ConversionError where a recipe lacks what ``units`` of the program need."""
    if missing := units - recipe.units:
        index = min(missing)
        why = recipe.refusals.get(index, "it is not in the recipe")
        raise ConversionError(f"unit {index} of {program.name} cannot run in 8 bits: {why}")
    graph, nodes = program.units, program.nodes
    if units and max(units) >= len(graph.units):
        raise ConversionError(
            f"{program.name} has {len(graph.units)} units, the recipe is for more: calibrate this "
            "model"
        )
    for index in sorted(units):
        unit = graph.units[index]
        values = (*unit.inputs, *unit.outputs)
        sound = len(unit.outputs) == 1 and all(
            name in recipe.values and graph.values[name].dtype == "float32" for name in values
        )
        for node in map(nodes.__getitem__, unit.nodes):
            sound = sound and isinstance(node.target, torch._ops.OpOverload)
            for constant in filter(is_constant, node.all_input_nodes if sound else ()):
                sound = sound and _can_quantise(constant, recipe, node)
            if sound and node.name in recipe.corrections:
                sound = len(recipe.corrections[node.name]) == _channels(node)
        if not sound:
            raise ConversionError(
                f"the recipe does not fit unit {index} of {program.name}, {unit.label}: it was "
                "made for another model or another version of it: calibrate this one"
            )


def _channels(node: fx.Node) -> int:
    """Returns the number of output channels of a layer; 0 for anything else."""
    if node.target not in WEIGHTED:
        return 0
    return type_of(node).shape[1 if node.target is aten.convolution.default else -1]


def _can_quantise(constant: fx.Node, recipe: Recipe, reader: fx.Node) -> bool:
    """Returns whether a recipe's scheme for a constant fits it."""
    scheme, shape = recipe.weights.get(constant.name), type_of(constant).shape
    if scheme is None:
        is_weight = reader.target in WEIGHTED and reader.args[1] is constant
        return not is_weight
    if type_of(constant).dtype != "float32":
        return False
    if scheme.axis is None:
        return len(scheme.scales) == 1
    return scheme.axis < len(shape) and shape[scheme.axis] == len(scheme.scales)
