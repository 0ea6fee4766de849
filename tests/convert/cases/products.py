"""Cases of products of matrices and of attention."""

import math

import torch

from tests.convert.cases.common import all_levels
from tests.convert.harness import FIRST, Case, aten, image

NEEDS_TRANSPOSE = {27: "TRANSPOSE exists from level"}
NEEDS_SLICES = {27: "(TRANSPOSE|STRIDED_SLICE) exists from level"}


def product(x, y, function=aten.matmul.default, refused=None, operations=None):
    return Case(
        lambda a, b: function(a, b),
        (image(*x), image(*y, seed=4)),
        FIRST,
        refused=NEEDS_TRANSPOSE if refused is None else refused,
        operations=operations or {},
    )


W23 = image(4, 5, seed=8)
BATCHES = image(3, 5, 6, seed=8)
BIAS = image(3, seed=2)

PRODUCTS = {
    "mm": product((4, 5), (5, 3), aten.mm.default),
    "bmm": product((2, 4, 5), (2, 5, 3), aten.bmm.default),
    "bmm of one matrix": product((1, 4, 5), (1, 5, 3), aten.bmm.default),
    "matmul of vectors": product((5,), (5,), refused={}),
    "matmul of a vector and a matrix": product((5,), (5, 3)),
    "matmul of a matrix and a vector": product(
        (4, 5), (5,), refused={}, operations={27: "RESHAPE FULLY_CONNECTED RESHAPE"}
    ),
    "matmul of batches and a vector": product((2, 4, 5), (5,), refused={}),
    "matmul of a vector and batches": product((5,), (2, 5, 3)),
    "matmul of batches and a matrix": product((2, 4, 5), (5, 3)),
    "matmul of a matrix and batches": product((4, 5), (2, 5, 3)),
    "matmul of two batch axes": product((2, 3, 4, 5), (2, 3, 5, 6)),
    "matmul, batches broadcast on the right": product((2, 3, 4, 5), (3, 5, 6)),
    "matmul, batches broadcast on both sides": product((2, 1, 4, 5), (3, 5, 6)),
    "matmul, batches crossed": product((1, 3, 4, 5), (2, 1, 5, 6)),
    "matmul of one and many": product((1, 1, 4, 5), (2, 3, 5, 6)),
    "matmul of columns and rows": product((2, 4, 1), (2, 1, 3), refused=NEEDS_SLICES),
    "matmul with a constant matrix": Case(
        lambda x: aten.matmul.default(x, BATCHES[0]), (image(2, 4, 5),), FIRST
    ),
    "matmul with constant batches": Case(
        lambda x: aten.matmul.default(x, BATCHES),
        (image(2, 3, 4, 5),),
        FIRST,
        refused=NEEDS_SLICES,
    ),
    "matmul of a constant": Case(
        lambda y: aten.matmul.default(W23, y), (image(5, 3),), FIRST, refused=NEEDS_TRANSPOSE
    ),
    "too many products": product(
        (257, 2, 3),
        (257, 3, 2),
        refused={
            **all_levels(r"257 products of matrices: below level 3.*up to 256", 29),
            **NEEDS_TRANSPOSE,
        },
    ),
    "matmul of integers": Case(
        lambda x: aten.matmul.default(x, x),
        (torch.arange(4).reshape(2, 2),),
        refused=all_levels("a product of int64, float32 is required", 31),
    ),
    "addmm": Case(
        lambda b, x, y: aten.addmm.default(b, x, y),
        (image(3), image(4, 5), image(5, 3)),
        refused=NEEDS_TRANSPOSE,
    ),
    "addmm with factors": Case(
        lambda b, x, y: aten.addmm.default(b, x, y, beta=0.5, alpha=-2),
        (image(4, 3), image(4, 5), image(5, 3)),
        refused=NEEDS_TRANSPOSE,
    ),
    "addmm of a constant matrix": Case(
        lambda x: aten.addmm.default(BIAS, x, BATCHES[0, :, :3], beta=3), (image(4, 5),)
    ),
    "addmm that does not read its bias": Case(
        lambda b, x, y: aten.addmm.default(b, x, y, beta=0),
        (image(3) / 0, image(4, 5), image(5, 3)),
        refused=NEEDS_TRANSPOSE,
    ),
    "baddbmm": Case(
        lambda b, x, y: aten.baddbmm.default(b, x, y, beta=2, alpha=0.5),
        (image(1, 4, 6), image(3, 4, 5), image(3, 5, 6)),
        refused=NEEDS_SLICES,
    ),
    "dot": product((5,), (5,), aten.dot.default, refused={}),
    "mv": product((4, 5), (5,), aten.mv.default, refused={}),
    "linear with computed weights": Case(
        lambda x, w, b: aten.linear.default(x, w, b),
        (image(2, 3, 4), image(5, 4), image(5)),
        operations={27: "FULLY_CONNECTED RESHAPE"},
    ),
    "linear with computed weights alone": Case(
        lambda x, w: aten.linear.default(x, w), (image(3, 4), image(5, 4))
    ),
    "linear with computed weights of rank 1": Case(
        lambda x, w: aten.linear.default(x, w),
        (image(3, 4), image(4)),
        refused=all_levels("weights of rank 1, 2 is required", 31),
    ),
}

