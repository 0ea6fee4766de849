"""Ranks above 4 brought down: no value above rank 4 remains, and the numbers are the same."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.node import calls, type_of
from nnapi_prof.passes.movement import adaptive_windows, equal_windows
from nnapi_prof.passes.rank import _merged, _steps


class Rearranged(nn.Module):
    """A row viewed in many dimensions, permuted, worked on, and viewed as a row again."""

    def __init__(self, sizes, order, what, dim):
        super().__init__()
        self.sizes, self.order, self.what, self.dim = sizes, order, what, dim

    def forward(self, x):
        y = x.view(self.sizes).permute(self.order)
        if self.what == "slice":
            y = y.narrow(self.dim, self.sizes[self.order[self.dim]] - 1, 1)
        elif self.what == "select":
            y = y.select(self.dim, 0) * 2
        elif self.what == "softmax":
            y = y.softmax(self.dim)
        return y.reshape(-1, 1) + 1


def prepared(model, x):
    with quiet_torch(), torch.inference_mode():
        return prepare(torch.jit.trace(model, (x,), check_trace=False), (x,), "ranks")


@settings(max_examples=30, deadline=None)
@given(
    st.integers(5, 6).flatmap(
        lambda rank: st.tuples(
            st.lists(st.integers(1, 3), min_size=rank, max_size=rank),
            st.permutations(range(rank)),
            st.sampled_from(["nothing", "slice", "select", "softmax"]),
            st.integers(0, rank - 1),
        )
    )
)
def test_any_permutation_in_rank_4(drawn):
    sizes, order, what, dim = drawn
    model = Rearranged(sizes, order, what, dim)
    x = torch.randn(math.prod(sizes), generator=torch.Generator().manual_seed(1))
    program = prepared(model, x)
    torch.testing.assert_close(program.module(x)[0], model(x))
    assert all(len(type_of(node).shape) <= 4 for node in calls(program.module.graph))


@pytest.mark.parametrize("rank", [4, 5, 6])
def test_swaps_of_blocks_make_the_permutation(rank):
    orders = [*itertools.permutations(range(rank))]
    for order in [*orders[:: 1 + rank**3 // 6], orders[-1]]:
        result = list(range(rank))
        steps = _steps(order)
        assert steps is not None and len(steps) <= 4
        for a, b, c in steps:
            result = [*result[:a], *result[b:c], *result[a:b], *result[c:]]
        assert tuple(result) == order


def test_neighbours_that_stay_are_one():
    assert _merged([2, 3, 4, 5], [2, 3, 0, 1]) == ([6, 20], (1, 0))
    assert _merged([2, 3, 4], [0, 1, 2]) == ([24], (0,))


def test_an_order_that_is_too_long_stays():
    model = Rearranged([2] * 9, [8, 3, 6, 1, 4, 7, 2, 5, 0], "nothing", 0)
    x = torch.arange(512.0)
    program = prepared(model, x)
    torch.testing.assert_close(program.module(x)[0], model(x))
    assert any(len(type_of(node).shape) == 9 for node in calls(program.module.graph))


@pytest.mark.parametrize("size", range(1, 13))
def test_adaptive_windows_are_pytorchs(size):
    for out in range(1, 15):
        windows = adaptive_windows(size, out)
        x = torch.randn(1, 1, size, generator=torch.Generator().manual_seed(size))
        mine = torch.stack([x[0, 0, w.start : w.stop].mean() for w in windows])
        torch.testing.assert_close(mine, nn.functional.adaptive_avg_pool1d(x, out)[0, 0])
        equal = equal_windows(size, out)
        if equal is not None:
            length, stride = equal
            pooled = nn.functional.avg_pool1d(x, length, stride)
            torch.testing.assert_close(pooled[0, 0], mine)


class High(nn.Module):
    """An operation on [2, 3, 2, 4, 2, 6], between permutations that keep its rank."""

    def __init__(self, what):
        super().__init__()
        self.what = what
        self.linear, self.norm = nn.Linear(6, 3), nn.LayerNorm(6)
        self.batch, self.groups = nn.BatchNorm3d(3), nn.GroupNorm(3, 3)
        with torch.no_grad():
            for p in (*self.norm.parameters(), *self.batch.parameters()):
                p.copy_(torch.rand(p.shape) + 0.5)

    def forward(self, x):
        y = x.view(4, 3, 2, 2, 2, 6).permute(3, 1, 0, 4, 2, 5)
        y = self.what(self, y)
        return y.reshape(-1)


HIGH = {
    "linear": lambda m, x: m.linear(x),
    "layer_norm": lambda m, x: m.norm(x),
    "layer_norm of two": lambda m, x: nn.functional.layer_norm(x, (2, 6)),
    "rms_norm": lambda m, x: nn.functional.rms_norm(x, (6,)),
    "batch_norm": lambda m, x: m.batch(x.flatten(3, 4)),
    "group_norm": lambda m, x: m.groups(x),
    "prelu": lambda m, x: nn.functional.prelu(x, torch.tensor([0.1, 0.2, 0.3])),
    "matmul": lambda m, x: x @ x.transpose(-1, -2),
    "matmul with a matrix": lambda m, x: x @ x[0, 0, 0, 0].transpose(-1, -2),
    "matmul with a vector": lambda m, x: x @ x[0, 0, 0, 0, 0],
    "matmul that broadcasts": lambda m, x: x @ x[:, :1, :1].transpose(-1, -2),
    "attention": lambda m, x: nn.functional.scaled_dot_product_attention(x, x * 2, x),
    "attention with a mask": lambda m, x: nn.functional.scaled_dot_product_attention(
        x, x, x, x[:, :1, :1, :1, :, :2]
    ),
    "mean": lambda m, x: x.mean((1, 2)),
    "mean apart": lambda m, x: x.mean((1, 4), keepdim=True),
    "mean of all": lambda m, x: x.mean().reshape(1),
    "sum": lambda m, x: x.sum(-1),
    "amax": lambda m, x: x.amax((0, 5)),
    "argmax": lambda m, x: x.argmax(3).float(),
    "argmax of all": lambda m, x: x.argmax().reshape(1).float(),
    "any": lambda m, x: (x > 1).any(2, keepdim=True).float(),
    "norm": lambda m, x: x.norm(dim=-1),
    "logsumexp": lambda m, x: x.logsumexp((3, 4)),
    "var": lambda m, x: x.var((0, 1), correction=0),
    "std": lambda m, x: x.std((2, 3, 4), unbiased=False),
    "log_softmax": lambda m, x: x.log_softmax(-2),
    "glu": lambda m, x: nn.functional.glu(x, 5),
    "cumsum": lambda m, x: x.cumsum(1),
    "flip": lambda m, x: x.flip(1, 4),
    "roll": lambda m, x: x.roll((1, -1), (1, 2)),
    "repeat": lambda m, x: x.repeat(1, 2, 1, 1, 3, 1),
    "repeat of a lower rank": lambda m, x: x[0, 0].repeat(2, 1, 1, 1, 1),
    "pad": lambda m, x: nn.functional.pad(x, (1, 0, 0, 2), value=3.0),
    "pad of the first": lambda m, x: nn.functional.pad(x, (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1)),
    "index_select": lambda m, x: x.index_select(1, torch.tensor([2, 0])),
    "stack": lambda m, x: torch.stack([x, x * 2], 3),
    "cast": lambda m, x: x.int().float(),
    "where": lambda m, x: torch.where(x > 0, x, 0.1),
    "hardswish": lambda m, x: nn.functional.hardswish(x),
}


@pytest.mark.parametrize("name", HIGH)
def test_operations_of_high_rank_are_of_rank_4(name):
    torch.manual_seed(0)
    model, x = High(HIGH[name]).eval(), torch.randn(8, 3, 24)
    program = prepared(model, x)
    high = [node for node in calls(program.module.graph) if len(type_of(node).shape) > 4]
    assert not high, f"{[(node.name, str(type_of(node))) for node in high]}"
    torch.testing.assert_close(program.module(x)[0], model(x))
