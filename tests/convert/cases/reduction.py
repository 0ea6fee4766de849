"""Cases of reductions, statistics, norms of vectors and positions of extreme values."""

import math

import torch

from tests.convert.cases.common import X, all_levels
from tests.convert.harness import FIRST, LAST, Case, aten, image

ROWS = image(3, 5)
LAST_AXES = r"summing other than the last axes needs level 2 \(API 28\)"
MASK = image(2, 3, 4) > 0.3
HALF_MASK = torch.tensor([[True, True, False], [True, True, True], [False, False, False]])
TIES = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0], [-1.0, -3.0, -3.0, 0.0]])
FAR = torch.tensor([[500.0, 499.0, -600.0], [-math.inf, -math.inf, -math.inf], [1.0, math.inf, 2]])


def mean(x, dim, keepdim=False, order=LAST, refused=None, operations=None):
    return Case(
        lambda y: aten.mean.dim(y, dim, keepdim),
        (x,),
        order,
        refused=refused or {},
        operations=operations or {},
    )


def needs(name, level=29):
    return all_levels(f"{name} exists from level", level)


def statistics(name, refused):
    """``var`` or ``std`` in their three spellings."""
    f = getattr(aten, name)
    overloads = {
        "of all": (lambda x: f.default(x, False), ROWS, FIRST),
        "of rows": (lambda x: f.dim(x, [1]), ROWS, FIRST),
        "of channels": (lambda x: f.dim(x, [1], False), X, LAST),
        "of pixels, kept": (lambda x: f.correction(x, [2, 3], correction=2, keepdim=True), X, LAST),
        "of contiguous pixels": (lambda x: f.correction(x, [2, 3]), X, FIRST),
        "of everything, no correction": (lambda x: f.correction(x, correction=0), ROWS, FIRST),
    }
    return {
        f"{name} {how}": Case(
            function,
            (x,),
            order,
            # the rows of the graph that level 1 cannot sum
            refused={**refused, **({27: LAST_AXES} if how == "of pixels, kept" else {})},
        )
        for how, (function, x, order) in overloads.items()
    }


MEANS = {
    "mean of an image": mean(X, [2, 3], operations={27: "AVERAGE_POOL_2D RESHAPE", 28: "MEAN"}),
    "mean of an image, kept": mean(X, [-1, -2], True, operations={28: "MEAN"}),
    "mean of a contiguous image": mean(
        X,
        [2, 3],
        order=FIRST,
        operations={27: "RESHAPE FULLY_CONNECTED RESHAPE RESHAPE", 28: "MEAN"},
    ),
    "mean over channels": mean(X, [1], operations={28: "MEAN"}),
    "mean over the batch": mean(
        X, [0], refused={27: LAST_AXES}, operations={28: "MEAN TRANSPOSE RESHAPE"}
    ),
    "mean of rows": mean(ROWS, [1]),
    "mean of columns": mean(ROWS, [0], refused={27: LAST_AXES}),
    "mean over all, kept": mean(ROWS, None, True),
    "mean over all": mean(ROWS, None, operations={28: "MEAN RESHAPE", 29: "MEAN"}),
    "mean over all of a vector": mean(image(5), None),
    "mean over all of rank 3": mean(image(2, 3, 5), [0, 1, 2]),
    "mean over all of an image": mean(X, [0, 1, 2, 3]),
    "mean over all, without a list": Case(lambda x: aten.mean.default(x), (X,)),
    "mean of one element": mean(image(), None),
}

SUMS = {
    "sum over channels": Case(
        lambda x: aten.sum.dim_IntList(x, [1]),
        (X,),
        operations={28: "MEAN MUL RESHAPE", 29: "REDUCE_SUM"},
    ),
    "sum over rows of a contiguous image": Case(
        lambda x: aten.sum.dim_IntList(x, [3]), (X,), FIRST, operations={29: "REDUCE_SUM"}
    ),
    "sum over the batch": Case(
        lambda x: aten.sum.dim_IntList(x, [0]), (X,), refused={27: LAST_AXES}
    ),
    "sum over all": Case(lambda x: aten.sum.default(x), (X,)),
    "sum over all, kept": Case(lambda x: aten.sum.dim_IntList(x, [], True), (ROWS,)),
    "sum of integers": Case(
        lambda x: aten.sum.default(x),
        (torch.arange(5),),
        refused=all_levels("REDUCE_SUM (takes no TENSOR_INT32|exists from)", 30),
    ),
    "sum of large integers over rows": Case(
        lambda x: aten.sum.dim_IntList(x, [1], True),
        (torch.tensor([[2**30, 2**29 + 3, -7], [-(2**31), 2**24 + 1, 2**22]]),),
        refused=all_levels("REDUCE_SUM (takes no TENSOR_INT32|exists from)", 30),
    ),
    "sum of many integers": Case(
        lambda x: aten.sum.default(x),
        (torch.ones(9000, dtype=torch.int64),),
        refused=all_levels("REDUCE_SUM (takes no|exists)|sums 9000 integers, up to 8192", 31),
    ),
    "number of true elements": Case(
        lambda x: aten.sum.default(x),
        (MASK,),
        refused=all_levels("reduces bool to int64, NNAPI reduces to the same type", 31),
    ),
}

