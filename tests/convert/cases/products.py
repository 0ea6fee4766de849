"""Cases of products of matrices and of attention."""

import math

import torch

from tests.convert.cases.common import NO_TRANSPOSE, case
from tests.convert.harness import FIRST, aten, image

NO_SLICES = "(TRANSPOSE|STRIDED_SLICE) exists from level"
NO_REDUCE_MAX = "REDUCE_MAX exists"


def product(x, y, function=aten.matmul, below_2=NO_TRANSPOSE, **known):
    x, y = image(*x), image(*y, seed=4)
    return case(function, x, y, order=FIRST, below_2=below_2, **known)


W23 = image(4, 5, seed=8)
BATCHES = image(3, 5, 6, seed=8)
BIAS = image(3, seed=2)
BATCHED = image(1, 4, 6), image(3, 4, 5), image(3, 5, 6)
SQUARE = torch.arange(4).reshape(2, 2)

PRODUCTS = {
    "mm": product((4, 5), (5, 3), aten.mm),
    "bmm": product((2, 4, 5), (2, 5, 3), aten.bmm),
    "bmm of one matrix": product((1, 4, 5), (1, 5, 3), aten.bmm),
    "matmul of vectors": product((5,), (5,), below_2=None),
    "matmul of a vector and a matrix": product((5,), (5, 3)),
    "matmul of a matrix and a vector": product(
        (4, 5), (5,), below_2=None, gives="RESHAPE FULLY_CONNECTED RESHAPE"
    ),
    "matmul of batches and a vector": product((2, 4, 5), (5,), below_2=None),
    "matmul of a vector and batches": product((5,), (2, 5, 3)),
    "matmul of batches and a matrix": product((2, 4, 5), (5, 3)),
    "matmul of a matrix and batches": product((4, 5), (2, 5, 3)),
    "matmul of two batch axes": product((2, 3, 4, 5), (2, 3, 5, 6)),
    "matmul, batches broadcast on the right": product((2, 3, 4, 5), (3, 5, 6)),
    "matmul, batches broadcast on both sides": product((2, 1, 4, 5), (3, 5, 6)),
    "matmul, batches crossed": product((1, 3, 4, 5), (2, 1, 5, 6)),
    "matmul of one and many": product((1, 1, 4, 5), (2, 3, 5, 6)),
    "matmul of columns and rows": product((2, 4, 1), (2, 1, 3), below_2=NO_SLICES),
    "matmul with a constant matrix": case(
        lambda x: aten.matmul.default(x, BATCHES[0]), image(2, 4, 5), order=FIRST
    ),
    "matmul with constant batches": case(
        lambda x: aten.matmul.default(x, BATCHES), image(2, 3, 4, 5), order=FIRST, below_2=NO_SLICES
    ),
    "matmul of a constant": case(
        lambda y: aten.matmul.default(W23, y), image(5, 3), order=FIRST, below_2=NO_TRANSPOSE
    ),
    "too many products": product(
        (257, 2, 3), (257, 3, 2), below_3="257 products of matrices: below level 3.*up to 256"
    ),
    "matmul of integers": case(
        lambda x: aten.matmul.default(x, x), SQUARE, never="a product of int64, float32 is required"
    ),
    "addmm": case(aten.addmm, image(3), image(4, 5), image(5, 3), below_2=NO_TRANSPOSE),
    "addmm with factors": case(
        aten.addmm, image(4, 3), image(4, 5), image(5, 3), beta=0.5, alpha=-2, below_2=NO_TRANSPOSE
    ),
    "addmm of a constant matrix": case(
        lambda x: aten.addmm.default(BIAS, x, BATCHES[0, :, :3], beta=3), image(4, 5)
    ),
    "addmm that does not read its bias": case(
        aten.addmm, image(3) / 0, image(4, 5), image(5, 3), beta=0, below_2=NO_TRANSPOSE
    ),
    "baddbmm": case(aten.baddbmm, *BATCHED, beta=2, alpha=0.5, below_2=NO_SLICES),
    "dot": product((5,), (5,), aten.dot.default, below_2=None),
    "mv": product((4, 5), (5,), aten.mv.default, below_2=None),
    "linear with computed weights": case(
        aten.linear, image(2, 3, 4), image(5, 4), image(5), gives="FULLY_CONNECTED RESHAPE"
    ),
    "linear with computed weights alone": case(aten.linear, image(3, 4), image(5, 4)),
    "linear with computed weights of rank 1": case(
        aten.linear, image(3, 4), image(4), never="weights of rank 1, 2 is required"
    ),
}

