"""Cases of reductions, statistics, norms of vectors and positions of extreme values."""

import math

import torch

from tests.convert.cases.common import X, case
from tests.convert.harness import FIRST, aten, image

ROWS = image(3, 5)
LAST_AXES = r"summing other than the last axes needs level 2 \(API 28\)"
MASK = image(2, 3, 4) > 0.3
HALF_MASK = torch.tensor([[True, True, False], [True, True, True], [False, False, False]])
TIES = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0], [-1.0, -3.0, -3.0, 0.0]])
FAR = torch.tensor([[500.0, 499.0, -600.0], [-math.inf, -math.inf, -math.inf], [1.0, math.inf, 2]])
LARGE = torch.tensor([[2**30, 2**29 + 3, -7], [-(2**31), 2**24 + 1, 2**22]])
PIXEL = image(1, 8, 1, 1)
NO_INTEGERS = "REDUCE_SUM (takes no TENSOR_INT32|exists from)"
ROOT = r"a root \(SQRT\) needs level 3 \(API 29\)"
NEWER = "exists from level"
LATER = "from level|needs level"


def mean(x, dim, *keepdim, **known):
    return case(aten.mean.dim, x, dim, *keepdim, **known)


def total(x, dim, *keepdim, **known):
    return case(aten.sum.dim_IntList, x, dim, *keepdim, **known)


def needing(name, function, *arguments, **known):
    """A case of an operation that came with level 3."""
    return case(function, *arguments, below_3=f"{name} exists from level", **known)


MEANS = {
    "mean of an image": mean(X, [2, 3], gives={27: "AVERAGE_POOL_2D RESHAPE", 28: "MEAN"}),
    "mean of an image, kept": mean(X, [-1, -2], True, gives={28: "MEAN"}),
    "mean of a contiguous image": mean(
        X, [2, 3], order=FIRST, gives={27: "RESHAPE FULLY_CONNECTED RESHAPE RESHAPE", 28: "MEAN"}
    ),
    "mean over channels": mean(X, [1], gives={28: "MEAN"}),
    "mean over the batch": mean(X, [0], below_2=LAST_AXES, gives="MEAN TRANSPOSE RESHAPE"),
    "mean of rows": mean(ROWS, [1]),
    "mean of columns": mean(ROWS, [0], below_2=LAST_AXES),
    "mean over all, kept": mean(ROWS, None, True),
    "mean over all": mean(ROWS, None, gives={28: "MEAN RESHAPE", 29: "MEAN"}),
    "mean over all of a vector": mean(image(5), None),
    "mean over all of rank 3": mean(image(2, 3, 5), [0, 1, 2]),
    "mean over all of an image": mean(X, [0, 1, 2, 3]),
    "mean over all, without a list": case(aten.mean, X),
    "mean of one element": mean(image(), None),
    "mean of the batch of one pixel": mean(PIXEL, [0]),
}

SUMS = {
    "sum over channels": total(X, [1], gives={28: "MEAN MUL RESHAPE", 29: "REDUCE_SUM"}),
    "sum over rows of a contiguous image": total(X, [3], order=FIRST, gives={29: "REDUCE_SUM"}),
    "sum over the batch": total(X, [0], below_2=LAST_AXES),
    "sum of the batch of one pixel": total(PIXEL, [0]),
    "sum kept of two of the batch of one pixel": total(PIXEL, [0, 2], True),
    "sum over all": case(aten.sum, X),
    "sum over all, kept": total(ROWS, [], True),
    "sum of integers": case(aten.sum, torch.arange(5), below_4=NO_INTEGERS),
    "sum of large integers over rows": total(LARGE, [1], True, below_4=NO_INTEGERS),
    "sum of many integers": case(
        aten.sum,
        torch.ones(9000).long(),
        never="REDUCE_SUM (takes no|exists)|sums 9000 integers, up to 8192",
    ),
    "number of true elements": case(
        aten.sum, MASK, never="reduces bool to int64, NNAPI reduces to the same type"
    ),
}

