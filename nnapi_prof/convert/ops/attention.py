"""Attention."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.formula import Value
from nnapi_prof.convert.ops.matmul import product
from nnapi_prof.convert.ops.pieces import add, mul, reduced
from nnapi_prof.convert.ops.softmax import softmax_of
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.graph.node import is_constant
from nnapi_prof.graph.types import DimOrder
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

_PLAIN = DimOrder.CONTIGUOUS
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
    for name in ("query", "key", "value"):
        known = op.type(name)
        op.require(known.dtype == "float32", f"attention of {known.dtype}, float32 is wanted")
    q, k, v = (op.tensor(name, _PLAIN) for name in ("query", "key", "value"))
    length, depth = shape_q[-2:]
    if op.arg("enable_gqa") and shape_q[-3] != shape_k[-3]:
        groups = shape_q[-3] // shape_k[-3]
        q = op.reshape(q, (*shape_q[:-3], shape_k[-3], groups * length, depth))
    given = op.arg("scale")
    scale = 1 / math.sqrt(depth) if given is None else float(given)
    if scale != 1:
        q = mul(op, q, scale)
    scores = product(op, q, k, transposed=True)

    grouped = op.dims(scores)
    whole = grouped
    if len(shape_q) > 2 and grouped[-2] != length:
        whole = (*grouped[:-3], shape_q[-3], length, shape_k[-2])
    weights = op.reshape(_weights(op, scores, whole), grouped)
    plain = op.reshape(product(op, weights, v), op.out.shape)
    return op.reorder(plain, op.out.shape, _PLAIN, op.out.dim_order)


def _weights(op: Lowering, scores: OperandId, shape: tuple[int, ...]) -> OperandId:
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
        computed, shows = _computed_mask(op)
        masked = add(op, op.reshape(scores, shape), computed)
        return mul(op, softmax_of(op, masked, len(shape) - 1), shows)

    if mask is None:
        return softmax_of(op, op.reshape(scores, (math.prod(shape[:-1]), keys)), 1)
    if mask.dtype == np.bool_:
        mask = np.where(mask, 0, -np.inf)
    added = np.atleast_1d(mask).astype(np.float32)
    if math.prod(added.shape[:-2]) == 1:  # one mask for all: any rank will do
        shape, added = (math.prod(shape[:-2]), length, keys), added.reshape(added.shape[-2:])
    hides = np.isneginf(added).all(axis=-1, keepdims=True)
    masked = add(op, op.reshape(scores, shape), op.constant(np.where(hides, 0, added)))
    weights = softmax_of(op, masked, len(shape) - 1)
    if not hides.any():
        return weights
    return mul(op, weights, op.constant(np.asarray(~hides, np.float32)))


def _computed_mask(op: Lowering) -> tuple[OperandId, OperandId]:
    """What a mask that the model computes adds to the scores, and for each row 1 where it shows
    something, 0 where it hides all."""
    op.require_level(3, "a mask that the model computes (REDUCE_ALL, in case it hides a whole row)")
    mask = Value(op, op.tensor("attn_mask", _PLAIN))
    truth = mask.dtype == "bool"
    hidden = mask.unary(_NOT) if truth else mask.is_(OperationCode.EQUAL, -math.inf)
    hides = Value(op, reduced(op, OperationCode.REDUCE_ALL, hidden.operand, [len(mask.dims) - 1]))
    shows = hides.unary(_NOT)
    if truth:
        added = hidden.is_(OperationCode.LOGICAL_AND, shows).select(-math.inf, 0, "float32")
    else:
        added = hidden.is_(OperationCode.LOGICAL_AND, hides).select(0, mask, "float32")
    return added.operand, shows.select(1, 0, "float32").operand
