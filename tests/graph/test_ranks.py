"""Ranks above 4 brought down: no value above rank 4 remains, and the numbers are the same."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.quiet import quiet_torch
from nnapi_prof.graph.node import calls, type_of
from nnapi_prof.graph.passes.ranks import _merged, _steps
from nnapi_prof.graph.windows import adaptive_windows, equal_windows


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
        found = list(range(rank))
        steps = _steps(order)
        assert steps is not None and len(steps) <= 4
        for a, b, c in steps:
            found = [*found[:a], *found[b:c], *found[a:b], *found[c:]]
        assert tuple(found) == order


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


def test_shuffles_by_hand_become_operators():
    class Shuffled(nn.Module):
        def forward(self, x):
            n, c, h, w = x.shape
            return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w) * 2

    program = prepared(Shuffled(), torch.randn(2, 6, 3, 4))
    names = [str(node.target) for node in calls(program.module.graph)]
    assert names == ["aten.channel_shuffle.default", "aten.mul.Tensor"]