EXTREMES = {
    "maximum over the batch, kept": needing("REDUCE_MAX", aten.amax, X, [0], True),
    "maximum of the batch of one pixel": needing("REDUCE_MAX", aten.amax, PIXEL, [0]),
    "minimum over the batch": needing("REDUCE_MIN", aten.amin, X, [0]),
    "maximum over all": needing("REDUCE_MAX", aten.max, X),
    "minimum over all": needing("REDUCE_MIN", aten.min, X),
    "minimum beside the maximum": needing(
        "REDUCE_MIN", aten.aminmax, X, dim=1, part=0, order=FIRST
    ),
    "maximum beside the minimum, kept": needing(
        "REDUCE_MIN", aten.aminmax, X, dim=1, keepdim=True, part=1
    ),
    "maximum beside the minimum of all": needing("REDUCE_MIN", aten.aminmax, X, part=1),
    "product over an axis": needing("REDUCE_PROD", aten.prod.dim_int, X, 1),
    "product over an axis, kept": needing("REDUCE_PROD", aten.prod.dim_int, ROWS, -1, True),
    "product over all": needing("REDUCE_PROD", aten.prod, ROWS),
}


def logical(name, code):
    """``any`` or ``all`` in their spellings."""
    f, bools = getattr(aten, name), f"{code} exists from level|BOOL8"
    return {
        f"{name} of rows": case(f.dim, HALF_MASK, 1, below_3=bools, gives={29: code}),
        f"{name} of columns, kept": case(f.dim, MASK, -2, True, below_3=bools),
        f"{name} of two axes": case(f.dims, MASK, [0, 2], below_3=bools),
        f"{name} of everything": case(f, HALF_MASK, below_3=bools),
    }


def statistics(name, **known):
    """``var`` or ``std`` in their three spellings."""
    f = getattr(aten, name)
    return {
        f"{name} of all": case(f, ROWS, False, **known),
        f"{name} of rows": case(f.dim, ROWS, [1], **known),
        f"{name} of channels": case(f.dim, X, [1], False, **known),
        f"{name} of pixels, kept": case(
            f.correction, X, [2, 3], correction=2, keepdim=True, below_2=LAST_AXES, **known
        ),
        f"{name} of contiguous pixels": case(f.correction, X, [2, 3], order=FIRST, **known),
        f"{name} of everything, no correction": case(f.correction, ROWS, correction=0, **known),
    }


STATISTICS = {
    **statistics("var"),
    **statistics("std", below_3=ROOT),
    "variance, and the mean beside it": case(
        aten.var_mean.correction, ROWS, [1], correction=1, keepdim=True, part=0
    ),
    "mean, and the variance beside it": case(aten.var_mean.dim, ROWS, [1], part=1),
    "mean beside the variance of all": case(aten.var_mean, ROWS, part=1),
    "deviation, and the mean beside it": case(
        aten.std_mean.correction, ROWS, [1], correction=0, part=0, below_3=ROOT
    ),
    "mean beside the deviation": case(aten.std_mean.dim, ROWS, [1], part=1, below_3=ROOT),
    "deviation of all beside the mean": case(aten.std_mean, ROWS, part=0, below_3=ROOT),
    "variance of one element": case(
        aten.var.dim, image(3, 1), [1], never="correction 1 with 1 elements: there is no such"
    ),
    "logsumexp of rows": needing("REDUCE_MAX", aten.logsumexp, ROWS * 9, [1]),
    "logsumexp over channels, kept": needing("REDUCE_MAX", aten.logsumexp, X, [1], True),
    "logsumexp of large numbers and infinities": needing("REDUCE_MAX", aten.logsumexp, FAR, [1]),
}


def norm(order, axes, x=ROWS, keepdim=False, below_3="ABS exists", **known):
    function = aten.linalg_vector_norm
    return case(function, x, order, axes, keepdim, below_3=below_3, **known)


