"""Lower reductions, cumulative sums and products, and triangles."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from nnapi_prof.convert import OperandId
from nnapi_prof.convert.ops.element_types import (
    argument,
    device_dtype,
    moves_elements,
    result_dtype,
)
from nnapi_prof.convert.ops.formula import (
    FLOATS,
    LARGEST,
    FormulaValue,
    absolute,
    constant,
    floats,
    fully_connected,
    tensor,
    with_ones,
)
from nnapi_prof.convert.ops.slicing import concatenate, strided_slice
from nnapi_prof.convert.registry import Lowering, lies_as_it_reads, lowers, memory_axis
from nnapi_prof.graph import DimOrder, TensorType
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

aten = torch.ops.aten

REDUCTIONS = {
    aten.amax.default: OperationCode.REDUCE_MAX,
    aten.amin.default: OperationCode.REDUCE_MIN,
    aten.max.default: OperationCode.REDUCE_MAX,
    aten.min.default: OperationCode.REDUCE_MIN,
    aten.prod.default: OperationCode.REDUCE_PROD,
    aten.prod.dim_int: OperationCode.REDUCE_PROD,
    aten.any.default: OperationCode.REDUCE_ANY,
    aten.any.dim: OperationCode.REDUCE_ANY,
    aten.any.dims: OperationCode.REDUCE_ANY,
    aten.all.default: OperationCode.REDUCE_ALL,
    aten.all.dim: OperationCode.REDUCE_ALL,
    aten.all.dims: OperationCode.REDUCE_ALL,
}
"""Reductions that take a BOOL to keep the axes; MEAN takes an INT32."""


@lowers(aten.mean.dim, aten.mean.default)
def mean(op: Lowering) -> OperandId:
    """Lowers ``mean(x, dim, keepdim)`` over any axes.

    Below level 2, which has no MEAN, the mean of an image over height and width is a global
    AVERAGE_POOL_2D, and that of the last axes a FULLY_CONNECTED.
    """
    source = op.type("self")
    if op.level >= 2:
        return _reduce(op, OperationCode.MEAN)
    if _axes(op) != [2, 3] or source.dim_order is DimOrder.CONTIGUOUS:
        x, axes = _source(op)
        return _give(x.mean(axes))
    _, _, h, w = source.shape
    scalars = [0, 0, 0, 0, w, h, w, h, int(FuseCode.NONE)]
    image, dims = op.tensor("self"), _kept_type(op).memory_shape
    return _give(
        FormulaValue(op, op.emit(OperationCode.AVERAGE_POOL_2D, [image], scalars, dims=dims))
    )


@lowers(*REDUCTIONS)
def reduction(op: Lowering) -> OperandId:
    """Lowers products, extremes, ``any`` and ``all`` over any axes, from level 3 on."""
    return _reduce(op, REDUCTIONS[op.target])


@lowers(aten.sum.default, aten.sum.dim_IntList)
@moves_elements
def total(op: Lowering) -> OperandId:
    """Lowers sums over any axes; below level 3, which has REDUCE_SUM, by
    :meth:`~nnapi_prof.convert.ops.formula.FormulaValue.summed`."""
    if op.level < 3 and op.out.dtype == "float32":
        x, axes = _source(op)
        return _give(x.summed(axes))
    return _reduce(op, OperationCode.REDUCE_SUM)


@lowers(aten.var.default, aten.var.dim, aten.var.correction)
def variance(op: Lowering) -> OperandId:
    """Lowers ``var`` over any axes: the mean of (x - mean)^2, times n / (n - correction)."""
    return _give(_variance(op)[0])


@lowers(aten.std.default, aten.std.dim, aten.std.correction)
def deviation(op: Lowering) -> OperandId:
    """Lowers ``std``, the square root of ``var``; SQRT came with level 3."""
    return _give(_root(_variance(op)[0]))


@lowers(
    *(aten.var_mean.default, aten.var_mean.dim, aten.var_mean.correction),
    *(aten.std_mean.default, aten.std_mean.dim, aten.std_mean.correction),
)
def spread_and_mean(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``var_mean(x) -> (variance, mean)``, and ``std_mean`` with the variance's root."""
    spread, average = _variance(op)
    if op.target in (aten.std_mean.default, aten.std_mean.dim, aten.std_mean.correction):
        spread = _root(spread)
    return _give(spread), _give(average)


