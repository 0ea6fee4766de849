"""Models that keep state, or take numbers: as files that take tensors alone."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import nnapi_prof as nnp
from nnapi_prof.errors import FrontendError, InputSpecError
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.trees import bind_inputs
from tests.precision.common import script

pytestmark = pytest.mark.filterwarnings("ignore")  # of PyTorch's: scripting is deprecated


class InPlace(nn.Module):
    """State in buffers that are written in place; in a part, and of other first values than 0."""

    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.full((1, 4), 0.5))

        def forward(self, x):
            return self.mean.mul_(0.9).add_(x, alpha=0.1) + 0.0

    def __init__(self):
        super().__init__()
        self.average = self.Average()
        self.register_buffer("ring", torch.zeros(1, 3, 4))

    def forward(self, x):
        mean = self.average(x)
        self.ring.copy_(torch.cat([self.ring[:, 1:], mean.unsqueeze(1)], 1))
        return torch.relu(self.ring.sum(1) - x)


class Pair(nn.Module):
    """State that is not there at first, and a pair."""

    hidden: tuple[Tensor, Tensor] | None

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 5, batch_first=True)
        self.hidden = None

    def forward(self, x):
        y, self.hidden = self.lstm(x.unsqueeze(1), self.hidden)
        return y[:, 0] * 2


class Running(nn.Module):
    """State that is assigned anew."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(1, 4))

    def forward(self, x):
        self.total = self.total + x
        return torch.relu(self.total)


