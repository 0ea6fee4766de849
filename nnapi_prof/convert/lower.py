"""Lower units of a program to one NNAPI model, through the registry of lowerings.

Outputs that no unit computes (constants, inputs returned unchanged) become a model of copies.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import fx

import nnapi_prof.convert.ops  # noqa: F401  (fills the registry)
from nnapi_prof.convert import ConstantPool, EmissionError, ModelBuilder, OperandId
from nnapi_prof.convert.quantize_lower import MovingLowering, lower_quantised, moves_integers
from nnapi_prof.convert.region import OPERAND_CODES, QUANTISED_CODES, Region, operand_of
from nnapi_prof.convert.registry import Lowering, lower_node, lower_values, lowerer_of
from nnapi_prof.costs.model.forms import ProductForm, UnitForms
from nnapi_prof.errors import ConversionError, NnapiProfError, Refusal, UnsupportedOp
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.node import bound_args, makes_tensor, op_name
from nnapi_prof.graph.program import Program, laid_out
from nnapi_prof.graph.quantisation import is_quantize, quantised_unit
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.nnapi.codes import FeatureLevel, FuseCode, OperandCode, OperationCode

aten = torch.ops.aten


HARDTANH_FUSE_CODES = {(0.0, 6.0): FuseCode.RELU6, (-1.0, 1.0): FuseCode.RELU1}
_POOLS: WeakKeyDictionary[fx.GraphModule, ConstantPool] = WeakKeyDictionary()
_ANSWERS: WeakKeyDictionary[
    fx.GraphModule, dict[tuple[tuple[str, ...], int, bool], Refusal | None]
] = WeakKeyDictionary()


def convert_region(
    program: Program,
    units: Sequence[int],
    level: int,
    forms: UnitForms = (),
    *,
    shared: bool = True,
    for_stock: bool = False,
) -> Region:
    """Returns one NNAPI model that computes the units with these indices.

    ``level`` is a feature level as devices report it (27, 28, ...). Nothing newer is used, except
    BATCH_MATMUL where ``forms`` ask for it: the region's level is then the sixth. The model's
    inputs and outputs are the region's boundary, in the order of ``UnitGraph.boundary``. ``forms``
    names units whose products of activations take another form than the level's usual one.
    ``shared`` is ModelBuilder's. With ``for_stock``, quantised layers with a scale for each channel
    compute in float32, because stock PyTorch's format cannot express them. Raises ConversionError
    without units, and UnsupportedOp, with node and reason, where a unit cannot be lowered.
    """
    if not units:
        raise ConversionError(
            f"{program.name} computes nothing: its outputs are its inputs and constants, NNAPI has"
            " nothing to run"
        )
    entering, leaving = program.units.boundary(units)
    types = program.units.values
    builder = ModelBuilder(level, shared, for_stock, _pool(program))
    nodes = program.nodes
    values = {name: _add_input(builder, nodes[name], types[name]) for name in entering}
    form_of = dict(forms)
    is_batched = ProductForm.BATCHED in form_of.values()
    for index in sorted(set(units)):
        builder.product_form = form_of.get(index)
        _lower_unit(builder, program.units.units[index], nodes, values)
    model = builder.finish([values[name] for name in leaving])
    return Region(
        model=model,
        blobs=tuple(builder.blobs),
        inputs=entering,
        outputs=leaving,
        input_types=tuple(types[name] for name in entering),
        output_types=tuple(types[name] for name in leaving),
        level=max(level, FeatureLevel.LEVEL_6) if is_batched else level,
        in_floats=dict(builder.in_floats),
    )


def _pool(program: Program) -> ConstantPool:
    """Returns the constants that all models of a program share, for as long as its module lives."""
    return _POOLS.setdefault(program.module, ConstantPool())


def _add_input(builder: ModelBuilder, node: fx.Node, type_: TensorType) -> OperandId:
    operand = operand_of(type_)
    if operand is None:
        choices = ", ".join([*OPERAND_CODES, *(f"quantised {name}" for name in QUANTISED_CODES)])
        raise UnsupportedOp(
            node.name, op_name(node.target), f"its value is {type_}, inputs are {choices}"
        )
    try:
        return builder.input(operand)
    except EmissionError as error:
        raise UnsupportedOp(
            node.name, op_name(node.target), f"as an input it is {error}"
        ) from error


def _lower_unit(
    builder: ModelBuilder,
    unit: Unit,
    nodes: Mapping[str, fx.Node],
    values: dict[str, OperandId],
) -> None:
    """Lowers a unit's nodes in order and adds their results to ``values``.

    A zero pad before a convolution becomes its padding; an activation becomes a node's fuse code.
    """
    members = [nodes[name] for name in unit.nodes if _computes(nodes[name])]
    inside = set(members)
    quantised = quantised_unit(members[-1]) if is_quantize(members[-1]) else None
    if quantised is not None and set(quantised.nodes) == inside:
        sides = (0, 0, 0, 0) if quantised.pad is None else _zero_pad(quantised.pad)
        if sides is not None:
            fused = _fuse_code(quantised.activation)
            result = lower_quantised(quantised, builder, values, fused, sides)
            values[quantised.quantize.name] = result
            return
    fused_nodes: set[fx.Node] = set()
    for node in members:
        if node in fused_nodes or _folded_pad(_only_reader(node, inside)) is node:
            continue
        lowerer_of(node)
        pad_node = _folded_pad(node)
        if pad_node not in inside:
            pad_node = None
        reader = _only_reader(node, inside)
        activation = _fuse_code(reader)
        pad = _zero_pad(pad_node) if pad_node is not None else None
        kind = MovingLowering if moves_integers(node) else Lowering
        op = kind(node, builder, values, activation, pad_node, pad or (0, 0, 0, 0))
        if not makes_tensor(node):
            values.update(lower_values(op))
            continue
        values[node.name] = lower_node(op)
        if reader is not None and activation:
            values[reader.name] = values[node.name]
            fused_nodes.add(reader)


def _computes(node: fx.Node) -> bool:
    """Returns whether a node is a call of its own; ``getitem`` is part of the node it reads."""
    return node.op == "call_function" and node.target is not operator.getitem


def _only_reader(node: fx.Node, inside: set[fx.Node]) -> fx.Node | None:
    """Returns the only reader of ``node``, if there is exactly one and it is in the unit."""
    reader = next(iter(node.users), None)
    return reader if len(node.users) == 1 and reader in inside else None


def _fuse_code(node: fx.Node | None) -> FuseCode:
    """Returns the fuse code of an activation node; NONE for any other."""
    if node is None:
        return FuseCode.NONE
    if node.target is aten.relu.default:
        return FuseCode.RELU
    if node.target is aten.hardtanh.default:
        args = bound_args(node)
        bounds = (float(args["min_val"]), float(args["max_val"]))
        return HARDTANH_FUSE_CODES.get(bounds, FuseCode.NONE)
    return FuseCode.NONE


def _folded_pad(node: fx.Node | None) -> fx.Node | None:
    """Returns the pad that ``node`` convolves, if it can become the convolution's padding."""
    if node is None or node.target is not aten.convolution.default:
        return None
    source = bound_args(node)["input"]
    if source.target is not aten.constant_pad_nd.default or len(source.users) != 1:
        return None
    return source if _zero_pad(source) is not None else None


