"""The check of the normalised graph against the model: what it lets pass and what it does not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.eager import TOLERANCE, resolve_view_strides
from tests.models import Function

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
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "qnnpack"
    try:
        with torch.no_grad():
            right = model(image.contiguous()).int_repr()
            assert not torch.equal(model(image).int_repr(), right)  # else the note has had its day
        program = prepare(model, (image,), "net")
    finally:
        torch.backends.quantized.engine = before
    assert ["qnnpack" in note for note in program.notes] == [True]
    (expected,) = program.module(image.int_repr())
    assert torch.equal(expected, right)
