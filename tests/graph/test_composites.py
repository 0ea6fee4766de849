"""Composites written out: the graph that remains, checked against eager PyTorch by prepare."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nnapi_prof.errors import NnapiProfError
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.node import op_name
from tests.convert.coverage.rows import Function, numbers, seeded

MOVES = ("view", "reshape", "permute", "clone", "getitem")


def operators(model, *inputs, traced=False, decomposed=False):
    """Overloads that the normalised program calls, views and permutes left out.

    ``prepare`` compares it with the model, on the same inputs only.
    """
    model = model.eval() if isinstance(model, nn.Module) else Function(model)
    with torch.no_grad(), quiet_torch():
        if traced:
            model = torch.jit.trace(model, inputs, check_trace=False)
        if decomposed:
            model = torch.export.export(model, inputs).run_decompositions()
    nodes = prepare(model, inputs, "composite").module.graph.nodes
    names = [op_name(n.target).removeprefix("aten.") for n in nodes if n.op == "call_function"]
    names = [name.partition(".")[0] for name in names]
    return " ".join(name for name in names if name not in MOVES)


EQUATIONS = [
    ("bij,bkj->bik", [(2, 4, 5), (2, 6, 5)], "matmul"),
    ("ij,jk", [(3, 4), (4, 5)], "matmul"),
    ("bhqd,bhkd->bhqk", [(1, 2, 3, 4), (1, 2, 5, 4)], "matmul"),
    ("bqhd,bkhd->bhqk", [(2, 3, 2, 4), (2, 5, 2, 4)], "matmul"),
    ("bhqk,bkhd->bqhd", [(2, 2, 3, 5), (2, 5, 2, 4)], "matmul"),
    ("...ij,jk->...ik", [(2, 3, 4), (4, 5)], "matmul"),
    ("i...,i...->...", [(3, 2, 4), (3, 2, 4)], "matmul"),
    ("i,j->ij", [(3,), (4,)], "matmul"),
    ("i,i", [(3,), (3,)], "matmul"),
    ("ij->ji", [(3, 4)], ""),
    ("ij->", [(3, 4)], "sum"),
    ("ij->j", [(3, 4)], "sum"),
    ("ij,ij->", [(3, 4), (3, 4)], "matmul"),
    ("ijk,jl->il", [(3, 4, 2), (4, 5)], "sum matmul"),
    ("ba", [(3, 4)], ""),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], "matmul matmul"),
    ("bchw,oc->bohw", [(2, 3, 4, 5), (6, 3)], "matmul"),
    ("nctkv,kvw->nctw", [(2, 3, 4, 2, 5), (2, 5, 6)], "matmul"),
    ("ii->i", [(3, 3)], "einsum"),  # of other kinds: they stay
    ("ii", [(3, 3)], "einsum"),
    ("bi,ci->bc", [(2, 1), (3, 4)], "einsum"),
]


@pytest.mark.parametrize(("equation", "shapes", "left"), EQUATIONS)
def test_einsum(equation, shapes, left):
    inputs = [numbers(*shape, seed=i) for i, shape in enumerate(shapes)]
    assert operators(lambda *x: torch.einsum(equation, *x), *inputs) == left


A, B, ROWS, ROW = numbers(4), numbers(5), numbers(3, 4, 5), numbers(4, 5, seed=2)
NORM = "linalg_vector_norm"
ALGEBRA = [
    (torch.inner, (ROWS, numbers(2, 5)), "matmul"),
    (torch.inner, (A, numbers(4, seed=1)), "matmul"),
    (torch.outer, (A, B), "mul"),
    (torch.ger, (A, B), "mul"),
    (lambda *x: torch.addr(*x, beta=2, alpha=3), (ROWS[0], A, B), "mul mul mul add"),
    (lambda a, x, b: torch.addmv(a, x, b, beta=0), (A, ROWS[0], B), "mv"),
    (torch.addbmm, (numbers(4, 6), ROWS, numbers(3, 5, 6)), "bmm sum add"),
    (lambda x, y: torch.tensordot(x, y, ([1, 2], [0, 1])), (ROWS, numbers(4, 5, 6)), "matmul"),
    (lambda *x: torch.linalg.multi_dot(x), (A[None], ROW, numbers(5, 2)), "matmul matmul"),
    (F.cosine_similarity, (ROWS, ROWS + ROW), f"{NORM} clamp div {NORM} clamp div mul sum"),
    (F.pairwise_distance, (ROWS[0], ROW), f"sub add {NORM}"),
    (lambda x: torch.linalg.norm(x, dim=1), (ROWS,), NORM),
    (lambda x: torch.linalg.norm(x, 1, dim=2, keepdim=True), (ROWS,), NORM),
    (torch.linalg.matrix_norm, (ROWS,), NORM),
]


@pytest.mark.parametrize(("function", "inputs", "left"), ALGEBRA)
def test_algebra(function, inputs, left):
    assert operators(function, *inputs) == left


def test_bilinear():
    result = operators(seeded(lambda: nn.Bilinear(4, 5, 3)), numbers(2, 4), numbers(2, 5))
    assert result.endswith("matmul add")


ATTENTION = "linear linear linear scaled_dot_product_attention linear"
TOKENS = numbers(2, 5, 16)
PADDED = torch.tensor([[0.0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])


class SelfAttention(nn.Module):
    def __init__(self, weights_read=False):
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 4, batch_first=True)
        self.weights_read = weights_read

    def forward(self, x, padded=None):
        mask = None if padded is None else padded > 0
        both = self.inner(x, x, x, mask, need_weights=mask is None)
        return both if self.weights_read else both[0]


def test_native_multi_head_attention():
    assert operators(seeded(SelfAttention), TOKENS, traced=True) == ATTENTION
    masked = operators(seeded(SelfAttention), TOKENS, PADDED, traced=True)
    assert "scaled_dot_product_attention" in masked


def test_native_attention_whose_weights_are_read():
    result = operators(seeded(lambda: SelfAttention(True)), TOKENS, traced=True).split()
    assert result[:3] == ["linear"] * 3
    assert result[-1] == "mean"  # of the heads' weights
    assert result.count("softmax") == 1 and "_native_multi_head_attention" not in result


class Masked(nn.Module):
    """An encoder layer with a mask over scores, one over keys, or both."""

    def __init__(self, over_scores, over_keys, dtype):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
        self.over_scores, self.over_keys = over_scores, over_keys
        hidden = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
        shown = torch.zeros(5, 5).masked_fill(hidden, float("-inf"))
        self.register_buffer("mask", hidden if dtype is torch.bool else shown)

    def forward(self, x, padded):
        mask = self.mask if self.over_scores else None
        return self.inner(x, mask, padded > 0 if self.over_keys else None)


@pytest.mark.parametrize(("over_scores", "over_keys"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_native_encoder_layer_with_masks(over_scores, over_keys, dtype):
    layer = seeded(lambda: Masked(over_scores, over_keys, dtype))
    assert "scaled_dot_product_attention" in operators(layer, TOKENS, PADDED, traced=True)


def test_attention_for_the_cpu():
    function = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    inputs = [numbers(2, 3, 4, 5, seed=seed) for seed in range(3)]
    result = operators(lambda *x: function(*x, is_causal=True, scale=0.3)[0], *inputs)
    assert result == "scaled_dot_product_attention"


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_native_encoder_layer(norm_first, activation):
    options = dict(batch_first=True, norm_first=norm_first, activation=activation)
    layer = seeded(lambda: nn.TransformerEncoderLayer(16, 4, 24, **options))
    mixing, feeding = f"{ATTENTION} add", f"linear {activation} linear add"
    norm = "layer_norm"
    order = (norm, mixing, norm, feeding) if norm_first else (mixing, norm, feeding, norm)
    assert operators(layer, TOKENS, traced=True) == " ".join(order)


X = numbers(2, 4, 5, 6)


@pytest.mark.parametrize(
    ("function", "x", "left"),
    [
        (lambda x: F.layer_norm(x, (6,)), X, "layer_norm"),
        (lambda x: F.group_norm(x, 2), X, "group_norm"),
        (F.instance_norm, X, "instance_norm"),
        (F.instance_norm, X[:1], "instance_norm"),
    ],
)
def test_norms_of_decomposed_programs(function, x, left):
    assert operators(function, x, decomposed=True) == left


def test_an_instance_norm_with_stored_statistics_is_a_batch_norm():
    layer = seeded(lambda: nn.InstanceNorm2d(4, track_running_stats=True))
    assert operators(layer, X) == "batch_norm"
    layer = seeded(lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True))
    assert operators(nn.Sequential(nn.Conv2d(4, 4, 1), layer), X) == "convolution"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("traced", [False, True])
def test_local_response_norm_averages_by_a_convolution(size, traced):
    layer = nn.LocalResponseNorm(size, 0.2, 0.75, 2.0)
    left = operators(layer, numbers(2, 6, 3, 4), traced=traced)
    average = "convolution " if size > 1 else ""
    left = left.replace("constant_pad_nd ", "")  # by nothing, size 1
    assert left == f"mul {average}mul add pow div"


@pytest.mark.parametrize(("divisor", "left"), [(None, "avg_pool2d avg_pool2d"), (2, "avg_pool3d")])
def test_an_average_over_volumes(divisor, left):
    options = dict(stride=1, divisor_override=divisor)
    x = numbers(1, 1, 5, 3, 4)
    assert operators(lambda x: F.avg_pool3d(x, (3, 1, 1), **options), x) == left


def test_a_model_that_draws_numbers_is_refused():
    with pytest.raises(NnapiProfError, match=r"multinomial.*draws random numbers"):
        operators(lambda x: torch.multinomial(x, 2), X[0, 0].abs())
