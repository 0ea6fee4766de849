"""Cases of pooling, and of resizing in every mode, up and down."""

import torch

from tests.convert.cases.common import SQUARE, X, all_levels, case
from tests.convert.harness import FIRST, LAST, aten, image


def avg_pool(x, kernel=3, stride=2, padding=0, ceil=False, include=True, divisor=None):
    sizes = [kernel] * 2, [stride] * 2, [padding] * 2
    return case(aten.avg_pool2d, x, *sizes, ceil, include, divisor)


LAST_ONLY = "NNAPI expects channels_last images of rank 4"

DILATED = r"dilation \(2, 2\) \(by MAXIMUM of slices\) needs level 3"
NEAREST, NEAREST_4 = {29: "RESIZE_NEAREST_NEIGHBOR"}, {30: "RESIZE_NEAREST_NEIGHBOR"}
TWO_AXES = "RESHAPE CONV_2D RESHAPE CONV_2D RESHAPE"
UNEVEN = {27: f"{TWO_AXES} CONV_2D RESHAPE", 28: f"{TWO_AXES} TRANSPOSE"}

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
    "max pool dilated": case(aten.max_pool2d, X, [2, 2], [1, 1], [0, 0], [2, 2], below_3=DILATED),
    "max pool of a contiguous image": case(
        aten.max_pool2d, X, [2, 2], order=FIRST, never=LAST_ONLY
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
    "adaptive pool unevenly": case(aten.adaptive_avg_pool2d, SQUARE, [3, 3], gives=UNEVEN),
}


def nearest(size, scales=None, exact=False):
    target = aten._upsample_nearest_exact2d if exact else aten.upsample_nearest2d
    return lambda x: target.vec(x, size, scales)


def smooth(mode, size, align, scales=None):
    return lambda x: getattr(aten, mode).vec(x, size, align, scales)


def bilinear(size, align, scales=None):
    return smooth("upsample_bilinear2d", size, align, scales)


def sampled(mode, padding, align):
    """Of images at places of which some lie outside."""
    return lambda x, grid: aten.grid_sampler.default(x, grid, mode, padding, align)


OUTSIDE = torch.tensor([-1.0, 1.0, 1.2, 40.0]).view(1, 1, 2, 2).expand(2, 5, 2, 2)
PLACES = torch.cat([image(2, 5, 6, 2), OUTSIDE], 2)
NO_ROWS = all_levels("GATHER needs level 3", 29)
BY_COPIES = "RESHAPE CONCATENATION RESHAPE RESHAPE CONCATENATION RESHAPE"
BY_MATRICES = f"{TWO_AXES} TRANSPOSE"
NO_SLICES = {27: r"elements \(by STRIDED_SLICE\) needs level 2"}
BEFORE_FLAGS = {28: BY_MATRICES, 30: "RESIZE_BILINEAR"}

