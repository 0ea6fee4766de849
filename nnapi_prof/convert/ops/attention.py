"""Softmax, its logarithm, and attention."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import LARGEST, PLAIN, Value, constant, floats, tensor
from nnapi_prof.convert.ops.matmul import product
from nnapi_prof.convert.registry import Lowering, lowers, memory_axis
from nnapi_prof.graph.node import is_constant
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

BETA = 1.0
"""NNAPI computes softmax(beta * x)."""


@lowers(aten.softmax.int)
def softmax(op: Lowering) -> OperandId:
    """Lowers ``softmax(x, dim)``.

    An axis is an argument from level 3 on. Before, the last one is meant and the rank is 2 or 4:
    the axis is brought to the end, and all others are flattened into one.
    """
    x, axis = _operand_and_axis(op)
    return softmax_of(x, axis).operand


@lowers(aten._safe_softmax.default)
def safe_softmax(op: Lowering) -> OperandId:
    """Lowers the softmax of attention: zeros where a row is minus infinity throughout."""
    x, axis = _operand_and_axis(op)
    op.require(op.arg("dtype") is None, f"dtype={op.arg('dtype')}, that of the input is wanted")
    # The sum is at least 1 but in a row of minus infinities, where it is 0: over 1 that is zeros.
    highest = x.reduced(OperationCode.REDUCE_MAX, [axis]).binary(OperationCode.MAXIMUM, -LARGEST)
    powers = (x - highest).unary(OperationCode.EXP)
    return (powers / powers.summed([axis]).binary(OperationCode.MAXIMUM, 1.0)).operand


@lowers(aten.log_softmax.int)
def log_softmax(op: Lowering) -> OperandId:
    """Lowers ``log(softmax(x, dim))``."""
    x, axis = _operand_and_axis(op)
    return x.unary(OperationCode.LOG_SOFTMAX, BETA, axis).operand


def softmax_of(x: Value, axis: int) -> Value:
    """The softmax along an axis in memory."""
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


def _operand_and_axis(op: Lowering) -> tuple[Value, int]:
    order = op.out.dim_order
    rank = max(len(op.out.shape), 1)
    return floats(op, "self", "a softmax", order), memory_axis(order, op.arg("dim") % rank)


_NOT = OperationCode.LOGICAL_NOT


@lowers(aten.scaled_dot_product_attention.default)
def attention(op: Lowering) -> OperandId:
    """Lowers ``softmax(q[..., L, E] @ k[..., S, E]^T * scale + mask) @ v[..., S, V] ->
    [..., L, V]``.

    A mask is boolean (what is false is minus infinity) or added, constant or computed; is_causal
    is the constant lower triangle. With enable_gqa several heads of ``q`` share one of ``k`` and
    ``v``: they are rows of one product.
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


def _weights(op: Lowering, scores: Value, shape: tuple[int, ...]) -> Value:
    """The softmax of the masked ``scores``, which are to have ``shape`` [..., L, S].

    A row that a mask hides wholly is zeros in PyTorch. NNAPI's sums are finite on phones, where
    minus infinity becomes the least number: the sum does not tell such a row. The mask does; the
    row is left unmasked, and its weights are multiplied by 0.
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
    if math.prod(summand.shape[:-2]) == 1:  # one mask for all: any rank will do
        shape, summand = (math.prod(shape[:-2]), length, keys), summand.reshape(summand.shape[-2:])
    hides = np.isneginf(summand).all(axis=-1, keepdims=True)
    masked = scores.reshaped(shape) + constant(op, np.where(hides, 0, summand))
    weights = softmax_of(masked, len(shape) - 1)
    return weights * constant(op, np.asarray(~hides, np.float32)) if hides.any() else weights


def _computed_mask(op: Lowering) -> tuple[Value, Value]:
    """What a mask that the model computes adds to the scores, and for each row 1 where it shows
    something, 0 where it hides all."""
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
