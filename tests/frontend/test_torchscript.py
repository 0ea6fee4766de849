"""Constructs of TorchScript on their way into a straight graph, and those that have none."""

import enum
import logging

import pytest
import torch
from torch import Tensor, nn

from nnapi_prof import frontend
from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend import torchscript
from nnapi_prof.frontend.loader import read_torchscript
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.frontend.torchscript.inputs import find_inputs
from nnapi_prof.frontend.torchscript.interpreter import WalkRefused, walked_graph
from tests.frontend.common import IMAGE, agree
from tests.models import Function


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.size(1) > 3 and x.dim() == 4:
            for i in range(x.size(1) // 2):
                x = x * (i + 1)
        else:
            x = x - 100.0
        parts = []
        for part in x.split(1, 1):
            parts.append(part.relu())
        return torch.cat(parts, 1)


def test_branches_loops_and_lists_on_shapes(saved):
    program = agree(saved(Branches()), IMAGE)
    labels = [unit.label for unit in program.units.units]
    assert labels[0] == "mul 1x4x6x6"
    assert labels.count("slice 1x1x6x6") == 4


class Outputs(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        return {"sum": (a + b, a), "product": (a * b, b - 1)}


def test_nested_outputs_are_flattened(saved):
    program = agree(saved(Outputs()), IMAGE, IMAGE)
    assert len(program.units.outputs) == 4
    assert program.units.outputs[1] == program.units.inputs[0]


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


def test_members_of_enumerations_are_compared(saved):
    with quiet_torch():
        graph = walked_graph(read_torchscript(saved(Laid())), (torch.ones(1, 4, 6, 6),), "laid")
    assert [str(n.target) for n in graph.graph.nodes if n.op == "call_function"] == [
        "aten.permute.default",
        "aten.mul.Scalar",
    ]


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
    for ours, theirs in zip(program.module(x, hidden), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


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
    assert "embedding_bag" not in {unit.label.split()[0] for unit in program.units.units}


class ReadsData(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.data * 2.0 if x.device.type == "cpu" and not x.is_nested else x


def test_what_tensors_say_of_themselves(saved):
    agree(saved(ReadsData()), IMAGE)


class Overlaps(nn.Module):
    """Windows that share elements, of a tensor whose dimensions were swapped."""

    def forward(self, x: Tensor) -> Tensor:
        turned = (x * 2.0).transpose(2, 3)
        windows = turned.as_strided([2, 3, 8], [16, 8, 1], 5)
        return windows.softmax(-1)


def test_windows_by_strides(saved):
    program = agree(saved(Overlaps()), IMAGE)
    assert "as_strided" not in {unit.label.split()[0] for unit in program.units.units}


class Containers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
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


def test_lists_dicts_and_numbers(saved):
    agree(saved(Containers()), IMAGE)


class Resized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return nn.functional.interpolate(y, size=(5, 7), mode="nearest")


def test_interpolate_builtin(saved):
    program = agree(saved(Resized()), IMAGE)
    assert [u.label for u in program.units.units][1:3] == [
        "upsample_bilinear2d 1x4x12x12",
        "upsample_nearest2d 1x4x5x7",
    ]


class OnValues(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        return -x


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Number(nn.Module):
    def forward(self, x: Tensor) -> int:
        return x.dim()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (OnValues, r"test_torchscript\.py:.* depends? on the values of a tensor"),
        (Noisy, r"rand_like.* draws random numbers"),
        (Number, "returns no tensor"),
    ],
)
def test_what_is_refused(saved, kind, words):
    with pytest.raises(FrontendError, match=words) as caught:
        frontend.load(saved(kind()), [IMAGE])
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("layer", "advice"),
    [(nn.Dropout(0.5), r": call model.eval\(\)"), (nn.BatchNorm2d(4), "; call model.eval")],
)
def test_training_mode_is_refused(saved, layer, advice):
    model = nn.Sequential(nn.Conv2d(4, 4, 3), layer).train()
    with pytest.raises(FrontendError, match="the model is in training mode" + advice):
        frontend.load(saved(model, torch.ones(1, 4, 6, 6)), [IMAGE])


def test_scripted_training_mode_is_switched_off(saved):
    """What is scripted still asks its mode when it runs, so eval mode can be set on loading."""
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    program = agree(saved(model), IMAGE)
    assert len(program.units.units) == 3


def innermost(x: Tensor, sizes: list[int]) -> Tensor:
    return x + len(sizes)


def inner(x: Tensor, sizes: list[int]) -> Tensor:
    return innermost(x * 2, sizes.copy())


def outer(x: Tensor) -> Tensor:
    return inner(x, [1, 2])


class Functions(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return outer(x)


def test_functions_that_call_functions_are_walked(saved):
    model = frontend.loader.read_torchscript(saved(Functions()))
    examples, _ = find_inputs(model, [IMAGE], "net")  # runs the model
    graph = walked_graph(model, examples, "net")
    torch.testing.assert_close(graph(*examples)[0], examples[0] * 2 + 2)


class Unusual(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(torch.special.erf(x), 2)


def test_unknown_tensor_operation_stays(saved):
    """It will be refused by the converter and stay where it can run."""
    program = agree(saved(Unusual()), IMAGE)
    assert [u.label.split()[0] for u in program.units.units] == ["erf", "cumsum"]


@pytest.mark.slow
@pytest.mark.parametrize("route", ["_convert_by_export", "_traced"])
def test_every_route_gives_the_same_units(examples, route: str):
    """The later routes serve what the walker refuses; here they take what it takes, too."""
    model = examples.unet()
    x = torch.randn(1, 3, 16, 16)
    with quiet_torch(), torch.no_grad():
        script = torch.jit.trace(model, x)
        walked = walked_graph(script, [x], "unet")
        other = getattr(torchscript, route)(script, [x], "unet")
    finish = frontend.loader._finish
    first = finish(walked, (x,), "unet", (), model)
    second = finish(other, (x,), "unet", (), model)
    assert [u.signature for u in first.units.units] == [u.signature for u in second.units.units]


class Point:
    def __init__(self, x: Tensor) -> None:
        self.x = x


class Objects(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Point(x).x


def test_walker_refuses_what_it_does_not_know():
    with quiet_torch():
        script = torch.jit.script(Objects())
    with pytest.raises(WalkRefused, match=r"prim::CreateObject .*test_torchscript\.py:\d+"):
        walked_graph(script, [torch.ones(2)], "objects")


def test_pytorch_is_quiet(saved, capfd, caplog):
    path = saved(Branches())
    with caplog.at_level(logging.INFO):
        frontend.load(path, [IMAGE])
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
    assert not caplog.records


SIZE_ARITHMETIC = {
    "the last of an axis": lambda x: x.narrow(1, x.shape[1] - 1, 1),
    "the second half": lambda x: x.narrow(3, x.shape[3] // 2, x.size(3) - x.size(3) // 2),
    "split at a size": lambda x: torch.tensor_split(x, torch.tensor([x.size(1) // 2]), 1)[1],
    "repeats by a tensor": lambda x: x.repeat_interleave(torch.arange(x.size(1)), 1),
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


class OnADevice(nn.Module):
    """Moves to where its input is, as models do that run anywhere."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shift = torch.ones(4).to(x.device)
        return torch.relu(x.to(shift.device) + shift).to(x)


def test_moves_between_devices_are_nothing(saved):
    program = frontend.load(saved(OnADevice()), [frontend.parse_input_spec("2x4")])
    assert [unit.operation for unit in program.units.units] == ["add+relu"]


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
