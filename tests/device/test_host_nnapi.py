"""Regions in this process, on the host's NNAPI library."""

import gc

import pytest
import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import to_float16
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.errors import DeviceError
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.program import all_values
from tests.agent.regions import Channels
from tests.models import Function


@pytest.fixture(scope="module")
def nnapi(emulator_library):
    return HostNnapi(emulator_library)


def net() -> nn.Module:
    """Images in and out, which lie channels last, weights beyond 128 bytes."""
    torch.manual_seed(0)

    def forward(x, conv, last):
        y = torch.relu(conv(x))
        return y, last(y.flatten(1))

    layers = dict(conv=nn.Conv2d(3, 8, 3, padding=1), last=nn.Linear(8 * 6 * 6, 5))
    return Function(forward, **layers)


def test_a_region_gives_what_eager_pytorch_gives(nnapi):
    model = net()
    program = prepare(model, (torch.randn(1, 3, 6, 6),), "net")
    region = convert_region(program, range(len(program.units.units)), 30)
    compiled = nnapi.compile(region)
    for _ in range(3):
        x = torch.randn(1, 3, 6, 6)
        outputs = dict(zip(region.outputs, compiled.run([x]), strict=True))
        with torch.no_grad():
            expected = model(x)
        for name, theirs in zip(program.units.outputs, expected, strict=True):
            torch.testing.assert_close(outputs[name], theirs, rtol=1e-4, atol=1e-5)


def test_constants_live_as_long_as_the_compiled_region(nnapi):
    program = prepare(net(), (torch.randn(1, 3, 6, 6),), "net")
    compiled = nnapi.compile(to_float16(convert_region(program, [0], 30)))
    x = torch.randn(1, 3, 6, 6)
    (first,) = compiled.run([x])
    gc.collect()
    torch.randn(1 << 16)  # would take the place of what was freed
    (second,) = compiled.run([x])
    assert torch.equal(first, second)
    expected = all_values(program, [x])[compiled.region.outputs[0]]
    assert 0 < (first - expected).abs().max() < 1e-2


def test_integers_with_a_scale_for_each_channel(nnapi):
    x = torch.randn(1, 3, 6, 6)
    exported = torch.export.export(Channels(8, signed=True), (x,))
    program = prepare(exported, (x,), "integers")
    region = convert_region(program, range(len(program.units.units)), 30)
    assert any(operand.channels for operand in region.model.operands)
    (mine,) = nnapi.compile(region).run([x])
    assert (mine - program.module(x)[0]).abs().max() <= 0.0501  # a tie may go the other way


def test_what_nnapi_refuses_is_an_error_with_its_code(nnapi, emulator_library):
    with pytest.raises(DeviceError, match="Model_finish returned UNEXPECTED_NULL"):
        nnapi.call("Model_finish", None)
    with pytest.raises(DeviceError, match=r"no accelerator npu: there are .*nnapi-reference"):
        HostNnapi(emulator_library, "npu")


def test_a_library_that_is_none(tmp_path):
    path = tmp_path / "libneuralnetworks.so"
    path.write_text("no library")
    with pytest.raises(DeviceError, match="cannot be loaded"):
        HostNnapi(path)
