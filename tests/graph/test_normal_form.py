"""Each normalisation: the operations that remain, and numbers equal to eager PyTorch's."""

import copy
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nnapi_prof import frontend
from nnapi_prof.graph.node import op_name
from nnapi_prof.graph.program import verify
from tests.convert.coverage.rows import numbers
from tests.models import Function

CONSTANTS = SimpleNamespace(
    weight=numbers(5, 4, 3, 3),
    even=numbers(5, 4, 2, 4),
    upward=numbers(4, 3, 2, 2),
    matrix=numbers(6, 3),
    vector=numbers(3),
    mean=numbers(4),
    var=numbers(4).abs() + 0.5,
    point5=torch.tensor(0.5, dtype=torch.float64),
)


def prepared(function: Callable[..., object], *shapes: tuple[int, ...]):
    """The program of ``function(constants, *inputs)``, checked against it on fresh inputs."""
    model = Function(partial(function, CONSTANTS))
    random = torch.Generator().manual_seed(11)
    inputs = [torch.randn(shape, generator=random) for shape in shapes]
    program = frontend.prepare(model, inputs, "function")
    fresh = [torch.randn(shape, generator=random) for shape in shapes]
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(*fresh))
        torch.testing.assert_close(program.module(*fresh), expected, rtol=1e-4, atol=1e-5)
    verify(program.module.graph, types=True)
    return program


def calls(program) -> list[str]:
    """Calls in order, without those that only change the dim order."""
    names = [op_name(n.target) for n in program.module.graph.nodes if n.op == "call_function"]
    return [name.removeprefix("aten.") for name in names if name != "aten.clone.default"]


def arguments(program, name: str) -> list[object]:
    """Positional arguments of the only call of ``name``, tensors left out."""
    (node,) = (n for n in program.module.graph.nodes if op_name(n.target) == f"aten.{name}")
    plain = [list(a) if isinstance(a, list | tuple) else a for a in node.args]
    return [a for a in plain if not isinstance(a, torch.fx.Node)]


def assigned(x: Tensor, mask: Tensor, value: float) -> Tensor:
    y = x * 2
    y[mask] = value
    return y


IMAGE = (2, 4, 6, 6)
ROWS = (5, 6)

