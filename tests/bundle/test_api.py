"""``nnapi_prof.convert_model`` and what its modules carry; architectures in small."""

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import nnapi_prof
from nnapi_prof import convert_model
from nnapi_prof.bundle.torchscript import stock_module
from nnapi_prof.convert.deserialize import deserialize
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.bundle.stock import make
from tests.convert.architectures import ARCHITECTURES
from tests.models import Function

pytestmark = pytest.mark.usefixtures("nnapi_library")
quietly = pytest.mark.filterwarnings("ignore")  # of PyTorch's: tracing is deprecated


def last(image):
    image = image.contiguous(memory_format=torch.channels_last)
    image.nnapi_nhwc = True
    return image


def same(module, model, *inputs):
    with torch.no_grad():
        actual, expected = module(*inputs), model(*inputs)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    return actual


@pytest.fixture(scope="module")
def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()).eval()


@quietly
def test_a_module_a_trace_a_program_and_a_file(net, tmp_path):
    x = torch.randn(1, 3, 6, 8)
    traced = torch.jit.trace(net, x)
    traced.save(str(tmp_path / "net.pt"))
    for model in (net, traced, torch.export.export(net, (x,)), str(tmp_path / "net.pt")):
        same(nnapi_prof.convert_model(model, x), net, x)


@quietly
@pytest.mark.parametrize("form", ["traced", "module", "text"])
def test_sizes_of_0_are_open(net, form):
    example = "?x3x?x?" if form == "text" else torch.zeros(0, 3, 0, 0)
    model = net if form == "module" else torch.jit.trace(net, torch.randn(1, 3, 6, 8))
    module = nnapi_prof.convert_model(model, [example])
    for shape in ((2, 3, 6, 8), (3, 3, 9, 40)):
        same(module, net, torch.randn(shape))


@quietly
def test_a_small_size_is_right_where_the_example_was_large():
    module = nnapi_prof.convert_model(torch.jit.script(nn.Softmax(1)), torch.zeros(0, 0))
    same(module, nn.Softmax(1), torch.randn(2, 2))


@quietly
@pytest.mark.parametrize("shape", [(2, 3, 6, 8), (2, 3, 0, 0)], ids=["fixed", "open"])
def test_images_that_lie_channels_last_are_not_transposed(net, shape):
    x = last(torch.randn(2, 3, 6, 8))
    traced = torch.jit.trace(net, x)
    for example, n_operations, form in (
        (last(torch.zeros(shape)), 1, torch.channels_last),
        (torch.zeros(shape), 3, torch.contiguous_format),
    ):
        module = nnapi_prof.convert_model(traced, example, whole=True)
        # Before it runs, which drops them.
        serialized = module.mod.ser_model.numpy().tobytes()
        assert len(deserialize(serialized).operations) == n_operations
        assert same(module, net, x).is_contiguous(memory_format=form)


@quietly
def test_a_quantised_input_of_another_scale_is_quantised_anew():
    def quantised(x, scale):
        return torch.quantize_per_tensor(x, scale, 128, torch.quint8)

    model = torch.jit.trace(nn.MaxPool2d(2), quantised(torch.randn(1, 2, 4, 4), 0.05))
    module = nnapi_prof.convert_model(model, quantised(torch.zeros(1, 2, 0, 0), 0.05), whole=True)
    for scale, most in ((0.05, 0), (0.03, 0.026)):
        x = quantised(torch.randn(1, 2, 4, 6), scale)
        assert (module(x).dequantize() - model(x).dequantize()).abs().max() <= most


@pytest.mark.parametrize(
    ("model", "arguments", "said"),
    [
        (nn.ReLU(), {"level": 12}, "the level is 12: one of 27, "),
        (nn.ReLU(), {"preference": "best"}, "the preference is 'best': one of low_power, fast, su"),
        (nn.Identity(), {}, "model computes nothing"),
    ],
)
def test_wrong_arguments(net, model, arguments, said):
    with pytest.raises(NnapiProfError, match=said):
        nnapi_prof.convert_model(model, torch.ones(2, 3), **arguments)
    # The next one is not refused.
    same(nnapi_prof.convert_model(net, torch.ones(1, 3, 8, 8)), net, torch.ones(1, 3, 8, 8))


