"""Write formulas of several NNAPI operations with Python's operators.

A composed lowering reads ``x * sigmoid(x)``. Functions that a level lacks are composed here of
those it has. Values broadcast like NNAPI's operands, at the last dimension in memory. Numbers stand
for tensors of one element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.convert import ELEMENT_TYPES, OperandId
from nnapi_prof.convert.registry import Lowering
from nnapi_prof.graph import DimOrder, TensorType
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

FLOATS = ("float32", "float16")
CASTABLE = (*FLOATS, "int32")
"""Element types that CAST converts between."""
LARGEST = float(np.finfo(np.float32).max)
"""Largest finite float32."""
SMALL = 1024
"""Most elements of a number expanded to a constant of the model; a larger one is a TILE."""

PLAIN = DimOrder.CONTIGUOUS
_DTYPES = {code: dtype.name for dtype, code in ELEMENT_TYPES.items()}
NONE, RELU, RELU1 = FuseCode.NONE, FuseCode.RELU, FuseCode.RELU1


@dataclass(frozen=True, eq=False, slots=True)
class FormulaValue:
    """Operand in a formula of ``op``."""

    op: Lowering
    operand: OperandId
    array: NDArray[Any] | None = None
    """Value of a constant; None for a computed operand."""

    @property
    def dims(self) -> tuple[int, ...]:
        return self.op.dims(self.operand)

    @property
    def dtype(self) -> str:
        return _DTYPES[self.op.operand(self.operand).type]

    # Arithmetic of equal element types

    def __add__(self, other: FormulaValue | float) -> FormulaValue:
        return self.plus(other)

    def __radd__(self, other: float) -> FormulaValue:
        return self.plus(other)

    def __mul__(self, other: FormulaValue | float) -> FormulaValue:
        return self.times(other)

    def __rmul__(self, other: float) -> FormulaValue:
        return self.times(other)

    def __sub__(self, other: FormulaValue | float) -> FormulaValue:
        return self.minus(other)

    def __rsub__(self, other: float) -> FormulaValue:
        return self._beside(other).minus(self)

    def __truediv__(self, other: FormulaValue | float) -> FormulaValue:
        return self.over(other)

    def __rtruediv__(self, other: float) -> FormulaValue:
        return self._beside(other).over(self)

    def plus(self, other: FormulaValue | float, fuse: int = NONE) -> FormulaValue:
        return self.binary(OperationCode.ADD, other, [int(fuse)])

    def times(self, other: FormulaValue | float, fuse: int = NONE) -> FormulaValue:
        return self.binary(OperationCode.MUL, other, [int(fuse)])

    def minus(self, other: FormulaValue | float, fuse: int = NONE) -> FormulaValue:
        """Returns SUB; below level 2 ``self + -1 * other``, which is the same to the last bit."""
        other = self._beside(other)
        if self.op.level >= 2:
            return self.binary(OperationCode.SUB, other, [int(fuse)])
        return self.plus(other * -1, fuse)

    def over(self, other: FormulaValue | float, fuse: int = NONE) -> FormulaValue:
        return self.binary(OperationCode.DIV, other, [int(fuse)])

    def __neg__(self) -> FormulaValue:
        """Returns NEG; for floats below level 3 a product with -1."""
        if self.op.level >= 3 or self.dtype not in FLOATS:
            return self.unary(OperationCode.NEG)
        return self * -1

    def binary(
        self, code: OperationCode, other: FormulaValue | float, scalars: Sequence[int] = ()
    ) -> FormulaValue:
        """Returns an operation of two tensors that broadcasts and keeps the element type."""
        right = self._beside(other)
        dims = np.broadcast_shapes(self.dims, right.dims)
        return FormulaValue(
            self.op, self.op.emit(code, [self.operand, right.operand], scalars, dims=dims)
        )

    def unary(self, code: OperationCode, *scalars: float) -> FormulaValue:
        """Returns an operation of one tensor that keeps shape and element type."""
        return FormulaValue(self.op, self.op.emit(code, [self.operand], scalars, dims=self.dims))

    # Comparison and choice: level 3

    def is_(self, code: OperationCode, other: FormulaValue | float) -> FormulaValue:
        """Returns a comparison or logical operation of two tensors; the result is bool."""
        right = self._beside(other)
        type_ = TensorType(tuple(np.broadcast_shapes(self.dims, right.dims)), "bool")
        (result,) = self.op.emit_as([type_], code, [self.operand, right.operand])
        return FormulaValue(self.op, result)

    def __gt__(self, other: FormulaValue | float) -> FormulaValue:
        return self.is_(OperationCode.GREATER, other)

    def __lt__(self, other: FormulaValue | float) -> FormulaValue:
        return self.is_(OperationCode.LESS, other)

    def select(
        self, then: FormulaValue | float, other: FormulaValue | float, dtype: str
    ) -> FormulaValue:
        """Returns the elements of ``then`` where this bool value holds, else those of ``other``."""
        parts = [_as_value(self.op, part, dtype) for part in (then, other)]
        dims = np.broadcast_shapes(self.dims, *(part.dims for part in parts))
        condition = self.expanded(dims).operand
        tensors = [part.expanded(dims).operand for part in parts]
        type_ = TensorType(tuple(dims), dtype)
        (result,) = self.op.emit_as([type_], OperationCode.SELECT, [condition, *tensors])
        return FormulaValue(self.op, result)

    # Reductions over axes in memory

    def reduced(self, code: OperationCode, axes: Sequence[int], keep: bool = True) -> FormulaValue:
        """Returns the value reduced by ``code``; by default the axes stay, with size 1.

        Android 9's MEAN fails if it drops all axes, so at level 2 a RESHAPE drops them.
        """
        op, dims = self.op, self.dims
        if op.level == 2 and not keep and len(set(axes)) == len(dims):
            return self.reduced(code, axes).reshaped([1])
        result = with_ones(dims, axes) if keep else [n for i, n in enumerate(dims) if i not in axes]
        scalar = int(keep) if code is OperationCode.MEAN else keep
        positions = np.array(sorted(axes), np.int32)
        return FormulaValue(
            op, op.emit(code, [self.operand, positions], [scalar], dims=result or [1])
        )

    def summed(self, axes: Sequence[int], factor: float = 1.0) -> FormulaValue:
        """Returns ``factor * sum(self)``; the axes stay, with size 1.

        REDUCE_SUM came with level 3, MEAN with level 2. At level 1, FULLY_CONNECTED with one row of
        ``factor`` sums the last axes.
        """
        op, dims = self.op, self.dims
        count = math.prod(dims[axis] for axis in axes)
        if op.level == 1:
            real = [axis for axis, size in enumerate(dims) if size > 1]
            last = [axis for axis in real if axis in axes]
            op.require(
                last == real[len(real) - len(last) :],
                "summing other than the last axes needs level 2 (API 28), the device has "
                "level 1 (API 27)",
            )
            rows = self.reshaped((math.prod(dims) // count, count))
            weights, bias = np.full((1, count), factor, np.float32), np.zeros(1, np.float32)
            sums = fully_connected(op, rows.operand, weights, bias)
            return FormulaValue(op, op.reshape(sums, with_ones(dims, axes)))
        if op.level == 2 or math.isclose(factor * count, 1.0):
            result, factor = self.reduced(OperationCode.MEAN, axes), factor * count
        else:
            result = self.reduced(OperationCode.REDUCE_SUM, axes)
        return result if math.isclose(factor, 1.0) else result * factor

    def mean(self, axes: Sequence[int]) -> FormulaValue:
        """Returns the mean, at every level; the axes stay, with size 1."""
        return self.summed(axes, 1 / math.prod(self.dims[axis] for axis in axes))

    # Shape and element type

    def reshaped(self, dims: Sequence[int]) -> FormulaValue:
        return FormulaValue(self.op, self.op.reshape(self.operand, dims))

    def transposed(self, permutation: Sequence[int]) -> FormulaValue:
        return FormulaValue(self.op, self.op.transpose(self.operand, permutation))

    def laid_out(self) -> OperandId:
        """Returns the node's result from its elements in logical order, in any shape."""
        out = self.op.out
        return self.op.reorder(
            self.op.reshape(self.operand, out.shape or (1,)), out.shape, PLAIN, out.dim_order
        )

    def expanded(self, dims: Sequence[int]) -> FormulaValue:
        """Returns the value broadcast to ``dims`` explicitly, because SELECT does not broadcast.

        A small constant is expanded at once. A bool value is combined with a constant false, of
        size 1 wherever the value has its full size. Any other is repeated by TILE.
        """
        if self.dims == tuple(dims):
            return self
        if self.array is not None and math.prod(dims) <= SMALL:
            return constant(self.op, np.broadcast_to(self.array, dims))
        own = (1,) * (len(dims) - len(self.dims)) + self.dims
        repeats = [1 if have == want else want for have, want in zip(own, dims, strict=True)]
        if self.dtype == "bool":
            return self.is_(OperationCode.LOGICAL_OR, constant(self.op, np.zeros(repeats, bool)))
        tall = self if self.array is None else constant(self.op, self.array.reshape(own))
        while len(tall.dims) < len(dims):
            shape = (1, *tall.dims)
            tall_operand = self.op.emit(OperationCode.EXPAND_DIMS, [tall.operand], [0], dims=shape)
            tall = FormulaValue(self.op, tall_operand)
        if math.prod(repeats) == 1:
            return tall
        tiles = np.array(repeats, np.int32)
        return FormulaValue(
            self.op, self.op.emit(OperationCode.TILE, [tall.operand, tiles], dims=dims)
        )

    def cast(self, dtype: str) -> FormulaValue:
        """Returns the value in another element type of the device, by PyTorch's rules.

        CAST converts numbers only; floats lose their fraction when they become integers, as in
        PyTorch. To bool is a comparison with 0, from bool a choice between 1 and 0.
        """
        have = self.dtype
        if have == dtype:
            return self
        if dtype == "bool":
            return self.is_(OperationCode.NOT_EQUAL, 0)
        if have == "bool":
            return self.select(1, 0, dtype)
        assert have in CASTABLE and dtype in CASTABLE
        (result,) = self.op.emit_as(
            [TensorType(self.dims, dtype)], OperationCode.CAST, [self.operand]
        )
        return FormulaValue(self.op, result)

    def _beside(self, other: FormulaValue | float) -> FormulaValue:
        return _as_value(self.op, other, self.dtype)


