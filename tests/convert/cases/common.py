"""Tensors and refusals that several tables of cases share."""

import torch

from tests.convert.harness import image

W = {name: image(*shape, seed=9) for name, shape in {
    "plain": (6, 4, 3, 3),
    "point": (6, 4, 1, 1),
    "wide": (5, 4, 3, 5),
    "depth": (4, 1, 3, 3),
    "depth2": (8, 1, 3, 3),
    "group": (6, 2, 3, 3),
    "line": (6, 4, 3),
    "linear": (5, 7),
    "channels": (4,),
    "grid": (4, 1, 1),
    "row": (8,),
    "six": (6,),
    "eight": (8,),
    "five": (5,),
}.items()}  # fmt: skip
POSITIVE = image(4, seed=3).abs() + 0.5
X = image(2, 4, 7, 8)
SQUARE = image(1, 4, 8, 8)
INTEGERS = torch.tensor([[-7, -4, -3, -1], [0, 2, 5, 8]])
MASK = image(3, 5) > 0


def all_levels(reason, below):
    return {level: reason for level in (27, 28, 29, 30) if level < below}


NEEDS_2 = r"from level 2 \(API 28\) on, wanted at level 1 \(API 27\)"
NEEDS_3 = r"level 3 \(API 29\)"
