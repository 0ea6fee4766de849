"""What depends on data stays a call of PyTorch; the graph is checked against the model."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.utils._pytree import tree_leaves

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.eager import TOLERANCE, quantised_engine, resolve_view_strides
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.node import ScriptCall, drawing_in_order
from nnapi_prof.graph.program import Program, all_values, run_units
from tests.models import Function


class Detector(nn.Module):
    """Rows of an image's features whose score is high: [1, 3, 16, 16] -> [n, 4], [n]"""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, stride=2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.conv(x).flatten(2)[0].T
        scores = rows[:, 4].sigmoid()
        keep = scores > 0.5
        return rows[:, :4][keep], scores[keep]


class Between(Detector):
    """What data decides stands between two layers; its mean has a shape that it does not."""

    def forward(self, x: Tensor) -> Tensor:
        boxes, _ = super().forward(x)
        centre = boxes.sum(0, keepdim=True) / (boxes.shape[0] + 1)
        return self.conv(x) * centre.mean() + 1


def longest(x: Tensor, length: Tensor) -> Tensor:
    """A number of the data cuts the rows."""
    n = length.max().item()
    torch._check(n >= 1)
    torch._check(n <= 8)
    return torch.relu(x)[:n] * 2


def branch(x: Tensor) -> Tensor:
    y = torch.relu(x)
    return torch.cond(y.sum() > 3, lambda v: v * 2, lambda v: v - 1, (y,)) + 1


def autocast(enabled: bool, x: Tensor, layer: nn.Module) -> tuple[Tensor, Tensor]:
    with torch.autocast("cpu", torch.bfloat16, enabled):
        y = layer(x)
    return y, y.float() * 2


def without_grad(x: Tensor, layer: nn.Module) -> Tensor:
    with torch.no_grad():
        y = layer(x)
    with torch.enable_grad():
        return y * 2


def chosen(x: Tensor, layer: nn.Module) -> Tensor:
    """A branch whose condition is a constant."""
    yes = torch.tensor(True)
    return layer(torch.cond(yes, lambda v: v + 1, lambda v: v - 1, (x,)))


@pytest.mark.parametrize(
    ("function", "operations", "words"),
    [
        (partial(autocast, True), "linear _to_copy _to_copy mul", "1 parts of .* under autocast"),
        (partial(autocast, False), "linear mul", None),
        (without_grad, "linear mul", None),
        (chosen, "add linear", None),
    ],
)
def test_graphs_within_exported_graphs_are_carried_out(function, operations, words):
    x, model = torch.randn(8, 64), Function(function, layer=nn.Linear(64, 8))
    program = prepare(torch.export.export(model, (x,)), [x], "model")
    calls = [n.target for n in program.module.graph.nodes if n.op == "call_function"]
    assert [call._opname for call in calls] == operations.split()
    assert len(program.notes) == (words is not None)
    assert words is None or re.match(words, program.notes[0])
    rtol = 0.02 if words else 1e-6  # bfloat16 has 8 bits
    torch.testing.assert_close(program.module(x), tree_leaves(model(x)), rtol=rtol, atol=rtol)


def test_loops_in_exported_graphs_are_refused():
    def doubled(x: Tensor) -> Tensor:
        start = torch.tensor(0)
        return while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v * 2), (start, x))[1]

    with pytest.raises(FrontendError, match=r"the construct while_loop \(.*\) is not supported"):
        prepare(Function(doubled), [torch.ones(2)], "model")


def in_parts(model: nn.Module, *inputs: Tensor) -> tuple[Program, list[str]]:
    program = prepare(torch.export.export(model.eval(), inputs), inputs, "model", keep=True)
    calls = [n.target for n in program.module.graph.nodes if isinstance(n.target, ScriptCall)]
    return program, [call.construct for call in calls]


def units_agree(program: Program, *inputs: Tensor) -> dict[str, Tensor]:
    """Each unit alone gives what it gives in the whole; all values of that."""
    values = dict(zip(program.units.inputs, inputs, strict=True)) | all_values(program, inputs)
    for unit in reversed(program.units.units):
        results = run_units(program, [unit.index], {name: values[name] for name in unit.inputs})
        torch.testing.assert_close(results, {name: values[name] for name in unit.outputs})
    return values


