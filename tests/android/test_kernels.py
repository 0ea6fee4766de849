"""The CPU engine's kernels on ARM compute what PyTorch computes, on old and new cores.

Which of XNNPACK's kernels run depends on what the core knows (half precision, dot products, matrix
products), so each agent runs on several that QEMU has.
"""

import json
import os
import subprocess

import pytest
import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import operand_code
from nnapi_prof.device.protocol.actions import (
    ActionSpec,
    SegmentSpec,
    TensorSource,
    TensorSpec,
    Timing,
)
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import Engine
from nnapi_prof.graph.program import all_values, to_memory
from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE
from tests.android.phone import AndroidPhone

CORES = {
    "arm64-v8a": ("cortex-a53", "neoverse-n1", "max"),
    "armeabi-v7a": ("cortex-a7", "max"),
    "x86_64": (None,),  # this host's
}
BYTES = (0, 255, torch.uint8)


class Float(nn.Module):
    """Channels that fill no vector, of each kind of layer. [1, 3, 19, 19] -> [1, 13]"""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 21, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(21, 21, 5, padding=2, groups=21)
        self.pointwise = nn.Conv2d(21, 21, 1)
        self.last = nn.Linear(21, 13)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.relu6(self.first(x))
        x = x + torch.sigmoid(self.pointwise(torch.relu(self.depthwise(x))))
        x = nn.functional.max_pool2d(nn.functional.avg_pool2d(x, 2), 2).mean((2, 3))
        return torch.softmax(self.last(x), 1)


class Quantised(nn.Module):
    """A convolution of bytes with a scale for each channel. [1, 3, 9, 9] -> [1, 21, 7, 7]"""

    def __init__(self) -> None:
        super().__init__()
        numbers = torch.Generator().manual_seed(0)
        weight = torch.randint(-127, 128, (21, 3, 3, 3), generator=numbers).to(torch.int8)
        self.register_buffer("weight", weight)
        self.register_buffer("scales", torch.rand(21, generator=numbers) * 0.004 + 0.001)
        self.register_buffer("zeros", torch.zeros(21, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = DEQUANTIZE(QUANTIZE(x, 0.03, 128, *BYTES), 0.03, 128, *BYTES)
        w = DEQUANTIZE_CHANNELS(self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8)
        y = QUANTIZE(nn.functional.conv2d(x, w), 0.05, 120, *BYTES)
        return DEQUANTIZE(y, 0.05, 120, *BYTES)


@pytest.mark.parametrize("network, size", [(Float, 19), (Quantised, 9)])
@pytest.mark.parametrize("abi, core", [(abi, core) for abi in CORES for core in CORES[abi]])
def test_cpu_engine(abi, core, network, size, android_phone, tmp_path):
    """With one thread and with two, and by XNNPACK where it can."""
    torch.manual_seed(5)
    x = torch.randn(1, 3, size, size)
    program = prepare(torch.export.export(network().eval(), (x,)), (x,), "network")
    units = [u.index for u in program.units.units]
    if network is Quantised:
        units = [next(u.index for u in program.units.units if "conv2d" in u.label)]
    region = convert_region(program, units, 29)
    values = all_values(program, (x,))

    request = RequestBuilder()
    blob = request.add_blob(to_memory(values[region.inputs[0]], region.input_types[0]))
    (read,), (written,) = region.input_types, region.output_types
    source = TensorSpec(operand_code(read), read.memory_shape, TensorSource.BLOB, blob)
    target = TensorSpec(operand_code(written), written.memory_shape, keep=True)
    segment = SegmentSpec(Engine.CPU, request.add_region(region), (0,), (1,))
    for threads in (1, 2):
        action = ActionSpec(threads, (source, target), (segment,), Timing.once(), threads=threads)
        request.add_action(action)
    for name, data in request.blobs.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "request").write_bytes(request.build())
    phone = android_phone(abi)
    done = subprocess.run(
        phone.command("run", "request", "--store", ".", "--work", "."),
        cwd=tmp_path,
        env={**os.environ, **({} if core is None else {"QEMU_CPU": core})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    results = [r for r in map(json.loads, done.stdout.splitlines()) if r["type"] == "result"]
    assert [r["status"] for r in results] == ["ok", "ok"]
    fast = "xnnpack" in engines(phone)
    expected = to_memory(values[region.outputs[0]], region.output_types[0])
    for result in results:
        kernels = result["segments"][0]["kernels"]
        assert (kernels["xnnpack"] > 0) == fast
        actual = (tmp_path / result["outputs"][0]["file"]).read_bytes()
        if network is Float:
            a, b = (
                torch.frombuffer(bytearray(raw), dtype=torch.float32) for raw in (actual, expected)
            )
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
        else:
            assert max(abs(a - b) for a, b in zip(actual, expected, strict=True)) <= 1


def engines(phone: AndroidPhone) -> list[str]:
    """What computes on the CPU of a phone."""
    done = subprocess.run(phone.command("info"), capture_output=True, check=True)
    names: list[str] = json.loads(done.stdout)["engines"]["cpu"]
    return names


def test_xnnpack_is_in(android_phone):
    """Unless it was left out on purpose: NNAPI_PROF_XNNPACK set and empty."""
    if os.environ.get("NNAPI_PROF_XNNPACK") == "":
        pytest.skip("NNAPI_PROF_XNNPACK is empty")
    for abi in CORES:
        assert engines(android_phone(abi)) == ["xnnpack", "portable"]
