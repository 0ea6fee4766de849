"""Where dim orders change, and that results stay what they are."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nnapi_prof import frontend
from nnapi_prof.errors import FrontendError
from nnapi_prof.graph import DimOrder
from nnapi_prof.graph.node import set_order, type_of
from nnapi_prof.graph.program import verify
from tests.models import Function

C = 4
X = (1, C, 6, 6)


def program_of(function, *shapes: tuple[int, ...]):
    """The program of a function of tensors and of a convolution that keeps their shape."""
    model = Function(function, conv=nn.Conv2d(C, C, 3, padding=1))
    inputs = [torch.randn(s, generator=torch.Generator().manual_seed(4)) for s in shapes]
    program = frontend.prepare(model, inputs, "net")
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(*inputs))
        torch.testing.assert_close(program.module(*inputs), expected, rtol=1e-4, atol=1e-5)
    return program


def labels(program) -> list[str]:
    """First words of the units' labels; LAST and FIRST change the dim order."""
    names = {"to_channels_last": "LAST", "to_contiguous": "FIRST"}
    words = [unit.label.split()[0] for unit in program.units.units]
    return [names.get(word, word) for word in words]


CASES: list[tuple[Any, ...]] = [
    (  # residual
        "LAST conv2d conv2d conv2d add+relu mean",
        lambda x, conv: F.relu(conv(conv(x)) + conv(x)).mean((2, 3)),
    ),
    ("mul add softmax", lambda x, conv: F.softmax(x * 2 + 1, 1)),  # nothing wants channels last
    ("LAST sub div conv2d mean", lambda x, conv: conv((x - 0.5) / 0.2).mean((2, 3))),
    ("LAST conv2d sigmoid FIRST", lambda x, conv: torch.sigmoid(conv(x))),  # image out
    (None, lambda x, conv: (conv(x).view(1, -1), conv(x).view(1, -1) * conv(x).flatten(1))),
    (  # to pixels of channels and back
        "LAST conv2d permute gelu permute conv2d mean",
        lambda x, conv: conv(F.gelu(conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)).mean((2, 3)),
    ),
    (  # norm of channels in between
        "LAST conv2d permute layer_norm permute conv2d FIRST",
        lambda x, conv: conv(F.layer_norm(conv(x).permute(0, 2, 3, 1), [C]).permute(0, 3, 1, 2)),
    ),
    (  # pixels in a line and back
        "LAST conv2d permute view softmax view permute conv2d FIRST",
        lambda x, conv: conv(F.softmax(conv(x).flatten(2).transpose(1, 2), 2).mT.view(X)),
    ),
    ("LAST conv2d permute linear", lambda x, conv: conv(x).permute(0, 2, 3, 1) @ torch.ones(C, 2)),
    (  # another permutation
        "LAST conv2d FIRST permute linear",
        lambda x, conv: conv(x).permute(0, 3, 2, 1) @ torch.ones(C, 2),
    ),
    (  # largest of all channels
        "LAST conv2d conv2d amax mul FIRST",
        lambda x, conv: conv(x) * conv(x).max(1, keepdim=True)[0],
    ),
    (  # sum of a stack
        "LAST conv2d conv2d add conv2d mean",
        lambda x, conv: conv(torch.stack([conv(x), conv(x)], 1).sum(1)).mean((2, 3)),
    ),
    (  # mean of a stack in front
        "LAST conv2d conv2d add mul conv2d mean",
        lambda x, conv: conv(torch.stack([conv(x), conv(x)]).mean(0)).mean((2, 3)),
    ),
    (  # sum of groups of channels, weighted
        None,
        lambda x, conv: (
            (conv(x).view(1, 2, 2, 6, 6) * conv(x)[:, :, :1, :1].view(1, 2, 2, 1, 1))
            .sum(1)
            .mean((2, 3))
        ),
    ),
    ("LAST conv2d FIRST view", lambda x, conv: conv(x).flatten(1)),  # view of many pixels
    (  # view of one pixel
        "LAST conv2d adaptive_avg_pool2d view",
        lambda x, conv: F.adaptive_avg_pool2d(conv(x), 1).flatten(1),
    ),
    (  # squeeze and excite
        "LAST conv2d conv2d mean sigmoid view mul FIRST",
        lambda x, conv: conv(x) * torch.sigmoid(conv(x).mean((2, 3))).view(1, C, 1, 1),
    ),
    ("LAST conv2d view add mean", lambda x, y, conv: (conv(x) + y).mean((2, 3)), X, (6, 6)),
    ("LAST conv2d view LAST add mean", lambda x, y, conv: (conv(x) + y).mean((2, 3)), X, (C, 6, 6)),
    (  # opaque in the middle
        "LAST conv2d FIRST cumsum LAST conv2d mean",
        lambda x, conv: conv(torch.cumsum(conv(x), 3)).mean((2, 3)),
    ),
    ("LAST conv2d mean", lambda x, conv: conv(x).mean(1)),
    ("LAST conv2d FIRST mean", lambda x, conv: conv(x).mean(2)),  # mean over height does not
    ("LAST conv2d gt where FIRST", lambda x, conv: torch.where(x > 0, conv(x), x)),  # mask
    (  # mask of the convolution
        "LAST conv2d gt conv2d where conv2d FIRST",
        lambda x, conv: conv(torch.where(conv(x) > 0, conv(x), 0.0)),
    ),
    ("LAST conv2d FIRST gt", lambda x, conv: conv(x) > 0),  # no mask is transposed
    (None, lambda x, conv: torch.where(x[0, 0] > 0, conv(x), x)),  # a mask of lower rank
]
"""The units' labels in any order (None: of which one is LAST), the function of a convolution and
inputs, and shapes where not X."""


