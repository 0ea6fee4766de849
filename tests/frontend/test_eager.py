"""The check of the normalised graph against the model: what it lets pass and what it does not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.eager import TOLERANCE, resolve_view_strides

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


def test_a_view_that_is_none_becomes_a_reshape() -> None:
    module = transposed_view()
    assert resolve_view_strides(module, (X,), lambda x: (right(x),), "net") == (1, ())
    torch.testing.assert_close(module(X)[0], right(X))
    assert resolve_view_strides(module, (X,), lambda x: (right(x),), "net") == (0, ())


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda x: (right(x), x), "net: the graph has 1 outputs, the model 2"),
        (lambda x: (right(x)[:, :5],), r"output 0 .* the shape \(1, 12\), the model's \(1, 5\)"),
        (lambda x: (right(x) * (1 + 5 * TOLERANCE),), "output 0 of the normalised graph differs"),
        (lambda x: (right(x) * float("nan"),), "output 0 of the normalised graph differs"),
        (lambda x: (right(x) / (right(x) != 3),), "output 0 of the normalised graph differs"),
    ],
    ids=["count", "shape", "numbers", "nan", "infinite"],
)
def test_a_graph_that_is_not_the_model(
    model: Callable[[Tensor], tuple[Tensor, ...]], words: str
) -> None:
    with pytest.raises(FrontendError, match=words):
        resolve_view_strides(transposed_view(), (X,), model, "net")


def test_a_model_that_jumps_is_compared_with_its_own_jumps() -> None:
    def jumps(x: Tensor) -> tuple[Tensor]:
        return (right(x) + (right(x) == 3),)

    _, (note,) = resolve_view_strides(transposed_view(), (X,), jumps, "net")
    assert "change the outputs of net by up to 1," in note

    def jumps_elsewhere(x: Tensor) -> tuple[Tensor]:
        return (jumps(x)[0] + 5,)

    with pytest.raises(FrontendError, match="output 0 of the normalised graph differs"):
        resolve_view_strides(transposed_view(), (X,), jumps_elsewhere, "net")


class Logarithm(torch.nn.Module):
    """Not a number and infinite for some inputs, as inputs for trying a model are."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.log(torch.relu(x)), torch.sqrt(x)


def test_numbers_that_are_none_agree_with_themselves() -> None:
    program = prepare(Logarithm(), (torch.tensor([[-1.0, 0.0, 2.0]]),), "logarithm")
    logarithm, root = program.module(*program.example_inputs)
    assert logarithm[0, 1] == -torch.inf and root[0, 0].isnan()


def test_differences_of_denormals_are_none() -> None:
    """Below float32's smallest normal number a few digits are left, on some processors none."""
    tiny = X * 1e-42

    def nearly(x: Tensor) -> tuple[Tensor]:
        return (right(x) * 0.8,)

    assert resolve_view_strides(transposed_view(), (tiny,), nearly, "net") == (1, ())
    with pytest.raises(FrontendError, match="output 0 of the normalised graph differs"):
        resolve_view_strides(transposed_view(), (X * 1e-35,), nearly, "net")


def test_rounding_is_no_difference() -> None:
    def nearly(x: Tensor) -> tuple[Tensor]:
        return (right(x) * (1 + 0.1 * TOLERANCE),)

    assert resolve_view_strides(transposed_view(), (X,), nearly, "net") == (1, ())


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
