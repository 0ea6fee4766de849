"""Cases of pooling and resizing."""

from tests.convert.cases.common import SQUARE, X, all_levels
from tests.convert.harness import FIRST, Case, aten, image


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
        refused=all_levels(r"dilation \(2, 2\), NNAPI's pooling has none", 31),
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
        refused={27: "PAD exists"},
        operations={28: "PAD MAX_POOL_2D"},
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
        refused=all_levels("from 8x8 to 3x3, only sizes that divide evenly", 31),
    ),
}


def nearest(size, scales=None):
    return lambda x: aten.upsample_nearest2d.vec(x, size, scales)


def bilinear(size, align, scales=None):
    return lambda x: aten.upsample_bilinear2d.vec(x, size, align, scales)


NEEDS_FLAGS = r"bilinear from 8x8 to .* needs level 4 \(API 30\)"

RESIZING = {
    "nearest twice": Case(
        nearest(None, [2.0, 2.0]),
        (SQUARE,),
        refused=all_levels("RESIZE_NEAREST_NEIGHBOR exists", 29),
    ),
    "nearest to a size": Case(
        nearest([5, 13]), (X,), refused=all_levels("RESIZE_NEAREST_NEIGHBOR exists", 29)
    ),
    "nearest by an odd scale": Case(
        nearest(None, [1.7, 2.0]),
        (SQUARE,),
        refused=all_levels("scale factor 1.7 from 8 to 13, NNAPI scales by 13/8", 31),
    ),
    "bilinear": Case(bilinear([16, 12], False), (SQUARE,), refused=all_levels(NEEDS_FLAGS, 30)),
    "bilinear, corners aligned": Case(
        bilinear([15, 12], True), (SQUARE,), refused=all_levels(NEEDS_FLAGS, 30)
    ),
    "bilinear downwards": Case(
        bilinear([5, 3], False), (SQUARE,), refused=all_levels(NEEDS_FLAGS, 30)
    ),
    "bilinear twice": Case(
        bilinear(None, False, [2.0, 2.0]), (SQUARE,), refused=all_levels(NEEDS_FLAGS, 30)
    ),
    "bilinear by an odd scale": Case(
        bilinear(None, False, [1.7, 2.0]),
        (SQUARE,),
        refused=all_levels("scale factor 1.7 from 8 to 13", 31),
    ),
    "bilinear of one pixel": Case(bilinear([4, 5], False), (image(2, 3, 1, 1),)),
    "bilinear to one pixel, corners aligned": Case(bilinear([1, 1], True), (SQUARE,)),
}
