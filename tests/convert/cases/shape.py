"""Cases of changes of shape, and of flips, rolls, tiles, pads and shuffles."""

import torch

from tests.convert.cases.common import NO_SLICE, NO_TRANSPOSE, SQUARE, W, X, case
from tests.convert.harness import FIRST, aten, image

LATE_SLICE = "SLICE exists from level 3"
FLATTENED = "TRANSPOSE RESHAPE"
MANY = "a pad of 1572864 constants without PAD .*, at most 1048576"
NO_EXPAND = "EXPAND_DIMS exists from level 3"
TWELVE = image(2, 12, 3, 4)
SIX = torch.arange(6).reshape(2, 3)
TO_LAST = {"memory_format": torch.channels_last}
TO_FIRST = {"memory_format": torch.contiguous_format}


def view(x, shape, **known):
    return case(aten.view, x, shape, **known)


def zeros(x, pads, *value, **known):
    """A pad by zeros, or by a value."""
    return case(aten.constant_pad_nd, x, pads, *value, **known)


SHAPES = {
    "integers with new axes": view(
        SIX, [2, 1, 3, 1], order=FIRST, below_3=NO_EXPAND, gives="EXPAND_DIMS EXPAND_DIMS"
    ),
    "integers in another shape": view(
        SIX, [3, 2], below_4="RESHAPE takes TENSOR_INT32 from level 6"
    ),
    "cat over channels": case(aten.cat, [X, image(2, 3, 7, 8)], 1, gives="CONCATENATION"),
    "cat over a negative axis": case(aten.cat, [X, X + 1], -1),
    "cat of three rows": case(lambda x: aten.cat.default([x, x, x]), image(2, 3)),
    "cat with a constant": case(lambda x: aten.cat.default([x, W["linear"]], 0), image(2, 7)),
    "cat with the legacy empty tensor": case(
        lambda x: aten.cat.default([torch.zeros(0), x, x]), image(2, 3)
    ),
    "view of rank 2": view(image(6, 4), [3, 2, 4], gives="RESHAPE"),
    "view of the same shape": view(image(6, 4), [6, 4], gives="RESHAPE"),
    "view that drops one pixel": view(image(2, 4, 1, 1), [2, 4], gives="RESHAPE"),
    "view that makes one pixel": view(image(2, 4), [2, 4, 1, 1], gives="RESHAPE"),
    "view that flattens an image": view(X, [2, 224], below_2=NO_TRANSPOSE, gives=FLATTENED),
    "view that makes an image": view(
        image(2, 224), [2, 4, 7, 8], below_2=NO_TRANSPOSE, gives="RESHAPE TRANSPOSE"
    ),
    "reshape": case(aten.reshape, image(6, 4), [8, -1], gives="RESHAPE"),
    "view of rank 5": view(image(4, 3), [1, 2, 2, 3, 1], gives="RESHAPE"),
    "view of rank 6 as an image": view(image(1, 2, 2, 2, 3, 6), [2, 4, 3, 6], order=FIRST),
    "view of an image as rank 5": view(X, [2, 2, 2, 7, 8], below_2=NO_TRANSPOSE, gives=FLATTENED),
    "view of rank 5 as an image channels last": view(
        image(2, 2, 2, 7, 8), [2, 4, 7, 8], below_2=NO_TRANSPOSE, gives="RESHAPE TRANSPOSE"
    ),
    "permute": case(aten.permute, image(2, 3, 4), [0, 2, 1], below_2=NO_TRANSPOSE),
    "permute of an image": case(aten.permute, X, [0, -1, 1, 2], below_2=NO_TRANSPOSE),
    "permute that the dim order undoes": case(
        aten.permute, X, [0, 2, 3, 1], orders={"permute_default": FIRST}, gives="RESHAPE"
    ),
    "clone to channels last": case(
        aten.clone, X, **TO_LAST, orders={"x": FIRST}, below_2=NO_TRANSPOSE, gives="TRANSPOSE"
    ),
    "clone of one channel": case(
        aten.clone, image(2, 1, 3, 4), **TO_LAST, orders={"x": FIRST}, gives="RESHAPE"
    ),
    "clone to contiguous": case(
        aten.clone, X, **TO_FIRST, orders={"clone_default": FIRST}, below_2=NO_TRANSPOSE
    ),
    "slice of channels": case(aten.slice.Tensor, X, 1, 1, 3, below_2=NO_SLICE),
    "slice with a step": case(aten.slice.Tensor, X, -1, 1, 8, 3, below_2=NO_SLICE),
    "slice with a step over all": case(
        aten.slice.Tensor, image(5, 2), 0, None, None, 2, below_2=NO_SLICE
    ),
    "slice from the end": case(aten.slice.Tensor, image(2, 8), 1, -3, 2**63 - 1, below_2=NO_SLICE),
    "slice of everything": case(aten.slice.Tensor, image(2, 8), 1, 0, 100, gives="RESHAPE"),
    "pad": zeros(X, [1, 2, 0, 1, 1, 0], gives={27: " ".join(["CONCATENATION"] * 3), 28: "PAD"}),
    "pad with ones": zeros(X, [1, 2], 1.0, gives={27: "CONCATENATION", 29: "PAD_V2"}),
    **{
        f"pad of rank {len(shape)}": zeros(
            image(*shape), [2, 1], gives={28: "RESHAPE PAD RESHAPE", 29: "PAD"}
        )
        for shape in ((5,), (3, 5), (2, 3, 5))
    },
    "pad by much": zeros(image(1, 1, 1, 3), [0, 0, 0, 1 << 19], 1.0, below_3=MANY),
    "pad and crop": zeros(X, [-1, 2, 1, -2], below_2=NO_SLICE, gives="STRIDED_SLICE PAD"),
    "pad by nothing": zeros(X, [0, 0], gives="RESHAPE"),
}


