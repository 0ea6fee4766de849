"""Lower products of matrices, linear layers, softmax and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from nnapi_prof.convert import OperandId
from nnapi_prof.convert.ops.formula import (
    LARGEST,
    PLAIN,
    FormulaValue,
    constant,
    floats,
    fully_connected,
    tensor,
)
from nnapi_prof.convert.ops.slicing import strided_slice
from nnapi_prof.convert.registry import Lowering, lowers, memory_axis
from nnapi_prof.costs.model.forms import ProductForm, usual_form
from nnapi_prof.graph.node import is_constant
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

aten = torch.ops.aten

MAX_PRODUCTS = 256
"""Most products that one node may become below level 3, which has neither BATCH_MATMUL nor
GROUPED_CONV_2D. Each is a FULLY_CONNECTED between slices, so more than a few hundred would cost
more in overhead than in computation."""
MAX_SUMMANDS = 1 << 22
"""Most elements that a product as sums may write: 16 MB; beyond, it would take too much memory."""


@lowers(aten.mm.default, aten.bmm.default, aten.matmul.default)
def matmul(op: Lowering) -> OperandId:
    """Lowers ``matmul(x[..., M, K], y[..., K, N]) -> [..., M, N]`` with PyTorch's broadcasting. A
    vector is a row on the left and a column on the right, without an axis in the result."""
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


def _product_of(op: Lowering, first: str, second: str) -> FormulaValue:
    """Returns the product of two arguments as [..., M, N]; vectors become matrices."""
    for name in (first, second):
        dtype = op.type(name).dtype
        op.require(dtype == "float32", f"a product of {dtype}, float32 is required")
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


def product(x: FormulaValue, y: FormulaValue, transposed: bool = False) -> FormulaValue:
    """Returns ``x[..., M, K] @ y[..., K, N]``, or ``@ y[..., N, K]^T`` if ``transposed``.

    If only one side has batches, the other is one matrix for all of them, and a single
    FULLY_CONNECTED suffices. Otherwise the product has the form that was chosen for the unit by its
    cost. The usual form is BATCH_MATMUL from level 6 on. From level 3 on it is a GROUPED_CONV_2D of
    one pixel, with a group for each pair of matrices. Below level 3, and for FEW_PRODUCTS, it is a
    FULLY_CONNECTED for each pair (at most MAX_PRODUCTS). The weights of both are computed tensors.
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
    form = op.model.product_form or usual_form(op.level, math.prod(batch))
    if form is not ProductForm.BATCHED:
        write = {
            ProductForm.GROUPS: _as_groups,
            ProductForm.PAIRS: _pair_by_pair,
            ProductForm.SUMS: _as_sums,
        }[form]
        return write(x, _as_weights(y, transposed), batch).reshaped((*batch, m, n))
    tensors = [_expand_batch(x, batch).operand, _expand_batch(y, batch).operand]
    flat = (math.prod(batch), m, n)
    result = op.emit(OperationCode.BATCH_MATMUL, tensors, [False, transposed], dims=flat)
    return FormulaValue(op, result).reshaped((*batch, m, n))


def _as_weights(y: FormulaValue, transposed: bool) -> FormulaValue:
    """Returns ``y[..., N, K]``, the layout of FULLY_CONNECTED's weights."""
    if transposed:
        return y
    *batch, rows, columns = y.dims
    y = y.reshaped((math.prod(batch), rows, columns))
    return y.transposed((0, 2, 1)).reshaped((*batch, columns, rows))


def _fully_connected(x: FormulaValue, weights: FormulaValue) -> FormulaValue:
    """Returns ``x[M, K] @ weights[N, K]^T`` as [M, N]."""
    bias = np.zeros(weights.dims[0], np.float32)
    return FormulaValue(x.op, fully_connected(x.op, x.operand, weights.operand, bias))


