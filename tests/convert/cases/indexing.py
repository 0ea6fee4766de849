"""Cases of indexing by tensors, constant and computed."""

import torch

from tests.convert.cases.common import X, all_levels
from tests.convert.harness import FIRST, LAST, Case, aten, image

NO_GATHER = {27: r"elements \(by STRIDED_SLICE\) needs level 2"}
FROM_3 = all_levels("GATHER exists from level 3", 29)
WORDS = image(7, 5)
LARGE = torch.tensor([[2**31 - 1, -(2**31), 7], [5, 2**24 + 1, -1]])


def ids(*listed):
    return torch.tensor(listed)


def select(x, dim, listed, **known):
    index = torch.tensor(listed)
    return Case(lambda y: aten.index_select.default(y, dim, index), (x,), **known)


def select_computed(x, dim, index, **known):
    known.setdefault("refused", FROM_3)
    return Case(lambda y, i: aten.index_select.default(y, dim, i), (x, index), **known)


def indexed(x, *indices, **known):
    return Case(lambda y: aten.index.Tensor(y, list(indices)), (x,), **known)


def gathered(x, dim, index, **known):
    return Case(lambda y, i: aten.gather.default(y, dim, i), (x, index), **known)


NO_MUL = all_levels(r"(MUL|ADD) on indices \(CAST\) needs level 3", 29)

