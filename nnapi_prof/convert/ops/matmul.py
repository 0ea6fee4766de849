"""Products of matrices, and linear layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import PLAIN, Value, constant, fully_connected, tensor
from nnapi_prof.convert.ops.slicing import strided_slice
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.graph.node import is_constant
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

MAX_PRODUCTS = 256
"""How many products one node may become below level 6, which has BATCH_MATMUL: each is a
FULLY_CONNECTED between slices, so that more than a few hundred would cost more in overhead than
they compute."""


@lowers(aten.mm.default, aten.bmm.default, aten.matmul.default)
def matmul(op: Lowering) -> OperandId:
    """Lowers ``matmul(x[..., M, K], y[..., K, N]) -> [..., M, N]`` with PyTorch's broadcasting;
    a vector is a row on the left, a column on the right, and leaves no axis in the result."""
    second = "other" if op.target is aten.matmul.default else "mat2"
    return _product_of(op, "self", second).laid_out()


@lowers(aten.addmm.default, aten.baddbmm.default)
def addmm(op: Lowering) -> OperandId:
    """Lowers ``beta * self + alpha * (x @ y)``; ``self`` broadcasts and is not read for beta=0."""
    flat = op.target is aten.addmm.default
    result = _product_of(op, *(("mat1", "mat2") if flat else ("batch1", "batch2")))
    result = result.reshaped(op.out.memory_shape)
    alpha, beta = float(op.arg("alpha")), float(op.arg("beta"))
    if alpha != 1:
        result = result * alpha
    if beta == 0:
        return result.operand
    addend = tensor(op, "self", PLAIN)
    return (result + (addend if beta == 1 else addend * beta)).operand


@lowers(aten.dot.default, aten.mv.default)
def dot(op: Lowering) -> OperandId:
    """Lowers ``dot(x[K], y[K])`` and ``mv(x[M, K], y[K])``, products with one column."""
    second = "tensor" if op.target is aten.dot.default else "vec"
    return _product_of(op, "self", second).reshaped(op.out.memory_shape).operand


def _product_of(op: Lowering, first: str, second: str) -> Value:
    """The product of two arguments, vectors filled up to matrices, as [..., M, N]."""
    for name in (first, second):
        dtype = op.type(name).dtype
        op.require(dtype == "float32", f"a product of {dtype}, float32 is wanted")
    x = tensor(op, first, PLAIN)
    if len(op.type(first).shape) == 1:
        x = x.reshaped((1, *x.dims))
    if is_constant(op.arg(second)):  # transposed here, once
        matrix = op.array(second)
        rows = matrix[None] if matrix.ndim == 1 else matrix.swapaxes(-1, -2)
        return product(x, constant(op, rows), transposed=True)
    y = tensor(op, second, PLAIN)
    if len(op.type(second).shape) == 1:
        return product(x, y.reshaped((1, *y.dims)), transposed=True)
    return product(x, y)


def product(x: Value, y: Value, transposed: bool = False) -> Value:
    """``x[..., M, K] @ y[..., K, N]``, or ``@ y[..., N, K]^T`` if ``transposed``: [..., M, N].

    Where only one side has batches the other is one matrix for all of them, and a single
    FULLY_CONNECTED does it. Otherwise BATCH_MATMUL from level 6 on; before, one FULLY_CONNECTED
    for each pair of matrices (at most MAX_PRODUCTS), whose weights are computed tensors.
    """
    op = x.op
    *x_batch, m, k = x.dims
    *y_batch, rows, columns = y.dims
    n = rows if transposed else columns
    batch = np.broadcast_shapes(tuple(x_batch), tuple(y_batch))
    if math.prod(y_batch) == 1:
        left = x.reshaped((math.prod(x_batch) * m, k))
        right = _as_weights(y.reshaped((rows, columns)), transposed)
        return _fully_connected(left, right).reshaped((*batch, m, n))
    if math.prod(x_batch) == 1:
        right = _as_weights(y.reshaped((math.prod(y_batch), rows, columns)), transposed)
        right = right.reshaped((math.prod(y_batch) * n, k))
        transpose = _fully_connected(right, x.reshaped((m, k)))
        transpose = transpose.reshaped((math.prod(y_batch), n, m))
        return transpose.transposed((0, 2, 1)).reshaped((*batch, m, n))
    if op.level < 6:
        pairs = _pair_by_pair(x, _as_weights(y, transposed), batch)
        return pairs.reshaped((*batch, m, n))
    tensors = [_spread(x, batch).operand, _spread(y, batch).operand]
    flat = (math.prod(batch), m, n)
    result = op.emit(OperationCode.BATCH_MATMUL, tensors, [False, transposed], dims=flat)
    return Value(op, result).reshaped((*batch, m, n))


def _as_weights(y: Value, transposed: bool) -> Value:
    """``y[..., N, K]``, as FULLY_CONNECTED reads its weights."""
    if transposed:
        return y
    *batch, rows, columns = y.dims
    y = y.reshaped((math.prod(batch), rows, columns))
    return y.transposed((0, 2, 1)).reshaped((*batch, columns, rows))


def _fully_connected(x: Value, weights: Value) -> Value:
    """``x[M, K] @ weights[N, K]^T -> [M, N]``."""
    bias = np.zeros(weights.dims[0], np.float32)
    return Value(x.op, fully_connected(x.op, x.operand, weights.operand, bias))


def _spread(x: Value, batch: Sequence[int]) -> Value:
    """``x[..., R, C]`` as [B, R, C] with a matrix for each of B batches, repeated where ``x`` has
    one for several: BATCH_MATMUL does not broadcast."""
    *own, rows, columns = x.dims
    own = [1] * (len(batch) - len(own)) + own
    x = x.reshaped((*own, rows * columns))
    if own != list(batch):
        repeats = [size // mine for size, mine in zip(batch, own, strict=True)]
        counts, dims = np.array([*repeats, 1], np.int32), (*batch, rows * columns)
        x = Value(x.op, x.op.emit(OperationCode.TILE, [x.operand, counts], dims=dims))
    return x.reshaped((math.prod(batch), rows, columns))


def _pair_by_pair(x: Value, weights: Value, batch: Sequence[int]) -> Value:
    """``x[..., M, K] @ weights[..., N, K]^T`` for each batch on its own, as [B * M, N]."""
    count = math.prod(batch)
    x.op.require(
        count <= MAX_PRODUCTS,
        f"{count} products of matrices: below level 6, which has BATCH_MATMUL, up to "
        f"{MAX_PRODUCTS} are done one by one",
    )
    lefts, rights = _matrices(x, batch), _matrices(weights, batch)
    parts = [_fully_connected(left, right) for left, right in zip(lefts, rights, strict=True)]
    m, n = parts[0].dims
    tensors = [part.operand for part in parts]
    return Value(x.op, x.op.emit(OperationCode.CONCATENATION, tensors, [0], dims=(count * m, n)))


def _matrices(x: Value, batch: Sequence[int]) -> list[Value]:
    """The matrix of ``x[..., R, C]`` for each batch, in order; a shared one is cut out once."""
    *own, rows, columns = x.dims
    count = math.prod(own)
    flat = x.reshaped((count * rows, columns)).operand
    matrices = [
        Value(x.op, strided_slice(x.op, flat, (i * rows, 0), ((i + 1) * rows, columns)))
        for i in range(count)
    ]
    places = np.broadcast_to(np.arange(count).reshape(own), tuple(batch)).reshape(-1)
    return [matrices[place] for place in places]


@lowers(aten.linear.default)
def linear(op: Lowering) -> OperandId:
    """Lowers ``linear(x[..., in], w[out, in], b[out]) -> [..., out]``.

    FULLY_CONNECTED has torch's weights, wants a bias, and always gives rank 2: other ranks are
    flattened before where NNAPI would not (rank 1), and unflattened after. Weights
    and bias may be computed by the model.
    """
    shape = op.type("weight").shape
    op.require(len(shape) == 2, f"weights of rank {len(shape)}, 2 is wanted")
    n_out, n_in = shape
    x = op.tensor("input", PLAIN)
    if len(op.type("input").shape) == 1:
        x = op.reshape(x, (math.prod(op.dims(x)) // n_in, n_in))
    result = fully_connected(op, x, _parameter(op, "weight"), _bias(op, n_out), op.fuse())
    return op.reorder(result, op.out.shape, PLAIN, op.out.dim_order)


def _parameter(op: Lowering, name: str) -> OperandId:
    dtype = op.type(name).dtype
    op.require(dtype == "float32", f"{name} is {dtype}, float32 is wanted here")
    return op.tensor(name)


def _bias(op: Lowering, n_out: int) -> OperandId:
    if op.arg("bias") is None:
        return op.constant(np.zeros(n_out, np.float32))
    bias = _parameter(op, "bias")
    if op.dims(bias) != (1,) or n_out == 1:
        return bias
    return (Value(op, bias) + constant(op, np.zeros(n_out, np.float32))).operand  # one for all
