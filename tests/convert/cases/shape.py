"""Cases of changes of shape."""

import torch

from tests.convert.cases.common import NEEDS_2, W, X, case
from tests.convert.harness import FIRST, aten, image

SHAPES = {
    "integers with new axes": case(
        aten.view,
        torch.arange(6).reshape(2, 3),
        [2, 1, 3, 1],
        order=FIRST,
        below_3="EXPAND_DIMS exists from level",
        gives="EXPAND_DIMS EXPAND_DIMS",
    ),
    "integers in another shape": case(
        aten.view,
        torch.arange(6).reshape(2, 3),
        [3, 2],
        below_4="RESHAPE takes TENSOR_INT32 from level 6 on",
    ),
    "cat over channels": case(
        lambda x, y: aten.cat.default([x, y], 1), X, image(2, 3, 7, 8), gives="CONCATENATION"
    ),
    "cat over a negative axis": case(lambda x, y: aten.cat.default([x, y], -1), X, X + 1),
    "cat of three rows": case(lambda x: aten.cat.default([x, x, x]), image(2, 3)),
    "cat with a constant": case(lambda x: aten.cat.default([x, W["linear"]], 0), image(2, 7)),
    "cat with the legacy empty tensor": case(
        lambda x: aten.cat.default([torch.zeros(0), x, x]), image(2, 3)
    ),
    "view of rank 2": case(aten.view, image(6, 4), [3, 2, 4], gives="RESHAPE"),
    "view of the same shape": case(aten.view, image(6, 4), [6, 4], gives="RESHAPE"),
    "view that drops one pixel": case(aten.view, image(2, 4, 1, 1), [2, 4], gives="RESHAPE"),
    "view that makes one pixel": case(aten.view, image(2, 4), [2, 4, 1, 1], gives="RESHAPE"),
    "view that flattens an image": case(
        aten.view, X, [2, 224], below_2=f"TRANSPOSE exists {NEEDS_2}", gives="TRANSPOSE RESHAPE"
    ),
    "view that makes an image": case(
        aten.view,
        image(2, 224),
        [2, 4, 7, 8],
        below_2="TRANSPOSE exists",
        gives="RESHAPE TRANSPOSE",
    ),
    "reshape": case(aten.reshape, image(6, 4), [8, -1], gives="RESHAPE"),
    "view of rank 5": case(aten.view, image(4, 3), [1, 2, 2, 3, 1], gives="RESHAPE"),
    "view of rank 6 as an image": case(
        aten.view, image(1, 2, 2, 2, 3, 6), [2, 4, 3, 6], order=FIRST
    ),
    "view of an image as rank 5": case(
        aten.view, X, [2, 2, 2, 7, 8], below_2="TRANSPOSE exists", gives="TRANSPOSE RESHAPE"
    ),
    "view of rank 5 as an image channels last": case(
        aten.view,
        image(2, 2, 2, 7, 8),
        [2, 4, 7, 8],
        below_2="TRANSPOSE exists",
        gives="RESHAPE TRANSPOSE",
    ),
    "permute": case(aten.permute, image(2, 3, 4), [0, 2, 1], below_2=f"TRANSPOSE exists {NEEDS_2}"),
    "permute of an image": case(aten.permute, X, [0, -1, 1, 2], below_2="TRANSPOSE exists"),
    "permute that the dim order undoes": case(
        aten.permute, X, [0, 2, 3, 1], orders={"permute_default": FIRST}, gives="RESHAPE"
    ),
    "clone to channels last": case(
        aten.clone,
        X,
        memory_format=torch.channels_last,
        orders={"x": FIRST},
        below_2=f"TRANSPOSE exists {NEEDS_2}",
        gives="TRANSPOSE",
    ),
    "clone of one channel": case(
        aten.clone,
        image(2, 1, 3, 4),
        memory_format=torch.channels_last,
        orders={"x": FIRST},
        gives="RESHAPE",
    ),
    "clone to contiguous": case(
        aten.clone,
        X,
        memory_format=torch.contiguous_format,
        orders={"clone_default": FIRST},
        below_2="TRANSPOSE exists",
    ),
    "slice of channels": case(
        aten.slice.Tensor, X, 1, 1, 3, below_2=f"STRIDED_SLICE exists {NEEDS_2}"
    ),
    "slice with a step": case(aten.slice.Tensor, X, -1, 1, 8, 3, below_2="STRIDED_SLICE exists"),
    "slice with a step over all": case(
        aten.slice.Tensor, image(5, 2), 0, None, None, 2, below_2="STRIDED_SLICE exists"
    ),
    "slice from the end": case(
        aten.slice.Tensor, image(2, 8), 1, -3, 9223372036854775807, below_2="STRIDED_SLICE exists"
    ),
    "slice of everything": case(aten.slice.Tensor, image(2, 8), 1, 0, 100, gives="RESHAPE"),
    "pad": case(
        aten.constant_pad_nd,
        X,
        [1, 2, 0, 1, 1, 0],
        gives={27: " ".join(["CONCATENATION"] * 3), 28: "PAD"},
    ),
    "pad with ones": case(
        aten.constant_pad_nd, X, [1, 2], 1.0, gives={27: "CONCATENATION", 29: "PAD_V2"}
    ),
    **{
        f"pad of rank {len(shape)}": case(
            aten.constant_pad_nd,
            image(*shape),
            [2, 1],
            gives={28: "RESHAPE PAD RESHAPE", 29: "PAD"},
        )
        for shape in ((5,), (3, 5), (2, 3, 5))
    },
    "pad by much": case(
        aten.constant_pad_nd,
        image(1, 1, 1, 3),
        [0, 0, 0, 1 << 19],
        1.0,
        below_3="a pad of 1572864 constants without PAD .*, at most 1048576",
    ),
    "pad and crop": case(
        aten.constant_pad_nd,
        X,
        [-1, 2, 1, -2],
        below_2="STRIDED_SLICE exists",
        gives="STRIDED_SLICE PAD",
    ),
    "pad by nothing": case(aten.constant_pad_nd, X, [0, 0], gives="RESHAPE"),
}