INDEXING = {
    "index_select, a run": select(
        X, 1, [1, 2], refused=NO_GATHER, operations={28: "STRIDED_SLICE"}
    ),
    "index_select, every second": select(
        X, 3, [1, 3, 5, 7], refused=NO_GATHER, operations={28: "STRIDED_SLICE"}
    ),
    "index_select, nothing changed": select(X, 1, [0, 1, 2, 3], operations={27: "RESHAPE"}),
    "index_select, two runs": select(
        X,
        -1,
        [6, 7, 0, 1],
        refused=NO_GATHER,
        operations={28: "STRIDED_SLICE STRIDED_SLICE CONCATENATION"},
    ),
    "index_select, backwards": select(
        X, 2, [6, 4, 2, 0], refused=NO_GATHER, operations={28: "STRIDED_SLICE", 29: "GATHER"}
    ),
    "index_select, any order": select(
        X, 1, [3, 0, 0, 1, 3, 2, 0], refused=NO_GATHER, operations={29: "GATHER"}
    ),
    "index_select, one": select(image(3, 4), 0, [2], refused=NO_GATHER),
    "index_select of a contiguous image": select(
        X, 1, [3, 0, 2, 2, 0, 3], refused=NO_GATHER, order=FIRST
    ),
    "index_select of integers": select(
        torch.arange(12).reshape(3, 4),
        1,
        [3, 0],
        refused=all_levels("needs level 2|STRIDED_SLICE takes no", 29),
        operations={29: "GATHER"},
    ),
    "index_select, computed": select_computed(image(3, 4), 1, ids(3, 0, 2)),
    "index_select of rows, computed": select_computed(
        image(3, 4),
        0,
        ids(2, 0, 2),
        refused={},
        operations={27: "EMBEDDING_LOOKUP", 29: "GATHER"},
    ),
    "index_select of an image, computed": select_computed(X, 2, ids(3, 0, 2), order=FIRST),
    "embedding of a row": Case(
        lambda i: aten.embedding.default(WORDS, i, 3),
        (ids(3, 6, 0, 3),),
        operations={27: "EMBEDDING_LOOKUP", 29: "GATHER"},
    ),
    "embedding of a batch": Case(
        lambda i: aten.embedding.default(WORDS, i),
        (ids([3, 6, 0], [1, 1, 2]),),
        refused=FROM_3,
        operations={29: "GATHER"},
    ),
    "embedding of rank 3": Case(
        lambda i: aten.embedding.default(WORDS, i),
        (ids([[3, 6], [0, 5]]),),
        order=FIRST,
        refused=FROM_3,
    ),
    "embedding of 32-bit indices": Case(
        lambda i: aten.embedding.default(WORDS, i),
        (ids([3, 6, 0]).to(torch.int32),),
        refused=FROM_3,
    ),
    "embedding of one": Case(
        lambda i: aten.embedding.default(WORDS, i), (torch.tensor(4),), refused=FROM_3
    ),
    "embedding with computed words": Case(
        lambda w, i: aten.embedding.default(aten.relu.default(w), i),
        (WORDS, ids(3, 6)),
        operations={27: "RELU EMBEDDING_LOOKUP", 29: "RELU GATHER"},
    ),
    "index by a constant": indexed(image(5, 4), ids(4, 0, -1, -5), refused=NO_GATHER),
    "index by a constant matrix": indexed(
        image(5, 4), None, ids([3, 0], [-1, 2]), refused=FROM_3, operations={29: "GATHER"}
    ),
    "index an image's pixels": indexed(
        image(2, 3, 4, 5), None, None, ids([0], [3], [1]), ids(4, 0), order=FIRST, refused=FROM_3
    ),
    "index pairs": indexed(image(4, 5, 3), ids(0, 3, 2), ids(-1, 0, 4), refused=NO_GATHER),
    "index a channels_last image": indexed(
        X,
        None,
        ids(3, 0, 2, 2),
        order=LAST,
        refused={27: "TRANSPOSE exists"},
        orders={"index_tensor": FIRST},
    ),
    "index, computed": Case(
        lambda x, i: aten.index.Tensor(x, [None, i]),
        (image(3, 5), ids(4, -1, 0, -5)),
        refused=NO_MUL,
        operations={
            29: "CAST ADD CAST LESS SELECT GATHER",
            30: "ADD LESS SELECT GATHER",
        },
    ),
    "index by a matrix, computed": Case(
        lambda x, i: aten.index.Tensor(x, [i]),
        (image(5, 3), ids([4, -1], [0, -5])),
        refused=NO_MUL,
    ),
    "index pairs, computed": Case(
        lambda x, i, j: aten.index.Tensor(x, [i, j]),
        (image(5, 3), ids(4, 0, -1), ids(1, -3, 2)),
        refused=NO_MUL,
    ),
    "index triples, computed and broadcast": Case(
        lambda x, i, j: aten.index.Tensor(x, [i, j, i]),
        (image(5, 3, 4), ids(-1, 0, 3), ids([1], [-3])),
        refused=NO_MUL,
    ),
    "index axes apart": Case(
        lambda x, i, j: aten.index.Tensor(x, [i, None, j]),
        (image(5, 2, 3), ids(4, 0, -1), ids(1, -3, 2)),
        refused={27: "TRANSPOSE exists", 28: NO_MUL[28]},
    ),
    "index of bools": Case(
        lambda x: aten.index.Tensor(x, [ids([1], [0]), ids(2, 0, 1)]),
        (torch.tensor([[True, False, True], [False, True, True]]),),
        refused=all_levels("SELECT exists", 29),
    ),
    "index of integers, computed": Case(
        lambda x, i, j: aten.index.Tensor(x, [i, j]),
        (LARGE, ids([1], [0]), ids(2, 0, -2)),
        refused=all_levels("RESHAPE takes TENSOR_INT32 from level 6", 30),
    ),
    "gather of integers, computed": Case(
        lambda x, i: aten.gather.default(x, 1, i),
        (LARGE, ids([2, 0], [1, 1])),
        refused=all_levels("RESHAPE takes TENSOR_INT32 from level 6", 30),
    ),
    "index by a mask": Case(
        lambda x, m: aten.index.Tensor(x, [m]),
        (image(3, 2), torch.tensor([True, False, True])),
        refused=all_levels("indexed by m, a computed bool, wanted int64", 31),
    ),
    "index by a constant mask": indexed(
        image(3, 2), torch.tensor([True, False, True]), refused=NO_GATHER
    ),
    "index by a constant mask of two axes": indexed(
        image(2, 3, 4), None, torch.eye(3, 4) > 0, refused=NO_GATHER
    ),
    "index distant axes": indexed(
        image(3, 4, 5), ids(0, 1), None, ids(1, 2), refused={27: "TRANSPOSE exists"}
    ),
    "gather along columns": gathered(
        image(2, 4),
        1,
        ids([1, 0, 3], [2, 2, 1]),
        refused=NO_MUL,
        operations={29: "RESHAPE CAST ADD CAST GATHER", 30: "RESHAPE ADD GATHER"},
    ),
    "gather along rows": gathered(
        image(4, 3),
        0,
        ids([1, 0, 3], [2, 2, 1]),
        refused=NO_MUL,
        operations={29: "RESHAPE CAST MUL CAST CAST ADD CAST GATHER", 30: "RESHAPE MUL ADD GATHER"},
    ),
    "gather fewer rows": gathered(image(4, 3), 1, ids([1, 0]), refused=FROM_3),
    "gather in a row": gathered(
        image(6),
        0,
        ids(5, 5, 0),
        refused=all_levels("GATHER exists", 29),
        operations={29: "GATHER"},
    ),
    "gather in an image": gathered(
        image(2, 3, 4, 5), 2, torch.arange(24).reshape(2, 3, 2, 2) % 4, order=FIRST, refused=NO_MUL
    ),
    "gather by a constant": Case(
        lambda x: aten.gather.default(x, -2, ids([[1, 0], [0, 1]])),
        (image(1, 3, 2),),
        refused=FROM_3,
        operations={29: "RESHAPE GATHER"},
    ),
    "gather of integers": gathered(
        torch.arange(8).reshape(2, 4),
        1,
        ids([1, 0, 3], [2, 2, 1]),
        refused=all_levels("RESHAPE takes TENSOR_INT32 from level 6", 30),
        beyond=(1000006,),
    ),
}