NO_SLICES = r"STRIDED_SLICE exists|\(by STRIDED_SLICE\) needs level 2"
CUT_AND_JOINED = "STRIDED_SLICE STRIDED_SLICE CONCATENATION"
TURNED = "RESHAPE TRANSPOSE RESHAPE"
SHUFFLED = {28: TURNED, 29: "CHANNEL_SHUFFLE"}
TO_SPACE = {28: f"{TURNED} DEPTH_TO_SPACE", 29: "CHANNEL_SHUFFLE DEPTH_TO_SPACE"}
TO_DEPTH = {28: f"SPACE_TO_DEPTH {TURNED}", 29: "SPACE_TO_DEPTH CHANNEL_SHUFFLE"}
LATE = (1000006, 1000007)
ROWS = image(3, 5)


def flip(x, *dims, **known):
    return case(aten.flip, x, list(dims), beyond=LATE, **known)


def roll(x, shifts, dims, below_2=NO_SLICES, **known):
    return case(aten.roll, x, shifts, dims, below_2=below_2, **known)


def expand(x, *size, **known):
    return case(aten.expand, x, list(size), **known)


def repeat(x, *repeats, **known):
    return case(aten.repeat, x, list(repeats), **known)


def interleave(x, n, dim):
    return case(aten.repeat_interleave.self_int, x, n, dim, below_2=NO_SLICES)


def pad(x, pads, mode, below_2=NO_SLICES, **known):
    return case(aten.pad, x, pads, mode, beyond=LATE, below_2=below_2, **known)