EXTREMES = {
    "maximum over the batch, kept": Case(
        lambda x: aten.amax.default(x, [0], True), (X,), refused=needs("REDUCE_MAX")
    ),
    "minimum over the batch": Case(
        lambda x: aten.amin.default(x, [0]), (X,), refused=needs("REDUCE_MIN")
    ),
    "maximum over all": Case(lambda x: aten.max.default(x), (X,), refused=needs("REDUCE_MAX")),
    "minimum over all": Case(lambda x: aten.min.default(x), (X,), refused=needs("REDUCE_MIN")),
    "minimum beside the maximum": Case(
        lambda x: aten.aminmax.default(x, dim=1)[0], (X,), FIRST, refused=needs("REDUCE_MIN")
    ),
    "maximum beside the minimum, kept": Case(
        lambda x: aten.aminmax.default(x, dim=1, keepdim=True)[1], (X,), refused=needs("REDUCE_MIN")
    ),
    "maximum beside the minimum of all": Case(
        lambda x: aten.aminmax.default(x)[1], (X,), refused=needs("REDUCE_MIN")
    ),
    "product over an axis": Case(
        lambda x: aten.prod.dim_int(x, 1), (X,), refused=needs("REDUCE_PROD")
    ),
    "product over an axis, kept": Case(
        lambda x: aten.prod.dim_int(x, -1, True), (ROWS,), refused=needs("REDUCE_PROD")
    ),
    "product over all": Case(lambda x: aten.prod.default(x), (ROWS,), refused=needs("REDUCE_PROD")),
}


def logical(packet, code):
    """``any`` or ``all`` in their spellings."""
    f = getattr(aten, packet)
    refused = all_levels(f"{code} exists from level|TENSOR_BOOL8|BOOL8", 29)
    return {
        f"{packet} of rows": Case(
            lambda x: f.dim(x, 1), (HALF_MASK,), refused=refused, operations={29: code}
        ),
        f"{packet} of columns, kept": Case(lambda x: f.dim(x, -2, True), (MASK,), refused=refused),
        f"{packet} of two axes": Case(lambda x: f.dims(x, [0, 2]), (MASK,), refused=refused),
        f"{packet} of everything": Case(lambda x: f.default(x), (HALF_MASK,), refused=refused),
    }


ROOTS = {28: r"a root \(SQRT\) needs level 3 \(API 29\)"}
STATISTICS = {
    **statistics("var", {}),
    **statistics("std", {27: ROOTS[28], **ROOTS}),
    "variance, and the mean beside it": Case(
        lambda x: aten.var_mean.correction(x, [1], correction=1, keepdim=True)[0], (ROWS,)
    ),
    "mean, and the variance beside it": Case(lambda x: aten.var_mean.dim(x, [1])[1], (ROWS,)),
    "mean beside the variance of all": Case(lambda x: aten.var_mean.default(x)[1], (ROWS,)),
    "deviation, and the mean beside it": Case(
        lambda x: aten.std_mean.correction(x, [1], correction=0)[0],
        (ROWS,),
        refused={27: ROOTS[28], **ROOTS},
    ),
    "mean beside the deviation": Case(
        lambda x: aten.std_mean.dim(x, [1])[1], (ROWS,), refused={27: ROOTS[28], **ROOTS}
    ),
    "deviation of all beside the mean": Case(
        lambda x: aten.std_mean.default(x)[0], (ROWS,), refused={27: ROOTS[28], **ROOTS}
    ),
    "variance of one element": Case(
        lambda x: aten.var.dim(x, [1]),
        (image(3, 1),),
        refused=all_levels("correction 1 with 1 elements: there is no such variance", 31),
    ),
    "logsumexp of rows": Case(
        lambda x: aten.logsumexp.default(x, [1]), (ROWS * 9,), refused=needs("REDUCE_MAX")
    ),
    "logsumexp over channels, kept": Case(
        lambda x: aten.logsumexp.default(x, [1], True), (X,), refused=needs("REDUCE_MAX")
    ),
    "logsumexp of large numbers and infinities": Case(
        lambda x: aten.logsumexp.default(x, [1]), (FAR,), refused=needs("REDUCE_MAX")
    ),
}


def norm(order, axes, x=ROWS, keepdim=False, refused=None):
    return Case(
        lambda y: aten.linalg_vector_norm.default(y, order, axes, keepdim),
        (x,),
        refused=all_levels("ABS exists", 29) if refused is None else refused,
    )


