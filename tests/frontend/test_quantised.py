"""Eager-mode quantised TorchScript: what has a float form, and what is refused."""

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend import load, parse_input_spec, prepare
from nnapi_prof.frontend.eager import quantised_engine
from nnapi_prof.frontend.torch_logging import quiet_torch, run_once
from tests.models import Function

ops = torch.ops.quantized
BIAS = torch.linspace(-2, 2, 8)


def prepared(function, *shape):
    """The program of a function of a quint8 tensor, its floats, and the function's."""

    def floats(x):
        result = function(torch.quantize_per_tensor(x, 0.05, 128, torch.quint8))
        return result.dequantize() if result.is_quantized else result

    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with quiet_torch():
        module = Function(floats)
        program = prepare(torch.jit.trace(module, x), (x,), "model")
        return program, program.module(x)[0], module(x)


EXACT = {
    "instance_norm": (
        lambda x: ops.instance_norm(x, BIAS[:4], BIAS[4:], 1e-5, 0.05, 100),
        (1, 4, 6, 8),
    ),
    "add number": (lambda x: ops.add(x, 1.5), (2, 8)),
    "add constant": (
        lambda x: ops.add(x, torch.quantize_per_tensor(BIAS, 0.05, 128, torch.quint8), 0.1, 100),
        (2, 8),
    ),
    "mul number": (lambda x: ops.mul(x, -0.5), (2, 8)),
    "sub scale": (lambda x: ops.mul_scalar(x, 0.25), (2, 8)),
    "relu in place": (lambda x: torch.relu_(x), (2, 8)),
    "relu6": (lambda x: ops.relu6(x), (2, 8)),
    "clamp": (lambda x: torch.clamp(x, -0.5, 0.7), (2, 8)),
    "cat": (lambda x: ops.cat([x, x], 1, 0.07, 100), (2, 8)),
    "stack": (lambda x: torch.stack([x, x], 1), (2, 8)),
    "parts": (lambda x: ops.add(*x.chunk(2, 1), 0.1, 100), (2, 8)),
    "pool": (lambda x: nn.functional.max_pool2d(x, 2), (1, 4, 6, 8)),
    "resize": (lambda x: nn.functional.interpolate(x, scale_factor=2), (1, 4, 6, 8)),
    "shuffle": (lambda x: torch.channel_shuffle(x, 2), (1, 4, 6, 8)),
    "largest": (lambda x: torch.max(x, 1)[0], (2, 8)),
    "two largest": (lambda x: torch.topk(x, 2)[0], (2, 8)),
    "layer_norm": (lambda x: ops.layer_norm(x, [8], BIAS, BIAS, 1e-5, 0.05, 100), (3, 8)),
    "softmax": (lambda x: ops.softmax(x, 1, 1 / 256, 0), (2, 8)),
    "leaky_relu": (lambda x: ops.leaky_relu(x, 0.1, False, 0.05, 100), (2, 8)),
    "integers": (lambda x: x.int_repr().float(), (2, 8)),
    "sizes": (lambda x: x.view(x.size(0) * 2, -1), (2, 8)),
}


@pytest.mark.parametrize("name", EXACT)
def test_floats_between_conversions_give_pytorchs_integers(name):
    function, shape = EXACT[name]
    _, actual, expected = prepared(function, *shape)
    torch.testing.assert_close(actual, expected, atol=0.101, rtol=0)
    assert (actual != expected).float().mean() < 0.15


def wide(x):
    return torch.quantize_per_tensor(x.dequantize(), 0.001, 0, torch.qint32)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (wide, r"aten::quantize_per_tensor .* \(quantize_per_tensor to torch.qint32\)"),
        (lambda x: ops.add_out(x, x, x), r"quantized::add_out .* \(quantized::add_out\)"),
    ],
)
def test_an_operator_without_a_float_form_is_named(function, words):
    verdict = "not a float operator between conversions that is known here"
    with pytest.raises(FrontendError, match=words.replace(".*", f".* is {verdict}")):
        prepared(function, 3, 8)


@pytest.mark.parametrize("name", ["qnnpack", "fbgemm", "x86"])
@pytest.mark.parametrize("script", [False, True])
def test_dynamic_quantisation_rounds_by_scales_that_are_computed(name, script):
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    with quiet_torch(), quantised_engine(name):
        layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5)).eval()
        model = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear})
        scripted = torch.jit.script(model) if script else torch.jit.trace(model, x)
        program = prepare(scripted, (x,), "dynamic")
        expected = model(x)
    torch.testing.assert_close(program.module(x)[0], expected, rtol=1e-4, atol=1e-5)
    assert {value_type.dtype for value_type in program.units.values.values()} == {"float32"}
    labels = [unit.label for unit in program.units.units]
    assert sum(label.startswith("round ") for label in labels) == 4  # zero points and inputs
    assert sum(label.startswith("linear") for label in labels) == 2


