"""Constructs of TorchScript on their way into a straight graph, and those that have none."""

import enum
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nnapi_prof import frontend
from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend.loader import read_torchscript
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.frontend.torchscript.interpreter import WalkRefused, walked_graph
from nnapi_prof.graph.program import Program
from tests.models import Function

IMAGE = frontend.InputSpec((1, 4, 6, 6))
EXAMPLE = torch.ones(1, 4, 6, 6)


def agree(path: Path, *specs: frontend.InputSpec) -> Program:
    """Loads, and compares the program with the model on inputs other than the examples."""
    program = frontend.load(path, specs)
    random = torch.Generator().manual_seed(5)
    inputs = [torch.randn(spec.shape, generator=random) for spec in specs]
    expected, actual = frontend.reference(path)(*inputs), program.module(*inputs)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    return program


def labels(program: Program) -> list[str]:
    return [unit.label for unit in program.units.units]


# ---- what is walked ------------------------------------------------------------------------------


def branches(x: Tensor) -> Tensor:
    """Branches, loops and lists on shapes."""
    if x.size(1) > 3 and x.dim() == 4:
        for i in range(x.size(1) // 2):
            x = x * (i + 1)
    else:
        x = x - 100.0
    parts = []
    for part in x.split(1, 1):
        parts.append(part.relu())
    return torch.cat(parts, 1)


def told_by_tensors(x: Tensor) -> Tensor:
    return x.data * 2.0 if x.device.type == "cpu" and not x.is_nested else x


def windows(x: Tensor) -> Tensor:
    """Windows that share elements, of a tensor whose dimensions were swapped."""
    turned = (x * 2.0).transpose(2, 3)
    return turned.as_strided([2, 3, 8], [16, 8, 1], 5).softmax(-1)


def containers(x: Tensor) -> Tensor:
    sizes = [x.size(1), 3]
    sizes[0] = 5
    sizes.insert(0, 2)
    sizes.extend([4, 1])
    sizes.reverse()
    sizes.sort()
    last = sizes.pop()
    copied = sizes.copy()
    copied += [max(sizes), min(2, last)]
    named = {"a": 1, "b": 2}
    named.update({"c": last})
    del named["a"]
    for name, value in named.items():
        if name != "z" and name in named:
            x = x * value
    maps = [x, x + 1]
    maps[0] = maps[1]
    weight = torch.tensor([[1.0, 2.0], [3.0, float(len(copied))]])
    return torch.stack(maps).sum(0) * weight.sum() + copied[0] + named.get("d", 7)


def resized(x: Tensor) -> Tensor:
    y = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
    return nn.functional.interpolate(y, size=(5, 7), mode="nearest")


def interpolated(x: Tensor) -> Tensor:
    """The operator of older TorchScript."""
    y = torch.ops.aten.__interpolate(x, None, [2.0, 2.0], "bilinear", False)
    return torch.ops.aten.__interpolate(y, 9)


def told_by_kinds(x: Tensor) -> Tensor:
    things: list[Any] = [x, 3, "a"]
    for thing in things:
        if isinstance(thing, int):
            x = x * 2.0
        elif isinstance(thing, str):
            x = x + 1.0
    return x


def counts(x: Tensor) -> Tensor:
    n = 0
    while n < x.size(1):
        x = x + 1.0
        n += 3
    return x


def unusual(x: Tensor) -> Tensor:
    """Operations that nobody knows stay: the converter will refuse them."""
    return torch.cumsum(torch.special.erf(x), 2)


@pytest.mark.parametrize(
    ("function", "units"),
    [
        (branches, "mul slice slice slice slice relu relu relu relu cat"),
        (told_by_tensors, "mul"),
        (windows, "mul view index_select view softmax"),
        (containers, None),
        (resized, "to_channels_last upsample_bilinear2d upsample_nearest2d to_contiguous"),
        (interpolated, "to_channels_last upsample_bilinear2d upsample_nearest2d to_contiguous"),
        (told_by_kinds, "mul add"),
        (counts, "add add"),
        (unusual, "erf cumsum"),
    ],
)
def test_scripted_functions_become_units(saved, function, units):
    graph = agree(saved(function), IMAGE).units
    assert units in (None, " ".join(unit.operation for unit in graph.units))


def test_nested_outputs_are_flattened(saved):
    def outputs(a: Tensor, b: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        return {"sum": (a + b, a), "product": (a * b, b - 1)}

    graph = agree(saved(outputs), IMAGE, IMAGE).units
    assert len(graph.outputs) == 4 and graph.outputs[1] == graph.inputs[0]


class Layout(enum.Enum):
    FIRST = "NCHW"
    LAST = "NHWC"


class Laid(nn.Module):
    """An attribute of an enumeration that says how images lie."""

    def __init__(self):
        super().__init__()
        self.layout = Layout.LAST

    def forward(self, x: Tensor) -> Tensor:
        if self.layout != Layout.FIRST and self.layout.name == "LAST":
            x = x.permute(0, 2, 3, 1)
        return x * 2.0


def innermost(x: Tensor, sizes: list[int]) -> Tensor:
    return x + len(sizes)


def inner(x: Tensor, sizes: list[int]) -> Tensor:
    return innermost(x * 2, sizes.copy())


def outer(x: Tensor) -> Tensor:
    return inner(x, [1, 2])


@pytest.mark.parametrize(
    ("model", "operations"),
    [
        (Laid(), "permute.default mul.Scalar"),  # members of enumerations are compared
        (outer, "mul.Scalar add.Scalar"),
    ],
)
def test_functions_and_enumerations_are_walked(saved, model, operations):
    with quiet_torch():
        loaded = read_torchscript(saved(model))
        graph = walked_graph(loaded, (EXAMPLE,), "model")
        torch.testing.assert_close(graph(EXAMPLE)[0], loaded(EXAMPLE))
    targets = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert targets == [f"aten.{name}" for name in operations.split()]


@pytest.mark.parametrize("average", [False, True])
def test_encoders_of_padded_sequences(average: bool):
    """PyTorch's fast path: nested tensors, and attention whose weights are read."""

    def attends(x, hidden, encoder, attention):
        x = encoder(x, src_key_padding_mask=hidden)
        return attention(x, x, x, average_attn_weights=average)

    x, hidden = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    with quiet_torch(), torch.no_grad():
        layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
        attention = nn.MultiheadAttention(8, 2, batch_first=True)
        layers = {"encoder": nn.TransformerEncoder(layer, 2), "attention": attention}
        model = Function(attends, **layers)
        traced = torch.jit.trace(model, (x, hidden), check_trace=False)
    program = frontend.prepare(traced, (x, hidden), "encoder")
    hidden[0, 3:] = True
    with quiet_torch(), torch.no_grad():
        expected = traced(x, hidden)
    assert expected[0].shape == x.shape
    torch.testing.assert_close(program.module(x, hidden), expected, rtol=1e-4, atol=1e-5)


class Bags(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(9, 4, mode=mode)

    def forward(self, ids: Tensor) -> Tensor:
        return self.bags(ids) * 2.0


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags(mode: str):
    ids, other = torch.randint(0, 9, (2, 3, 5))
    model = Bags(mode).eval()
    with quiet_torch():
        program = frontend.prepare(torch.jit.script(model), [ids], "bags")
    torch.testing.assert_close(program.module(other)[0], model(other))
    assert "embedding_bag" not in {label.split()[0] for label in labels(program)}


SIZE_ARITHMETIC = {
    "the last of an axis": lambda x: x.narrow(1, x.shape[1] - 1, 1),
    "the second half": lambda x: x.narrow(3, x.shape[3] // 2, x.size(3) - x.size(3) // 2),
    "split at a size": lambda x: torch.tensor_split(x, torch.tensor([x.size(1) // 2]), 1)[1],
    "repeats by a tensor": lambda x: x.repeat_interleave(torch.arange(x.size(1)), 1),
    "a number of rows": lambda x: x.narrow(1, 1, 2),
    "repeats by a number": lambda x: x.repeat_interleave(2, 1),
    "moved with a type": lambda x: x.to(torch.device("cpu"), torch.float64).float(),
    "one repeat for all": lambda x: torch.repeat_interleave(x, torch.tensor([2]), 1),
    "a mask of positions": lambda x: x[:, torch.arange(x.size(1)) % 2 == 0],
    "selected by a mask": lambda x: x.masked_select(torch.ones(x.shape).tril() > 0),
    "written by a mask": lambda x: (x * 2).index_put((torch.arange(x.size(0)) < 1,), x[0]),
    "size of a tensor of sizes": lambda x: x.reshape(int(torch.tensor(x.shape[1:]).prod()), -1),
    "scale by a tensor": lambda x: x / torch.tensor(x.shape[-1]).float().sqrt(),
}


@pytest.mark.parametrize("name", SIZE_ARITHMETIC)
def test_sizes_that_became_tensors(name, saved):
    agree(saved(Function(SIZE_ARITHMETIC[name]), torch.randn(IMAGE.shape)), IMAGE)


def test_constants_where_only_tensors_may_stand(saved):
    """As torchvision clips boxes. The first route takes them: with parts on the host there is no
    other."""
    x = torch.randn(2, 4)

    def clipped(x: Tensor) -> Tensor:
        return torch.max(x, torch.tensor(0.0)).atan2(torch.tensor(2.0))

    with quiet_torch():
        model = torch.jit.load(saved(Function(clipped), x))
    (result,) = walked_graph(model, [x], "clipped")(x)
    torch.testing.assert_close(result, clipped(x))


def on_a_device(x: Tensor) -> Tensor:
    """Moves to where its input is, as models do that run anywhere."""
    shift = torch.ones(4).to(x.device)
    return torch.relu(x.to(shift.device) + shift).to(x)


def test_moves_between_devices_are_nothing(saved):
    assert labels(agree(saved(on_a_device), frontend.InputSpec((2, 4)))) == ["add+relu 2x4"]


def test_a_trace_over_bytes_computes_in_float32(saved):
    """Pixels of a camera are scaled so; a trace stores 255.0 as a float64 tensor, which beside
    integers gives float64."""
    image = torch.randint(256, (1, 4, 6, 6), dtype=torch.uint8)
    conv = nn.Conv2d(4, 3, 3)
    model = Function(lambda x, conv: conv((x / 255.0 - 0.5) * 2.0 + 1), conv=conv)
    path = saved(model, image)
    program = frontend.load(path, [frontend.InputSpec((1, 4, 6, 6), "uint8")])
    (actual,), (again,) = program.module(image), frontend.reference(path)(image)
    assert actual.dtype is torch.float32
    torch.testing.assert_close(actual, model(image))
    torch.testing.assert_close(again, actual)


def test_pytorch_is_quiet(saved, capfd, caplog):
    path = saved(branches)
    with caplog.at_level(logging.INFO):
        frontend.load(path, [IMAGE])
    assert tuple(capfd.readouterr()) == ("", "") and not caplog.records
    assert logging.root.manager.disable == 0


# ---- writing in place ----------------------------------------------------------------------------


def in_place(x: Tensor) -> Tensor:
    y = x * 2
    z = y
    y += 1
    y.relu_()
    return z + y  # z is y


def writes_a_view(x: Tensor) -> Tensor:
    y = x * 2
    y[:, 0] = 0.0
    return y


class Masked(nn.Module):
    """Constants that are written to in place, as in windows that are shifted."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias.clone()
        bias[2:4].zero_()
        mask = x.new_zeros([6, 6])
        mask[:3, 3:] = 2.0
        mask[3:] -= 1
        return x * mask.mul_(2) + torch.relu_(bias)


def writes_parts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes, every second, picked elements and whole views, of values and of constants."""
    out = torch.zeros(1, 6, 8)
    early = out[..., 2:4]
    every = x.flatten(2)[:, :, :8]
    out[:, 1:5:2, 2:6] = every[:, :2, ::2]
    out[:, 0] = x.sum((1, 2)).mean(-1, keepdim=True)
    out[0, :, 3].add_(1.0)
    out.transpose(1, 2)[:, 7] = 5.0
    y = x * 2.0
    part = y[:, 1, 2:]
    part.mul_(part)
    y[:, :, -1, 0] = out[:, 2, 2:6]
    hidden = torch.zeros_like(x).masked_fill_(x > 0, -1.0)
    square = torch.zeros(3, 3)
    square.diagonal().copy_(x[0, 0, 0, :3])
    return out * 2.0, early + y.sum(), hidden + square.sum() + part.sum()


@pytest.mark.parametrize(
    ("model", "units"),
    [
        (in_place, ["mul 1x4x6x6", "add+relu 1x4x6x6", "add 1x4x6x6"]),
        (writes_a_view, ["mul 1x4x6x6", "slice 1x3x6x6", "cat 1x4x6x6"]),
        (Masked(), ["mul 1x4x6x6", "add 1x4x6x6"]),
        (writes_parts, None),
    ],
)
@pytest.mark.parametrize("example", [(), (EXAMPLE,)], ids=["scripted", "traced"])
def test_writing_reaches_every_name(saved, model, example, units):
    """Values, views and constants are written."""
    program = agree(saved(model, *example), IMAGE)
    assert units in (None, labels(program))


def test_parts_are_written_to_in_exported_programs():
    x = torch.randn(1, 4, 6, 6)
    program = frontend.prepare(Function(writes_parts), [x], "writes")
    torch.testing.assert_close(program.module(x + 1), writes_parts(x + 1))


def counts_sizes(x: Tensor) -> Tensor:
    """Windows whose number is worked out in place: in a trace sizes are tensors."""
    n, windows = x.shape[0], 1
    for size in x.shape[2:]:
        windows *= size // 2
    n *= windows
    return x.reshape(n, -1) * 2.0


def test_sizes_are_written_to_in_place(saved):
    assert labels(agree(saved(counts_sizes, EXAMPLE), IMAGE))[-1] == "mul 9x16"


# ---- what is refused -----------------------------------------------------------------------------


class OnValues(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def noisy(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


def number(x: Tensor) -> int:
    return x.dim()


class ChangesItsBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(1)
        return x + self.total.sum()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (OnValues(), r"test_torchscript\.py:.* depends? on the values of a tensor"),
        (noisy, r"rand_like.* draws random numbers"),
        (number, "returns no tensor"),
        (ChangesItsBuffer(), "keeps state in total"),
    ],
)
def test_what_is_refused(saved, model, words):
    with pytest.raises(FrontendError, match=words) as caught:
        frontend.load(saved(model), [IMAGE])
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("layer", "advice"),
    [(nn.Dropout(0.5), r": call model.eval\(\)"), (nn.BatchNorm2d(4), "; call model.eval")],
)
def test_training_mode_is_refused(saved, layer, advice):
    model = nn.Sequential(nn.Conv2d(4, 4, 3), layer).train()
    with pytest.raises(FrontendError, match="the model is in training mode" + advice):
        frontend.load(saved(model, EXAMPLE), [IMAGE])


def test_scripted_training_mode_is_switched_off(saved):
    """What is scripted still asks its mode when it runs, so eval mode can be set on loading."""
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    assert len(agree(saved(model), IMAGE).units.units) == 3


class Point:
    def __init__(self, x: Tensor) -> None:
        self.x = x


class Objects(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Point(x).x * 2.0


class OfNumbers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Point(x).x * int(x.sum())


def test_walker_refuses_what_it_does_not_know():
    with quiet_torch():
        script = torch.jit.script(Objects())
    with pytest.raises(WalkRefused, match=r"prim::CreateObject .*test_torchscript\.py:\d+"):
        walked_graph(script, [torch.ones(2)], "objects")


def test_other_routes_take_what_the_walker_does_not_know(saved):
    assert labels(agree(saved(Objects()), IMAGE)) == ["mul 1x4x6x6"]
    with pytest.raises(FrontendError) as refused:
        frontend.load(saved(OfNumbers()), [IMAGE])
    assert re.fullmatch(
        r"model.pt cannot become a graph: the TorchScript construct prim::CreateObject at (\S+) is"
        r" refused by PyTorch's converter and by tracing: prim::CreateObject \1",
        str(refused.value),
    )