def _expand_batch(x: FormulaValue, batch: Sequence[int]) -> FormulaValue:
    """Returns ``x[..., R, C]`` as [B, R, C], with a matrix for each of B batches. Shared matrices
    are repeated, because BATCH_MATMUL does not broadcast."""
    *own, rows, columns = x.dims
    own = [1] * (len(batch) - len(own)) + own
    x = x.reshaped((*own, rows * columns))
    if own != list(batch):
        repeats = [size // mine for size, mine in zip(batch, own, strict=True)]
        counts, dims = np.array([*repeats, 1], np.int32), (*batch, rows * columns)
        x = FormulaValue(x.op, x.op.emit(OperationCode.TILE, [x.operand, counts], dims=dims))
    return x.reshaped((math.prod(batch), rows, columns))


def _as_groups(x: FormulaValue, weights: FormulaValue, batch: Sequence[int]) -> FormulaValue:
    """Returns ``x[..., M, K] @ weights[..., N, K]^T`` for each of B batches, as [B, M, N]. The rows
    are an image with the channels of all batches; each group of channels has its own filters."""
    op, count = x.op, math.prod(batch)
    left, filters = _expand_batch(x, batch), _expand_batch(weights, batch)
    m, k, n = left.dims[1], left.dims[2], filters.dims[1]
    image = left.transposed((1, 0, 2)).reshaped((1, m, 1, count * k))
    filters = filters.reshaped((count * n, 1, 1, k))
    bias = np.zeros(count * n, np.float32)
    pads_and_strides = [0, 0, 0, 0, 1, 1]
    result = op.emit(
        OperationCode.GROUPED_CONV_2D,
        [image.operand, filters.operand, bias],
        [*pads_and_strides, count, FuseCode.NONE.value, False],
        dims=(1, m, 1, count * n),
    )
    return FormulaValue(op, result).reshaped((m, count, n)).transposed((1, 0, 2))


def _as_sums(x: FormulaValue, weights: FormulaValue, batch: Sequence[int]) -> FormulaValue:
    """Returns ``x[..., M, K] @ weights[..., N, K]^T`` for each of B batches, as [B, M, N]: products
    of all pairs of rows, summed over K by FULLY_CONNECTED with ones, at every level."""
    op, count = x.op, math.prod(batch)
    left, right = _expand_batch(x, batch), _expand_batch(weights, batch)
    m, k, n = left.dims[1], left.dims[2], right.dims[1]
    op.require(
        count * m * n * k <= MAX_SUMMANDS,
        f"{count * m * n * k} summands of products: up to {MAX_SUMMANDS} are written out",
    )
    summands = left.reshaped((count, m, 1, k)) * right.reshaped((count, 1, n, k))
    ones = constant(op, np.ones((1, k), np.float32))
    return _fully_connected(summands.reshaped((count * m * n, k)), ones).reshaped((count, m, n))


def _pair_by_pair(x: FormulaValue, weights: FormulaValue, batch: Sequence[int]) -> FormulaValue:
    """Returns ``x[..., M, K] @ weights[..., N, K]^T``, one product a batch, as [B * M, N]."""
    count = math.prod(batch)
    x.op.require(
        count <= MAX_PRODUCTS,
        f"{count} products of matrices: below level 3, which has GROUPED_CONV_2D, up to "
        f"{MAX_PRODUCTS} are done one by one",
    )
    lefts, rights = _matrices(x, batch), _matrices(weights, batch)
    parts = [_fully_connected(left, right) for left, right in zip(lefts, rights, strict=True)]
    m, n = parts[0].dims
    tensors = [part.operand for part in parts]
    return FormulaValue(
        x.op, x.op.emit(OperationCode.CONCATENATION, tensors, [0], dims=(count * m, n))
    )


def _matrices(x: FormulaValue, batch: Sequence[int]) -> list[FormulaValue]:
    """Returns the matrix of ``x[..., R, C]`` for each batch, in order; slices a shared one once."""
    *own, rows, columns = x.dims
    count = math.prod(own)
    flat = x.reshaped((count * rows, columns)).operand
    matrices = [
        FormulaValue(x.op, strided_slice(x.op, flat, (i * rows, 0), ((i + 1) * rows, columns)))
        for i in range(count)
    ]
    places = np.broadcast_to(np.arange(count).reshape(own), tuple(batch)).reshape(-1)
    return [matrices[place] for place in places]


@lowers(aten.linear.default)
def linear(op: Lowering) -> OperandId:
    """Lowers ``linear(x[..., in], w[out, in], b[out]) -> [..., out]``.

    FULLY_CONNECTED has torch's weights, requires a bias, and always gives rank 2. Rank 1, which
    NNAPI would not flatten, is flattened first, and results are unflattened. Weights and bias may
    be computed by the model.
    """
    shape = op.type("weight").shape
    op.require(len(shape) == 2, f"weights of rank {len(shape)}, 2 is required")
    n_out, n_in = shape
    x = op.tensor("input", PLAIN)
    if len(op.type("input").shape) == 1:
        x = op.reshape(x, (math.prod(op.dims(x)) // n_in, n_in))
    result = fully_connected(op, x, _parameter(op, "weight"), _bias(op, n_out), op.fuse())
    return op.reorder(result, op.out.shape, PLAIN, op.out.dim_order)


def _parameter(op: Lowering, name: str) -> OperandId:
    dtype = op.type(name).dtype
    op.require(dtype == "float32", f"{name} is {dtype}, float32 is required here")
    return op.tensor(name)


def _bias(op: Lowering, n_out: int) -> OperandId:
    if op.arg("bias") is None:
        return op.constant(np.zeros(n_out, np.float32))
    bias = _parameter(op, "bias")
    if op.dims(bias) != (1,) or n_out == 1:
        return bias
    return (
        FormulaValue(op, bias) + constant(op, np.zeros(n_out, np.float32))
    ).operand  # one for all


# Softmax, its logarithm, and attention.


BETA = 1.0
"""Factor in NNAPI's softmax(beta * x)."""


@lowers(aten.softmax.int)
def softmax(op: Lowering) -> OperandId:
    """Lowers ``softmax(x, dim)``.

    From level 3 on the axis is an argument. Below, it is always the last one and the rank is 2 or
    4: the axis is moved to the end, and all others are flattened into one.
    """
    x, axis = _operand_and_axis(op)
    return softmax_of(x, axis).operand


@lowers(aten._safe_softmax.default)
def safe_softmax(op: Lowering) -> OperandId:
    """Lowers the softmax of attention, which gives zeros for a row that is all minus infinity."""
    x, axis = _operand_and_axis(op)
    op.require(op.arg("dtype") is None, f"dtype={op.arg('dtype')}, that of the input is required")
    # The sum is at least 1, or 0 in a row of minus infinities; divided by 1, that row is zeros.
    highest = x.reduced(OperationCode.REDUCE_MAX, [axis]).binary(OperationCode.MAXIMUM, -LARGEST)
    powers = (x - highest).unary(OperationCode.EXP)
    return (powers / powers.summed([axis]).binary(OperationCode.MAXIMUM, 1.0)).operand


@lowers(aten.log_softmax.int)
def log_softmax(op: Lowering) -> OperandId:
    """Lowers ``log(softmax(x, dim))``."""
    x, axis = _operand_and_axis(op)
    return x.unary(OperationCode.LOG_SOFTMAX, BETA, axis).operand


def softmax_of(x: FormulaValue, axis: int) -> FormulaValue:
    """Returns the softmax along an axis in memory."""
    rank = len(x.dims)
    if x.op.level >= 3:
        scalars = [BETA] if axis == rank - 1 else [BETA, axis]
        return x.unary(OperationCode.SOFTMAX, *scalars)
    to_end = [i for i in range(rank) if i != axis] + [axis]
    x = x.transposed(to_end)
    dims = x.dims
    if rank not in (2, 4):
        x = x.reshaped((math.prod(dims[:-1]), dims[-1]))
    x = x.unary(OperationCode.SOFTMAX, BETA).reshaped(dims)
    return x.transposed([to_end.index(i) for i in range(rank)])


def _operand_and_axis(op: Lowering) -> tuple[FormulaValue, int]:
    order = op.out.dim_order
    rank = max(len(op.out.shape), 1)
    return floats(op, "self", "a softmax", order), memory_axis(order, op.arg("dim") % rank)


_NOT = OperationCode.LOGICAL_NOT


@lowers(aten.scaled_dot_product_attention.default)
def attention(op: Lowering) -> OperandId:
    """Lowers ``softmax(q[..., L, E] @ k[..., S, E]^T * scale + mask) @ v[..., S, V]``.

    A mask is boolean (false means minus infinity) or added, constant or computed; is_causal is the
    constant lower triangle. With enable_gqa several heads of ``q`` share one of ``k`` and ``v``:
    they are rows of one product. The result is [..., L, V].
    """
    op.require(float(op.arg("dropout_p")) == 0, "dropout in attention, eval mode has none")
    shape_q, shape_k = op.type("query").shape, op.type("key").shape
    q, k, v = (floats(op, name, "attention", PLAIN) for name in ("query", "key", "value"))
    length, depth = shape_q[-2:]
    if op.arg("enable_gqa") and shape_q[-3] != shape_k[-3]:
        groups = shape_q[-3] // shape_k[-3]
        q = q.reshaped((*shape_q[:-3], shape_k[-3], groups * length, depth))
    scale_argument = op.arg("scale")
    scale = 1 / math.sqrt(depth) if scale_argument is None else float(scale_argument)
    if scale != 1:
        q = q * scale
    scores = product(q, k, transposed=True)
    whole = grouped = scores.dims
    if len(shape_q) > 2 and grouped[-2] != length:
        whole = (*grouped[:-3], shape_q[-3], length, shape_k[-2])
    weights = _weights(op, scores, whole).reshaped(grouped)
    return product(weights, v).laid_out()


def _weights(op: Lowering, scores: FormulaValue, shape: tuple[int, ...]) -> FormulaValue:
    """Returns the softmax of the masked ``scores``, with the shape ``shape`` [..., L, S].

    PyTorch gives zeros for a row that is fully masked. The sum cannot identify such a row, because
    NNAPI's sums are finite on phones: minus infinity becomes the lowest number. The mask is used
    instead: the row stays unmasked, and its weights are multiplied by 0.
    """
    length, keys = shape[-2:]
    if op.arg("is_causal"):
        mask: NDArray[np.generic] | None = np.tril(np.ones((length, keys), np.bool_))
    elif op.arg("attn_mask") is None:
        mask = None
    elif is_constant(op.arg("attn_mask")):
        mask = op.any_array("attn_mask")
    else:
        mask_summand, shows = _computed_mask(op)
        return softmax_of(scores.reshaped(shape) + mask_summand, len(shape) - 1) * shows

    if mask is None:
        return softmax_of(scores.reshaped((math.prod(shape[:-1]), keys)), 1)
    if mask.dtype == np.bool_:
        mask = np.where(mask, 0, -np.inf)
    summand = np.atleast_1d(mask).astype(np.float32)
    if math.prod(summand.shape[:-2]) == 1:  # one mask for all: it may have any rank
        shape, summand = (math.prod(shape[:-2]), length, keys), summand.reshape(summand.shape[-2:])
    hides = np.isneginf(summand).all(axis=-1, keepdims=True)
    masked = scores.reshaped(shape) + constant(op, np.where(hides, 0, summand))
    weights = softmax_of(masked, len(shape) - 1)
    return weights * constant(op, np.asarray(~hides, np.float32)) if hides.any() else weights


def _computed_mask(op: Lowering) -> tuple[FormulaValue, FormulaValue]:
    """Returns a computed mask as a summand of the scores, and for each row a factor: 0 if the mask
    hides the whole row, else 1."""
    op.require_level(3, "a mask that the model computes (REDUCE_ALL, in case it hides a whole row)")
    mask = tensor(op, "attn_mask", PLAIN)
    truth = mask.dtype == "bool"
    hidden = mask.unary(_NOT) if truth else mask.is_(OperationCode.EQUAL, -math.inf)
    hides = hidden.reduced(OperationCode.REDUCE_ALL, [len(mask.dims) - 1])
    shows = hides.unary(_NOT)
    if truth:
        summand = hidden.is_(OperationCode.LOGICAL_AND, shows).select(-math.inf, 0, "float32")
    else:
        summand = hidden.is_(OperationCode.LOGICAL_AND, hides).select(0, mask, "float32")
    return summand, shows.select(1, 0, "float32")