IMAGE = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("model", "inputs", "constructs"),
    [
        (Detector(), (IMAGE,), ["index_on_data"]),
        (Between(), (IMAGE,), ["index_on_data"]),
        (Function(longest), (torch.randn(8, 4), torch.tensor([3, 5])), ["item_on_data"]),
        (Function(branch), (torch.ones(4),), ["cond_on_data"]),
    ],
)
def test_what_depends_on_data_is_one_call(model, inputs, constructs):
    """Other data give other shapes; units before and after it run by themselves."""
    program, calls = in_parts(model, *inputs)
    assert calls == constructs
    others = tuple(v.flip(-1) * 0.5 if v.is_floating_point() else v - 1 for v in inputs)
    for arguments in (inputs, others):
        torch.testing.assert_close(program.module(*arguments), tree_leaves(model(*arguments)))
    units_agree(program, *inputs)


def test_a_number_of_the_data_is_no_output():
    counted = Function(lambda x: (x + 1, x.nonzero().shape[0]))
    with pytest.raises(FrontendError, match="returns a number that depends on the values"):
        in_parts(counted, torch.ones(3))


def test_without_it_such_a_model_is_refused():
    program = torch.export.export(Detector().eval(), (IMAGE,))
    with pytest.raises(FrontendError, match="depend on the values of a tensor"):
        prepare(program, (IMAGE,), "model")


class Written(nn.Module):
    """A constant that data are written to, read by a branch on data."""

    def forward(self, x: Tensor) -> Tensor:
        order = torch.zeros(4, dtype=torch.int64)
        order.scatter_(0, x.argsort(), torch.arange(4))
        ranked = x[order] if bool(x.sum() > 0) else x
        return torch.relu(ranked) if isinstance(ranked, Tensor) else x


