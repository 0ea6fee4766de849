"""The lowerings, one module per family of operators; importing this package registers them all."""

from nnapi_prof.convert.ops import (
    activation,
    arg,
    attention,
    conv,
    elementwise,
    linear,
    matmul,
    normalise,
    norms,
    pool,
    reduce,
    resize,
    shape,
    slicing,
    softmax,
)

__all__ = [
    "activation",
    "arg",
    "attention",
    "conv",
    "elementwise",
    "linear",
    "matmul",
    "normalise",
    "norms",
    "pool",
    "reduce",
    "resize",
    "shape",
    "slicing",
    "softmax",
]
