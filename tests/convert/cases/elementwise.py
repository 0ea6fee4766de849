"""Cases of arithmetic and normalisation."""

import torch

from tests.convert.cases.common import NEEDS_2, POSITIVE, W, X, all_levels
from tests.convert.harness import FIRST, Case, aten, image

ZEROS = torch.tensor([0.0, -0.0, 2.0, 0.0])

ARITHMETIC = {
    "add": Case(lambda x, y: aten.add.Tensor(x, y), (X, image(2, 4, 7, 8, seed=5))),
    "add with relu": Case(
        lambda x, y: aten.relu.default(aten.add.Tensor(x, y)), (X, -X / 2), operations={27: "ADD"}
    ),
    "add a number": Case(lambda x: aten.add.Tensor(x, 2.5), (X,)),
    "add an integer": Case(lambda x: aten.add.Tensor(x, 3), (image(5),)),
    "add with alpha": Case(
        lambda x: aten.add.Tensor(x, x, alpha=2),
        (X,),
        refused=all_levels("alpha=2, only 1 is lowered", 31),
    ),
    "add a constant of rank 1 to an image": Case(lambda x: aten.add.Tensor(x, W["row"]), (X,)),
    "add a constant of rank 3 to an image": Case(lambda x: aten.add.Tensor(x, W["grid"]), (X,)),
    "add a constant of rank 0": Case(lambda x: aten.add.Tensor(x, torch.tensor(2.0)), (X,)),
    "add a row to an image": Case(
        lambda x, y: aten.add.Tensor(x, y), (X, image(8)), operations={27: "RESHAPE ADD"}
    ),
    "add a plane to an image": Case(
        lambda x, y: aten.add.Tensor(y, x),
        (X, image(4, 1, 8)),
        refused={27: f"TRANSPOSE exists {NEEDS_2}"},
        operations={28: "RESHAPE TRANSPOSE ADD"},
    ),
    "add vectors to a contiguous image": Case(
        lambda x, y: aten.add.Tensor(x, y), (X, image(7, 8)), FIRST, operations={27: "ADD"}
    ),
    "add an image of the other order": Case(
        lambda x, y: aten.add.Tensor(x, y),
        (X, X + 1),
        orders={"y": FIRST},
        refused={27: f"TRANSPOSE exists {NEEDS_2}"},
        operations={28: "TRANSPOSE ADD"},
    ),
    "add of rank 5": Case(
        lambda x: aten.add.Tensor(x, 1),
        (image(1, 2, 1, 2, 3),),
        refused=all_levels("a tensor of rank 5", 31),
    ),
    "add of rank 0": Case(
        lambda x: aten.add.Tensor(x, 1),
        (torch.tensor(1.0),),
        operations={27: "ADD"},
    ),
    "add of nothing": Case(
        lambda x: aten.add.Tensor(x, 1),
        (torch.zeros(2, 0),),
        refused=all_levels(r"an empty tensor \(2x0\)", 31),
    ),
    "add of int64": Case(
        lambda x: aten.add.Tensor(x, 1),
        (torch.arange(4),),
        refused=all_levels("ADD takes TENSOR_INT32 from level 4", 30),
    ),
    "add of int32": Case(
        lambda x: aten.add.Tensor(x, 1),
        (torch.arange(4, dtype=torch.int32),),
        refused=all_levels("ADD takes TENSOR_INT32 from level 4", 30),
    ),
    "mul broadcasting both": Case(
        lambda x, y: aten.mul.Tensor(x, y), (image(2, 4, 1, 1), image(1, 1, 7, 8))
    ),
    "mul by itself": Case(lambda x: aten.mul.Tensor(x, x), (X,)),
    "sub": Case(
        lambda x, y: aten.sub.Tensor(x, y),
        (X, image(2, 4, 7, 8, seed=4)),
        operations={27: "MUL ADD", 28: "SUB"},
    ),
    "sub a number": Case(lambda x: aten.sub.Tensor(x, 1.5), (X,)),
    "sub from a constant": Case(lambda x: aten.sub.Tensor(W["row"], x), (image(3, 8),)),
    "div by a number": Case(
        lambda x: aten.div.Tensor(x, 3.0), (X,), operations={27: "MUL", 28: "DIV"}
    ),
    "div by 0": Case(
        lambda x: aten.div.Tensor(x, 0.0),
        (X,),
        refused=all_levels("dividing by a constant with zeros .* needs level 3", 29),
        operations={29: "GREATER LESS SELECT SELECT"},
    ),
    "div by some zeros": Case(
        lambda x: aten.div.Tensor(x, ZEROS),
        (torch.tensor([[1.0, -2.0, 3.0, -4.0], [-7.0, 5.0, 0.0, 6.0]]),),
        refused=all_levels("dividing by a constant with zeros .* needs level 3", 29),
    ),
    "div of zeros by zeros": Case(
        lambda x: aten.isnan.default(aten.div.Tensor(x, ZEROS)),
        (torch.tensor([[0.0, 0.0, 0.0, 1.0], [1.0, -0.0, 1.0, -0.0]]),),
        refused=all_levels("dividing by a constant with zeros .* needs level 3", 29),
    ),
    "div by a constant": Case(lambda x: aten.div.Tensor(x, POSITIVE), (image(3, 4),)),
    "div": Case(
        lambda x, y: aten.div.Tensor(x, y),
        (X, X.abs() + 1),
        refused={27: r"dividing by a computed tensor needs DIV of level 2"},
    ),
    "reciprocal": Case(
        lambda x: aten.reciprocal.default(x),
        (X.abs() + 1,),
        refused={27: "DIV exists"},
        operations={28: "DIV"},
    ),
    "square": Case(
        lambda x: aten.relu.default(aten.pow.Tensor_Scalar(x, 2)), (X,), operations={27: "MUL"}
    ),
    "power": Case(
        lambda x: aten.pow.Tensor_Scalar(x, 1.5),
        (X.abs(),),
        refused=all_levels("POW exists", 29),
        operations={29: "POW"},
    ),
    "fmax": Case(
        lambda x: aten.fmax.default(x, W["row"]),
        (X,),
        refused=all_levels("MAXIMUM exists from level 3", 29),
    ),
    "fmin": Case(
        lambda x: aten.fmin.default(x, W["row"]),
        (X,),
        refused=all_levels("MINIMUM exists from level 3", 29),
    ),
    "maximum": Case(
        lambda x: aten.maximum.default(x, W["grid"]),
        (X,),
        refused=all_levels("MAXIMUM exists from level 3", 29),
    ),
    "minimum": Case(
        lambda x: aten.minimum.default(x, W["eight"]),
        (X,),
        refused=all_levels("MINIMUM exists", 29),
    ),
    "batch norm of an image": Case(
        lambda x: aten.batch_norm.default(
            x, W["channels"], POSITIVE, W["channels"], POSITIVE, False, 0.1, 1e-5, False
        ),
        (X,),
        operations={27: "MUL ADD"},
    ),
    "batch norm of a contiguous image with relu": Case(
        lambda x: aten.relu.default(
            aten.batch_norm.default(x, None, None, W["channels"], POSITIVE, False, 0.1, 1e-5, False)
        ),
        (X,),
        FIRST,
        operations={27: "MUL ADD"},
    ),
    "batch norm of rank 2": Case(
        lambda x: aten.batch_norm.default(
            x, W["channels"], None, W["channels"], POSITIVE, False, 0.1, 1e-5, False
        ),
        (image(3, 4),),
    ),
    "batch norm in training": Case(
        lambda x: aten.batch_norm.default(
            x, None, None, W["channels"].clone(), POSITIVE.clone(), True, 0.1, 1e-5, False
        ),
        (X,),
        refused=all_levels("training=True, its statistics come from the input", 31),
    ),
}
