"""Cases of pooling and resizing."""

from tests.convert.cases.common import SQUARE, X, all_levels
from tests.convert.harness import FIRST, Case, aten


def avg_pool(x, kernel=3, stride=2, padding=0, ceil=False, include=True, divisor=None):
    return Case(
        lambda y: aten.avg_pool2d.default(
            y, [kernel] * 2, [stride] * 2, [padding] * 2, ceil, include, divisor
        ),
        (x,),
    )


POOLING = {
    "max pool": Case(lambda x: aten.max_pool2d.default(x, [3, 2], [2, 1], [1, 0]), (X,)),
    "max pool without a stride": Case(lambda x: aten.max_pool2d.default(x, [2]), (X,)),
    "max pool with relu": Case(
        lambda x: aten.relu.default(aten.max_pool2d.default(x, [2, 2])),
        (X - 1,),
        operations={27: "MAX_POOL_2D"},
    ),
    "max pool of negatives with padding": Case(
        lambda x: aten.max_pool2d.default(x, [3, 3], [2, 2], [1, 1]), (-X.abs() - 1,)
    ),
    "max pool in ceil mode": Case(
        lambda x: aten.max_pool2d.default(x, [3, 3], [2, 2], [0, 0], [1, 1], True), (SQUARE,)
    ),
    "max pool in ceil mode with padding": Case(
        lambda x: aten.max_pool2d.default(x, [3, 3], [2, 2], [1, 1], [1, 1], True), (SQUARE,)
    ),
    "max pool dilated": Case(
        lambda x: aten.max_pool2d.default(x, [2, 2], [1, 1], [0, 0], [2, 2]),
        (X,),
        refused=all_levels(r"dilation \(2, 2\) \(by MAXIMUM of slices\) needs level 3", 29),
    ),
    "max pool of a contiguous image": Case(
        lambda x: aten.max_pool2d.default(x, [2, 2]),
        (X,),
        FIRST,
        refused=all_levels("NNAPI expects channels_last images of rank 4", 31),
    ),
    "max pool after a pad": Case(
        lambda x: aten.max_pool2d.default(aten.constant_pad_nd.default(x, [1, 1, 1, 1]), [3, 3]),
        (-X.abs() - 1,),
        operations={27: "CONCATENATION CONCATENATION MAX_POOL_2D", 28: "PAD MAX_POOL_2D"},
    ),
    "avg pool": avg_pool(X),
    "avg pool, padding counted": avg_pool(X, padding=1),
    "avg pool, padding left out": avg_pool(X, padding=1, include=False),
    "avg pool in ceil mode": avg_pool(SQUARE, ceil=True),
    "avg pool in ceil mode, padding counted": avg_pool(SQUARE, padding=1, ceil=True),
    "avg pool in ceil mode, padding left out": avg_pool(
        SQUARE, padding=1, ceil=True, include=False
    ),
    "avg pool with a divisor": avg_pool(X, padding=1, divisor=5),
    "avg pool with a divisor in ceil mode": avg_pool(
        SQUARE, padding=1, ceil=True, include=False, divisor=7
    ),
    "adaptive pool to one": Case(
        lambda x: aten.adaptive_avg_pool2d.default(x, [1, 1]),
        (X,),
        operations={27: "AVERAGE_POOL_2D"},
    ),
    "adaptive pool evenly": Case(lambda x: aten.adaptive_avg_pool2d.default(x, [4, 2]), (SQUARE,)),
    "adaptive pool unevenly": Case(
        lambda x: aten.adaptive_avg_pool2d.default(x, [3, 3]),
        (SQUARE,),
        operations={
            27: "RESHAPE CONV_2D RESHAPE CONV_2D RESHAPE CONV_2D RESHAPE",
            28: "RESHAPE CONV_2D RESHAPE CONV_2D RESHAPE TRANSPOSE",
        },
    ),
}