def test_an_embedding_of_bytes_is_one_of_floats():
    indices = torch.tensor([[1, 3], [0, 5]])
    with quiet_torch():
        table = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
        numbers = (torch.rand(6) / 50 + 0.01, torch.full((6,), 100.0), 0, torch.quint8)
        layer = torch.ao.nn.quantized.Embedding(
            6, 8, _weight=torch.quantize_per_channel(table, *numbers)
        )
        program = prepare(torch.jit.trace(layer, indices), (indices,), "embedding")
        expected = layer(indices)
    torch.testing.assert_close(program.module(indices)[0], expected, rtol=1e-6, atol=1e-6)


def test_inputs_of_one_name():
    x, y = torch.ones(2), torch.arange(2.0)
    with quiet_torch():
        traced = torch.jit.trace(Function(torch.sub), (x, y))
    program = prepare(traced, (x, y), "both")
    assert len(set(program.units.inputs)) == 2
    assert program.module(x, y)[0].tolist() == [1, 0]


def test_a_scripted_model_that_ran_before_is_still_walked(tmp_path):
    quantize = torch.ao.nn.quantized.Quantize(0.05, 128, torch.quint8)
    layers = quantize, nn.MaxPool2d(2), torch.ao.nn.quantized.DeQuantize()
    with quiet_torch():
        torch.jit.script(nn.Sequential(*layers).eval()).save(str(tmp_path / "net.pt"))
        model = torch.jit.load(str(tmp_path / "net.pt"))
        with run_once():
            model(torch.ones(1, 3, 4, 4))
        program = load(tmp_path / "net.pt", [parse_input_spec("1x3x4x4")])
    assert any(unit.label.startswith("quantised max_pool2d") for unit in program.units.units)


RECURRENT = {
    "lstm": (lambda: nn.LSTM(8, 5, num_layers=2, bidirectional=True), (3, 2, 8)),
    "gru": (lambda: nn.GRU(8, 5, batch_first=True), (2, 3, 8)),
    "gru cell": (lambda: nn.GRUCell(8, 5), (2, 8)),
    "lstm cell": (lambda: nn.LSTMCell(8, 5), (2, 8)),
    "rnn cell": (lambda: nn.RNNCell(8, 5, nonlinearity="relu"), (2, 8)),
}


@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrences_in_dynamic_quantisation_are_computed_in_floats(name, dtype):
    """Their weights are the rounded ones; what differs is the rounding of what they read."""
    layer, shape = RECURRENT[name]
    torch.manual_seed(0)
    exact, x = torch.nn.Sequential(layer()).eval(), torch.randn(shape)
    with quiet_torch():
        model = torch.ao.quantization.quantize_dynamic(exact, {type(exact[0])}, dtype)
        traced = torch.jit.trace(model, x, check_trace=False)
    program = prepare(traced, (x,), "dynamic")
    assert program.widened and "round in every step" in program.notes[0]
    theirs = [v for v in pytree.tree_leaves(model(x)) if isinstance(v, torch.Tensor)]
    step = 0.03 if dtype is torch.qint8 else 1e-5
    torch.testing.assert_close(program.module(x), theirs, atol=step, rtol=0)


@pytest.mark.parametrize("rows", [False, True])
def test_bags_of_quantised_embeddings(rows):
    table = torch.quantize_per_channel(
        torch.randn(20, 16), torch.full((20,), 0.02), torch.zeros(20), 0, torch.quint8
    )
    packed = torch.ao.nn.quantized.EmbeddingBag(20, 16, mode="sum", _weight=table)
    indices = torch.tensor([[3, 5, 7], [1, 1, 2]])
    inputs = (indices,) if rows else (indices.flatten(), torch.tensor([0, 2]))
    with quiet_torch():
        program = prepare(torch.jit.trace(packed, inputs), inputs, "bags")
    torch.testing.assert_close(program.module(*inputs)[0], packed(*inputs))


def test_batches_that_are_counted_are_no_state_that_matters():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("batches", torch.tensor(0))

        def forward(self, x):
            self.batches.add_(1)
            return torch.relu(x)

    class Used(Counted):
        def forward(self, x):
            self.batches.add_(1)
            return x * self.batches

    x = torch.ones(2, 3)
    with quiet_torch():
        program = torch.export.export(Counted(), (x,))
        decomposed = program.run_decompositions({})
    for each in (program, decomposed):
        assert len(prepare(each, (x,), "counted").units.units) == 1
    with pytest.raises(FrontendError, match="changes its buffer batches"), quiet_torch():
        prepare(torch.export.export(Used(), (x,)), (x,), "used")
