"""Attention."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.matmul import product
from nnapi_prof.convert.ops.pieces import add, mul
from nnapi_prof.convert.ops.softmax import masked_softmax, softmax_of
from nnapi_prof.convert.registry import Lowering, lowers
from nnapi_prof.graph.node import is_constant
from nnapi_prof.graph.types import DimOrder, TensorType
from nnapi_prof.nnapi.codes import OperationCode

aten = torch.ops.aten

_PLAIN = DimOrder.CONTIGUOUS


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

    A row that a mask hides wholly is zeros in PyTorch. A constant mask tells whether there is such
    a row; for a computed one the softmax that knows the case is taken.
    """
    length, keys = shape[-2:]
    if op.arg("is_causal"):
        mask: NDArray[np.generic] | None = np.tril(np.ones((length, keys), np.bool_))
    elif op.arg("attn_mask") is None:
        mask = None
    elif is_constant(op.arg("attn_mask")):
        mask = op.any_array("attn_mask")
    else:
        masked = add(op, op.reshape(scores, shape), _computed_mask(op))
        return masked_softmax(op, masked)

    if mask is None:
        return softmax_of(op, op.reshape(scores, (math.prod(shape[:-1]), keys)), 1)
    if mask.dtype == np.bool_:
        mask = np.where(mask, 0, -np.inf)
    added = np.atleast_1d(mask).astype(np.float32)
    if math.prod(added.shape[:-2]) == 1:  # one mask for all: any rank will do
        shape, added = (math.prod(shape[:-2]), length, keys), added.reshape(added.shape[-2:])
    masked = add(op, op.reshape(scores, shape), op.constant(added))
    if np.isneginf(added).all(axis=-1).any():
        return masked_softmax(op, masked)
    return softmax_of(op, masked, len(shape) - 1)


def _computed_mask(op: Lowering) -> OperandId:
    """What a mask that the model computes adds to the scores."""
    op.require_level(3, "a mask that the model computes (MAXIMUM, in case it hides a whole row)")
    mask = op.tensor("attn_mask", _PLAIN)
    if op.type("attn_mask").dtype != "bool":
        return mask
    dims = op.dims(mask)
    shown, hidden = np.zeros(dims, np.float32), np.full(dims, -np.inf, np.float32)
    known = TensorType(dims)
    (added,) = op.emit_as([known], OperationCode.SELECT, [mask, shown, hidden])
    return added