@pytest.mark.parametrize("case", CASES, ids=[str(case[0]) for case in CASES])
def test_placement(case: tuple[Any, ...]):
    expected, function, *shapes = case
    actual = labels(program_of(function, *(shapes or [X])))
    if expected is None:
        assert actual.count("LAST") == 1
    else:
        assert sorted(actual) == sorted(expected.split())


def test_orders_are_annotated():
    program = program_of(lambda x, conv: F.relu(conv(x)).mean((2, 3)), X)
    orders = [type_of(n).dim_order for n in program.module.graph.nodes if n.op == "call_function"]
    assert orders == [DimOrder.CHANNELS_LAST] * 3 + [DimOrder.CONTIGUOUS]
    for node in program.module.graph.find_nodes(op="get_attr"):
        assert type_of(node).dim_order is DimOrder.CONTIGUOUS


def test_a_wrong_order_is_found():
    program = program_of(lambda x, conv: F.relu(conv(x)).mean((2, 3)), X)
    (relu,) = (n for n in program.module.graph.nodes if n.name == "relu")
    set_order(relu, DimOrder.CONTIGUOUS)
    with pytest.raises(FrontendError, match=r"relu: aten.relu.default reads a value in the wrong"):
        verify(program.module.graph)


STEPS = {
    "conv": lambda x, conv: conv(x),
    "relu": lambda x, conv: F.relu(x),
    "pool": lambda x, conv: F.max_pool2d(x, 3, 1, 1),
    "cumsum": lambda x, conv: torch.cumsum(x, 2) * 0.2,
    "permute": lambda x, conv: x.permute(0, 1, 3, 2),
    "twice": lambda x, conv: x + conv(x),
    "softmax": lambda x, conv: F.softmax(x, 1),
    "slice": lambda x, conv: torch.cat([x[:, 1:], x[:, :1]], 1),
}


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6))
def test_any_chain_runs_and_equals_eager(steps: list[str]):
    """verify, run by prepare, holds every reader to its order; no clone undoes another."""

    def function(x: Tensor, conv: nn.Module) -> Tensor:
        for step in steps:
            x = STEPS[step](x, conv)
        return x

    program = program_of(function, X)
    graph = program.module.graph
    clones = graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
    for clone in clones:
        assert clone.args[0].target is not torch.ops.aten.clone.default
        assert type_of(clone).dim_order is not type_of(clone.args[0]).dim_order
    if not {"conv", "pool", "twice"} & set(steps):
        assert not clones