class Returned(nn.Module):
    """Returns its state itself, and has a buffer whose elements share one place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("held", torch.zeros(1, 4))
        self.register_buffer("scale", torch.tensor([[2.0]]).expand(3, 4))

    def forward(self, x):
        return self.held.add_(torch.tanh(x) * self.scale[:1])


def streamed(model: nnp.Model, first: list[Tensor], pieces: list[Tensor]) -> list[Tensor]:
    state, outputs = first, []
    for piece in pieces:
        output, *state = model.eager(piece, *state)
        outputs.append(output)
    return outputs


@pytest.mark.parametrize("form", ["scripted", "traced", "exported", "memory"])
@pytest.mark.parametrize("make", [InPlace, Pair])
def test_state_becomes_inputs_and_outputs(make, form, tmp_path):
    path, example, own = tmp_path / "net.pt", torch.randn(1, 4), make().eval()
    other = copy.deepcopy(own)
    if make is Pair and form != "scripted":
        pytest.skip("PyTorch cannot: the attribute is not a buffer")
    if form == "scripted":
        torch.jit.save(torch.jit.script(other), path)
    elif form == "traced":
        torch.jit.save(torch.jit.trace(other, example, check_trace=False), path)
    elif form == "exported":
        path = path.with_suffix(".pt2")
        torch.export.save(torch.export.export(other, (example,)), path)
    model = nnp.load(other if form == "memory" else path, [(1, 4)])
    for value, unchanged in zip(other.buffers(), own.buffers(), strict=True):
        assert form == "traced" or torch.equal(value, unchanged)  # tracing runs it
    begins = "zeros" if make is Pair else "what the model's file has"
    assert model.notes[-1].endswith(f"it begins with {begins}") or form == "traced"
    zeros = [torch.zeros(1, 1, 5)] * 2
    first = zeros if make is Pair else [torch.full((1, 4), 0.5), torch.zeros(1, 3, 4)]
    shapes = [tuple(model.graph.values[name].shape) for name in model.graph.inputs]
    assert sorted(shapes[1:]) == sorted(tuple(value.shape) for value in first)
    assert "the model keeps state" in model.notes[-1]
    ordered = [next(v for v in first if tuple(v.shape) == shape) for shape in shapes[1:]]
    pieces = list(torch.randn(5, 1, 4))
    with torch.no_grad():
        expected = [own(piece) for piece in pieces]
        torch.testing.assert_close(streamed(model, ordered, pieces), expected)


def test_what_is_written_and_not_read_is_no_state(saved):
    class Last(nn.Module):
        last: Tensor | None

        def __init__(self):
            super().__init__()
            self.last, self.n = None, 0

        def forward(self, x):
            self.n = x.size(1)
            self.last = x * self.n
            last = self.last
            assert last is not None
            return last + torch.arange(self.n)

    model, x = nnp.load(saved(Last().eval()), "1x4"), torch.ones(1, 4)
    assert len(model.graph.inputs) == 1 and not model.notes
    assert model.program.module(x)[0].tolist() == [[4, 5, 6, 7]]


def test_state_that_grows_and_numbers_that_count_are_refused(saved):
    class Grows(nn.Module):
        def __init__(self):
            super().__init__()
            self.all = torch.zeros(1, 4)

        def forward(self, x):
            self.all = torch.cat([self.all, x])
            return self.all.sum(0)

    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 0

        def forward(self, x):
            self.n = self.n + 1
            return x * self.n

    with pytest.raises(FrontendError, match=r"all, which grows .*\(3x4, then 4x4\): keep a fixed"):
        nnp.load(saved(Grows().eval()), "1x4")
    with pytest.raises(FrontendError, match=r"a number in n, which changes .* .2, then 3"):
        nnp.load(saved(Counts().eval()), "1x4")
    with pytest.raises(FrontendError, match="changes its attribute n whenever it runs"):
        prepare(torch.jit.script(Counts().eval()), (torch.ones(1, 4),), "counts")


class Scaled(nn.Module):
    def forward(
        self, x: Tensor, mode: str, factor: float = 2.0, mask: Tensor | None = None
    ) -> Tensor:
        y = torch.relu(x) if mode == "relu" else torch.tanh(x)
        return y * factor if mask is None else y * factor * mask


@pytest.mark.parametrize(
    "inputs",
    [
        ["1x4", "=relu", "=3"],
        ["1x4", "mode=relu", "factor=3"],
        {"mode": "relu", "x": (1, 4), "factor": 3},
        [torch.ones(1, 4), "mode=relu", 3.0],
    ],
)
def test_numbers_and_texts_are_fixed(inputs, saved):
    model = nnp.load(saved(Scaled()), inputs)
    x = torch.tensor([[-1.0, 0.0, 1.0, 2.0]])
    torch.testing.assert_close(model.eager(x)[0], torch.relu(x) * 3)


def test_values_by_name_beside_a_text(saved, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.full((1, 4), 2.0))
    model = nnp.load(saved(Scaled()), [f"@{tmp_path}/x.npz", "mode=relu"])
    assert model.program.example_inputs[0].tolist() == [[2.0] * 4]


def test_values_do_not_advance_the_state(tmp_path):
    """The state begins as in the file, though the values were tried."""
    np.savez(tmp_path / "x.npz", np.ones((1, 4)))
    torch.jit.save(torch.jit.script(Running()), tmp_path / "net.pt")
    model = nnp.load(tmp_path / "net.pt", f"@{tmp_path}/x.npz")
    assert model.notes[-1].endswith("it begins with zeros")


@pytest.mark.parametrize("form", ["memory", "exported"])
def test_buffers_that_nobody_can_write_and_states_that_are_returned(form, tmp_path):
    own = Returned().eval()
    model, x = copy.deepcopy(own), torch.ones(1, 4)
    if form == "exported":
        torch.export.save(torch.export.export(model, (x,)), tmp_path / "net.pt2")
    loaded = nnp.load(tmp_path / "net.pt2" if form == "exported" else model, [(1, 4)])
    assert torch.equal(model.held, torch.zeros(1, 4))
    assert torch.equal(loaded.eager(x, torch.zeros(1, 4))[0], own(x))


def test_a_tensor_behind_a_number_that_is_left_out(saved):
    model = nnp.load(saved(Scaled()), {"x": (1, 4), "mode": "relu", "mask": (1, 4)})
    x = torch.ones(1, 4)
    torch.testing.assert_close(model.eager(x, x / 4)[0], x / 2)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["1x4"], r'the input mode, of type str: say which it always is to have, "mode=fast" in'),
        (["1x4", "speed=2"], "has no input 'speed': its inputs are x, mode, factor, mask"),
        (["1x4", "=relu", "factor=much"], "factor of model.pt is of type float, 'much' was stated"),
        (["1x4", "=relu", "=2", "=3"], "no input for the value '3': leave it out"),
        ({"x": [(1, 4), (1, 4)], "mode": "relu"}, "the input x holds 2 values: give inputs as a"),
        ([[1.5, 2.0]], r"the input \[1.5, 2.0\] is not a shape: sizes are required"),
        ([object()], "is neither a shape nor a tensor"),
    ],
)
def test_inputs_that_do_not_fit_are_told(inputs, message, saved):
    with pytest.raises(InputSpecError, match=message):
        nnp.load(saved(Scaled()), inputs)


class Nested(nn.Module):
    def forward(self, ids, scale: float, pair, options):
        return {"y": torch.relu(ids) * scale + pair[0] - pair[1], "z": options["bias"] * 2}


def test_modules_in_memory_take_what_they_are_called_with():
    one = torch.ones(1, 4)
    for inputs in (
        [(1, 4), 0.5, ("1x4", one), {"bias": (1, 2)}],
        {"pair": ("1x4", one), "options": {"bias": (1, 2)}, "scale": 0.5, "ids": one},
    ):
        model = nnp.load(Nested(), inputs)
        y, z = model.eager(one, one * 3, one, torch.ones(1, 2))
        assert y.tolist() == [[2.5] * 4] and z.tolist() == [[2.0] * 2]


@settings(deadline=None, max_examples=50)
@given(st.permutations(["a=1x2", "b=7", "c=0.5", "d=3x4"]))
def test_names_make_order_indifferent(texts):
    result = bind_inputs(texts, {"a": "Tensor", "b": "int", "c": "float", "d": "Tensor"}, "net")
    assert result.shapes == ("1x2", "3x4") and result.values == {"b": 7, "c": 0.5}


@pytest.mark.slow("traces and runs a published example")
def test_the_example_streams(tmp_path, nnapi_library, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script("streaming").main()
    text = capsys.readouterr().out
    assert "62 pieces, largest difference" in text and float(text.split()[-1]) < 1e-5
