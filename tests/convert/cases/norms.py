"""Cases of normalisation layers with statistics of their own input."""

from tests.convert.cases.common import case
from tests.convert.harness import FIRST, LAST, aten, image

NO_SLICE = "STRIDED_SLICE exists from level"
NO_TRANSPOSE = "(TRANSPOSE|STRIDED_SLICE) exists from level"
X = image(2, 6, 4, 5) * 3 + 1
W6, B6 = image(6, seed=7), image(6, seed=8)
W5, B5 = image(5, seed=7), image(5, seed=8)
W45 = image(4, 5, seed=7)


def normed(function, x, order=FIRST, **known):
    if "never" not in known:
        known.setdefault("below_2", NO_SLICE if order is FIRST else NO_TRANSPOSE)
    return case(function, x, order=order, **known)


def layer_norm(shape, weight=None, bias=None, x=X, eps=1e-5, **known):
    return normed(lambda y: aten.layer_norm.default(y, shape, weight, bias, eps), x, **known)


def rms_norm(weight, x, eps=None):
    return normed(lambda y: aten.rms_norm.default(y, [5], weight, eps), x)


def group_norm(groups, weight=W6, bias=B6, x=X, **known):
    return normed(lambda y: aten.group_norm.default(y, groups, weight, bias), x, **known)


def instance_norm(x, weight=None, bias=None, mean=None, variance=None, **known):
    args = (weight, bias, mean, variance, mean is None, 0.1, 1e-5, False)
    return normed(lambda y: aten.instance_norm.default(y, *args), x, **known)


CENTRED = "RESHAPE MEAN SUB INSTANCE_NORMALIZATION RESHAPE"
ONE = "RESHAPE INSTANCE_NORMALIZATION RESHAPE"
EQUAL = image(2, 3, 1).expand(2, 3, 5).clone()
ROUNDING = 1e-4
"""Rounding of the mean of equal numbers, divided by sqrt(eps)."""

NORMS = {
    "layer norm": layer_norm([5], W5, B5, gives={29: f"{CENTRED} MUL ADD", 30: f"{ONE} MUL ADD"}),
    "layer norm without weights": layer_norm([5]),
    "layer norm without a bias": layer_norm([5], W5),
    "layer norm of rank 3": layer_norm([5], W5, B5, image(2, 3, 5) * 10),
    "layer norm of a vector": layer_norm([5], W5, B5, image(5)),
    "layer norm over two axes": layer_norm([4, 5], W45, W45 + 1),
    "layer norm over all": layer_norm([6], W6, B6, image(6)),
    "layer norm of an image": layer_norm([5], W5, B5, order=LAST),
    "layer norm of equal numbers": layer_norm([5], W5, B5, EQUAL, atol=ROUNDING),
    "layer norm with a large eps": layer_norm([5], W5, B5, eps=0.5),
    "layer norm without an eps": layer_norm(
        [5], eps=0.0, below_2="eps=0", below_3="eps=0 below level 3: a number above 0 is required"
    ),
    "layer norm far from zero": layer_norm([5], W5, B5, image(2, 3, 5) + 30),
    "layer norm of long rows": layer_norm([640], x=image(2, 640) * 5 + 20),
    "layer norm of float16": layer_norm(
        [5], x=X.half(), never="a norm of float16, float32 is required"
    ),
    "RMS norm": rms_norm(W5, X),
    "RMS norm without weights": rms_norm(None, image(2, 3, 5)),
    "RMS norm with an eps": rms_norm(W5, image(3, 5), 0.1),
    "group norm": group_norm(3, gives={29: f"{CENTRED} MUL ADD", 30: f"{ONE} MUL ADD"}),
    "group norm of one group": group_norm(1),
    "group norm of single channels": group_norm(6),
    "group norm without weights": group_norm(2, None, None, gives={29: CENTRED, 30: ONE}),
    "group norm of lines": group_norm(3, x=image(2, 6, 7)),
    "group norm of rank 2": group_norm(3, x=image(2, 6)),
    "group norm, channels last": group_norm(
        2, order=LAST, gives="RESHAPE MEAN SUB MUL MEAN ADD RSQRT MUL RESHAPE MUL ADD"
    ),
    "group norm without weights, channels last": group_norm(3, None, None, order=LAST),
    "instance norm": instance_norm(X, gives={29: CENTRED, 30: ONE}),
    "instance norm with weights": instance_norm(X, W6, B6),
    "instance norm, channels last": instance_norm(
        X, order=LAST, gives={29: "MEAN SUB INSTANCE_NORMALIZATION", 30: "INSTANCE_NORMALIZATION"}
    ),
    "instance norm with weights, channels last": instance_norm(
        X, W6, B6, order=LAST, gives="INSTANCE_NORMALIZATION MUL ADD"
    ),
    "instance norm far from zero": instance_norm(X + 30),
    "instance norm far from zero, channels last": instance_norm(X + 30, W6, B6, order=LAST),
    "instance norm of lines": instance_norm(image(2, 6, 7), W6, B6),
    "instance norm with stored statistics": instance_norm(
        X,
        mean=B6,
        variance=W6.abs(),
        order=LAST,
        never="use_input_stats=False, statistics of the input are required",
    ),
}