CONVOLUTION = "convolution.default"
CASES: list[tuple[Any, ...]] = [
    ("convolution", lambda m, x: F.conv2d(x, m.weight)),
    ("view convolution view", lambda m, x: F.conv2d(x, m.weight), (4, 6, 6)),
    ("convolution", lambda m, x: F.conv2d(x, m.weight, padding="same")),
    ("constant_pad_nd convolution", lambda m, x: F.conv2d(x, m.even, padding="same")),
    ("convolution", lambda m, x: F.conv2d(x, m.weight, padding="valid")),
    ("convolution", lambda m, x: F.conv_transpose2d(x, m.upward, stride=2)),
    ("linear", lambda m, x: F.linear(x, m.matrix.t(), m.vector), ROWS),
    ("linear", lambda m, x: torch.addmm(m.vector, x, m.matrix), ROWS),
    ("linear", lambda m, x: torch.mm(x, m.matrix), ROWS),
    ("linear", lambda m, x: x @ m.matrix, (2, 5, 6)),
    ("matmul", lambda m, x, y: x @ y, (2, 3), (3, 4)),
    ("batch_norm", lambda m, x: F.batch_norm(x, m.mean, m.var)),
    ("add.Tensor", lambda m, x: torch.add(x, 3, alpha=2), ROWS),
    ("mul.Tensor add.Tensor", lambda m, x, y: torch.add(x, y, alpha=2), ROWS, ROWS),
    ("mul.Tensor sub.Tensor", lambda m, x, y: torch.sub(x, y, alpha=3), ROWS, ROWS),
    ("mul.Tensor add.Tensor", lambda m, x: 2 - x, ROWS),
    ("sub.Tensor", lambda m, x, y: torch.rsub(x, y), ROWS, ROWS),
    ("mul.Tensor", lambda m, x: m.point5 * x, ROWS),
    ("add.Tensor", lambda m, x: m.matrix + x, (6, 3)),
    ("div.Tensor", lambda m, x: torch.true_divide(x, 4), ROWS),
    ("mul.Tensor relu", lambda m, x: (x * 2).relu_(), ROWS),
    ("hardtanh", lambda m, x: F.relu6(x), ROWS),
    ("hardtanh", lambda m, x: x.clamp(0, 6), ROWS),
    ("hardtanh", lambda m, x: x.clamp(-1, 1), ROWS),
    ("relu", lambda m, x: x.clamp(min=0), ROWS),
    ("clamp", lambda m, x: x.clamp(max=1), ROWS),
    ("clamp", lambda m, x: F.hardtanh(x, -2, 3), ROWS),
    ("relu", lambda m, x: F.threshold(x, 0.0, 0.0), ROWS),
    ("softmax.int", lambda m, x: F.softmax(x, -1), ROWS),
    ("log_softmax.int", lambda m, x: F.log_softmax(x, -2), ROWS),
    ("mean.dim", lambda m, x: x.mean(), ROWS),
    ("mean.dim", lambda m, x: x.mean((-1, 2))),
    ("adaptive_avg_pool2d", lambda m, x: x.mean((2, 3), True)),
    ("max_pool2d", lambda m, x: F.max_pool2d(x, 2)),
    ("max_pool2d", lambda m, x: F.max_pool2d(x, 2, return_indices=True)[0]),
    ("max_pool2d_with_indices getitem", lambda m, x: F.max_pool2d(x, 2, return_indices=True)[1]),
    ("avg_pool2d", lambda m, x: F.avg_pool2d(x, 3, 2, 1)),
    ("adaptive_avg_pool2d", lambda m, x: F.adaptive_avg_pool2d(x, (None, 2))),
    ("upsample_nearest2d.vec", lambda m, x: F.interpolate(x, scale_factor=2)),
    (
        "upsample_bilinear2d.vec",
        lambda m, x: F.interpolate(x, (9, 7), mode="bilinear", align_corners=True),
    ),
    ("view", lambda m, x: x.flatten(1)),
    ("view", lambda m, x: x.reshape(-1, 6)),
    ("view", lambda m, x: x.squeeze(1).unsqueeze(0), (2, 1, 3)),
    ("permute", lambda m, x: x.transpose(-1, 0)),
    ("permute", lambda m, x: x.movedim(1, -1)),
    ("permute", lambda m, x: x.t(), ROWS),
    ("view", lambda m, x: x.transpose(0, 1), (1, 6)),
    ("add.Tensor", lambda m, x: x.permute(0, 2, 3, 1).permute(0, 3, 1, 2) + 1),
    ("permute", lambda m, x: x.permute(1, 2, 0).permute(1, 2, 0), (2, 3, 4)),
    ("permute reshape", lambda m, x: x.permute(0, 2, 3, 1).contiguous().view(2, -1)),
    ("slice.Tensor slice.Tensor", lambda m, x: x[:, 1:-1, ::2]),
    ("slice.Tensor", lambda m, x: x.narrow(1, -2, 2)),
    ("slice.Tensor view", lambda m, x: x[:, -1]),
    ("slice.Tensor slice.Tensor", lambda m, x: x.split(3, 1)),
    ("slice.Tensor", lambda m, x: x.split([1, 3], 1)[1]),
    ("slice.Tensor slice.Tensor slice.Tensor", lambda m, x: x.chunk(3, -1)),
    ("slice.Tensor " * 5 + "view " * 5, lambda m, x: x.unbind(0), ROWS),
    ("cat", lambda m, x, y: torch.cat([x, y], -3), IMAGE, IMAGE),
    ("view view cat", lambda m, x, y: torch.stack([x, y], -1), ROWS, ROWS),
    ("constant_pad_nd", lambda m, x: F.pad(x, (1, 2, 0, 0), value=3)),
    ("pad", lambda m, x: F.pad(x, (1, 2), mode="reflect"), (2, 4, 6)),
    ("reshape", lambda m, x: x[torch.arange(5)[:, None, None], torch.arange(6)], ROWS),
    ("index.Tensor", lambda m, x: x[torch.arange(6).flip(0)], (6, 5)),
    (
        "add.Tensor",
        lambda m, x: torch.zeros(1, 9).expand(5, 9).gather(1, x.long().clamp(0, 8)) + x,
        ROWS,
    ),
    ("_to_copy _to_copy", lambda m, x: x.half().float(), (3,)),
    ("", lambda m, x: F.dropout(x.clone().contiguous().detach().float(), 0.5, False) * 1 + 0, ROWS),
    ("relu", lambda m, x: x.view(5, 6).expand(5, -1)[:, :6].permute(0, 1).relu(), ROWS),
    ("add.Tensor", lambda m, x: x + (m.matrix * 2).sum(1) / m.matrix.shape[0], ROWS),
    ("view", lambda m, x: x.reshape(x.shape[0] * x.size(1)), ROWS),
    ("gt.Scalar lt.Scalar bitwise_and.Tensor", lambda m, x: (x > 0) & (x < 1), ROWS),
    ("gt.Scalar le.Scalar bitwise_or.Tensor", lambda m, x: x.greater(0) | x.less_equal(-1), ROWS),
    ("abs maximum", lambda m, x: torch.max(x, x.absolute()), ROWS),
    ("add.Tensor add.Tensor", lambda m, x: x + torch.zeros_like(x) + torch.full_like(x, 2), ROWS),
    ("mul.Tensor add.Tensor", lambda m, x: x * x.new_full((6,), 2.0) + x.new_ones(6), ROWS),
    ("gt.Scalar mul.Tensor where.self", lambda m, x: assigned(x, x > 0, 1.0), ROWS),
    (  # rows chosen by a mask are no choice of elements
        "slice.Tensor view gt.Scalar mul.Tensor index_put",
        lambda m, x: assigned(x, x[:, 0] > 0, 1.0),
        ROWS,
    ),
]
"""Calls that remain, the function of constants and inputs, and shapes where not of an image."""


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_normal_form(case: tuple[Any, ...]):
    expected, function, *shapes = case
    program = prepared(function, *(shapes or [IMAGE]))
    assert [call.removesuffix(".default") for call in calls(program)] == expected.split()