def tensor(op: Lowering, name: str, order: DimOrder | None = None) -> FormulaValue:
    """Returns a tensor argument in the given dim order (by default its own)."""
    return FormulaValue(op, op.tensor(name, order))


def floats(op: Lowering, name: str, what: str, order: DimOrder | None = None) -> FormulaValue:
    """Returns a float32 argument like :func:`tensor`; ``what`` begins the refusal of any other."""
    dtype = op.type(name).dtype
    op.require(dtype == "float32", f"{what} of {dtype}, float32 is required")
    return tensor(op, name, order)


def constant(op: Lowering, array: NDArray[Any]) -> FormulaValue:
    """Returns a constant tensor in the device's element type; rank 0 becomes rank 1."""
    array = np.atleast_1d(array)
    return FormulaValue(op, op.constant(array), array)


def number(op: Lowering, value: float, dtype: str) -> FormulaValue:
    """Returns a tensor of one element. Refuses a value that the element type cannot hold."""
    return constant(op, numbers(op, np.array([value]), dtype))


def numbers(op: Lowering, array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Returns an array in an element type of the device: floats are rounded, integers exact."""
    if dtype in FLOATS:
        return array.astype(dtype)
    with np.errstate(invalid="ignore"):
        result = array.astype(dtype)
    exact = np.array_equal(result, array)
    op.require(exact, f"the constant {array.reshape(-1)[:8].tolist()} is not {dtype}")
    return result


def _as_value(op: Lowering, term: FormulaValue | float, dtype: str) -> FormulaValue:
    return term if isinstance(term, FormulaValue) else number(op, term, dtype)


def with_ones(dims: Sequence[int], axes: Sequence[int]) -> list[int]:
    """Returns ``dims`` with size 1 at ``axes``."""
    return [1 if axis in axes else size for axis, size in enumerate(dims)]


def fully_connected(
    op: Lowering,
    x: OperandId,
    weights: OperandId | NDArray[Any],
    bias: OperandId | NDArray[Any],
    fuse: int = NONE,
) -> OperandId:
    """Returns ``x[..., I] @ weights[N, I]^T + bias[N]`` as [M, N], FULLY_CONNECTED's only rank."""
    n, n_in = op.dims(weights) if isinstance(weights, int) else weights.shape
    dims = (math.prod(op.dims(x)) // n_in, n)
    return op.emit(OperationCode.FULLY_CONNECTED, [x, weights, bias], [int(fuse)], dims=dims)


# Functions that a level lacks, composed of those it has


def relu(x: FormulaValue) -> FormulaValue:
    """Returns ``max(x, 0)``, of integers too."""
    return x.unary(OperationCode.RELU) if x.dtype in FLOATS else x.binary(OperationCode.MAXIMUM, 0)


def negative_part(x: FormulaValue) -> FormulaValue:
    """Returns ``min(x, 0)`` at every level."""
    if x.op.level >= 3:
        return x.binary(OperationCode.MINIMUM, 0)
    return -relu(-x)


def absolute(x: FormulaValue) -> FormulaValue:
    """Returns ``|x|``: ABS, or the sum of ``relu(x)`` and ``relu(-x)``, one of which is 0."""
    if x.op.level >= (3 if x.dtype in FLOATS else 4):
        return x.unary(OperationCode.ABS)
    if x.dtype in FLOATS:
        return relu(x) + relu(-x)
    return x.binary(OperationCode.MAXIMUM, -x)


def sigmoid(x: FormulaValue) -> FormulaValue:
    return x.unary(OperationCode.LOGISTIC)


def exponential(x: FormulaValue) -> FormulaValue:
    """Returns ``e ** x``. EXP came with level 3. At level 2 it is ``sigmoid(x) / sigmoid(-x)``,
    which is equal and loses at most three roundings."""
    if x.op.level >= 3:
        return x.unary(OperationCode.EXP)
    return sigmoid(x) / sigmoid(-x)


def floor(x: FormulaValue) -> FormulaValue:
    return x.unary(OperationCode.FLOOR)


def truncated(x: FormulaValue) -> FormulaValue:
    """Returns ``x`` without its fraction. Both signs are floored separately; one of them is 0."""
    return floor(relu(x)) - floor(relu(-x))


def polynomial(x: FormulaValue, coefficients: Sequence[float]) -> FormulaValue:
    """Returns ``c[0] + c[1] * x + c[2] * x ** 2 + ...`` by Horner's rule."""
    *rest, top = coefficients
    result = x * top + rest[-1]
    for coefficient in reversed(rest[:-1]):
        result = result * x + coefficient
    return result
