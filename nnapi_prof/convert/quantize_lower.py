"""Lower an operation between dequantize and quantize nodes to one quant8 operation.

The lowering of the float operation runs unchanged. :class:`QuantisedLowering` gives it integers for
tensors, turns the constants that it writes into integers, and gives each result the scale and zero
point that NNAPI's rules require. A broken rule ends the attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import fx

from nnapi_prof.convert import EmissionError, ModelBuilder, Operand, OperandId
from nnapi_prof.convert.quantize_rules import (
    CHOOSES,
    FIXED,
    FREE,
    ROUNDS,
    SAME_AS_INPUT,
    WEIGHTED,
    ZERO_PADS,
    ComposingLowering,
    Constant,
    Integers,
    composition,
    limits,
)
from nnapi_prof.convert.region import alike, operand_of, quantised_operand
from nnapi_prof.convert.registry import (
    Dims,
    Lowering,
    Scalars,
    Tensors,
    Types,
    lower_node,
    run_lowering,
)
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.graph import DimOrder, Quantisation
from nnapi_prof.graph.node import makes_tensor, op_name, type_of
from nnapi_prof.graph.quantisation import (
    MOVES,
    QuantisedUnit,
    is_dequantize,
    is_weight,
    same_quantisation,
    scheme_of,
    stated_quantisation,
    value_type,
)
from nnapi_prof.nnapi import level_name
from nnapi_prof.nnapi.codes import FuseCode, OperandCode, OperationCode

Pads = tuple[int, int, int, int]
FLOATS = Operand(OperandCode.TENSOR_FLOAT32)
QUANT8 = (OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)


def lower_quantised(
    unit: QuantisedUnit,
    model: ModelBuilder,
    values: Mapping[str, OperandId],
    activation: FuseCode,
    pad: Pads,
) -> OperandId:
    """Returns the operand of the unit's result.

    The unit becomes one quant8 operation if NNAPI has it and its rules hold. Otherwise it becomes
    the float operation between DEQUANTIZE and QUANTIZE, which takes level 3, and
    ``model.in_floats`` has the rule that was broken. Raises UnsupportedOp with both reasons.
    """
    mark = model.mark()
    try:
        if unit.core is unit.dequantize[-1]:
            raise EmissionError("NNAPI has no requantising")
        op = QuantisedLowering(unit, model, values, activation, pad)
        result = run_lowering(op, composition(unit.core.target))
        op.require_target(result)
        return result
    except (UnsupportedOp, EmissionError) as refusal:
        why = refusal.reason if isinstance(refusal, UnsupportedOp) else str(refusal)
    model.back_to(mark)
    try:
        result = _in_floats(unit, model, values, activation, pad)
    except UnsupportedOp as refusal:
        model.back_to(mark)
        reason = f"as a quant8 operation: {why}; in float32 between conversions: {refusal.reason}"
        raise UnsupportedOp(unit.core.name, op_name(unit.core.target), reason) from refusal
    model.in_floats[unit.quantize.name] = why
    return result


def _in_floats(
    unit: QuantisedUnit,
    model: ModelBuilder,
    values: Mapping[str, OperandId],
    activation: FuseCode,
    pad: Pads,
) -> OperandId:
    operands = dict(values)
    for node in unit.dequantize:
        operands[node.name] = lower_node(Lowering(node, model, operands))
    if unit.core not in unit.dequantize:
        op = Lowering(unit.core, model, operands, activation, unit.pad, pad)
        operands[unit.core.name] = lower_node(op)
        if unit.activation is not None:
            operands[unit.activation.name] = operands[unit.core.name]
    return lower_node(Lowering(unit.quantize, model, operands))


class MovingLowering(Lowering):
    """Lowering of an operator that moves quantised integers; refuses operations that compute."""

    def emit(
        self, code: OperationCode, tensors: Tensors, scalars: Scalars = (), dims: Dims = None
    ) -> OperandId:
        self._require_move(code, tensors)
        return super().emit(code, tensors, scalars, dims)

    def emit_as(
        self, types: Types, code: OperationCode, tensors: Tensors, scalars: Scalars = ()
    ) -> tuple[OperandId, ...]:
        self._require_move(code, tensors)
        types = [replace(type_, dtype=self.out.dtype, quant=self.out.quant) for type_ in types]
        return super().emit_as(types, code, tensors, scalars)

    def _require_move(self, code: OperationCode, tensors: Tensors) -> None:
        moves = code in SAME_AS_INPUT - ROUNDS - ZERO_PADS or code is OperationCode.CONCATENATION
        floats = any(isinstance(t, np.ndarray) and t.dtype == np.float32 for t in tensors)
        self.require(moves and not floats, f"{code.name} does more than move quantised integers")


def moves_integers(node: fx.Node) -> bool:
    """Returns whether :class:`MovingLowering` lowers the node."""
    return node.target in MOVES and makes_tensor(node) and type_of(node).quant is not None


class QuantisedLowering(ComposingLowering):
    """Lowering of a float operation whose tensors are the integers behind dequantize nodes.

    Float constants have negative ids: they have no operand before an operation reads them.
    """

    def __init__(
        self,
        unit: QuantisedUnit,
        model: ModelBuilder,
        values: Mapping[str, OperandId],
        activation: FuseCode,
        pad: Pads,
    ) -> None:
        super().__init__(unit.core, model, values, activation, unit.pad, pad)
        self._constants: dict[OperandId, Constant] = {}
        self.target_type = type_of(unit.quantize)
        self.weights = [scheme for w in unit.weights if (scheme := scheme_of(w)) is not None]
        self.rounded: set[OperandId] = set()
        self._between: Quantisation | None = None
        self._numbers = Integers(model, self.weights, self.refuse)
        if self.target_type.quant is None:
            self.refuse(_narrow(unit.quantize))

    def require_target(self, result: OperandId) -> None:
        """Checks that the unit's result has the type of its quantize node."""
        actual, expected = self.model.operand(result), operand_of(self.target_type)
        assert expected is not None
        if not alike(actual, expected):
            self.refuse(
                f"NNAPI gives {_describe_operand(actual)} here, the model wants"
                f" {_describe_operand(expected)} of its result"
            )
        dims = expected.dims
        self.require(actual.dims == dims, f"its lowering gives the shape {actual.dims}, not {dims}")

    # Interface for lowerings: arguments

    def operand(self, operand_id: OperandId) -> Operand:
        """Returns quantised operands, and constants without an operand, as float32, because only
        float lowerings ask for an operand's type."""
        if operand_id in self._constants:
            return Operand(OperandCode.TENSOR_FLOAT32, self._constants[operand_id].array.shape)
        operand = self.model.operand(operand_id)
        return replace(FLOATS, dims=operand.dims) if operand.type in QUANT8 else operand

    def operand_code(self, node: fx.Node) -> OperandCode:
        if not is_dequantize(node):
            return super().operand_code(node)
        type_ = value_type(node)
        operand = operand_of(type_)
        quant = stated_quantisation(node)
        if operand is None or type_.quant is None:
            self.refuse(f"reads {type_}, whose integers are no quantised numbers to NNAPI")
        if quant is None or not same_quantisation(type_.quant, quant):
            self.refuse(f"reads {type_} as {quant or _narrow(node)}")
        return operand.type

    def tensor(self, value: str | fx.Node, order: DimOrder | None = None) -> OperandId:
        node = self._node(value)
        if is_weight(node):
            operand_id = super().tensor(node, order)
            constant = self._constants.get(operand_id)
            if constant is not None:
                self._constants[operand_id] = replace(constant, scheme=scheme_of(node))
            return operand_id
        if not is_dequantize(node):
            return super().tensor(node, order)
        self.operand_code(node)
        source = node.args[0]
        assert isinstance(source, fx.Node)
        type_ = type_of(source)
        return self.reorder(
            self._values[source.name], type_.shape, type_.dim_order, order or type_.dim_order
        )

    def constant(self, array: NDArray[Any]) -> OperandId:
        if array.dtype != np.float32:
            return super().constant(array)
        operand_id = OperandId(-1 - len(self._constants))
        self._constants[operand_id] = Constant(np.atleast_1d(array), None)
        return operand_id

    # Interface for lowerings: operations

    def emit(
        self, code: OperationCode, tensors: Tensors, scalars: Scalars = (), dims: Dims = None
    ) -> OperandId:
        shape = self.out.memory_shape if dims is None else tuple(dims)
        return self._emit(code, tensors, scalars, [shape])[0]

    def emit_as(
        self, types: Types, code: OperationCode, tensors: Tensors, scalars: Scalars = ()
    ) -> tuple[OperandId, ...]:
        if any(type_.dtype != "float32" for type_ in types):
            self.refuse(f"{code.name} gives no quantised values")
        return self._emit(code, tensors, scalars, [type_.memory_shape for type_ in types])

    def emit_between(
        self, code: OperationCode, tensors: Tensors, scalars: Scalars, quant: Quantisation
    ) -> OperandId:
        first = tensors[0]
        assert not isinstance(first, np.ndarray)
        signed = self.model.operand(first).type is not OperandCode.TENSOR_QUANT8_ASYMM
        self._between = replace(quant, zero_point=quant.zero_point - 128 * signed)
        try:
            result = self.emit(code, tensors, scalars, dims=self.dims(first))
        finally:
            self._between = None
        self.rounded.discard(result)
        return result

    def require_within_step(self, error: float) -> None:
        assert self.target_type.quant is not None
        step = self.target_type.quant.scale
        self.require(
            error < step,
            f"roundings on the way would move results by {error / step:.2g} steps, less than one "
            "is allowed",
        )

    def _emit(
        self,
        code: OperationCode,
        tensors: Tensors,
        scalars: Scalars,
        shapes: Sequence[tuple[int, ...]],
    ) -> tuple[OperandId, ...]:
        tensor_ids = [self.constant(t) if isinstance(t, np.ndarray) else t for t in tensors]
        if code not in SAME_AS_INPUT | FREE and code not in FIXED:
            self.refuse(f"{code.name} has no quant8 form that is used here")
        like = self._data_operand(code, tensor_ids)
        if code is OperationCode.MEAN and self._over_image(tensor_ids):
            return (self._pooled(tensor_ids[0], shapes[0]),)
        if code in WEIGHTED:
            self._require_constants(code, tensor_ids[1:3])
            if code is OperationCode.FULLY_CONNECTED and self.weights[0].axis is not None:
                return (self._by_convolution(tensor_ids, scalars, shapes[0]),)
            weight, bias = (self._constants[operand] for operand in tensor_ids[1:3])
            tensor_ids[1:3] = self._numbers.filter_and_bias(code, like, weight, bias)
        tensor_ids = [
            self._numbers.data(code, like, self._constants[t]) if t in self._constants else t
            for t in tensor_ids
        ]
        result = self._result(code, tensor_ids, like)
        rounds = code in ROUNDS and not self._chooses(code, tensor_ids, result)
        rounded_before = [t for t in tensor_ids if t in self.rounded]
        keeps_elements = code in SAME_AS_INPUT or self._chooses(code, rounded_before, result)
        if rounds and rounded_before and not keeps_elements:
            self.refuse(f"{code.name} would round what was rounded before it in this operation")
        if (
            code is OperationCode.ADD
            and self.level < 3
            and len(set(map(self.dims, tensor_ids))) == 1
        ):
            # Android 9 ignores the fuse code here: the activation follows as an operation.
            self.activation_left, scalars = FuseCode(int(scalars[0])), [int(FuseCode.NONE)]
        numbers = [self._scalar(code, like, value) for value in scalars]
        results = self.model.add_results(
            code, [*tensor_ids, *numbers], [replace(result, dims=shape) for shape in shapes]
        )
        if rounds or rounded_before:
            self.rounded.update(results)
        return results

    def _data_operand(self, code: OperationCode, tensor_ids: Sequence[OperandId]) -> Operand:
        """Returns the first quantised value among the tensors; constants take its type."""
        for operand in tensor_ids:
            if operand not in self._constants:
                data = self.model.operand(operand)
                if data.type in QUANT8:
                    return data
        self.refuse(f"{code.name} of constants alone")

    def _result(
        self, code: OperationCode, tensor_ids: Sequence[OperandId], like: Operand
    ) -> Operand:
        """Checks an operation's rules and returns the type, scale and zero point of its result."""
        data = [self.model.operand(operand) for operand in tensor_ids]
        data = [operand for operand in data if operand.type is like.type]
        if code in SAME_AS_INPUT:
            if code in ZERO_PADS and like.zero_point != 0:
                self.require_level(3, f"{code.name} of quantised values with a zero point not 0")
            return like
        if code in FIXED:
            fixed = FIXED[code]
            shift = 0 if like.type is OperandCode.TENSOR_QUANT8_ASYMM else 128
            return quantised_operand(
                like.type, (), replace(fixed, zero_point=fixed.zero_point - shift)
            )
        quant = self._between or self.target_type.quant
        assert quant is not None
        result = quantised_operand(like.type, (), quant)
        if code is OperationCode.CONCATENATION and self.level < 3:
            for operand in data:
                if not alike(operand, result):
                    self.refuse(
                        f"CONCATENATION below {level_name(3)} wants one scale and zero point for "
                        f"all, found {_describe_operand(operand)} for {_describe_operand(result)}"
                    )
        if code is OperationCode.MUL:
            product = np.float32(data[0].scale) * np.float32(data[-1].scale)
            self._require_above(code, result, float(product), "the product of its inputs' scales")
        if code in WEIGHTED and self.level < 3:
            product = np.float32(data[0].scale) * np.float32(data[1].scale)
            self._require_above(
                code, result, float(product), f"input x filter scale below {level_name(3)}"
            )
        return result

    def _require_above(self, code: OperationCode, result: Operand, bound: float, what: str) -> None:
        self.require(
            result.scale > bound,
            f"{code.name} wants a scale of its result above {what}, found {result.scale:.6g} and "
            f"{bound:.6g}",
        )

    def _chooses(
        self, code: OperationCode, tensor_ids: Sequence[OperandId], result: Operand
    ) -> bool:
        """Returns whether the operation only chooses among elements of these tensors."""
        return code in CHOOSES and all(alike(self.model.operand(t), result) for t in tensor_ids)

    def _scalar(self, code: OperationCode, like: Operand, value: bool | int | float) -> OperandId:
        if code is OperationCode.PAD_V2:  # an INT32 in the data's quantisation
            number = float(value) / like.scale + like.zero_point  # e.g. -inf before a maximum
            low, high = limits(like.type)
            return self.model.scalar(round(min(max(number, low), high)))
        return self.model.scalar(value)

    def _require_constants(self, code: OperationCode, tensor_ids: Sequence[OperandId]) -> None:
        for operand in tensor_ids:
            if operand not in self._constants:
                self.refuse(f"{code.name} with a computed filter or bias, constants are required")
        if not self.weights:
            self.refuse(f"{code.name} with float32 weights, quantised ones are required")

    # Cases in which another quant8 operation is better than the float operation's counterpart

    def _over_image(self, tensor_ids: Sequence[OperandId]) -> bool:
        axes = self.model.constant_bytes(tensor_ids[1])
        image_axes = np.array([1, 2], np.int32).tobytes()
        return axes == image_axes and len(self.dims(tensor_ids[0])) == 4

    def _pooled(self, x: OperandId, shape: tuple[int, ...]) -> OperandId:
        """Returns the mean of an image by AVERAGE_POOL_2D, which rounds; MEAN truncates."""
        n, h, w, c = self.dims(x)
        window = [0, 0, 0, 0, w, h, w, h, int(FuseCode.NONE)]
        means = self.emit(OperationCode.AVERAGE_POOL_2D, [x], window, dims=(n, 1, 1, c))
        return self.reshape(means, shape)

    def _by_convolution(
        self,
        tensor_ids: Sequence[OperandId],
        scalars: Scalars,
        shape: tuple[int, ...],
    ) -> OperandId:
        """Returns a CONV_2D of one pixel: FULLY_CONNECTED takes no scales for channels."""
        x, weight, bias = tensor_ids
        n_out, n_in = self.dims(weight)
        batch, _ = shape
        pixels = self.reshape(x, (batch, 1, 1, n_in))
        filters = self._constants[weight].array.reshape(n_out, 1, 1, n_in)
        window = [0, 0, 0, 0, 1, 1, *scalars]
        dims = (batch, 1, 1, n_out)
        result = self.emit(OperationCode.CONV_2D, [pixels, filters, bias], window, dims=dims)
        return self.reshape(result, shape)


def _narrow(node: fx.Node) -> str:
    low, high = node.args[3:5]
    return f"integers from {low} to {high} only, NNAPI's types use their whole range"


def _describe_operand(operand: Operand) -> str:
    name = operand.type.name.removeprefix("TENSOR_")
    return f"{name} of scale {operand.scale:.6g} and zero point {operand.zero_point}"
