"""Overloads that passes and converter know by another overload."""

import pytest
import torch
from torch import fx

from nnapi_prof.graph.node import describe
from nnapi_prof.passes.pipeline import DEFAULT_PASSES, run_passes

aten = torch.ops.aten
X = torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(3))
ROWS = X[0, 0]
WHOLE = torch.tensor([[1, 2, -3], [5, -7, 6]])


class Typed(fx.Interpreter):
    def run_node(self, n):
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and n.op != "output":
            n.meta["tensor"] = describe(value)
        return value


def normal(function, *inputs):
    module = fx.symbolic_trace(function)
    Typed(module).run(*inputs)
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


SPELLINGS = {
    "multiply": (lambda x: aten.multiply.Scalar(x, 3), X, aten.mul.Tensor),
    "divide": (lambda x: aten.divide.Scalar(x, 3), X, aten.div.Tensor),
    "true_divide": (lambda x: aten.true_divide.Scalar(x, 3), X, aten.div.Tensor),
    "subtract": (lambda x: aten.subtract.Scalar(x, 1, 3), X, aten.sub.Tensor),
    "number and tensor": (lambda x: aten.bitwise_and.Scalar_Tensor(6, x), WHOLE, None),
    "number or tensor": (lambda x: aten.bitwise_or.Scalar_Tensor(6, x), WHOLE, None),
    "number xor tensor": (lambda x: aten.bitwise_xor.Scalar_Tensor(6, x), WHOLE, None),
    "number % tensor": (
        lambda x: aten.remainder.Scalar_Tensor(7, x), WHOLE, aten.remainder.Tensor
    ),
    "decimals": (lambda x: aten.round.decimals(x, decimals=2), X, aten.round.default),
    "tens": (lambda x: aten.round.decimals(x, decimals=-1), X * 99, aten.round.default),
    "norm of all": (lambda x: aten.norm.ScalarOpt_dtype(x, None, dtype=torch.float32), X, None),
    "norm": (
        lambda x: aten.norm.ScalarOpt_dim_dtype(x, 2, [1], True, dtype=torch.float32), X, None
    ),
    "Frobenius": (
        lambda x: aten.linalg_norm.ord_str(x, "fro", [0, 1]), ROWS, aten.linalg_vector_norm.default
    ),
    "pieces": (lambda x: aten.split.default(x, [1, 3], 0)[1], ROWS, aten.slice.Tensor),
    "index": (
        lambda x: aten.index.Tensor_hacked_twin(x, [torch.tensor([1, 0])]), X, aten.index.Tensor
    ),
    "conjugate transposition": (lambda x: aten.mH.default(x), X, aten.permute.default),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_one_spelling(name):
    function, x, target = SPELLINGS[name]
    module = normal(function, x)
    targets = {node.target for node in module.graph.nodes if node.op == "call_function"}
    assert target is None or target in targets
    result = module(x)

    torch.testing.assert_close(result, function(x), rtol=1e-6, atol=1e-6)
