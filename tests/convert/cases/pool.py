"""Cases of pooling and resizing."""

from tests.convert.cases.common import SQUARE, X, case
from tests.convert.harness import FIRST, aten, image


def avg_pool(x, kernel=3, stride=2, padding=0, ceil=False, include=True, divisor=None):
    return case(
        lambda y: aten.avg_pool2d.default(
            y, [kernel] * 2, [stride] * 2, [padding] * 2, ceil, include, divisor
        ),
        x,
    )


POOLING = {
    "max pool": case(aten.max_pool2d, X, [3, 2], [2, 1], [1, 0]),
    "max pool without a stride": case(aten.max_pool2d, X, [2]),
    "max pool with relu": case(
        lambda x: aten.relu.default(aten.max_pool2d.default(x, [2, 2])), X - 1, gives="MAX_POOL_2D"
    ),
    "max pool of negatives with padding": case(
        aten.max_pool2d, -X.abs() - 1, [3, 3], [2, 2], [1, 1]
    ),
    "max pool in ceil mode": case(aten.max_pool2d, SQUARE, [3, 3], [2, 2], [0, 0], [1, 1], True),
    "max pool in ceil mode with padding": case(
        aten.max_pool2d, SQUARE, [3, 3], [2, 2], [1, 1], [1, 1], True
    ),
    "max pool dilated": case(
        aten.max_pool2d,
        X,
        [2, 2],
        [1, 1],
        [0, 0],
        [2, 2],
        below_3=r"dilation \(2, 2\) \(by MAXIMUM of slices\) needs level 3",
    ),
    "max pool of a contiguous image": case(
        aten.max_pool2d,
        X,
        [2, 2],
        order=FIRST,
        never="NNAPI expects channels_last images of rank 4",
    ),
    "max pool after a pad": case(
        lambda x: aten.max_pool2d.default(aten.constant_pad_nd.default(x, [1, 1, 1, 1]), [3, 3]),
        -X.abs() - 1,
        gives={27: "CONCATENATION CONCATENATION MAX_POOL_2D", 28: "PAD MAX_POOL_2D"},
    ),
    "avg pool": avg_pool(X),
    "avg pool, padding counted": avg_pool(X, padding=1),
    "avg pool, padding left out": avg_pool(X, padding=1, include=False),
    "avg pool in ceil mode": avg_pool(SQUARE, ceil=True),
    "avg pool in ceil mode, padding counted": avg_pool(SQUARE, padding=1, ceil=True),
    "avg pool in ceil mode, padding left out": avg_pool(
        SQUARE, padding=1, ceil=True, include=False
    ),
    "avg pool in ceil mode whose last window would start outside": case(
        aten.avg_pool2d, image(1, 2, 5, 8), [2, 2], [3, 3], [1, 1], True
    ),
    "avg pool with a divisor": avg_pool(X, padding=1, divisor=5),
    "avg pool with a divisor in ceil mode": avg_pool(
        SQUARE, padding=1, ceil=True, include=False, divisor=7
    ),
    "adaptive pool to one": case(aten.adaptive_avg_pool2d, X, [1, 1], gives="AVERAGE_POOL_2D"),
    "adaptive pool evenly": case(aten.adaptive_avg_pool2d, SQUARE, [4, 2]),
    "adaptive pool unevenly": case(
        aten.adaptive_avg_pool2d,
        SQUARE,
        [3, 3],
        gives={
            27: "RESHAPE CONV_2D RESHAPE CONV_2D RESHAPE CONV_2D RESHAPE",
            28: "RESHAPE CONV_2D RESHAPE CONV_2D RESHAPE TRANSPOSE",
        },
    ),
}
