"""Each normalisation: the operations that remain, and numbers equal to eager PyTorch's."""

import logging
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nnapi_prof import frontend
from nnapi_prof.graph.node import op_name
from nnapi_prof.graph.program import verify


class Function(nn.Module):
    """A function as a module, with random constants of a few shapes."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(3)
        self.function = function
        self.weight = nn.Parameter(torch.randn(5, 4, 3, 3, generator=random))
        self.even = nn.Parameter(torch.randn(5, 4, 2, 4, generator=random))
        self.upward = nn.Parameter(torch.randn(4, 3, 2, 2, generator=random))
        self.matrix = nn.Parameter(torch.randn(6, 3, generator=random))
        self.vector = nn.Parameter(torch.randn(3, generator=random))
        self.register_buffer("mean", torch.randn(4, generator=random))
        self.register_buffer("var", torch.rand(4, generator=random) + 0.5)
        self.point5 = nn.Parameter(torch.tensor(0.5, dtype=torch.float64), requires_grad=False)

    def forward(self, *inputs: Tensor) -> object:
        return self.function(self, *inputs)


def prepared(function: Callable[..., object], *shapes: tuple[int, ...]):
    """The program of ``function(module, *inputs)``, checked against it on fresh inputs."""
    model = Function(function).eval()
    random = torch.Generator().manual_seed(11)
    inputs = [torch.randn(shape, generator=random) for shape in shapes]
    program = frontend.prepare(model, inputs, "function")
    fresh = [torch.randn(shape, generator=random) for shape in shapes]
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(*fresh))
        actual = program.module(*fresh)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
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


IMAGE = (2, 4, 6, 6)
ROWS = (5, 6)

CONVOLUTION = "convolution.default"
CASES: dict[str, tuple[Callable[..., object], list[tuple[int, ...]], list[str]]] = {
    "conv2d": (lambda m, x: F.conv2d(x, m.weight), [IMAGE], [CONVOLUTION]),
    "conv2d unbatched": (
        lambda m, x: F.conv2d(x, m.weight),
        [(4, 6, 6)],
        ["view.default", CONVOLUTION, "view.default"],
    ),
    "conv2d same": (lambda m, x: F.conv2d(x, m.weight, padding="same"), [IMAGE], [CONVOLUTION]),
    "conv2d same, even kernel": (
        lambda m, x: F.conv2d(x, m.even, padding="same"),
        [IMAGE],
        ["constant_pad_nd.default", CONVOLUTION],
    ),
    "conv2d valid": (lambda m, x: F.conv2d(x, m.weight, padding="valid"), [IMAGE], [CONVOLUTION]),
    "conv_transpose2d": (
        lambda m, x: F.conv_transpose2d(x, m.upward, stride=2),
        [IMAGE],
        [CONVOLUTION],
    ),
    "linear": (lambda m, x: F.linear(x, m.matrix.t(), m.vector), [ROWS], ["linear.default"]),
    "addmm": (lambda m, x: torch.addmm(m.vector, x, m.matrix), [ROWS], ["linear.default"]),
    "mm": (lambda m, x: torch.mm(x, m.matrix), [ROWS], ["linear.default"]),
    "matmul": (lambda m, x: x @ m.matrix, [(2, 5, 6)], ["linear.default"]),
    "matmul of two inputs": (lambda m, x, y: x @ y, [(2, 3), (3, 4)], ["matmul.default"]),
    "batch norm alone": (
        lambda m, x: F.batch_norm(x, m.mean, m.var),
        [IMAGE],
        ["batch_norm.default"],
    ),
    "add alpha number": (lambda m, x: torch.add(x, 3, alpha=2), [ROWS], ["add.Tensor"]),
    "add alpha tensor": (
        lambda m, x, y: torch.add(x, y, alpha=2),
        [ROWS, ROWS],
        ["mul.Tensor", "add.Tensor"],
    ),
    "sub alpha": (
        lambda m, x, y: torch.sub(x, y, alpha=3),
        [ROWS, ROWS],
        ["mul.Tensor", "sub.Tensor"],
    ),
    "number - x": (lambda m, x: 2 - x, [ROWS], ["mul.Tensor", "add.Tensor"]),
    "rsub of tensors": (lambda m, x, y: torch.rsub(x, y), [ROWS, ROWS], ["sub.Tensor"]),
    "scalar tensor": (lambda m, x: m.point5 * x, [ROWS], ["mul.Tensor"]),
    "constant first": (lambda m, x: m.matrix + x, [(6, 3)], ["add.Tensor"]),
    "true_divide": (lambda m, x: torch.true_divide(x, 4), [ROWS], ["div.Tensor"]),
    "relu_": (lambda m, x: (x * 2).relu_(), [ROWS], ["mul.Tensor", "relu.default"]),
    "relu6": (lambda m, x: F.relu6(x), [ROWS], ["hardtanh.default"]),
    "clamp(0, 6)": (lambda m, x: x.clamp(0, 6), [ROWS], ["hardtanh.default"]),
    "clamp(-1, 1)": (lambda m, x: x.clamp(-1, 1), [ROWS], ["hardtanh.default"]),
    "clamp(min=0)": (lambda m, x: x.clamp(min=0), [ROWS], ["relu.default"]),
    "clamp(max=1)": (lambda m, x: x.clamp(max=1), [ROWS], ["clamp.default"]),
    "hardtanh(-2, 3)": (lambda m, x: F.hardtanh(x, -2, 3), [ROWS], ["clamp.default"]),
    "threshold": (lambda m, x: F.threshold(x, 0.0, 0.0), [ROWS], ["relu.default"]),
    "softmax": (lambda m, x: F.softmax(x, -1), [ROWS], ["softmax.int"]),
    "log_softmax": (lambda m, x: F.log_softmax(x, -2), [ROWS], ["log_softmax.int"]),
    "mean": (lambda m, x: x.mean(), [ROWS], ["mean.dim"]),
    "mean of H, W": (lambda m, x: x.mean((-1, 2)), [IMAGE], ["mean.dim"]),
    "mean as a pool": (lambda m, x: x.mean((2, 3), True), [IMAGE], ["adaptive_avg_pool2d.default"]),
    "max_pool2d": (lambda m, x: F.max_pool2d(x, 2), [IMAGE], ["max_pool2d.default"]),
    "max_pool2d, indices dropped": (
        lambda m, x: F.max_pool2d(x, 2, return_indices=True)[0],
        [IMAGE],
        ["max_pool2d.default"],
    ),
    "max_pool2d, indices read": (
        lambda m, x: F.max_pool2d(x, 2, return_indices=True)[1],
        [IMAGE],
        ["max_pool2d_with_indices.default", "getitem"],
    ),
    "avg_pool2d": (lambda m, x: F.avg_pool2d(x, 3, 2, 1), [IMAGE], ["avg_pool2d.default"]),
    "adaptive_avg_pool2d": (
        lambda m, x: F.adaptive_avg_pool2d(x, (None, 2)),
        [IMAGE],
        ["adaptive_avg_pool2d.default"],
    ),
    "upsample by 2": (
        lambda m, x: F.interpolate(x, scale_factor=2),
        [IMAGE],
        ["upsample_nearest2d.vec"],
    ),
    "upsample to size": (
        lambda m, x: F.interpolate(x, (9, 7), mode="bilinear", align_corners=True),
        [IMAGE],
        ["upsample_bilinear2d.vec"],
    ),
    "flatten": (lambda m, x: x.flatten(1), [IMAGE], ["view.default"]),
    "reshape": (lambda m, x: x.reshape(-1, 6), [IMAGE], ["view.default"]),
    "squeeze": (lambda m, x: x.squeeze(1).unsqueeze(0), [(2, 1, 3)], ["view.default"]),
    "transpose": (lambda m, x: x.transpose(-1, 0), [IMAGE], ["permute.default"]),
    "movedim": (lambda m, x: x.movedim(1, -1), [IMAGE], ["permute.default"]),
    "t": (lambda m, x: x.t(), [ROWS], ["permute.default"]),
    "transpose of one": (lambda m, x: x.transpose(0, 1), [(1, 6)], ["view.default"]),
    "permute there and back": (
        lambda m, x: x.permute(0, 2, 3, 1).permute(0, 3, 1, 2) + 1,
        [IMAGE],
        ["add.Tensor"],
    ),
    "two permutes": (
        lambda m, x: x.permute(1, 2, 0).permute(1, 2, 0),
        [(2, 3, 4)],
        ["permute.default"],
    ),
    "strided view": (
        lambda m, x: x.permute(0, 2, 3, 1).contiguous().view(2, -1),
        [IMAGE],
        ["permute.default", "reshape.default"],
    ),
    "slice": (lambda m, x: x[:, 1:-1, ::2], [IMAGE], ["slice.Tensor", "slice.Tensor"]),
    "narrow": (lambda m, x: x.narrow(1, -2, 2), [IMAGE], ["slice.Tensor"]),
    "select": (lambda m, x: x[:, -1], [IMAGE], ["slice.Tensor", "view.default"]),
    "split": (lambda m, x: x.split(3, 1), [IMAGE], ["slice.Tensor", "slice.Tensor"]),
    "split sizes": (lambda m, x: x.split([1, 3], 1)[1], [IMAGE], ["slice.Tensor"]),
    "chunk": (lambda m, x: x.chunk(3, -1), [IMAGE], ["slice.Tensor"] * 3),
    "unbind": (lambda m, x: x.unbind(0), [ROWS], ["slice.Tensor"] * 5 + ["view.default"] * 5),
    "cat": (lambda m, x, y: torch.cat([x, y], -3), [IMAGE, IMAGE], ["cat.default"]),
    "stack": (
        lambda m, x, y: torch.stack([x, y], -1),
        [ROWS, ROWS],
        ["view.default", "view.default", "cat.default"],
    ),
    "pad": (lambda m, x: F.pad(x, (1, 2, 0, 0), value=3), [IMAGE], ["constant_pad_nd.default"]),
    "pad, reflected": (
        lambda m, x: F.pad(x, (1, 2), mode="reflect"),
        [(2, 4, 6)],
        ["pad.default"],
    ),
    "every element picked": (
        lambda m, x: x[torch.arange(5)[:, None, None], torch.arange(6)],
        [ROWS],
        ["reshape.default"],
    ),
    "every element picked, elsewhere": (
        lambda m, x: x[torch.arange(6).flip(0)],
        [(6, 5)],
        ["index.Tensor"],
    ),
    "picks of equal elements": (
        lambda m, x: torch.zeros(1, 9).expand(5, 9).gather(1, x.long().clamp(0, 8)) + x,
        [ROWS],
        ["add.Tensor"],
    ),
    "half": (lambda m, x: x.half().float(), [(3,)], ["_to_copy.default"] * 2),
    "no-ops": (
        lambda m, x: F.dropout(x.clone().contiguous().detach().float(), 0.5, False) * 1 + 0,
        [ROWS],
        [],
    ),
    "more no-ops": (
        lambda m, x: x.view(5, 6).expand(5, -1)[:, :6].permute(0, 1).relu(),
        [ROWS],
        ["relu.default"],
    ),
    "constants folded": (
        lambda m, x: x + (m.matrix * 2).sum(1) / m.matrix.shape[0],
        [ROWS],
        ["add.Tensor"],
    ),
    "sizes": (lambda m, x: x.reshape(x.shape[0] * x.size(1)), [ROWS], ["view.default"]),
}


@pytest.mark.parametrize("case", CASES)
def test_normal_form(case: str):
    function, shapes, expected = CASES[case]
    assert calls(prepared(function, *shapes)) == expected


def test_arguments_are_full_and_concrete():
    conv = prepared(lambda m, x: F.conv2d(x, m.weight, stride=2, padding=1), IMAGE)
    assert arguments(conv, CONVOLUTION) == [None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1]
    pool = prepared(lambda m, x: F.max_pool2d(x, 2), IMAGE)
    assert arguments(pool, "max_pool2d.default") == [[2, 2], [2, 2], [0, 0], [1, 1], False]
    pad = prepared(lambda m, x: F.conv2d(x, m.even, padding="same"), IMAGE)
    assert arguments(pad, "constant_pad_nd.default") == [[1, 2, 0, 1], 0.0]
    up = prepared(lambda m, x: F.interpolate(x, scale_factor=2), IMAGE)
    assert arguments(up, "upsample_nearest2d.vec") == [[12, 12], None]
    cut = prepared(lambda m, x: x[:, 1:], IMAGE)
    assert arguments(cut, "slice.Tensor") == [1, 1, 4, 1]
    moved = prepared(lambda m, x: x.movedim(1, -1), IMAGE)
    assert arguments(moved, "permute.default") == [[0, 2, 3, 1]]
    relu6 = prepared(lambda m, x: F.relu6(x), ROWS)
    assert [repr(a) for a in arguments(relu6, "hardtanh.default")] == ["0.0", "6.0"]
    half = prepared(lambda m, x: m.point5 * x, ROWS)
    assert arguments(half, "mul.Tensor") == [0.5]


def test_uneven_scale_factor_keeps_its_coordinates():
    """9.1 pixels become 9: a converter that knows only sizes would sample elsewhere."""
    program = prepared(
        lambda m, x: F.interpolate(x, scale_factor=1.3, mode="bilinear"), (1, 2, 7, 7)
    )
    assert arguments(program, "upsample_bilinear2d.vec") == [None, False, [1.3, 1.3]]


class Normed(nn.Module):
    def __init__(self, layer: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.layer, self.norm = layer, norm
        random = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for tensor in (norm.running_mean, norm.weight, norm.bias):
                tensor.copy_(torch.randn(tensor.shape, generator=random))
            norm.running_var.copy_(torch.rand(norm.running_var.shape, generator=random) + 0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(x))


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
    model = Normed(layer, norm).eval()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    program = frontend.prepare(model, [x], "normed")
    layers = [call for call in calls(program) if call != "reshape.default"]  # around a line's image
    assert len(layers) == 1
    torch.testing.assert_close(program.module(x)[0], model(x), rtol=1e-4, atol=1e-5)


def test_batch_norm_stays_where_the_layer_has_another_reader():
    def two(m: Function, x: Tensor) -> Tensor:
        y = F.conv2d(x, m.weight[:4], padding=1)
        return F.batch_norm(y, m.mean, m.var) + y

    assert calls(prepared(two, IMAGE)) == [CONVOLUTION, "batch_norm.default", "add.Tensor"]


def test_equal_weights_are_stored_once():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.load_state_dict(self.a.state_dict())

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x))

    program = frontend.prepare(Twice(), [torch.ones(1, 3)], "twice")
    assert len(list(program.module.graph.find_nodes(op="get_attr"))) == 2
    assert len(list(program.module.buffers())) == 2


def test_prepare_leaves_the_module_in_its_mode():
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)).train()
    before = model[1].running_mean.clone()
    program = frontend.prepare(model, [torch.ones(IMAGE)], "training")
    assert model.training and model[1].training
    assert torch.equal(model[1].running_mean, before)
    assert calls(program) == [CONVOLUTION]


def test_prepare_takes_torchscript_and_exported_programs():
    model, x = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU()).eval(), torch.ones(IMAGE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.script(model)
    programs = [
        frontend.prepare(form, [x], "same")
        for form in (model, script, torch.export.export(model, (x,)))
    ]
    assert len({tuple(u.signature for u in p.units.units) for p in programs}) == 1
    assert logging.root.manager.disable == 0
