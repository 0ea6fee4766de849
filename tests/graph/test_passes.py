"""The pass runner and the rules it checks."""

import pytest
import torch
from torch import Tensor, fx, nn

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.node import TENSOR, describe, insert_call, type_of
from nnapi_prof.graph.program import Program, verify
from nnapi_prof.passes.dim_order import cancel_permutes
from nnapi_prof.passes.pipeline import run_passes
from tests.convert.coverage.rows import Function, numbers, seeded

aten = torch.ops.aten


def permutes() -> fx.GraphModule:
    """relu of a permute and its inverse."""
    module = fx.GraphModule(nn.Module(), fx.Graph())
    graph = module.graph
    x = graph.placeholder("x")
    x.meta[TENSOR] = describe(torch.ones(1, 8, 4, 4))
    there = insert_call(graph, aten.permute.default, (x, [0, 2, 3, 1]))
    back = insert_call(graph, aten.permute.default, (there, [0, 3, 1, 2]))
    graph.output((insert_call(graph, aten.relu.default, (back,)),))
    module.recompile()
    return module


def test_runner_counts_changes():
    module = permutes()
    assert run_passes(module, [cancel_permutes, cancel_permutes]) == {"cancel_permutes": 1}
    assert [n.target for n in module.graph.nodes if n.op == "call_function"] == [aten.relu.default]
    x = torch.randn(1, 8, 4, 4)
    assert torch.equal(module(x)[0], x.relu())


def forget_types(graph: fx.Graph) -> int:
    for node in graph.find_nodes(op="call_function", target=aten.relu.default):
        del node.meta[TENSOR]
    return 1


def test_runner_blames_by_name():
    with pytest.raises(FrontendError) as caught:
        run_passes(permutes(), [cancel_permutes, forget_types])
    assert str(caught.value) == (
        "pass forget_types failed (passes before it: cancel_permutes): "
        "relu: aten.relu.default has no tensor type"
    )


def test_types_are_checked_and_nothing_is_written_in_place():
    module = permutes()
    (relu,) = module.graph.find_nodes(op="call_function", target=aten.relu.default)
    relu.meta[TENSOR] = TensorType((1, 8, 4, 5))
    verify(module.graph)
    with pytest.raises(FrontendError, match=r"relu: aten.relu.default gives float32\[1x8x4x4\]"):
        verify(module.graph, types=True)
    relu.target = aten.relu_.default
    with pytest.raises(FrontendError, match=r"aten.relu_.default writes to its input"):
        verify(module.graph)


# ---- other floats than float32 -------------------------------------------------------------------


def prepared(model: nn.Module, inputs: tuple[Tensor, ...], scripted: bool = False) -> Program:
    """The program of a model that was traced or exported."""
    with quiet_torch():
        source = torch.jit.trace(model, inputs) if scripted else torch.export.export(model, inputs)
        return prepare(source, inputs, "widened")


def computed_dtypes(program: Program) -> set[str]:
    """Returns the types that calls compute in, but for those that change the type."""
    calls = [node for node in program.module.graph.nodes if node.op == "call_function"]
    return {type_of(node).dtype for node in calls if node.target is not aten._to_copy.default}


class Halves(nn.Module):
    """Layers in half precision between inputs and outputs of both kinds."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8, dtype=dtype), nn.Linear(8, 3, dtype=dtype)
        self.dtype = dtype

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.first(x.to(self.dtype) + y).relu()
        return self.second(hidden).softmax(1).float(), hidden


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scripted", [False, True])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype, scripted: bool) -> None:
    """Types of inputs and outputs stay; what differs is the model's own rounding."""
    model = seeded(lambda: Halves(dtype))
    inputs = numbers(2, 4), numbers(2, 4, seed=1).to(dtype)
    program = prepared(model, inputs, scripted)
    assert program.widened
    assert program.notes[0].startswith("11 values of the model are in half precision")
    assert computed_dtypes(program) == {"float32"}
    exact = Halves(torch.float32)
    exact.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
    with torch.no_grad():
        wide, hidden = exact(inputs[0], inputs[1].float())
        expected = wide, hidden.to(dtype)
        torch.testing.assert_close(program.module(*inputs), expected, rtol=1e-6, atol=1e-5)


class Doubles(nn.Module):
    """Scales by numbers in float64, then a layer in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.randn(4, dtype=torch.float64))
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scaled = (x.double() - self.mean) / self.mean.abs().sqrt()
        return self.layer(scaled.float()), scaled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scripted", [False, True])
def test_float64_is_computed_in_float32(dtype: torch.dtype, scripted: bool) -> None:
    model, x = seeded(Doubles), numbers(2, 4).to(dtype)
    program = prepared(model, (x,), scripted)
    assert program.widened and "are in float64" in program.notes[0]
    assert computed_dtypes(program) == {"float32"}
    torch.testing.assert_close(program.module(x), model(x), rtol=1e-5, atol=1e-5)


def test_float64_that_matters_stays() -> None:
    """Seconds since 1970 in float32 are off by minutes."""
    x = 1.7e9 + torch.arange(4, dtype=torch.float64)
    program = prepared(Function(lambda x: (x - x[:1]).float() * 2), (x,))
    assert not program.widened and program.notes[0].startswith("float64 stays")
    assert program.module(x)[0].tolist() == [0, 2, 4, 6]


def test_a_value_that_is_cast_to_float64_is_meant() -> None:
    program = prepared(Function(lambda x: x.double().softmax(1).float()), (numbers(2, 4),))
    assert not program.widened
