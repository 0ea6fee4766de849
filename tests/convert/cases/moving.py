"""Cases of flips, rolls, tiles, pads, shuffles: the same elements elsewhere or more than once."""

import torch

from tests.convert.cases.common import SQUARE, X, all_levels
from tests.convert.harness import FIRST, LAST, Case, aten, image

NO_SLICES = {27: r"(STRIDED_SLICE exists|\(by STRIDED_SLICE\) needs level 2)"}
LATE = (1000006, 1000007)
ROWS = image(3, 5)


def of(function, x, order=LAST, **known):
    return Case(function, (x,), order, **known)


def flip(x, *dims, **known):
    return of(lambda y: aten.flip.default(y, list(dims)), x, beyond=LATE, **known)


def roll(x, shifts, dims, **known):
    known.setdefault("refused", NO_SLICES)
    return of(lambda y: aten.roll.default(y, shifts, dims), x, **known)


def expand(x, *size, **known):
    return of(lambda y: aten.expand.default(y, list(size)), x, **known)


def repeat(x, *repeats, **known):
    return of(lambda y: aten.repeat.default(y, list(repeats)), x, **known)


def interleave(x, n, dim, **known):
    known.setdefault("refused", NO_SLICES)
    return of(lambda y: aten.repeat_interleave.self_int(y, n, dim), x, **known)


def pad(x, pads, mode, **known):
    known.setdefault("refused", NO_SLICES)
    return of(lambda y: aten.pad.default(y, pads, mode), x, beyond=LATE, **known)


