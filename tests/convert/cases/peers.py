"""What other converters accept and convert wrongly without an error: right here, or refused.

The list is "Accepted but converted wrongly" of the operator comparison (op_coverage.md, measured on
torch.backends._nnapi 2.13); one Case or more for each of its lines. In channels_last, where axes
move, as well as contiguous.
"""

import torch

from tests.convert.cases.common import X, all_levels
from tests.convert.harness import FIRST, LAST, Case, aten, image

ROUND = image(1, 4, 15, 15)
RANK_5 = image(1, 2, 3, 2, 2)


def orders(name, function, x, **known):
    return {f"peers: {name}, {o.value}": Case(function, (x,), o, **known) for o in (LAST, FIRST)}


SOFTMAX_IN_PLACE = (("softmax", 1, LAST), ("softmax", -1, FIRST))
"""Where the axis lies last in memory, which level 1 knows too."""


def along(op, dim):
    return lambda x: op(x, dim)


SLICED = {27: "STRIDED_SLICE exists from level 2"}

PEERS = {
    "peers: max pool in ceil mode": Case(
        lambda x: aten.max_pool2d.default(x, [2, 2], [2, 2], [0, 0], [1, 1], True), (ROUND,)
    ),
    "peers: avg pool in ceil mode": Case(
        lambda x: aten.avg_pool2d.default(x, [2, 2], [2, 2], [0, 0], True), (ROUND,)
    ),
    "peers: avg pool in ceil mode whose last window would start outside": Case(
        lambda x: aten.avg_pool2d.default(x, [2, 2], [3, 3], [1, 1], True), (image(1, 2, 5, 8),)
    ),
    "peers: conv_transpose2d with output_padding": Case(
        lambda x: aten.convolution.default(
            x,
            image(4, 3, 3, 3),
            image(3),
            [2, 2],
            [1, 1],
            [1, 1],
            True,
            [1, 1],
            1,
        ),
        (image(1, 4, 16, 16),),
    ),
    "peers: conv_transpose2d with a group for each channel": Case(
        lambda x: aten.convolution.default(
            x,
            image(4, 1, 3, 3),
            image(4),
            [2, 2],
            [1, 1],
            [1, 1],
            True,
            [0, 0],
            4,
        ),
        (X,),
    ),
    **orders(
        "every second of a whole dimension",
        lambda x: aten.slice.Tensor(x, 0, None, None, 2),
        image(5, 4, 2, 3),
        refused=SLICED,
    ),
    **orders(
        "x[1:8:3]", lambda x: aten.slice.Tensor(x, 2, 1, 8, 3), image(2, 4, 9, 3), refused=SLICED
    ),
    **orders("slice of an image", lambda x: aten.slice.Tensor(x, 1, 1, 3), X, refused=SLICED),
    **{
        f"peers: {name} along {dim}, {order.value}": Case(
            along(op, dim),
            (X,),
            order,
            refused={}
            if (name, dim, order) in SOFTMAX_IN_PLACE
            else all_levels(r"level \d|exists from", below),
        )
        for name, op, below in (
            ("softmax", aten.softmax.int, 28),
            ("log_softmax", aten.log_softmax.int, 29),
        )
        for dim in (0, 1, -1)
        for order in (LAST, FIRST)
    },
    "peers: a change to float16": Case(
        lambda x: aten._to_copy.default(x, dtype=torch.float16),
        (X,),
        refused=all_levels("level 3|TENSOR_FLOAT16", 29),
        rtol=1e-3,
        atol=1e-3,
    ),
    "peers: add of rank 5": Case(
        lambda x: aten.add.Tensor(x, x), (RANK_5,), refused=all_levels("rank 4 at most", 31)
    ),
    "peers: relu of rank 5": Case(
        lambda x: aten.relu.default(x), (RANK_5,), refused=all_levels("rank 4 at most", 31)
    ),
    "peers: add of integers": Case(
        lambda x, y: aten.add.Tensor(x, y),
        (torch.arange(6).reshape(2, 3).int(), torch.arange(3).int()),
        refused=all_levels("ADD takes TENSOR_INT32 from level 4", 30),
    ),
    "peers: avg pool that counts its padding": Case(
        lambda x: aten.avg_pool2d.default(x, [3, 3], [2, 2], [1, 1], False, True), (X,)
    ),
    "peers: cat along a negative axis": Case(
        lambda x: aten.cat.default([x, aten.relu.default(x)], -3), (X,)
    ),
}