@lowers(aten.aminmax.default)
def extremes(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``aminmax(x, dim, keepdim) -> (minimum, maximum)``."""
    x, axes = _source(op)
    codes = (OperationCode.REDUCE_MIN, OperationCode.REDUCE_MAX)
    return tuple(_give(x.reduced(code, axes)) for code in codes)


def _variance(op: Lowering) -> tuple[FormulaValue, FormulaValue]:
    """Returns the variance and the mean over axes in memory, which stay with size 1."""
    x, axes = _source(op)
    count = math.prod(x.dims[axis] for axis in axes)
    correction = _correction(op)
    op.require(
        count > correction,
        f"correction {correction:g} with {count} elements: there is no such variance",
    )
    average = x.mean(axes)
    deviations = x - average
    return (deviations * deviations).summed(axes, 1 / (count - correction)), average


def _root(x: FormulaValue) -> FormulaValue:
    x.op.require_level(3, "a root (SQRT)")
    return x.unary(OperationCode.SQRT)


@lowers(aten.logsumexp.default)
def logsumexp(op: Lowering) -> OperandId:
    """Lowers ``log(sum(exp(x)))`` as ``m + log(sum(exp(x - m)))`` with ``m`` the maximum.

    ``m`` is kept finite. If the true maximum is infinite, so is the logarithm alone. It is then the
    result, because NNAPI's sums are finite on phones.
    """
    x, axes = _source(op)
    highest = x.reduced(OperationCode.REDUCE_MAX, axes)
    highest = highest.binary(OperationCode.MAXIMUM, -LARGEST)
    highest = highest.binary(OperationCode.MINIMUM, LARGEST)
    powers = (x - highest).unary(OperationCode.EXP)
    logarithm = powers.summed(axes).unary(OperationCode.LOG)
    infinite = absolute(logarithm).is_(OperationCode.EQUAL, math.inf)
    return _give(infinite.select(logarithm, logarithm + highest, "float32"))


@lowers(
    aten.linalg_vector_norm.default,
    *(aten.norm.Scalar, aten.norm.ScalarOpt_dim),
)
def vector_norm(op: Lowering) -> OperandId:
    """Lowers ``(sum |x|^p)^(1/p)`` over any axes. p = 1, 2 and +-infinity need no powers, others
    use POW; 0 (the number of elements that are not zero) is refused."""
    argument = op.arg("ord" if op.target is aten.linalg_vector_norm.default else "p")
    order = 2.0 if argument is None else float(argument)
    op.require(
        order != 0, "the norm of order 0 counts elements, 1, 2, inf or another p is required"
    )
    x, axes = _source(op)
    if order == 2:
        return _give(_root((x * x).summed(axes)))
    size = x.unary(OperationCode.ABS)
    if math.isinf(order):
        code = OperationCode.REDUCE_MAX if order > 0 else OperationCode.REDUCE_MIN
        return _give(size.reduced(code, axes))
    if order == 1:
        return _give(size.summed(axes))
    powers = size.binary(OperationCode.POW, order).summed(axes)
    return _give(powers.binary(OperationCode.POW, 1 / order))


def _correction(op: Lowering) -> float:
    """Returns the number to subtract from the count of elements: 1 by default."""
    if "correction" in {argument.name for argument in op.target._schema.arguments}:
        correction = op.arg("correction")
        return 1.0 if correction is None else float(correction)
    return 1.0 if op.arg("unbiased") else 0.0


def _argument(op: Lowering, name: str) -> object:
    """Returns an argument; None where the operator's overload lacks it."""
    names = {argument.name for argument in op.target._schema.arguments}
    return op.arg(name) if name in names else None


def _axes(op: Lowering) -> list[int]:
    """Returns the logical axes to reduce, ascending; all if the node states none."""
    rank = len(op.type("self").shape)
    argument = _argument(op, "dim")
    dims = [argument] if isinstance(argument, int) else argument
    axes: Sequence[int] = dims if isinstance(dims, list | tuple) and dims else range(rank)
    return sorted({axis % max(rank, 1) for axis in axes})


def _source(op: Lowering) -> tuple[FormulaValue, list[int]]:
    """Returns the value to reduce, and its axes in memory; a tensor of rank 0 has one there."""
    order = op.type("self").dim_order
    axes = sorted(memory_axis(order, axis) for axis in _axes(op)) or [0]
    return tensor(op, "self"), axes


def _kept_type(op: Lowering) -> TensorType:
    """Returns the type of the reduction that keeps its axes, in the input's dim order."""
    source = op.type("self")
    shape = tuple(with_ones(source.shape, _axes(op)))
    return TensorType(shape, source.dtype, source.dim_order)


def _give(x: FormulaValue) -> OperandId:
    """Returns the node's result from a reduction that kept its axes."""
    return x.op.relay(x.operand, _kept_type(x.op), x.op.out)


def _reduce(op: Lowering, code: OperationCode) -> OperandId:
    """Reduces in memory. Where NNAPI's order of the remaining axes is not PyTorch's, the axes stay
    until the result is back in its order."""
    x, axes = _source(op)
    op.require(
        op.type("self").dtype == op.out.dtype,
        f"reduces {op.type('self').dtype} to {op.out.dtype}, NNAPI reduces to the same type",
    )
    rest_dims = [n for axis, n in enumerate(x.dims) if axis not in axes] or [1]
    if not _argument(op, "keepdim") and tuple(rest_dims) == op.out.memory_shape:
        if lies_as_it_reads(_kept_type(op)):
            return x.reduced(code, axes, keep=False).operand
    return _give(x.reduced(code, axes))


LONGEST = 2048
"""Longest axis of cumsum, which multiplies by a square of ones: 16 MiB of float32 at this size."""


@lowers(aten.cumsum.default)
@moves_elements
def cumsum(op: Lowering) -> OperandId:
    """Lowers ``cumsum(x[..., n, ...], dim)`` as a product with a triangle of ones [n, n], by
    FULLY_CONNECTED with the axis moved to the end.

    Bools are counted as floats, which is exact. FULLY_CONNECTED takes no integers: from level 4 on
    they are split into parts as floats (element_types.py), whose sums are exact up to LONGEST.
    """
    device_dtype(op, op.type("self").dtype)
    order = op.out.dim_order
    x = tensor(op, "self", order)
    if x.dtype == "bool":
        x = x.cast("float32")
    elif result_dtype(op) in FLOATS:
        x = x.cast(result_dtype(op))
    op.require(
        x.dtype in FLOATS,
        f"sums {op.type('self').dtype} before level 4, NNAPI's FULLY_CONNECTED takes floats",
    )
    rank = len(x.dims)
    axis = memory_axis(order, op.arg("dim") % max(1, len(op.out.shape)))
    n = x.dims[axis]
    op.require(n <= LONGEST, f"sums along {n} elements, up to {LONGEST} are lowered")
    to_end = [i for i in range(rank) if i != axis] + [axis]
    x = x.transposed(to_end)
    rows = x.reshaped((math.prod(x.dims) // n, n)).operand
    ones, zeros = np.ones((n, n), x.dtype), np.zeros(n, x.dtype)
    sums = FormulaValue(op, fully_connected(op, rows, np.tril(ones), zeros)).reshaped(x.dims)
    back = sums.transposed([to_end.index(i) for i in range(rank)])
    return back.cast(result_dtype(op)).operand


@lowers(aten.cumprod.default)
def cumprod(op: Lowering) -> OperandId:
    """Lowers ``cumprod(x[..., n, ...], dim)`` in log2(n) steps.

    Each step multiplies by the products that end 1, 2, 4, ... elements before, or by ones at the
    front (Hillis and Steele, 1986).
    """
    order = op.out.dim_order
    x = floats(op, "self", "a cumulative product", order)
    rank = len(x.dims)
    axis = memory_axis(order, op.arg("dim") % max(1, len(op.out.shape)))
    to_end = [i for i in range(rank) if i != axis] + [axis]
    x = x.transposed(to_end)
    dims, n = x.dims, x.dims[-1]
    count, reach = math.prod(dims) // n, 1
    result = x.reshaped((count, n))
    while reach < n:
        ones = op.constant(np.ones((count, reach), np.float32))
        before = strided_slice(op, result.operand, (0, 0), (count, n - reach))
        result = result * FormulaValue(op, concatenate(op, [ones, before], 1))
        reach *= 2
    back = result.reshaped(dims).transposed([to_end.index(i) for i in range(rank)])
    return back.operand


@lowers(aten.tril.default, aten.triu.default)
def triangle(op: Lowering) -> OperandId:
    """Lowers ``tril(x[..., h, w], diagonal)`` and ``triu``: x where a constant mask holds, or 0."""
    h, w = op.out.shape[-2:]
    cut = np.tril if op.target is aten.tril.default else np.triu
    mask = constant(op, cut(np.ones((h, w), bool), op.arg("diagonal")))
    x = argument(op, "self")
    op.require(x.dims == op.out.shape, f"of {op.out}, a contiguous tensor is required")
    if x.dtype == "bool":
        return x.is_(OperationCode.LOGICAL_AND, mask).operand
    return mask.select(x, 0, x.dtype).operand
