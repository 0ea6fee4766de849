"""Tensors, refusals and the form of a case that the tables share."""

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._pytree import tree_leaves, tree_map_only

from tests.convert.harness import LEVELS, Case, image

W = {name: image(*shape, seed=9) for name, shape in {
    "linear": (5, 7),
    "channels": (4,),
    "grid": (4, 1, 1),
    "row": (8,),
    "eight": (8,),
    "five": (5,),
}.items()}  # fmt: skip
POSITIVE = image(4, seed=3).abs() + 0.5
X = image(2, 4, 7, 8)
SQUARE = image(1, 4, 8, 8)
INTEGERS = torch.tensor([[-7, -4, -3, -1], [0, 2, 5, 8]])
MASK = image(3, 5) > 0


def all_levels(reason, below):
    return {level: reason for level in LEVELS if level < below}


def refusals(below_2=None, below_3=None, below_4=None, never=None):
    """A reason for each level below those named; for a level of two, the reason of the lower."""
    bounds = ((31, never), (30, below_4), (29, below_3), (28, below_2))
    return {level: words for end, words in bounds if words for level in LEVELS if level < end}


def case(function, *arguments, refused=None, gives=None, **options):
    """A case of a function of tensors, or of one call of an overload, a packet's default one.

    Tensors among the arguments of a call, or in lists there, are the model's inputs; ``part`` is
    the place of its result among several. ``gives`` has the operations: a string where no level
    changes them, else by level. Further options are those of :func:`refusals`, of ``Case`` and of
    the call.
    """
    bounds = {name: options.pop(name) for name in tuple(options) if name in BOUNDS}
    fields = {name: options.pop(name) for name in tuple(options) if name in FIELDS}
    return Case(
        call(function, arguments, options, options.pop("part", None)),
        tensors_of(arguments),
        refused=refusals(**bounds) | (refused or {}),
        operations={27: gives} if isinstance(gives, str) else gives or {},
        **fields,
    )


BOUNDS = ("below_2", "below_3", "below_4", "never")
FIELDS = ("order", "orders", "beyond", "rtol", "atol")


def from_3(function, *arguments, reason="exists from level 3", **options):
    return case(function, *arguments, below_3=reason, **options)


def tensors_of(arguments):
    return tuple(value for value in tree_leaves(arguments) if isinstance(value, Tensor))


def call(function, arguments, named, part=None):
    """The call as a function of its tensors, of which the tracer wants to know the number."""
    if isinstance(function, OpOverloadPacket):
        function = function.default
    elif not isinstance(function, OpOverload):
        return function

    def apply(*tensors):
        left = iter(tensors)
        filled = tree_map_only(Tensor, lambda _: next(left), arguments)
        result = function(*filled, **named)
        return result if part is None else result[part]

    by_number = {
        1: lambda x: apply(x),
        2: lambda x, y: apply(x, y),
        3: lambda x, y, z: apply(x, y, z),
        4: lambda x, y, z, w: apply(x, y, z, w),
    }
    return by_number[len(tensors_of(arguments))]


NEEDS_2 = r"from level 2 \(API 28\) on, wanted at level 1 \(API 27\)"
NO_TRANSPOSE, NO_SLICE = f"TRANSPOSE exists {NEEDS_2}", f"STRIDED_SLICE exists {NEEDS_2}"
NEEDS_3 = r"level 3 \(API 29\)"