def _zero_pad(node: fx.Node) -> tuple[int, int, int, int] | None:
    """Returns (left, right, top, bottom) of a constant_pad_nd of height and width by zeros."""
    args = bound_args(node)
    pad = [int(size) for size in args["pad"]]
    if args["value"] != 0 or len(pad) > 4 or min(pad, default=0) < 0:
        return None
    left, right, top, bottom = pad + [0] * (4 - len(pad))
    return left, right, top, bottom


def why_not(
    program: Program, unit_index: int, level: int, for_stock: bool = False
) -> Refusal | None:
    """Returns the refusal of a unit at ``level`` (27, 28, ...); None where it can be lowered.

    ``for_stock`` is :func:`convert_region`'s. Answers are kept as long as the program's module.
    """
    answers = _ANSWERS.setdefault(program.module, {})
    key = (program.units.units[unit_index].nodes, level, for_stock)
    if key not in answers:
        try:
            convert_region(program, [unit_index], level, for_stock=for_stock)
            answers[key] = None
        except UnsupportedOp as error:
            answers[key] = error.refusal
    return answers[key]


_TWICE = {
    OperandCode.TENSOR_BOOL8: OperationCode.LOGICAL_OR,
    OperandCode.TENSOR_INT32: OperationCode.MAXIMUM,
}
"""Type that NNAPI cannot reshape -> the operation that copies a tensor given as both arguments."""


def convert_copies(
    graph: UnitGraph, constants: Mapping[str, torch.Tensor], level: int
) -> Region | None:
    """Returns one model, at ``level``, of all outputs of a graph that no unit computes.

    ``constants`` has those that are not inputs; the others are inputs of the region, under the same
    names as the outputs. Returns None without such outputs, or where NNAPI lacks the type of one.
    """
    names = [name for name in dict.fromkeys(graph.outputs) if name not in graph.producer]
    if not names:
        return None
    types = {name: graph.values[name] for name in names}
    builder = ModelBuilder(level)
    entering: list[str] = []
    leaving: list[OperandId] = []
    try:
        for name, type_ in types.items():
            operand = operand_of(type_)
            if operand is None:
                return None
            if name in constants:
                array = laid_out(constants[name], type_).reshape(type_.memory_shape).numpy()
                source = builder.quantised_constant(operand, array)
            else:
                entering.append(name)
                source = builder.input(operand)
            code = _TWICE.get(operand.type)
            sources = (
                [source, source]
                if code
                else [source, builder.constant(np.array(operand.dims, np.int32))]
            )
            (copy,) = builder.add_results(code or OperationCode.RESHAPE, sources, [operand])
            leaving.append(copy)
    except (EmissionError, NnapiProfError):
        return None
    return Region(
        model=builder.finish(leaving),
        blobs=tuple(builder.blobs),
        inputs=tuple(entering),
        outputs=tuple(names),
        input_types=tuple(types[name] for name in entering),
        output_types=tuple(types.values()),
        level=level,
    )