Q, K, V = (image(2, 3, 5, 4, seed=seed) for seed in range(3))
HIDES = image(5, 5, seed=3) > -0.4
HIDES[2] = False
SHOWS = HIDES.clone()
SHOWS[:, 0] = True
ADDED = torch.where(HIDES, image(5, 5), -math.inf)


def attention(q=Q, k=K, v=V, below_2=NO_SLICES, **options):
    function = aten.scaled_dot_product_attention
    return case(function, q, k, v, order=FIRST, below_2=below_2, **options)


def masked(mask):
    """With a mask that the model computes."""
    words = r"a mask that the model computes .* needs level 3 \(API 29\)"
    arguments = (aten.scaled_dot_product_attention, Q, K, V, mask)
    return case(*arguments, order=FIRST, below_2=NO_SLICES, below_3=words)


def with_constant(mask):
    def function(q, k, v):
        return aten.scaled_dot_product_attention.default(q, k, v, mask)

    return case(function, Q, K, V, order=FIRST, below_2=NO_SLICES)


HIDES_HEADS = torch.stack([HIDES, HIDES.T, ~HIDES])[None]
SHOWS_HEADS = torch.stack([SHOWS, SHOWS.T | SHOWS, SHOWS])[None]
LEAST = torch.where(HIDES, 0.0, torch.finfo(torch.float32).min)

ATTENTION = {
    "attention": attention(),
    "attention of rank 3": attention(Q[0], K[0], V[0]),
    "attention of rank 2": attention(Q[0, 0], K[0, 0], V[0, 0], NO_TRANSPOSE),
    "attention of other lengths": attention(Q[..., :2, :], K, image(2, 3, 5, 6)),
    "attention with a scale": attention(scale=0.3),
    "attention with scale 1": attention(scale=1.0),
    "causal attention": attention(is_causal=True),
    "causal attention, fewer queries": attention(Q[..., :2, :], K, V, is_causal=True),
    "causal attention, more queries": attention(Q, K[..., :2, :], V[..., :2, :], is_causal=True),
    "attention of grouped heads": attention(image(2, 6, 5, 4), K, V, enable_gqa=True),
    "causal attention of grouped heads": attention(
        image(1, 6, 5, 4), K[:1], V[:1], enable_gqa=True, is_causal=True
    ),
    "attention with dropout": attention(
        below_2=None, never="dropout in attention, eval mode has none", dropout_p=0.5
    ),
    "attention with a constant mask": with_constant(SHOWS),
    "attention with a constant mask for each head": with_constant(SHOWS_HEADS),
    "attention with a constant mask that hides a row": with_constant(HIDES),
    "attention with a constant mask that hides rows of heads": with_constant(HIDES_HEADS),
    "attention with a constant of minus infinities": with_constant(ADDED),
    "attention with the least number for what is hidden": with_constant(LEAST),
    "attention with a constant that is added": with_constant(image(2, 1, 5, 5)),
    "attention with a computed mask": masked(HIDES),
    "attention with a computed mask for each image": masked(torch.stack([HIDES, SHOWS])[:, None]),
    "attention with what is added computed": masked(ADDED[None, None]),
    "attention with a computed mask over keys": masked(HIDES[::2][:2, None, None]),
    "attention with keys that are added computed": masked(ADDED[:1]),
    "attention with the least number computed": masked(LEAST),
    "softmax of rows that are hidden": case(aten._safe_softmax, ADDED, -1, below_3=NO_REDUCE_MAX),
    "softmax of float16": case(
        aten.softmax.int, image(3, 5).half(), -1, never="a softmax of float16, float32 is required"
    ),
    "softmax of the least numbers": case(aten._safe_softmax, LEAST[2:3], -1, below_3=NO_REDUCE_MAX),
    "softmax of hidden rows, channels last": case(
        aten._safe_softmax, image(2, 3, 4, 5), 1, below_3=NO_REDUCE_MAX
    ),
}