class Experts(nn.Module):
    """Rows that data pick are written into zeros, one expert after the other."""

    def forward(self, x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for k in range(2):
            rows = ((x > 0) == (k == 0)).nonzero()[:, 0]
            out[rows] = x[rows] * (k + 2.5)
        return out + 1


@pytest.mark.parametrize("make", [Written, Experts])
def test_constants_that_data_are_written_to(make):
    with quiet_torch():
        model = torch.jit.script(make())
    x = torch.tensor([3.0, -1.0, 2.0, 0.5])
    program = prepare(model, (x,), "written", keep=True)
    for arguments in (x, x.flip(0), -x):
        torch.testing.assert_close(program.module(arguments)[0], make()(arguments))


def inverse(x: Tensor) -> Tensor:
    """Memory as it is, all of which is written to later."""
    order = x.argsort()
    places = torch.empty_like(order)
    places[order] = torch.arange(4)
    return x[order][places] * 2


def test_memory_as_it_is_becomes_zeros():
    x = torch.tensor([3.0, -1.0, 2.0, 0.5])
    torch.use_deterministic_algorithms(True)  # fills such memory with the largest numbers
    try:
        program = prepare(Function(inverse), (x,), "inverse")
    finally:
        torch.use_deterministic_algorithms(False)
    integers = [v for v in program.module.buffers() if v.dtype is torch.int64]
    assert integers and max(int(v.abs().max()) for v in integers) <= 4
    torch.testing.assert_close(program.module(x)[0], x * 2)


class Noisy(nn.Module):
    """Draws in several ways, one of them on a tensor that it writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        start = torch.randn(2, 4) + torch.randn(2, 4)
        hidden = self.layer(x + start) + torch.empty(2, 4).normal_(1.0, 2.0)
        picked = torch.multinomial(hidden.softmax(1), 2)
        return hidden * (torch.rand_like(hidden) > 0.5), picked


@pytest.mark.parametrize("door", ["trace", "script", "export"])
def test_random_numbers_stay_calls_of_pytorch(door):
    """They are the model's own in its own order, and always the same in parts."""
    torch.manual_seed(0)
    model, x = Noisy().eval(), torch.randn(2, 4)
    with quiet_torch():
        if door == "export":
            source: Any = torch.export.export(model, (x,))
        else:
            script = door == "script"
            source = torch.jit.script(model) if script else torch.jit.trace(model, x)
        program = prepare(source, (x,), "noisy", keep=True)
    assert len(program.draws) == 5 and "draws random numbers" in program.notes[0]
    with torch.no_grad(), drawing_in_order():
        expected = model(x)
    with torch.no_grad(), drawing_in_order():
        torch.testing.assert_close(tuple(program.module(x)), expected)
    values = units_agree(program, x)
    first = values["getitem"]
    assert not torch.equal(first, values["getitem_1"])
    with pytest.raises(FrontendError, match="draws random numbers, which NNAPI cannot"):
        prepare(source, (x,), "noisy")


# ---- the check against the model: what it lets pass and what it does not -------------------------

aten = torch.ops.aten
X = torch.arange(1.0, 13.0).reshape(1, 3, 4)


def transposed_view() -> fx.GraphModule:
    """A view that eager's strides forbid: of a permuted tensor."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    turned = graph.call_function(aten.permute.default, (x, [0, 2, 1]))
    graph.output((graph.call_function(aten.view.default, (turned, [1, 12])),))
    return fx.GraphModule(torch.nn.Module(), graph)


def right(x: Tensor) -> Tensor:
    return x.permute(0, 2, 1).reshape(1, 12)


DIFFERS = "output 0 of the normalised graph differs"


def resolved(x: Tensor, model: Callable[[Tensor], Tensor]) -> tuple[int, tuple[str, ...]]:
    """Resolves the transposed view beside a model of one output."""
    return resolve_view_strides(transposed_view(), (x,), lambda x: (model(x),), "net")


def test_a_view_that_is_none_becomes_a_reshape():
    module = transposed_view()
    assert resolve_view_strides(module, (X,), lambda x: (right(x),), "net") == (1, ())
    torch.testing.assert_close(module(X)[0], right(X))
    assert resolve_view_strides(module, (X,), lambda x: (right(x),), "net") == (0, ())


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda x: (right(x), x), "net: the graph has 1 outputs, the model 2"),
        (lambda x: (right(x)[:, :5],), r"output 0 .* the shape \(1, 12\), the model's \(1, 5\)"),
        (lambda x: (right(x) * (1 + 5 * TOLERANCE),), DIFFERS),
        (lambda x: (right(x) * float("nan"),), DIFFERS),
        (lambda x: (right(x) / (right(x) != 3),), DIFFERS),
    ],
    ids=["count", "shape", "numbers", "nan", "infinite"],
)
def test_a_graph_that_is_not_the_model(model, words):
    with pytest.raises(FrontendError, match=words):
        resolve_view_strides(transposed_view(), (X,), model, "net")


def test_a_model_that_jumps_is_compared_with_its_own_jumps():
    def jumps(x: Tensor) -> Tensor:
        return right(x) + (right(x) == 3)

    _, (note,) = resolved(X, jumps)
    assert "change the outputs of net by up to 1," in note
    with pytest.raises(FrontendError, match=DIFFERS):
        resolved(X, lambda x: jumps(x) + 5)


def test_numbers_that_are_none_agree_with_themselves():
    """Inputs for trying a model are such that some are."""
    logarithm = Function(lambda x: (torch.log(torch.relu(x)), torch.sqrt(x)))
    program = prepare(logarithm, (torch.tensor([[-1.0, 0.0, 2.0]]),), "logarithm")
    logarithm, root = program.module(*program.example_inputs)
    assert logarithm[0, 1] == -torch.inf and root[0, 0].isnan()


def test_differences_of_denormals_are_none():
    """Below float32's smallest normal number a few digits are left, on some processors none."""
    assert resolved(X * 1e-42, lambda x: right(x) * 0.8) == (1, ())
    with pytest.raises(FrontendError, match=DIFFERS):
        resolved(X * 1e-35, lambda x: right(x) * 0.8)


def test_rounding_is_no_difference():
    assert resolved(X, lambda x: right(x) * (1 + 0.1 * TOLERANCE)) == (1, ())


@pytest.mark.filterwarnings("ignore")  # of PyTorch's: tracing and quantised tensors are deprecated
def test_a_clamp_that_qnnpack_computes_wrongly_is_no_fault_of_ours():
    """PyTorch's qnnpack gives clamped images that lie channels last in another order."""
    if "qnnpack" not in torch.backends.quantized.supported_engines:
        pytest.skip("this PyTorch has no qnnpack")
    torch.manual_seed(0)
    image = torch.quantize_per_tensor(torch.randn(1, 4, 5, 5) * 4, 0.05, 100, torch.quint8)
    image = image.contiguous(memory_format=torch.channels_last)
    model = torch.jit.trace(torch.nn.Sequential(torch.nn.ReLU6(), torch.nn.MaxPool2d(2)), image)
    with quantised_engine("qnnpack"), torch.no_grad():
        right = model(image.contiguous()).int_repr()
        assert not torch.equal(model(image).int_repr(), right)  # else the note has had its day
        program = prepare(model, (image,), "net")
    assert ["qnnpack" in note for note in program.notes] == [True]
    (expected,) = program.module(image.int_repr())
    assert torch.equal(expected, right)
