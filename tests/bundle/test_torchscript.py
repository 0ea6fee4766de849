"""The stock-PyTorch module: what its runtime must carry beside float32 weights."""

import pytest
import torch
from torch import nn

from nnapi_prof import convert_model
from nnapi_prof.bundle.torchscript import stock_module
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.models import Function


def converted(model, x):
    """All of a model as one region, and the module for stock PyTorch."""
    program = prepare(model.eval(), [x], "model")
    region = convert_region(program, range(len(program.units.units)), 30)
    return region, stock_module(program.units, region, {})


def test_a_constant_of_bools(nnapi_library):
    """Their bytes are no multiple of four."""
    x, mask = torch.randn(11, 13), torch.arange(143).reshape(11, 13) % 3 == 0
    model = Function(lambda x: torch.where(mask, x, x * 2))
    region, module = converted(model, x)
    assert any(len(data) % 4 for data in region.buffers)
    torch.testing.assert_close(module(x), model(x))


def test_a_file_holds_no_room_for_outputs(nnapi_library, tmp_path):
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
def test_recurrent_layers_that_leave_out_no_arguments(nnapi_library, name, level):
    """NNAPI's operations have optional arguments, which PyTorch's runtime cannot leave out."""
    model, x = RECURRENT[name].eval(), torch.randn(4, 3, 6)
    with quiet_torch(), torch.no_grad():
        traced = torch.jit.trace(model, x)
        outputs, states = convert_model(traced, torch.randn(4, 3, 6), level=level, whole=True)(x)
        expected, last = model(x)
    torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(states, last, rtol=1e-5, atol=1e-5)
