"""What NNAPI's quant8 operations ask of scales and zero points, as a table."""

from __future__ import annotations

from nnapi_prof.graph.types import Quantisation
from nnapi_prof.nnapi.codes import OperationCode as Op

SAME_AS_INPUT = frozenset(
    {
        Op.AVERAGE_POOL_2D,
        Op.BATCH_TO_SPACE_ND,
        Op.CHANNEL_SHUFFLE,
        Op.DEPTH_TO_SPACE,
        Op.EXPAND_DIMS,
        Op.GATHER,
        Op.MAX_POOL_2D,
        Op.MEAN,
        Op.MIRROR_PAD,
        Op.PAD,
        Op.PAD_V2,
        Op.REDUCE_MAX,
        Op.REDUCE_MIN,
        Op.RELU,
        Op.RELU1,
        Op.RELU6,
        Op.RESHAPE,
        Op.RESIZE_BILINEAR,
        Op.RESIZE_NEAREST_NEIGHBOR,
        Op.REVERSE,
        Op.SLICE,
        Op.SPACE_TO_BATCH_ND,
        Op.SPACE_TO_DEPTH,
        Op.SPLIT,
        Op.SQUEEZE,
        Op.STRIDED_SLICE,
        Op.TILE,
        Op.TRANSPOSE,
    }
)
"""The result has the scale and zero point of the data."""

FIXED = {
    Op.LOGISTIC: Quantisation(1 / 256, 0),
    Op.SOFTMAX: Quantisation(1 / 256, 0),
    Op.TANH: Quantisation(1 / 128, 128),
    Op.L2_NORMALIZATION: Quantisation(1 / 128, 128),
}
"""The result's scale and zero point for TENSOR_QUANT8_ASYMM; the signed zero point is 128 less."""

FREE = frozenset(
    {
        Op.ADD,
        Op.CONCATENATION,
        Op.CONV_2D,
        Op.DEPTHWISE_CONV_2D,
        Op.FULLY_CONNECTED,
        Op.GROUPED_CONV_2D,
        Op.HARD_SWISH,
        Op.MAXIMUM,
        Op.MINIMUM,
        Op.MUL,
        Op.PRELU,
        Op.SUB,
        Op.TRANSPOSE_CONV_2D,
    }
)
"""The result's scale and zero point are the model's choice; quantised.py has what limits it."""

WEIGHTED = {
    Op.CONV_2D: 0,
    Op.DEPTHWISE_CONV_2D: 3,
    Op.FULLY_CONNECTED: 0,
    Op.GROUPED_CONV_2D: 0,
    Op.TRANSPOSE_CONV_2D: 0,
}
"""Operations of (data, filter, bias, ...) -> the dimension of the filter's output channels."""

CHOOSES = frozenset({Op.CONCATENATION, Op.MAXIMUM, Op.MINIMUM})
"""Operations of FREE whose results are elements of what they read, unless its scales differ."""

ROUNDS = frozenset({Op.AVERAGE_POOL_2D, Op.MEAN, Op.RESIZE_BILINEAR, *FREE, *FIXED})
"""Operations that compute, and so round their results to the scale; the others move integers."""

ZERO_PADS = frozenset({Op.PAD, Op.SPACE_TO_BATCH_ND})
"""Below level 3 these pad by the integer 0, whatever the zero point."""