FLIPS = {
    "flip of an axis": flip(
        X, 3, below_2=NO_SLICES, gives={28: "STRIDED_SLICE", 29: "GATHER", 1000007: "REVERSE"}
    ),
    "flip of channels": flip(X, 1, below_2=NO_SLICES),
    "flip of channels, contiguous": flip(X, 1, order=FIRST, below_2=NO_SLICES),
    "flip of two axes": flip(
        X, 2, -1, below_2=NO_SLICES, gives={29: "GATHER GATHER", 1000007: "REVERSE REVERSE"}
    ),
    "flip of an axis of one": flip(image(2, 1, 3), 1, gives="RESHAPE"),
    "flip of a row of two": flip(image(2), 0, below_2=NO_SLICES),
    "flip of integers": flip(SIX, 1, below_3="level 2|STRIDED_SLICE takes no"),
    "roll": roll(X, [1, -2], [2, 3]),
    "roll of channels": roll(X, [3], [1]),
    "roll all the way round": roll(X, [7], [-2], below_2=None, gives="RESHAPE"),
    "roll further than round": roll(ROWS, [13], [1], gives={28: CUT_AND_JOINED}),
    "roll as one row": roll(ROWS, [4], []),
    "roll an image as one row": roll(X, [9], [], below_2="STRIDED_SLICE exists|TRANSPOSE exists"),
}
TILES = {
    "expand columns": expand(image(3, 1), 3, 4, gives={27: "CONCATENATION", 29: "TILE"}),
    "expand with new axes": expand(
        image(4), 2, 3, 4, gives={27: "RESHAPE CONCATENATION CONCATENATION", 29: "RESHAPE TILE"}
    ),
    "expand, -1 keeps": expand(image(3, 1, 2), -1, 4, -1),
    "expand of nothing": expand(image(3, 2), 3, 2, gives="RESHAPE"),
    "expand to an image": expand(image(4, 1, 1), 2, 4, 3, 3, gives={29: "RESHAPE RESHAPE TILE"}),
    "expand to an image from a full one": expand(image(4, 2, 3), 2, 4, 2, 3, below_2=NO_TRANSPOSE),
    "expand channels of an image": expand(image(2, 1, 3, 4), 2, 5, 3, 4),
    "expand of many": expand(
        image(2, 1), 2, 65, below_3="65 copies without TILE .level 3., at most 64"
    ),
    "expand of integers": expand(SIX[0], 2, 3, below_3=NO_EXPAND, gives="EXPAND_DIMS TILE"),
    "expand to rank 5": expand(image(2, 1, 3), 2, 2, 2, 2, 3, never="rank 4"),
    "repeat": repeat(image(2, 3), 2, 3, gives={29: "TILE"}),
    "repeat with new axes": repeat(image(2, 3), 2, 1, 3),
    "repeat an image": repeat(X, 1, 2, 1, 3),
    "repeat a contiguous image": repeat(X, 2, 1, 3, 1, order=FIRST),
    "repeat once": repeat(image(2, 3), 1, 1, gives="RESHAPE"),
    "repeat to rank 5": repeat(image(2, 3, 2, 2), 2, 1, 1, 1, 2, never="rank 4|TRANSPOSE exists"),
    "repeat each channel": interleave(X, 2, 1),
    "repeat each column": interleave(ROWS, 3, -1),
    "repeat each as one row": interleave(ROWS, 2, None),
}
PADS = {
    "crop by pads": pad(SQUARE, [-2, -1, 0, 0], "circular"),
    "pad reflect": pad(
        X, [1, 2, 2, 1], "reflect", gives={29: "GATHER GATHER", 1000007: "MIRROR_PAD"}
    ),
    "pad reflect, contiguous": pad(X, [1, 2, 2, 1], "reflect", order=FIRST),
    "pad reflect by all but one": pad(X, [7, 7, 0, 0], "reflect"),
    "pad reflect of rows": pad(image(2, 3, 5), [4, 1], "reflect"),
    "pad replicate": pad(X, [1, 2, 2, 1], "replicate"),
    "pad replicate by much": pad(X, [9, 0, 0, 5], "replicate", gives={29: "GATHER GATHER"}),
    "pad replicate and crop": pad(X, [-1, 2, 2, -3], "replicate"),
    "pad circular": pad(
        X, [1, 2, 2, 1], "circular", gives={28: f"{CUT_AND_JOINED} {CUT_AND_JOINED}"}
    ),
    "pad circular, all round": pad(X, [8, 8, 0, 0], "circular"),
    "pad circular of what negative pads leave": pad(X, [-1, 2, 1, -2], "circular"),
    "pad of nothing": pad(X, [0, 0, 0, 0], "reflect", below_2=None, gives="RESHAPE"),
    "reflection_pad1d": case(aten.reflection_pad1d, image(2, 3, 5), [2, 1], below_2=NO_SLICES),
    "reflection_pad2d": case(aten.reflection_pad2d, X, [2, 1, 0, 3], below_2=NO_SLICES),
    "replication_pad1d": case(aten.replication_pad1d, image(2, 3, 5), [2, 1], below_2=NO_SLICES),
    "replication_pad2d": case(aten.replication_pad2d, X, [2, 1, 0, 3], below_2=NO_SLICES),
    "circular pad by its own name": case(aten._pad_circular, X, [2, 1, 0, 3], below_2=NO_SLICES),
}
SHUFFLES = {
    "slice of integers": case(aten.slice.Tensor, SIX, 1, 1, 3, below_3=LATE_SLICE, gives="SLICE"),
    "pixel_shuffle": case(aten.pixel_shuffle, TWELVE, 2, below_2=NO_TRANSPOSE, gives=TO_SPACE),
    "pixel_shuffle to one channel": case(
        aten.pixel_shuffle, image(2, 9, 3, 4), 3, gives="DEPTH_TO_SPACE"
    ),
    "pixel_shuffle by one": case(aten.pixel_shuffle, X, 1, gives="RESHAPE"),
    "pixel_unshuffle": case(
        aten.pixel_unshuffle, image(2, 3, 6, 4), 2, below_2=NO_TRANSPOSE, gives=TO_DEPTH
    ),
    "pixel_unshuffle of one channel": case(
        aten.pixel_unshuffle, image(2, 1, 6, 4), 2, gives="SPACE_TO_DEPTH"
    ),
    "pixel_unshuffle by one": case(aten.pixel_unshuffle, X, 1, gives="RESHAPE"),
    "channel_shuffle": case(aten.channel_shuffle, TWELVE, 3, below_2=NO_TRANSPOSE, gives=SHUFFLED),
    "channel_shuffle, contiguous": case(
        aten.channel_shuffle, TWELVE, 2, order=FIRST, below_2=NO_TRANSPOSE
    ),
    "channel_shuffle in one group": case(aten.channel_shuffle, X, 1, gives="RESHAPE"),
}
MOVING = {**FLIPS, **TILES, **PADS, **SHUFFLES}
