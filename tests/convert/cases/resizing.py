"""Cases of resizing images: every mode, up and down, at every level."""

import torch

from tests.convert.cases.common import SQUARE, X, all_levels, case
from tests.convert.harness import FIRST, LAST, aten, image


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
BY_MATRICES = "RESHAPE CONV_2D RESHAPE CONV_2D RESHAPE TRANSPOSE"
NO_SLICES = {27: r"elements \(by STRIDED_SLICE\) needs level 2"}
BEFORE_FLAGS = {28: BY_MATRICES, 30: "RESIZE_BILINEAR"}

RESIZING = {
    "nearest twice": case(
        nearest(None, [2.0, 2.0]), SQUARE, gives={27: BY_COPIES, 29: "RESIZE_NEAREST_NEIGHBOR"}
    ),
    "nearest of three rows and two columns each": case(nearest([21, 16]), X),
    "nearest to a size": case(
        nearest([5, 13]), X, refused=NO_SLICES, gives="RESIZE_NEAREST_NEIGHBOR"
    ),
    "nearest downwards": case(nearest([3, 2]), X, refused=NO_SLICES),
    "nearest by an odd scale": case(
        nearest(None, [1.7, 2.0]), SQUARE, refused=NO_SLICES, gives="GATHER GATHER"
    ),
    "nearest exact twice": case(
        nearest([16, 16], exact=True), SQUARE, gives={27: BY_COPIES, 29: "RESIZE_NEAREST_NEIGHBOR"}
    ),
    "nearest exact to a size": case(
        nearest([5, 13], exact=True), X, refused=NO_SLICES, gives="RESIZE_NEAREST_NEIGHBOR"
    ),
    "nearest exact downwards": case(
        nearest([3, 2], exact=True), X, refused=NO_SLICES, gives="RESIZE_NEAREST_NEIGHBOR"
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
        bilinear([16, 12], False),
        SQUARE,
        order=FIRST,
        gives="RESHAPE CONV_2D RESHAPE CONV_2D RESHAPE",
        refused={30: "NNAPI expects channels_last images"},
    ),
    "bilinear to one pixel, corners aligned": case(
        bilinear([1, 1], True), SQUARE, gives="RESIZE_BILINEAR"
    ),
    "bilinear of a large image": case(
        bilinear([512, 512], True),
        torch.zeros(1, 4, 400, 400),
        below_4="multiplications, at most 536870912 are accepted",
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
