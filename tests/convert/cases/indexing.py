"""Cases of indexing by tensors, constant and computed."""

import torch

from tests.convert.cases.common import NO_TRANSPOSE, X, case
from tests.convert.harness import FIRST, aten, image

NO_SLICE = r"elements \(by STRIDED_SLICE\) needs level 2"
NO_RESHAPE = "RESHAPE takes TENSOR_INT32 from level 6"
FOUND = {27: "EMBEDDING_LOOKUP", 29: "GATHER"}
COLUMNS = torch.tensor([[1, 0, 3], [2, 2, 1]])
NO_GATHER = "GATHER exists from level 3"
WORDS = image(7, 5)
BOOLS = torch.tensor([[True, False, True], [False, True, True]])
LARGE = torch.tensor([[2**31 - 1, -(2**31), 7], [5, 2**24 + 1, -1]])


def ids(*listed):
    return torch.tensor(listed)


def select(x, dim, listed, **known):
    index = torch.tensor(listed)
    return case(lambda y: aten.index_select.default(y, dim, index), x, **known)


def looked_up(index, **known):
    return case(lambda i: aten.embedding.default(WORDS, i), index, **known)


def gather(x, dim, index, **known):
    return case(aten.gather, x, dim, index, **known)


def indexed(x, *indices, **known):
    return case(lambda y: aten.index.Tensor(y, list(indices)), x, **known)


NO_MUL = r"(MUL|ADD) on indices \(CAST\) needs level 3"
ADDED = {29: "RESHAPE CAST ADD CAST GATHER", 30: "RESHAPE ADD GATHER"}
SCALED = {29: "RESHAPE CAST MUL CAST CAST ADD CAST GATHER", 30: "RESHAPE MUL ADD GATHER"}
WRAPPED = {29: "CAST ADD CAST LESS SELECT GATHER", 30: "ADD LESS SELECT GATHER"}
APART = {"below_2": NO_TRANSPOSE, "below_3": NO_MUL}

