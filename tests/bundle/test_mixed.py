"""Models in parts: NNAPI's and the CPU's in one module for stock PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch._higher_order_ops.while_loop import while_loop

from nnapi_prof.bundle.stock_module import mixed_module
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.eager import quantised_engine
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.bundle.stock import agree, from_parts, made, make, without_nnapi
from tests.convert.quantised_models import eager_net
from tests.convert.test_random_networks import LAYERS, network
from tests.models import Function


def around(between) -> Function:
    """Two convolutions and what stands between them. [1, 3, 12, 12] -> [1, 4, 10, 10]"""
    layers = {"first": nn.Conv2d(3, 8, 3, padding=1), "second": nn.Conv2d(8, 4, 3)}
    return Function(lambda x, first, second: second(between(torch.relu(first(x)))), **layers)


def sampled(x):
    grid = torch.stack([x[:, 0], x[:, 1]], -1) - 0.5
    return F.grid_sample(x, grid, "bicubic", align_corners=False)


KERNEL = torch.ones(1, 1, 3, 3, 3) / 9
BETWEEN = {
    "logcumsumexp": lambda x: torch.logcumsumexp(x, 1),
    "lgamma": lambda x: torch.lgamma(x + 1),
    "grid_sampler": sampled,
    "conv_transpose3d": lambda x: F.conv_transpose3d(x[None], KERNEL, padding=1)[0],
    "cummax": lambda x: torch.cummax(x, 2)[0] + torch.cummax(x, 3)[1],
    "median": lambda x: x - x.median(1, keepdim=True)[0],
    "dct": lambda x: torch.fft.hfft(x, 12),
    "float64": lambda x: torch.lgamma(x.double() + 1).float(),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_an_operation_in_the_middle(nnapi_library, name):
    torch.manual_seed(0)
    model, x = around(BETWEEN[name]), torch.randn(1, 3, 12, 12)
    result = make(model, (x,))
    assert result.kinds == ["nnapi", "cpu", "nnapi"]
    for _ in range(2):
        agree(result, model, x)
    kinds = {node.kind() for node in result.module.inlined_graph.nodes()}
    assert {kind.partition("::")[0] for kind in kinds} == {"aten", "prim"}  # nothing of ours


def branch(x):
    return torch.cond(x.mean() > 0.5, lambda v: (v * 2, v + 1), lambda v: (v - 1, -v), (x,))[0]


def loop(x):
    start = torch.tensor(0), x
    return while_loop(lambda i, v: i < v.amax().int() + 2, lambda i, v: (i + 1, v * 0.9), start)[1]


def runs(x):
    values, counts = torch.unique_consecutive((x > 0.3).int(), return_counts=True, dim=3)
    return x * counts.float().mean() + values.float().mean()


@pytest.mark.parametrize("control", [branch, loop, runs])
def test_control_on_data_of_an_exported_program(nnapi_library, control):
    torch.manual_seed(0)
    model, x = around(control), torch.randn(1, 3, 12, 12)
    with quiet_torch():
        program = torch.export.export(model, (x,))
    result = made(prepare(program, (x,), "model", keep=True))
    assert result.kinds == ["nnapi", "cpu", "nnapi"]
    for scale in (1.0, 5.0, 0.1):
        agree(result, model, x * scale)


def tied(ids, embedding, conv):
    """One table at the beginning, on the CPU, and at the end, on NNAPI; and one convolution twice,
    once on each."""
    x = torch.logcumsumexp(embedding(ids), 1)  # [1, 4, 64]
    image = F.leaky_relu(conv(x.permute(0, 2, 1)[:, :, :, None]), 0.1)
    image = torch.logcumsumexp(conv(image), 2)
    return F.linear(image[:, :, :, 0].permute(0, 2, 1), embedding.weight)


def test_weights_are_shared(nnapi_library):
    """Between parts, also where NNAPI wants them in another order."""
    torch.manual_seed(0)
    layers = {"embedding": nn.Embedding(300, 64), "conv": nn.Conv2d(64, 64, 3, padding=1)}
    model, ids = Function(tied, **layers), torch.randint(0, 300, (1, 4))
    program = prepare(model, (ids,), "tied")
    on_cpu = {u.index: "asked" for u in program.units.units if u.label.startswith("embedding")}
    convolutions = [u.index for u in program.units.units if u.label.startswith("conv2d")]
    on_cpu[convolutions[0]] = "asked"
    result = made(program, on_cpu=on_cpu)
    agree(result, model, ids)
    weights = 4 * (300 * 64 + 64 * 64 * 9)
    assert weights < result.size < weights + 40_000
    of_cpu = {
        tensor.untyped_storage().data_ptr()
        for name, tensor in result.module.named_buffers()
        if name.startswith("cpu_") and tensor.numel() > 1000
    }
    of_nnapi = {
        tensor.untyped_storage().data_ptr()
        for name, part in result.module.named_children()
        if name.startswith("nnapi_")
        for tensor in part.weights
    }
    assert len(of_cpu) == 2 and of_cpu <= of_nnapi


def test_constants_of_several_parts_stand_once():
    """Without any NNAPI part: a file of the size of the weights."""

    def twice(x, layer):
        return torch.logcumsumexp(x @ layer.weight, 0) @ layer.weight[:, :40]

    model, x = Function(twice, layer=nn.Linear(200, 200, bias=False)), torch.randn(3, 200)
    result = make(model, (x,))
    result = from_parts(result.program, without_nnapi(result.parts))
    assert len(result.kinds) > 1 and result.size < 4 * 240 * 200 + 30_000
    agree(result, model, x)


def typed(ids, mask, table):
    """Integers, bools and scalars cross the border, both ways."""
    x = torch.where(mask[..., None], table(ids), -1.0)
    top = x.argmax(-1)  # int64, from NNAPI
    late = torch.logcumsumexp(x, 1)
    worst = late.amin()
    seen = late > worst  # bool, from NNAPI
    tail = torch.logcumsumexp(seen.float() + worst, 1)
    return tail.sum(), top, seen, table(torch.cummax(top, 1)[1]) * worst


def test_element_types_at_the_border_and_integers_beyond_32_bits(nnapi_library):
    torch.manual_seed(0)
    inputs = torch.randint(0, 10, (2, 5)), torch.rand(2, 5) < 0.7
    model = Function(typed, table=nn.Embedding(10, 6))
    result = make(model, inputs)
    assert result.kinds.count("nnapi") >= 2
    assert result.stays() == {"logcumsumexp", "cummax"}  # bools go to NNAPI, too
    torch.testing.assert_close(result.module(*inputs), model(*inputs))
    result = make(nn.Sequential(nn.Embedding(10, 6), nn.ReLU()).eval(), (torch.tensor([3]),))
    with pytest.raises(torch.jit.Error, match="beyond 32 bits"):
        result.module(torch.tensor([2**32 + 3]))


@pytest.fixture(scope="module")
def quantised():
    """A quantised network, traced; its example."""
    with quiet_torch(), torch.no_grad(), quantised_engine("qnnpack"):
        model = eager_net("qnnpack")
        x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
        return torch.jit.trace(model, x), x, model(x), model.step


@pytest.mark.parametrize("remainder", range(4))
def test_quantised_values_at_the_border(nnapi_library, quantised, remainder):
    """Scale and zero point stay with the integers that cross, whichever units stay."""
    model, x, expected, step = quantised
    program = prepare(model, (x,), "quantised")
    n = len(program.units.units)
    actual = made(program, on_cpu={u: "asked" for u in range(n) if u % 4 == remainder})
    crossing = [value_type for region in actual.parts.regions for value_type in region.input_types]
    assert sum(value_type.quant is not None for value_type in crossing) > 2
    assert actual.kinds.count("cpu") > 2
    assert (actual.module(x) - expected).abs().max() <= 2.01 * step


def crossed(unread, x, y):
    """Outputs twice, as they came in, and constant, beside parts."""
    z = torch.logcumsumexp(torch.relu(x), 0)
    return z, (z.tanh(), y), x, torch.arange(3.0), z


def test_outputs_are_the_models(nnapi_library):
    inputs = torch.randn(2), torch.randn(3, 4), torch.randn(1)
    result = make(Function(crossed), inputs)
    agree(result, Function(crossed), *inputs)
    outputs, same = result.module(*inputs), (inputs[2], inputs[1], torch.arange(3.0))
    assert all(torch.equal(mine, its) for mine, its in zip(outputs[2:5], same, strict=True))
    assert torch.equal(outputs[5], outputs[0])


def test_small_parts_and_moves_alone_stay():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Softmin(1), nn.Conv2d(4, 4, 1), nn.Tanh()).eval()
    x = torch.randn(1, 3, 5, 5)
    program = prepare(model, (x,), "model")
    middle = {u.index: "asked" for u in program.units.units if u.label.startswith("softm")}
    assert made(program, on_cpu=middle).kinds.count("nnapi") == 2
    result = made(program, least=4, on_cpu=middle)
    assert result.kinds == ["cpu"]
    assert any("fewer than 4" in reason.reason for reason in result.parts.cpu_reasons.values())

    def moves(x):
        return torch.logcumsumexp(torch.logcumsumexp(x, 0).t().reshape(2, 6), 0)

    result = make(Function(moves), (torch.randn(3, 4),))
    assert result.kinds == ["cpu"]
    assert any("only move data" in reason.reason for reason in result.parts.cpu_reasons.values())


@pytest.mark.slow("traces, cuts and runs twenty random networks")
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    layers=st.lists(LAYERS, min_size=1, max_size=4),
    marks=st.lists(st.booleans(), min_size=12, max_size=12),
    seed=st.integers(0, 99),
)
def test_random_cuts(nnapi_library, layers, marks, seed):
    """Any units may stay on the CPU: the module computes what eager PyTorch does."""
    torch.manual_seed(seed)
    model, x = network(layers), torch.randn(2, 4, 11, 13)
    try:
        model(x)
    except RuntimeError:
        return  # the drawn layers left no pixel
    program = prepare(model, (x,), "network")
    n = len(program.units.units)
    actual = made(program, on_cpu={u: "drawn" for u in range(n) if marks[u % len(marks)]})
    order = [u for part in actual.parts.parts for u in part.units]
    assert sorted(order) == list(range(n))
    agree(actual, model, x)


def test_a_cpu_part_that_is_no_torchscript(monkeypatch):
    result = make(around(BETWEEN["logcumsumexp"]), (torch.randn(1, 3, 12, 12),))

    def failing(*args, **kwargs):
        raise RuntimeError("no such trace")

    monkeypatch.setattr(torch.jit, "trace", failing)
    with pytest.raises(Exception, match=r"\(logcumsumexp .*become TorchScript: no such trace"):
        mixed_module(result.program, result.parts, {})


def test_more_steps_than_a_byte_counts(nnapi_library):
    """Unrolled, the last operation joins what 300 steps give."""
    model, x = nn.RNN(2, 2), torch.randn(300, 1, 2)
    result = make(model, (x,))
    assert result.kinds == ["nnapi"]
    agree(result, model, x)