VECTOR_NORMS = {
    "norm of rows": norm(2, [1], below_3=ROOT),
    "norm of an image's pixels": norm(2, [2, 3], X, below_2=LAST_AXES, below_3=ROOT),
    "norm over channels, kept": norm(2, [1], X, True, below_3=ROOT),
    "norm of everything": norm(2, None, X, below_3=ROOT),
    "norm of order 1": norm(1, [1]),
    "norm of order 3": norm(3.0, [0]),
    "norm of order 0.5": norm(0.5, [1]),
    "norm of order infinity": norm(math.inf, [1]),
    "norm of order minus infinity": norm(-math.inf, [0]),
    "norm of order 0": norm(0, [1], below_3=None, never="the norm of order 0 counts elements"),
    "norm of the old kind": case(aten.norm.ScalarOpt_dim, ROWS, 2, [1], below_3=ROOT),
    "norm of the old kind, of order 1": case(aten.norm.Scalar, ROWS, 1, below_3="ABS exists"),
}

POSITIONS = {
    f"{name} {how}": needing(name.upper(), getattr(aten, name), x, *args, order=FIRST)
    for name in ("argmax", "argmin")
    for how, x, args in (
        ("of rows", ROWS, (1,)),
        ("of columns, kept", ROWS, (0, True)),
        ("over channels", X, (1,)),
        ("over the last axis, kept", X, (-1, True)),
        ("of everything", ROWS, ()),
        ("of everything, kept", ROWS, (None, True)),
        ("of equal elements", TIES, (1,)),
        ("of a vector", image(7), (0,)),
        ("of a vector, kept", image(7), (0, True)),
    )
} | {"argmax over an image's channels": needing("(ARGMAX|TRANSPOSE)", aten.argmax, X, 1)}

SELECTIONS = {
    f"{how}, {part}": case(f, x, *args, part=index, order=FIRST, below_3=words)
    for words, how, f, x, *args in (
        (NEWER, "maximum of rows", aten.max.dim, TIES, 1),
        (NEWER, "maximum of columns, kept", aten.max.dim, ROWS, 0, True),
        (NEWER, "maximum over channels", aten.max.dim, X, 1),
        (NEWER, "minimum of rows", aten.min.dim, TIES, 1),
        (NEWER, "minimum of columns, kept", aten.min.dim, ROWS, 0, True),
        (NEWER, "minimum over channels", aten.min.dim, X, 1),
        (LATER, "topk of rows", aten.topk, ROWS, 3),
        (LATER, "topk of all of a row", aten.topk, ROWS, 5),
        (LATER, "topk of columns", aten.topk, ROWS, 2, 0),
        (LATER, "topk over channels", aten.topk, X, 2, 1),
        (LATER, "the smallest of rows", aten.topk, ROWS, 2, -1, False),
        (LATER, "topk of a vector", aten.topk, image(7), 2),
        (LATER, "a sorted row", aten.sort, ROWS),
        (LATER, "columns from the largest", aten.sort, ROWS, 0, True),
    )
    for index, part in enumerate(("values", "positions"))
} | {
    "order of rows": case(aten.argsort, ROWS, below_3=LATER),
    "order of columns from the largest": case(aten.argsort, ROWS, 0, True, below_3=LATER),
    "equal elements sorted, positions": case(aten.sort, TIES, 1, part=1, below_3=LATER),
    "equal elements sorted from the largest, positions": case(
        aten.sort, TIES, 1, True, part=1, below_3=LATER
    ),
    "equal elements sorted along columns": case(
        aten.sort.stable, TIES, stable=True, dim=0, part=1, below_3=LATER
    ),
    "equal elements in order": case(aten.argsort, TIES, 1, below_3=LATER),
    "equal elements in stable order": case(
        aten.argsort.stable, TIES, stable=True, dim=0, descending=True, below_3=LATER
    ),
    "topk of equal elements, values": needing("TOPK_V2", aten.topk, TIES, 3, part=0),
    "topk of an image over channels, values": case(aten.topk, X, 2, 1, part=0, below_3=NEWER),
}

REDUCTIONS = {
    **MEANS,
    **SUMS,
    **EXTREMES,
    **logical("any", "REDUCE_ANY"),
    **logical("all", "REDUCE_ALL"),
    **STATISTICS,
    **VECTOR_NORMS,
    **POSITIONS,
    **SELECTIONS,
}
