"""Cases of changes of shape."""

import torch

from tests.convert.cases.common import NEEDS_2, W, X, all_levels
from tests.convert.harness import FIRST, Case, aten, image

SHAPES = {
    "integers with new axes": Case(
        lambda x: aten.view.default(x, [2, 1, 3, 1]),
        (torch.arange(6).reshape(2, 3),),
        FIRST,
        refused=all_levels("EXPAND_DIMS exists from level", 29),
        operations={29: "EXPAND_DIMS EXPAND_DIMS"},
    ),
    "integers in another shape": Case(
        lambda x: aten.view.default(x, [3, 2]),
        (torch.arange(6).reshape(2, 3),),
        refused=all_levels("RESHAPE takes TENSOR_INT32 from level 6 on", 30),
    ),
    "cat over channels": Case(
        lambda x, y: aten.cat.default([x, y], 1),
        (X, image(2, 3, 7, 8)),
        operations={27: "CONCATENATION"},
    ),
    "cat over a negative axis": Case(lambda x, y: aten.cat.default([x, y], -1), (X, X + 1)),
    "cat of three rows": Case(lambda x: aten.cat.default([x, x, x]), (image(2, 3),)),
    "cat with a constant": Case(lambda x: aten.cat.default([x, W["linear"]], 0), (image(2, 7),)),
    "cat with the legacy empty tensor": Case(
        lambda x: aten.cat.default([torch.zeros(0), x, x]), (image(2, 3),)
    ),
    "view of rank 2": Case(
        lambda x: aten.view.default(x, [3, 2, 4]), (image(6, 4),), operations={27: "RESHAPE"}
    ),
    "view of the same shape": Case(
        lambda x: aten.view.default(x, [6, 4]), (image(6, 4),), operations={27: "RESHAPE"}
    ),
    "view that drops one pixel": Case(
        lambda x: aten.view.default(x, [2, 4]), (image(2, 4, 1, 1),), operations={27: "RESHAPE"}
    ),
    "view that makes one pixel": Case(
        lambda x: aten.view.default(x, [2, 4, 1, 1]), (image(2, 4),), operations={27: "RESHAPE"}
    ),
    "view that flattens an image": Case(
        lambda x: aten.view.default(x, [2, 224]),
        (X,),
        refused={27: f"TRANSPOSE exists {NEEDS_2}"},
        operations={28: "TRANSPOSE RESHAPE"},
    ),
    "view that makes an image": Case(
        lambda x: aten.view.default(x, [2, 4, 7, 8]),
        (image(2, 224),),
        refused={27: "TRANSPOSE exists"},
        operations={28: "RESHAPE TRANSPOSE"},
    ),
    "reshape": Case(
        lambda x: aten.reshape.default(x, [8, -1]), (image(6, 4),), operations={27: "RESHAPE"}
    ),
    "view of rank 5": Case(
        lambda x: aten.view.default(x, [1, 2, 2, 3, 1]),
        (image(4, 3),),
        operations={27: "RESHAPE"},
    ),
    "view of rank 6 as an image": Case(
        lambda x: aten.view.default(x, [2, 4, 3, 6]), (image(1, 2, 2, 2, 3, 6),), FIRST
    ),
    "view of an image as rank 5": Case(
        lambda x: aten.view.default(x, [2, 2, 2, 7, 8]),
        (X,),
        refused={27: "TRANSPOSE exists"},
        operations={28: "TRANSPOSE RESHAPE"},
    ),
    "view of rank 5 as an image channels last": Case(
        lambda x: aten.view.default(x, [2, 4, 7, 8]),
        (image(2, 2, 2, 7, 8),),
        refused={27: "TRANSPOSE exists"},
        operations={28: "RESHAPE TRANSPOSE"},
    ),
    "permute": Case(
        lambda x: aten.permute.default(x, [0, 2, 1]),
        (image(2, 3, 4),),
        refused={27: f"TRANSPOSE exists {NEEDS_2}"},
    ),
    "permute of an image": Case(
        lambda x: aten.permute.default(x, [0, -1, 1, 2]), (X,), refused={27: "TRANSPOSE exists"}
    ),
    "permute that the dim order undoes": Case(
        lambda x: aten.permute.default(x, [0, 2, 3, 1]),
        (X,),
        orders={"permute_default": FIRST},
        operations={27: "RESHAPE"},
    ),
    "clone to channels last": Case(
        lambda x: aten.clone.default(x, memory_format=torch.channels_last),
        (X,),
        orders={"x": FIRST},
        refused={27: f"TRANSPOSE exists {NEEDS_2}"},
        operations={28: "TRANSPOSE"},
    ),
    "clone of one channel": Case(
        lambda x: aten.clone.default(x, memory_format=torch.channels_last),
        (image(2, 1, 3, 4),),
        orders={"x": FIRST},
        operations={27: "RESHAPE"},
    ),
    "clone to contiguous": Case(
        lambda x: aten.clone.default(x, memory_format=torch.contiguous_format),
        (X,),
        orders={"clone_default": FIRST},
        refused={27: "TRANSPOSE exists"},
    ),
    "slice of channels": Case(
        lambda x: aten.slice.Tensor(x, 1, 1, 3),
        (X,),
        refused={27: f"STRIDED_SLICE exists {NEEDS_2}"},
    ),
    "slice with a step": Case(
        lambda x: aten.slice.Tensor(x, -1, 1, 8, 3), (X,), refused={27: "STRIDED_SLICE exists"}
    ),
    "slice with a step over all": Case(
        lambda x: aten.slice.Tensor(x, 0, None, None, 2),
        (image(5, 2),),
        refused={27: "STRIDED_SLICE exists"},
    ),
    "slice from the end": Case(
        lambda x: aten.slice.Tensor(x, 1, -3, 9223372036854775807),
        (image(2, 8),),
        refused={27: "STRIDED_SLICE exists"},
    ),
    "slice of everything": Case(
        lambda x: aten.slice.Tensor(x, 1, 0, 100), (image(2, 8),), operations={27: "RESHAPE"}
    ),
    "pad": Case(
        lambda x: aten.constant_pad_nd.default(x, [1, 2, 0, 1, 1, 0]),
        (X,),
        operations={27: " ".join(["CONCATENATION"] * 3), 28: "PAD"},
    ),
    "pad with ones": Case(
        lambda x: aten.constant_pad_nd.default(x, [1, 2], 1.0),
        (X,),
        operations={27: "CONCATENATION", 29: "PAD_V2"},
    ),
    **{
        f"pad of rank {len(shape)}": Case(
            lambda x: aten.constant_pad_nd.default(x, [2, 1]),
            (image(*shape),),
            operations={28: "RESHAPE PAD RESHAPE", 29: "PAD"},
        )
        for shape in ((5,), (3, 5), (2, 3, 5))
    },
    "pad by much": Case(
        lambda x: aten.constant_pad_nd.default(x, [0, 0, 0, 1 << 19], 1.0),
        (image(1, 1, 1, 3),),
        refused=all_levels("a pad of 1572864 constants without PAD .*, at most 1048576", 29),
    ),
    "pad and crop": Case(
        lambda x: aten.constant_pad_nd.default(x, [-1, 2, 1, -2]),
        (X,),
        refused={27: "STRIDED_SLICE exists"},
        operations={28: "STRIDED_SLICE PAD"},
    ),
    "pad by nothing": Case(
        lambda x: aten.constant_pad_nd.default(x, [0, 0]), (X,), operations={27: "RESHAPE"}
    ),
}