Q, K, V = (image(2, 3, 5, 4, seed=seed) for seed in range(3))
HIDES = image(5, 5, seed=3) > -0.4
HIDES[2] = False
SHOWS = HIDES.clone()
SHOWS[:, 0] = True
ADDED = torch.where(HIDES, image(5, 5), -math.inf)
COMPUTED = {
    28: r"a mask that the model computes .* needs level 3 \(API 29\)",
    **NEEDS_SLICES,
}


def attention(q, k, v, refused=None, **options):
    return Case(
        lambda q, k, v: aten.scaled_dot_product_attention.default(q, k, v, **options),
        (q, k, v),
        FIRST,
        refused=NEEDS_SLICES if refused is None else refused,
    )


def masked(mask, refused):
    return Case(
        lambda q, k, v, m: aten.scaled_dot_product_attention.default(q, k, v, m),
        (Q, K, V, mask),
        FIRST,
        refused=refused,
    )


def with_constant(mask, refused=None):
    return Case(
        lambda q, k, v: aten.scaled_dot_product_attention.default(q, k, v, mask),
        (Q, K, V),
        FIRST,
        refused=NEEDS_SLICES if refused is None else refused,
    )


HIDES_HEADS = torch.stack([HIDES, HIDES.T, ~HIDES])[None]
LEAST = torch.where(HIDES, 0.0, torch.finfo(torch.float32).min)

ATTENTION = {
    "attention": attention(Q, K, V),
    "attention of rank 3": attention(Q[0], K[0], V[0]),
    "attention of rank 2": attention(Q[0, 0], K[0, 0], V[0, 0], NEEDS_TRANSPOSE),
    "attention of other lengths": attention(Q[..., :2, :], K, image(2, 3, 5, 6)),
    "attention with a scale": attention(Q, K, V, scale=0.3),
    "attention with scale 1": attention(Q, K, V, scale=1.0),
    "causal attention": attention(Q, K, V, is_causal=True),
    "causal attention, fewer queries": attention(Q[..., :2, :], K, V, is_causal=True),
    "causal attention, more queries": attention(Q, K[..., :2, :], V[..., :2, :], is_causal=True),
    "attention of grouped heads": attention(image(2, 6, 5, 4), K, V, enable_gqa=True),
    "causal attention of grouped heads": attention(
        image(1, 6, 5, 4), K[:1], V[:1], enable_gqa=True, is_causal=True
    ),
    "attention with dropout": attention(
        Q, K, V, all_levels("dropout in attention, eval mode has none", 31), dropout_p=0.5
    ),
    "attention with a constant mask": with_constant(SHOWS),
    "attention with a constant mask for each head": with_constant(
        torch.stack([SHOWS, SHOWS.T | SHOWS, SHOWS])[None]
    ),
    "attention with a constant mask that hides a row": with_constant(HIDES),
    "attention with a constant mask that hides rows of heads": with_constant(HIDES_HEADS),
    "attention with a constant of minus infinities": with_constant(ADDED),
    "attention with the least number for what is hidden": with_constant(LEAST),
    "attention with a constant that is added": with_constant(image(2, 1, 5, 5)),
    "attention with a computed mask": masked(HIDES, COMPUTED),
    "attention with a computed mask for each image": masked(
        torch.stack([HIDES, SHOWS])[:, None], COMPUTED
    ),
    "attention with what is added computed": masked(ADDED[None, None], COMPUTED),
    "attention with a computed mask over keys": masked(
        torch.stack([HIDES[0], HIDES[2]])[:, None, None], COMPUTED
    ),
    "attention with keys that are added computed": masked(ADDED[:1], COMPUTED),
    "attention with the least number computed": masked(LEAST, COMPUTED),
    "softmax of rows that are hidden": Case(
        lambda x: aten._safe_softmax.default(x, -1),
        (ADDED,),
        refused=all_levels("REDUCE_MAX exists", 29),
    ),
    "softmax of float16": Case(
        lambda x: aten.softmax.int(x, -1),
        (image(3, 5).half(),),
        refused=all_levels("a softmax of float16, float32 is required", 31),
    ),
    "softmax of the least numbers": Case(
        lambda x: aten._safe_softmax.default(x, -1),
        (torch.full((2, 3), torch.finfo(torch.float32).min),),
        refused=all_levels("REDUCE_MAX exists", 29),
    ),
    "softmax of hidden rows, channels last": Case(
        lambda x: aten._safe_softmax.default(x, 1),
        (image(2, 3, 4, 5),),
        refused=all_levels("REDUCE_MAX exists", 29),
    ),
}