INDEXING = {
    "index_select, a run": select(X, 1, [1, 2], below_2=NO_SLICE, gives="STRIDED_SLICE"),
    "index_select, every second": select(
        X, 3, [1, 3, 5, 7], below_2=NO_SLICE, gives="STRIDED_SLICE"
    ),
    "index_select, nothing changed": select(X, 1, [0, 1, 2, 3], gives="RESHAPE"),
    "index_select, two runs": select(
        X, -1, [6, 7, 0, 1], below_2=NO_SLICE, gives="STRIDED_SLICE STRIDED_SLICE CONCATENATION"
    ),
    "index_select, backwards": select(
        X, 2, [6, 4, 2, 0], below_2=NO_SLICE, gives={28: "STRIDED_SLICE", 29: "GATHER"}
    ),
    "index_select, any order": select(
        X, 1, [3, 0, 0, 1, 3, 2, 0], below_2=NO_SLICE, gives={29: "GATHER"}
    ),
    "index_select, one": select(image(3, 4), 0, [2], below_2=NO_SLICE),
    "index_select of a contiguous image": select(
        X, 1, [3, 0, 2, 2, 0, 3], below_2=NO_SLICE, order=FIRST
    ),
    "index_select of integers": select(
        LARGE, 1, [2, 0], below_3="needs level 2|STRIDED_SLICE takes no", gives="GATHER"
    ),
    "index_select, computed": case(
        aten.index_select, image(3, 4), 1, ids(3, 0, 2), below_3=NO_GATHER
    ),
    "index_select of rows, computed": case(
        aten.index_select, image(3, 4), 0, ids(2, 0, 2), gives=FOUND
    ),
    "embedding of a row": case(
        lambda i: aten.embedding.default(WORDS, i, 3), ids(3, 6, 0, 3), gives=FOUND
    ),
    "embedding of a batch": looked_up(ids([3, 6, 0], [1, 1, 2]), below_3=NO_GATHER, gives="GATHER"),
    "embedding of rank 3": looked_up(ids([[3, 6], [0, 5]]), order=FIRST, below_3=NO_GATHER),
    "embedding of one": looked_up(torch.tensor(4), below_3=NO_GATHER),
    "embedding with computed words": case(
        lambda w, i: aten.embedding.default(aten.relu.default(w), i),
        WORDS,
        ids(3, 6),
        gives={27: "RELU EMBEDDING_LOOKUP", 29: "RELU GATHER"},
    ),
    "index by a constant": indexed(image(5, 4), ids(4, 0, -1, -5), below_2=NO_SLICE),
    "index by a constant matrix": indexed(
        image(5, 4), None, ids([3, 0], [-1, 2]), below_3=NO_GATHER, gives="GATHER"
    ),
    "index an image's pixels": indexed(
        image(2, 3, 4, 5), None, None, ids([0], [3], [1]), ids(4, 0), order=FIRST, below_3=NO_GATHER
    ),
    "index pairs": indexed(image(4, 5, 3), ids(0, 3, 2), ids(-1, 0, 4), below_2=NO_SLICE),
    "index a channels_last image": indexed(
        X, None, ids(3, 0, 2, 2), below_2=NO_TRANSPOSE, orders={"index_tensor": FIRST}
    ),
    "index, computed": case(
        aten.index.Tensor, image(3, 5), [None, ids(4, -1, 0, -5)], below_3=NO_MUL, gives=WRAPPED
    ),
    "index by a matrix, computed": case(
        aten.index.Tensor, image(5, 3), [ids([4, -1], [0, -5])], below_3=NO_MUL
    ),
    "index pairs, computed": case(
        aten.index.Tensor, image(5, 3), [ids(4, 0, -1), ids(1, -3, 2)], below_3=NO_MUL
    ),
    "index triples, computed and broadcast": case(
        lambda x, i, j: aten.index.Tensor(x, [i, j, i]),
        image(5, 3, 4),
        ids(-1, 0, 3),
        ids([1], [-3]),
        below_3=NO_MUL,
    ),
    "index axes apart": case(
        aten.index.Tensor, image(5, 2, 3), [ids(4, 0, -1), None, ids(1, -3, 2)], **APART
    ),
    "index of bools": indexed(BOOLS, ids([1], [0]), ids(2, 0, 1), below_3="SELECT exists"),
    "index of integers, computed": case(
        aten.index.Tensor, LARGE, [ids([1], [0]), ids(2, 0, -2)], below_4=NO_RESHAPE
    ),
    "gather of integers, computed": gather(LARGE, 1, ids([2, 0], [1, 1]), below_4=NO_RESHAPE),
    "index by a mask": case(
        aten.index.Tensor, image(3, 2), [BOOLS[0]], never="indexed by y, a computed bool"
    ),
    "index by a constant mask": indexed(image(3, 2), BOOLS[0], below_2=NO_SLICE),
    "index by a constant mask of two axes": indexed(
        image(2, 3, 4), None, torch.eye(3, 4) > 0, below_2=NO_SLICE
    ),
    "index distant axes": indexed(image(3, 4, 5), ids(0, 1), None, ids(1, 2), below_2=NO_TRANSPOSE),
    "gather along columns": gather(image(2, 4), 1, COLUMNS, below_3=NO_MUL, gives=ADDED),
    "gather along rows": gather(image(4, 3), 0, COLUMNS, below_3=NO_MUL, gives=SCALED),
    "gather fewer rows": gather(image(4, 3), 1, ids([1, 0]), below_3=NO_GATHER),
    "gather in a row": gather(image(6), 0, ids(5, 5, 0), below_3=NO_GATHER, gives="GATHER"),
    "gather in an image": gather(
        image(2, 3, 4, 5), 2, torch.arange(24).reshape(2, 3, 2, 2) % 4, order=FIRST, below_3=NO_MUL
    ),
    "gather by a constant": case(
        lambda x: aten.gather.default(x, -2, ids([[1, 0], [0, 1]])),
        image(1, 3, 2),
        below_3=NO_GATHER,
        gives="RESHAPE GATHER",
    ),
    "gather of integers": gather(
        torch.arange(8).reshape(2, 4), 1, COLUMNS, below_4=NO_RESHAPE, beyond=(1000006,)
    ),
}
