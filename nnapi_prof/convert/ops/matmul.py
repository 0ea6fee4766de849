"""Products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.pieces import NONE, add, mul
from nnapi_prof.convert.ops.slicing import strided_slice
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.graph.node import is_constant
from nnapi_prof.graph.types import DimOrder
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

MAX_PRODUCTS = 256
"""How many products one node may become below level 6, which has BATCH_MATMUL: each is a
FULLY_CONNECTED between slices, so that more than a few hundred would cost more in overhead than
they compute."""

_PLAIN = DimOrder.CONTIGUOUS


@lowers(aten.mm.default, aten.bmm.default, aten.matmul.default)
def matmul(op: Lowering) -> OperandId:
    """Lowers ``matmul(x[..., M, K], y[..., K, N]) -> [..., M, N]`` with PyTorch's broadcasting;
    a vector is a row on the left, a column on the right, and leaves no axis in the result."""
    second = "other" if op.target is aten.matmul.default else "mat2"
    result = _product_of(op, "self", second)
    plain = op.reshape(result, op.out.shape or (1,))
    return op.reorder(plain, op.out.shape, _PLAIN, op.out.dim_order)


@lowers(aten.addmm.default, aten.baddbmm.default)
def addmm(op: Lowering) -> OperandId:
    """Lowers ``beta * self + alpha * (x @ y)``; ``self`` broadcasts and is not read for beta=0."""
    flat = op.target is aten.addmm.default
    result = _product_of(op, *(("mat1", "mat2") if flat else ("batch1", "batch2")))
    result = op.reshape(result, op.out.memory_shape)
    alpha, beta = float(op.arg("alpha")), float(op.arg("beta"))
    if alpha != 1:
        result = mul(op, result, alpha)
    if beta == 0:
        return result
    added = op.tensor("self", _PLAIN)
    return add(op, result, added if beta == 1 else mul(op, added, beta))


@lowers(aten.dot.default, aten.mv.default)
def dot(op: Lowering) -> OperandId:
    """Lowers ``dot(x[K], y[K])`` and ``mv(x[M, K], y[K])``, products with one column."""
    second = "tensor" if op.target is aten.dot.default else "vec"
    return op.reshape(_product_of(op, "self", second), op.out.memory_shape)


def _product_of(op: Lowering, first: str, second: str) -> OperandId:
    """The product of two arguments, vectors filled up to matrices, as [..., M, N]."""
    for name in (first, second):
        type_ = op.type(name)
        op.require(type_.dtype == "float32", f"a product of {type_.dtype}, float32 is wanted")
    x = op.tensor(first, _PLAIN)
    if len(op.type(first).shape) == 1:
        x = op.reshape(x, (1, *op.dims(x)))
    if is_constant(op.arg(second)):  # transposed here, once
        matrix = op.array(second)
        rows = matrix[None] if matrix.ndim == 1 else matrix.swapaxes(-1, -2)
        return product(op, x, op.constant(rows), transposed=True)
    y = op.tensor(second, _PLAIN)
    if len(op.type(second).shape) == 1:
        return product(op, x, op.reshape(y, (1, *op.dims(y))), transposed=True)
    return product(op, x, y)


def product(op: Lowering, x: OperandId, y: OperandId, transposed: bool = False) -> OperandId:
    """``x[..., M, K] @ y[..., K, N]``, or ``@ y[..., N, K]^T`` if ``transposed``: [..., M, N].

    Where only one side has batches the other is one matrix for all of them, and a single
    FULLY_CONNECTED does it. Otherwise BATCH_MATMUL from level 6 on; before, one FULLY_CONNECTED
    for each pair of matrices (at most MAX_PRODUCTS), whose weights are computed tensors.
    """
    *x_batch, m, k = op.dims(x)
    *y_batch, rows, columns = op.dims(y)
    n = rows if transposed else columns
    batch = np.broadcast_shapes(tuple(x_batch), tuple(y_batch))
    if math.prod(y_batch) == 1:
        left = op.reshape(x, (math.prod(x_batch) * m, k))
        right = _as_weights(op, op.reshape(y, (rows, columns)), transposed)
        return op.reshape(_fully_connected(op, left, right), (*batch, m, n))
    if math.prod(x_batch) == 1:
        right = _as_weights(op, op.reshape(y, (math.prod(y_batch), rows, columns)), transposed)
        right = op.reshape(right, (math.prod(y_batch) * n, k))
        swapped = _fully_connected(op, right, op.reshape(x, (m, k)))
        swapped = op.reshape(swapped, (math.prod(y_batch), n, m))
        return op.reshape(op.transpose(swapped, (0, 2, 1)), (*batch, m, n))

    if op.level >= 6:
        left, right = _spread(op, x, batch), _spread(op, y, batch)
        flat = (math.prod(batch), m, n)
        result = op.emit(
            OperationCode.BATCH_MATMUL,
            [left, right],
            [False, transposed],
            dims=flat,
        )
    else:
        result = _pair_by_pair(op, x, _as_weights(op, y, transposed), batch)
    return op.reshape(result, (*batch, m, n))


def _as_weights(op: Lowering, y: OperandId, transposed: bool) -> OperandId:
    """``y[..., N, K]``, as FULLY_CONNECTED reads its weights."""
    if transposed:
        return y
    *batch, rows, columns = op.dims(y)
    y = op.reshape(y, (math.prod(batch), rows, columns))
    return op.reshape(op.transpose(y, (0, 2, 1)), (*batch, columns, rows))


def _fully_connected(op: Lowering, x: OperandId, weights: OperandId) -> OperandId:
    """``x[M, K] @ weights[N, K]^T -> [M, N]``."""
    n = op.dims(weights)[0]
    return op.emit(
        OperationCode.FULLY_CONNECTED,
        [x, weights, np.zeros(n, np.float32)],
        [NONE],
        dims=(op.dims(x)[0], n),
    )


def _spread(op: Lowering, x: OperandId, batch: Sequence[int]) -> OperandId:
    """``x[..., R, C]`` as [B, R, C] with a matrix for each of B batches, repeated where ``x`` has
    one for several: BATCH_MATMUL does not broadcast."""
    *own, rows, columns = op.dims(x)
    own = [1] * (len(batch) - len(own)) + own
    x = op.reshape(x, (*own, rows * columns))
    if own != list(batch):
        repeats = [size // mine for size, mine in zip(batch, own, strict=True)]
        x = op.emit(
            OperationCode.TILE,
            [x, np.array([*repeats, 1], np.int32)],
            dims=(*batch, rows * columns),
        )
    return op.reshape(x, (math.prod(batch), rows, columns))


def _pair_by_pair(
    op: Lowering, x: OperandId, weights: OperandId, batch: Sequence[int]
) -> OperandId:
    """``x[..., M, K] @ weights[..., N, K]^T`` for each batch on its own, as [B * M, N]."""
    count = math.prod(batch)
    op.require(
        count <= MAX_PRODUCTS,
        f"{count} products of matrices: below level 6, which has BATCH_MATMUL, up to "
        f"{MAX_PRODUCTS} are done one by one",
    )
    lefts, rights = _matrices(op, x, batch), _matrices(op, weights, batch)
    parts = [_fully_connected(op, left, right) for left, right in zip(lefts, rights, strict=True)]
    m, n = op.dims(parts[0])
    return op.emit(OperationCode.CONCATENATION, parts, [0], dims=(count * m, n))


def _matrices(op: Lowering, x: OperandId, batch: Sequence[int]) -> list[OperandId]:
    """The matrix of ``x[..., R, C]`` for each batch, in order; a shared one is cut out once."""
    *own, rows, columns = op.dims(x)
    count = math.prod(own)
    flat = op.reshape(x, (count * rows, columns))
    cut = [strided_slice(op, flat, (i * rows, 0), ((i + 1) * rows, columns)) for i in range(count)]
    places = np.broadcast_to(np.arange(count).reshape(own), tuple(batch)).reshape(-1)
    return [cut[place] for place in places]


# Linear layers.


@lowers(aten.linear.default)
def linear(op: Lowering) -> OperandId:
    """Lowers ``linear(x[..., in], w[out, in], b[out]) -> [..., out]``.

    FULLY_CONNECTED has torch's weights, wants a bias, and always gives rank 2: other ranks are
    flattened before where NNAPI would not (rank 1), and unflattened after. Weights
    and bias may be computed by the model.
    """
    n_out, n_in = _matrix(op.type("weight").shape, op)
    x = op.tensor("input", DimOrder.CONTIGUOUS)
    shape = op.type("input").shape
    batch = math.prod(shape) // n_in
    if len(shape) == 1:
        x = op.reshape(x, (batch, n_in))
    result = op.emit(
        OperationCode.FULLY_CONNECTED,
        [x, _parameter(op, "weight"), _bias(op, n_out)],
        [op.fuse()],
        dims=(batch, n_out),
    )
    return op.reorder(result, op.out.shape, DimOrder.CONTIGUOUS, op.out.dim_order)


def _matrix(shape: tuple[int, ...], op: Lowering) -> tuple[int, int]:
    op.require(len(shape) == 2, f"weights of rank {len(shape)}, 2 is wanted")
    rows, columns = shape
    return rows, columns


def _parameter(op: Lowering, name: str) -> OperandId:
    type_ = op.type(name)
    op.require(type_.dtype == "float32", f"{name} is {type_.dtype}, float32 is wanted here")
    return op.tensor(name)


def _bias(op: Lowering, n_out: int) -> OperandId:
    if op.arg("bias") is None:
        return op.constant(np.zeros(n_out, np.float32))
    bias = _parameter(op, "bias")
    if op.dims(bias) != (1,) or n_out == 1:
        return bias
    return add(op, bias, op.constant(np.zeros(n_out, np.float32)))  # one number for all