RESIZING = {
    "nearest twice": case(
        nearest(None, [2.0, 2.0]), SQUARE, gives={27: BY_COPIES, 29: "RESIZE_NEAREST_NEIGHBOR"}
    ),
    "nearest of three rows and two columns each": case(nearest([21, 16]), X),
    "nearest to a size": case(nearest([5, 13]), X, refused=NO_SLICES, gives=NEAREST),
    "nearest downwards": case(nearest([3, 2]), X, refused=NO_SLICES),
    "nearest by an odd scale": case(
        nearest(None, [1.7, 2.0]), SQUARE, refused=NO_SLICES, gives={29: "GATHER GATHER"}
    ),
    "nearest exact twice": case(
        nearest([16, 16], exact=True), SQUARE, gives={27: BY_COPIES, 29: "RESIZE_NEAREST_NEIGHBOR"}
    ),
    "nearest exact to a size": case(
        nearest([5, 13], exact=True), X, refused=NO_SLICES, gives=NEAREST_4
    ),
    "nearest exact downwards": case(
        nearest([3, 2], exact=True), X, refused=NO_SLICES, gives=NEAREST_4
    ),
    "nearest exact by an odd scale": case(
        nearest(None, [1.7, 0.6], exact=True), SQUARE, refused=NO_SLICES
    ),
    "nearest in too many pieces": case(
        nearest([1, 300]),
        image(1, 2, 1, 200),
        refused={**NO_SLICES, 28: "slices in place of GATHER .level 3., at most 64 are made"},
    ),
    "bilinear": case(bilinear([16, 12], False), SQUARE, gives=BEFORE_FLAGS),
    "bilinear, corners aligned": case(bilinear([15, 12], True), SQUARE, gives=BEFORE_FLAGS),
    "bilinear downwards": case(bilinear([5, 3], False), SQUARE, gives=BEFORE_FLAGS),
    "bilinear downwards, corners aligned": case(bilinear([5, 3], True), SQUARE, gives=BEFORE_FLAGS),
    "bilinear twice": case(bilinear(None, False, [2.0, 2.0]), SQUARE, gives=BEFORE_FLAGS),
    "bilinear by an odd scale": case(
        bilinear(None, False, [1.7, 2.0]), SQUARE, gives={28: BY_MATRICES, 30: BY_MATRICES}
    ),
    "bilinear with relu": case(
        lambda x: aten.relu.default(bilinear([5, 3], False)(x)),
        SQUARE,
        gives={28: BY_MATRICES, 30: "RESIZE_BILINEAR RELU"},
    ),
    "bilinear of one pixel": case(
        bilinear([4, 5], False), image(2, 3, 1, 1), gives="RESIZE_BILINEAR"
    ),
    "bilinear of one row": case(bilinear([4, 12], False), image(2, 3, 1, 6)),
    "bilinear of a contiguous image": case(
        bilinear([16, 12], False), SQUARE, order=FIRST, gives=TWO_AXES, refused={30: LAST_ONLY}
    ),
    "bilinear to one pixel, corners aligned": case(
        bilinear([1, 1], True), SQUARE, gives="RESIZE_BILINEAR"
    ),
    "bilinear of a large image": case(
        bilinear([512, 512], True), torch.zeros(1, 4, 400, 400), below_4="at most 536870912 are"
    ),
    **{
        f"{mode} to {size}, corners {'' if align else 'not '}aligned, {order.value}": case(
            smooth(mode, size, align),
            X,
            order=order,
            gives={28: BY_MATRICES} if order is LAST else {},
        )
        for mode, aligned in (
            ("upsample_bicubic2d", (False, True)),
            ("_upsample_bilinear2d_aa", (False,)),
            ("_upsample_bicubic2d_aa", (False,)),
        )
        for align in aligned
        for size in ([13, 17], [3, 5])
        for order in (LAST, FIRST)
    },
    "bicubic by scales": case(smooth("upsample_bicubic2d", None, False, [1.5, 2.3]), X),
    **{
        f"grid_sample, {mode}, {padding}, corners {'' if align else 'not '}aligned": case(
            sampled(["bilinear", "nearest"].index(mode), ["zeros", "border"].index(padding), align),
            X,
            PLACES,
            orders={"grid": FIRST},
            refused=NO_ROWS,
        )
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border")
        for align in (False, True)
    },
    "grid_sample of images alone, as some graphs call it": case(
        aten.grid_sampler_2d, X, PLACES, 0, 0, False, orders={"y": FIRST}, refused=NO_ROWS
    ),
    "grid_sample of contiguous images": case(
        sampled(0, 0, False), X, PLACES, order=FIRST, refused=NO_ROWS
    ),
    "grid_sample of one image of one channel": case(
        sampled(0, 0, True), image(1, 1, 7, 8), PLACES[:1], orders={"grid": FIRST}, refused=NO_ROWS
    ),
    "grid_sample, bicubic": case(sampled(2, 0, False), X, PLACES, never="bicubic|needs level 3"),
    "grid_sample, reflection": case(
        sampled(0, 2, False), X, PLACES, never="reflection|needs level 3"
    ),
}