VECTOR_NORMS = {
    "norm of rows": norm(2, [1], refused={27: ROOTS[28], **ROOTS}),
    "norm of an image's pixels": norm(2, [2, 3], X, refused={27: LAST_AXES, **ROOTS}),
    "norm over channels, kept": norm(2, [1], X, True, refused={27: ROOTS[28], **ROOTS}),
    "norm of everything": norm(2, None, X, refused={27: ROOTS[28], **ROOTS}),
    "norm of order 1": norm(1, [1]),
    "norm of order 3": norm(3.0, [0]),
    "norm of order 0.5": norm(0.5, [1]),
    "norm of order infinity": norm(math.inf, [1]),
    "norm of order minus infinity": norm(-math.inf, [0]),
    "norm of order 0": norm(0, [1], refused=all_levels("the norm of order 0 counts elements", 31)),
    "norm of the old kind": Case(
        lambda x: aten.norm.ScalarOpt_dim(x, 2, [1]), (ROWS,), refused={27: ROOTS[28], **ROOTS}
    ),
    "norm of the old kind, of order 1": Case(
        lambda x: aten.norm.Scalar(x, 1), (ROWS,), refused=all_levels("ABS exists", 29)
    ),
}


def argument(name, x, *args, order=FIRST):
    f = getattr(aten, name).default
    return Case(lambda y: f(y, *args), (x,), order, refused=needs(name.upper()))


POSITIONS = {
    f"{name} {how}": argument(name, x, *args)
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
}
POSITIONS["argmax over an image's channels"] = Case(
    lambda x: aten.argmax.default(x, 1), (X,), refused=needs("ARGMAX|TRANSPOSE")
)


def pair(function, x, index, refused, order=FIRST):
    return Case(lambda y: function(y)[index], (x,), order, refused=refused)


def extreme(f, *args):
    return lambda y: f(y, *args)


SELECTIONS = {
    f"{what} {how}, {part}": pair(extreme(f, *args), x, index, all_levels("exists from level", 29))
    for what, f in (("maximum", aten.max.dim), ("minimum", aten.min.dim))
    for how, x, args in (
        ("of rows", TIES, (1,)),
        ("of columns, kept", ROWS, (0, True)),
        ("over channels", X, (1,)),
    )
    for index, part in enumerate(("values", "positions"))
}
SELECTIONS |= {
    f"{how}, {part}": pair(f, x, index, all_levels("from level|needs level", 29))
    for how, f, x in (
        ("topk of rows", lambda y: aten.topk.default(y, 3), ROWS),
        ("topk of all of a row", lambda y: aten.topk.default(y, 5), ROWS),
        ("topk of columns", lambda y: aten.topk.default(y, 2, 0), ROWS),
        ("topk over channels", lambda y: aten.topk.default(y, 2, 1), X),
        ("the smallest of rows", lambda y: aten.topk.default(y, 2, -1, False), ROWS),
        ("topk of a vector", lambda y: aten.topk.default(y, 2), image(7)),
        ("a sorted row", lambda y: aten.sort.default(y), ROWS),
        ("columns from the largest", lambda y: aten.sort.default(y, 0, True), ROWS),
    )
    for index, part in enumerate(("values", "positions"))
}
SELECTIONS["order of rows"] = Case(
    lambda y: aten.argsort.default(y), (ROWS,), refused=all_levels("from level|needs level", 29)
)
SELECTIONS["order of columns from the largest"] = Case(
    lambda y: aten.argsort.default(y, 0, True),
    (ROWS,),
    refused=all_levels("from level|needs level", 29),
)
SELECTIONS |= {
    f"equal elements {how}": Case(
        f, (TIES,), FIRST, refused=all_levels("from level|needs level", 29)
    )
    for how, f in (
        ("sorted, positions", lambda y: aten.sort.default(y, 1)[1]),
        ("sorted from the largest, positions", lambda y: aten.sort.default(y, 1, True)[1]),
        ("sorted along columns", lambda y: aten.sort.stable(y, stable=True, dim=0)[1]),
        ("in order", lambda y: aten.argsort.default(y, 1)),
        ("in stable order", lambda y: aten.argsort.stable(y, stable=True, dim=0, descending=True)),
    )
}
SELECTIONS["topk of equal elements, values"] = pair(
    lambda y: aten.topk.default(y, 3), TIES, 0, needs("TOPK_V2")
)
SELECTIONS["topk of an image over channels, values"] = Case(
    lambda y: aten.topk.default(y, 2, 1)[0], (X,), refused=all_levels("exists from level", 29)
)

PIXEL = image(1, 8, 1, 1)
ONE_PIXEL = {
    f"{name} of the batch of one pixel": Case(f, (PIXEL,), LAST, refused=refused)
    for name, f, refused in (
        ("sum", lambda x: aten.sum.dim_IntList(x, [0]), {}),
        ("mean", lambda x: aten.mean.dim(x, [0]), {}),
        ("maximum", lambda x: aten.amax.default(x, [0]), all_levels("from level", 29)),
        ("sum kept of two", lambda x: aten.sum.dim_IntList(x, [0, 2], True), {}),
    )
}

REDUCTIONS = {
    **ONE_PIXEL,
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