def test_arguments_are_full_and_concrete():
    def of(name, function, shape=IMAGE):
        return arguments(prepared(function, shape), name)

    conv = of(CONVOLUTION, lambda m, x: F.conv2d(x, m.weight, stride=2, padding=1))
    assert conv == [None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1]
    pool = of("max_pool2d.default", lambda m, x: F.max_pool2d(x, 2))
    assert pool == [[2, 2], [2, 2], [0, 0], [1, 1], False]
    pad = of("constant_pad_nd.default", lambda m, x: F.conv2d(x, m.even, padding="same"))
    assert pad == [[1, 2, 0, 1], 0.0]
    up = of("upsample_nearest2d.vec", lambda m, x: F.interpolate(x, scale_factor=2))
    assert up == [[12, 12], None]
    # 9.1 pixels become 9: a converter that knows only sizes would sample elsewhere.
    uneven = of(
        "upsample_bilinear2d.vec",
        lambda m, x: F.interpolate(x, scale_factor=1.3, mode="bilinear"),
        (1, 2, 7, 7),
    )
    assert uneven == [None, False, [1.3, 1.3]]
    assert of("slice.Tensor", lambda m, x: x[:, 1:]) == [1, 1, 4, 1]
    assert of("permute.default", lambda m, x: x.movedim(1, -1)) == [[0, 2, 3, 1]]
    assert repr(of("hardtanh.default", lambda m, x: F.relu6(x))) == "[0.0, 6.0]"
    assert of("mul.Tensor", lambda m, x: m.point5 * x) == [0.5]


@pytest.mark.parametrize(
    ("layer", "norm", "shape"),
    [
        (nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), IMAGE),
        (nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6, eps=0.1), IMAGE),
        (nn.Conv2d(4, 8, 3, groups=4), nn.BatchNorm2d(8), IMAGE),
        (nn.ConvTranspose2d(4, 6, 2, 2, groups=2), nn.BatchNorm2d(6), IMAGE),
        (nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), (2, 4, 9)),
        (nn.Linear(6, 3), nn.BatchNorm1d(3), ROWS),
    ],
)
def test_batch_norm_folds(layer: nn.Module, norm: nn.Module, shape: tuple[int, ...]):
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for tensor in (norm.running_mean, norm.weight, norm.bias):
            tensor.normal_(generator=random)
        norm.running_var.uniform_(0.2, 1.2, generator=random)
    model = nn.Sequential(layer, norm).eval()
    x = torch.randn(shape, generator=random)
    program = frontend.prepare(model, [x], "normed")
    layers = [call for call in calls(program) if call != "reshape.default"]  # around a line's image
    assert len(layers) == 1
    torch.testing.assert_close(program.module(x)[0], model(x), rtol=1e-4, atol=1e-5)


def test_batch_norm_stays_where_the_layer_has_another_reader():
    def two(m: SimpleNamespace, x: Tensor) -> Tensor:
        y = F.conv2d(x, m.weight[:4], padding=1)
        return F.batch_norm(y, m.mean, m.var) + y

    assert calls(prepared(two, IMAGE)) == [CONVOLUTION, "batch_norm.default", "add.Tensor"]


def test_equal_weights_are_stored_once():
    layer = nn.Linear(3, 3)
    twice = nn.Sequential(layer, copy.deepcopy(layer))
    program = frontend.prepare(twice, [torch.ones(1, 3)], "twice")
    assert len(list(program.module.graph.find_nodes(op="get_attr"))) == 2
    assert len(list(program.module.buffers())) == 2


def test_prepare_leaves_the_module_in_its_mode():
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)).train()
    before = model[1].running_mean.clone()
    program = frontend.prepare(model, [torch.ones(IMAGE)], "training")
    assert model.training and model[1].training
    assert torch.equal(model[1].running_mean, before)
    assert calls(program) == [CONVOLUTION]
