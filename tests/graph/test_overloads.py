"""Operators by other names and overloads become those that passes and converter know."""

import pytest
import torch

from nnapi_prof.graph.node import op_name
from nnapi_prof.passes.overloads import ALIASES
from nnapi_prof.passes.pipeline import DEFAULT_PASSES, run_passes
from tests.convert.harness import FIRST as CONTIGUOUS
from tests.convert.harness import typed

aten = torch.ops.aten
X = torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(3))
ROWS = X[0, 0]
WHOLE = torch.tensor([[1, 2, -3], [5, -7, 6]])


def normal(function, *inputs):
    module = typed(function, inputs, CONTIGUOUS)
    run_passes(module, DEFAULT_PASSES)
    return module


RESIZES = {
    "bicubic": (aten.upsample_bicubic2d, [False]),
    "bicubic, aligned": (aten.upsample_bicubic2d, [True]),
    "bilinear": (aten.upsample_bilinear2d, [False]),
    "nearest": (aten.upsample_nearest2d, []),
    "nearest-exact": (aten._upsample_nearest_exact2d, []),
    "smoothed bilinear": (aten._upsample_bilinear2d_aa, [False]),
    "smoothed bicubic": (aten._upsample_bicubic2d_aa, [False]),
}


@pytest.mark.parametrize("name", RESIZES)
@pytest.mark.parametrize(
    ("size", "scales"), [([8, 9], [2.0, 1.5]), ([8, 9], [None, None]), ([5, 7], [1.3, 1.3])]
)
def test_resizes_are_spelt_by_vec(name, size, scales):
    packet, extra = RESIZES[name]
    module = normal(lambda x: packet.default(x, size, *extra, *scales), X)
    assert module.graph.find_nodes(op="call_function", target=packet.vec)
    torch.testing.assert_close(module(X), packet.default(X, size, *extra, *scales))


def test_a_resize_with_one_scale_stays():
    module = normal(lambda x: aten.upsample_nearest2d.default(x, [5, 7], 1.3, None), X)
    assert module.graph.find_nodes(op="call_function", target=aten.upsample_nearest2d.default)


SPELLINGS = [
    (lambda x: aten.multiply.Scalar(x, 3), X, aten.mul.Tensor),
    (lambda x: aten.divide.Scalar(x, 3), X, aten.div.Tensor),
    (lambda x: aten.true_divide.Scalar(x, 3), X, aten.div.Tensor),
    (lambda x: aten.subtract.Scalar(x, 1, 3), X, aten.sub.Tensor),
    (lambda x: aten.bitwise_and.Scalar_Tensor(6, x), WHOLE, None),
    (lambda x: aten.bitwise_or.Scalar_Tensor(6, x), WHOLE, None),
    (lambda x: aten.bitwise_xor.Scalar_Tensor(6, x), WHOLE, None),
    (lambda x: aten.remainder.Scalar_Tensor(7, x), WHOLE, aten.remainder.Tensor),
    (lambda x: aten.round.decimals(x, decimals=2), X, aten.round.default),
    (lambda x: aten.round.decimals(x, decimals=-1), X * 99, aten.round.default),
    (lambda x: aten.norm.ScalarOpt_dtype(x, None, dtype=torch.float32), X, None),
    (lambda x: aten.norm.ScalarOpt_dim_dtype(x, 2, [1], True, dtype=torch.float32), X, None),
    (lambda x: aten.linalg_norm.ord_str(x, "fro", [0, 1]), ROWS, aten.linalg_vector_norm.default),
    (lambda x: aten.split.default(x, [1, 3], 0)[1], ROWS, aten.slice.Tensor),
    (lambda x: aten.index.Tensor_hacked_twin(x, [torch.tensor([1, 0])]), X, aten.index.Tensor),
    (lambda x: aten.mH.default(x), X, aten.permute.default),
]


@pytest.mark.parametrize(("function", "x", "target"), SPELLINGS)
def test_one_spelling(function, x, target):
    module = normal(function, x)
    targets = {node.target for node in module.graph.nodes if node.op == "call_function"}
    assert target is None or target in targets
    torch.testing.assert_close(module(x), function(x), rtol=1e-6, atol=1e-6)


FIRST = torch.tensor([[-2.5, -0.5, 0.0], [0.5, 1.5, 3.0]])
SECOND = torch.tensor([[-2.5, 0.5, 1.0], [0.5, -1.5, 2.0]])


def arguments_of(overload):
    """Arguments for a schema, plain and named: two tensors, bools for bitwise logic, a number."""
    bitwise = "bitwise" in op_name(ALIASES[overload])
    tensors = iter([FIRST > 0, SECOND > 0] if bitwise else [FIRST, SECOND, SECOND + 1])
    plain, named = [], {}
    for argument in overload._schema.arguments:
        kind = str(argument.type)
        if "Tensor" in kind:
            plain.append(next(tensors))
        elif kind == "number":
            plain.append(True if bitwise else 0.5)
        else:
            assert argument.name == "rounding_mode"
            named[argument.name] = "floor"
    return plain, named


@pytest.mark.parametrize("overload", ALIASES, ids=op_name)
def test_a_synonym_gives_the_same_numbers(overload):
    plain, named = arguments_of(overload)
    actual, expected = (each(*plain, **named) for each in (ALIASES[overload], overload))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