def converted(model, x):
    """All of a model as one region, and the module for stock PyTorch."""
    program = prepare(model.eval(), [x], "model")
    region = convert_region(program, range(len(program.units.units)), 30)
    return region, stock_module(program.units, region, {})


def test_a_constant_of_bools():
    """Their bytes are no multiple of four."""
    x, mask = torch.randn(11, 13), torch.arange(143).reshape(11, 13) % 3 == 0
    model = Function(lambda x: torch.where(mask, x, x * 2))
    region, module = converted(model, x)
    assert any(len(data) % 4 for data in region.buffers)
    torch.testing.assert_close(module(x), model(x))


def test_a_file_holds_no_room_for_outputs(tmp_path):
    x = torch.randn(1, 3, 256, 256)
    model = nn.Conv2d(3, 16, 1)
    file = tmp_path / "wide.nnapi.pt"
    with quiet_torch():
        torch.jit.save(converted(model, x)[1], file)
        loaded = torch.jit.load(file)
    assert file.stat().st_size < 100_000  # its output takes 4 MB
    torch.testing.assert_close(loaded(x), model(x), rtol=1e-5, atol=1e-5)


RECURRENT = {
    "lstm": nn.LSTM(6, 5),
    "lstm of two layers, both directions": nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True),
    "lstm with a projection, no bias": nn.LSTM(6, 5, proj_size=3, bias=False),
    "rnn of both directions": nn.RNN(6, 5, nonlinearity="relu", bidirectional=True),
}


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("level", [28, 30])
def test_recurrent_layers_that_leave_out_no_arguments(name, level):
    """NNAPI's operations have optional arguments, which PyTorch's runtime cannot leave out."""
    model, x = RECURRENT[name].eval(), torch.randn(4, 3, 6)
    with quiet_torch(), torch.no_grad():
        traced = torch.jit.trace(model, x)
        outputs, states = convert_model(traced, torch.randn(4, 3, 6), level=level, whole=True)(x)
        expected, last = model(x)
    torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(states, last, rtol=1e-5, atol=1e-5)


NOT_SCRIPTABLE = {"bert", "deeplab", "flow", "fpn", "t5", "two_towers"}
"""Those whose Python TorchScript's own compiler does not take."""

ON_CPU = {"ssd": {"gather"}}
"""What may stay on the CPU; nothing of the others does."""

OTHERWISE = pytest.mark.again("traced here; other architectures are scripted and exported")


def marks(number: int, kind: str) -> tuple[pytest.MarkDecorator, ...]:
    """Each architecture is traced; every third is scripted, and every third exported, too."""
    if kind == "traced":
        return ()
    return (pytest.mark.slow, *(() if number % 3 == (kind == "exported") else (OTHERWISE,)))


CASES = [
    pytest.param(name, kind, marks=marks(number, kind))
    for number, name in enumerate(ARCHITECTURES)
    for kind in ("traced", "scripted", "exported")
    if kind != "scripted" or name not in NOT_SCRIPTABLE
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_architecture(name, kind):
    torch.manual_seed(0)
    model, inputs = ARCHITECTURES[name]()
    model.eval()
    with quiet_torch(), torch.no_grad():
        returned = model(*inputs)
        match kind:
            case "traced":
                traced = torch.jit.trace(model, inputs, strict=False, check_trace=False)
            case "scripted":
                traced = torch.jit.script(model)
            case _:
                traced = torch.export.export(model, inputs)
    product = make(traced, inputs)
    assert product.stays() <= ON_CPU.get(name, set())
    if name not in ON_CPU:
        assert product.kinds == ["nnapi"]
    expected = [value for value in tree_leaves(returned) if isinstance(value, torch.Tensor)]
    with torch.no_grad():
        actual = tree_leaves(product.module(*inputs))
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected, strict=True):
        atol = 1e-5 * max(1.0, theirs.float().abs().max().item())
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=atol)