FLIPS = {
    "flip of an axis": flip(
        X,
        3,
        refused=NO_SLICES,
        operations={28: "STRIDED_SLICE", 29: "GATHER", 1000007: "REVERSE"},
    ),
    "flip of channels": flip(X, 1, refused=NO_SLICES),
    "flip of channels, contiguous": flip(X, 1, order=FIRST, refused=NO_SLICES),
    "flip of two axes": flip(
        X, 2, -1, refused=NO_SLICES, operations={29: "GATHER GATHER", 1000007: "REVERSE REVERSE"}
    ),
    "flip of an axis of one": flip(image(2, 1, 3), 1, operations={27: "RESHAPE"}),
    "flip of a row of two": flip(image(2), 0, refused=NO_SLICES),
    "flip of integers": flip(
        torch.arange(6).reshape(2, 3), 1, refused=all_levels("level 2|STRIDED_SLICE takes no", 29)
    ),
    "roll": roll(X, [1, -2], [2, 3]),
    "roll of channels": roll(X, [3], [1]),
    "roll all the way round": roll(X, [7], [-2], refused={}, operations={27: "RESHAPE"}),
    "roll further than round": roll(
        ROWS, [13], [1], operations={28: "STRIDED_SLICE STRIDED_SLICE CONCATENATION"}
    ),
    "roll as one row": roll(ROWS, [4], []),
    "roll an image as one row": roll(
        X, [9], [], refused={27: "STRIDED_SLICE exists|TRANSPOSE exists"}
    ),
}
TILES = {
    "expand columns": expand(image(3, 1), 3, 4, operations={27: "CONCATENATION", 29: "TILE"}),
    "expand with new axes": expand(
        image(4),
        2,
        3,
        4,
        operations={27: "RESHAPE CONCATENATION CONCATENATION", 29: "RESHAPE TILE"},
    ),
    "expand, -1 keeps": expand(image(3, 1, 2), -1, 4, -1),
    "expand of nothing": expand(image(3, 2), 3, 2, operations={27: "RESHAPE"}),
    "expand to an image": expand(
        image(4, 1, 1),
        2,
        4,
        3,
        3,
        operations={29: "RESHAPE RESHAPE TILE"},
    ),
    "expand to an image from a full one": expand(
        image(4, 2, 3), 2, 4, 2, 3, refused={27: "TRANSPOSE exists"}
    ),
    "expand channels of an image": expand(image(2, 1, 3, 4), 2, 5, 3, 4),
    "expand of many": expand(
        image(2, 1), 2, 65, refused=all_levels("65 copies without TILE .level 3., at most 64", 29)
    ),
    "expand of integers": expand(
        torch.arange(3),
        2,
        3,
        refused=all_levels("EXPAND_DIMS exists from level 3", 29),
        operations={29: "EXPAND_DIMS TILE"},
    ),
    "expand to rank 5": expand(image(2, 1, 3), 2, 2, 2, 2, 3, refused=all_levels("rank 4", 31)),
    "repeat": repeat(image(2, 3), 2, 3, operations={29: "TILE"}),
    "repeat with new axes": repeat(image(2, 3), 2, 1, 3),
    "repeat an image": repeat(X, 1, 2, 1, 3),
    "repeat a contiguous image": repeat(X, 2, 1, 3, 1, order=FIRST),
    "repeat once": repeat(image(2, 3), 1, 1, operations={27: "RESHAPE"}),
    "repeat to rank 5": repeat(
        image(2, 3, 2, 2), 2, 1, 1, 1, 2, refused=all_levels("rank 4|TRANSPOSE exists", 31)
    ),
    "repeat each channel": interleave(X, 2, 1),
    "repeat each column": interleave(ROWS, 3, -1),
    "repeat each as one row": interleave(ROWS, 2, None),
}
PADS = {
    "pad reflect": pad(
        X,
        [1, 2, 2, 1],
        "reflect",
        operations={29: "GATHER GATHER", 1000007: "MIRROR_PAD"},
    ),
    "pad reflect, contiguous": pad(X, [1, 2, 2, 1], "reflect", order=FIRST),
    "pad reflect by all but one": pad(X, [7, 7, 0, 0], "reflect"),
    "pad reflect of rows": pad(image(2, 3, 5), [4, 1], "reflect"),
    "pad replicate": pad(X, [1, 2, 2, 1], "replicate"),
    "pad replicate by much": pad(X, [9, 0, 0, 5], "replicate", operations={29: "GATHER GATHER"}),
    "pad replicate and crop": pad(X, [-1, 2, 2, -3], "replicate"),
    "pad circular": pad(
        X,
        [1, 2, 2, 1],
        "circular",
        operations={28: " ".join(["STRIDED_SLICE STRIDED_SLICE CONCATENATION"] * 2)},
    ),
    "pad circular, all round": pad(X, [8, 8, 0, 0], "circular"),
    "pad circular of what negative pads leave": pad(
        X, [-1, 2, 1, -2], "circular", refused=NO_SLICES
    ),
    "pad of nothing": pad(X, [0, 0, 0, 0], "reflect", refused={}, operations={27: "RESHAPE"}),
    "reflection_pad1d": of(
        lambda y: aten.reflection_pad1d.default(y, [2, 1]), image(2, 3, 5), refused=NO_SLICES
    ),
    "reflection_pad2d": of(
        lambda y: aten.reflection_pad2d.default(y, [2, 1, 0, 3]), X, refused=NO_SLICES
    ),
    "replication_pad1d": of(
        lambda y: aten.replication_pad1d.default(y, [2, 1]), image(2, 3, 5), refused=NO_SLICES
    ),
    "replication_pad2d": of(
        lambda y: aten.replication_pad2d.default(y, [2, 1, 0, 3]), X, refused=NO_SLICES
    ),
    "circular pad by its own name": of(
        lambda y: aten._pad_circular.default(y, [2, 1, 0, 3]), X, refused=NO_SLICES
    ),
}
WITHOUT_2 = {27: "TRANSPOSE exists from level 2"}
SHUFFLES = {
    "pixel_shuffle": of(
        lambda y: aten.pixel_shuffle.default(y, 2),
        image(2, 12, 3, 4),
        refused=WITHOUT_2,
        operations={
            28: "RESHAPE TRANSPOSE RESHAPE DEPTH_TO_SPACE",
            29: "CHANNEL_SHUFFLE DEPTH_TO_SPACE",
        },
    ),
    "pixel_shuffle to one channel": of(
        lambda y: aten.pixel_shuffle.default(y, 3),
        image(2, 9, 3, 4),
        operations={27: "DEPTH_TO_SPACE"},
    ),
    "pixel_shuffle by one": of(
        lambda y: aten.pixel_shuffle.default(y, 1), X, operations={27: "RESHAPE"}
    ),
    "pixel_unshuffle": of(
        lambda y: aten.pixel_unshuffle.default(y, 2),
        image(2, 3, 6, 4),
        refused=WITHOUT_2,
        operations={
            28: "SPACE_TO_DEPTH RESHAPE TRANSPOSE RESHAPE",
            29: "SPACE_TO_DEPTH CHANNEL_SHUFFLE",
        },
    ),
    "pixel_unshuffle of one channel": of(
        lambda y: aten.pixel_unshuffle.default(y, 2),
        image(2, 1, 6, 4),
        operations={27: "SPACE_TO_DEPTH"},
    ),
    "pixel_unshuffle by one": of(
        lambda y: aten.pixel_unshuffle.default(y, 1), X, operations={27: "RESHAPE"}
    ),
    "channel_shuffle": of(
        lambda y: aten.channel_shuffle.default(y, 3),
        image(2, 12, 3, 4),
        refused=WITHOUT_2,
        operations={28: "RESHAPE TRANSPOSE RESHAPE", 29: "CHANNEL_SHUFFLE"},
    ),
    "channel_shuffle, contiguous": of(
        lambda y: aten.channel_shuffle.default(y, 2), image(2, 12, 3, 4), FIRST, refused=WITHOUT_2
    ),
    "channel_shuffle of lines": of(
        lambda y: aten.channel_shuffle.default(y, 2), image(2, 12, 3), refused=WITHOUT_2
    ),
    "channel_shuffle in one group": of(
        lambda y: aten.channel_shuffle.default(y, 1), X, operations={27: "RESHAPE"}
    ),
}
SLICES = {
    "slice of integers": of(
        lambda y: aten.slice.Tensor(y, 1, 1, 3),
        torch.arange(8).reshape(2, 4),
        refused=all_levels("SLICE exists from level 3", 29),
        operations={29: "SLICE"},
    ),
    "slice of rank 5": of(
        lambda y: aten.slice.Tensor(y, 2, 1, 3),
        image(2, 1, 4, 2, 2),
        refused=all_levels("a tensor of rank 5", 31),
    ),
    "slice of rank 5 with a step": of(
        lambda y: aten.slice.Tensor(y, 2, 0, 4, 2),
        image(2, 1, 4, 2, 2),
        refused=all_levels("a tensor of rank 5", 31),
    ),
}
MOVING = {
    **FLIPS,
    **TILES,
    **PADS,
    **SHUFFLES,
    **SLICES,
    "crop by pads": pad(SQUARE, [-2, -1, 0, 0], "circular"),
}
