"""The lowerings, one module per family of operators; importing this package registers them all."""

from nnapi_prof.convert.ops import (
    activation,
    conv,
    elementwise,
    linear,
    normalise,
    pool,
    reduce,
    resize,
    shape,
    slicing,
    softmax,
)

__all__ = [
    "activation",
    "conv",
    "elementwise",
    "linear",
    "normalise",
    "pool",
    "reduce",
    "resize",
    "shape",
    "slicing",
    "softmax",
]
