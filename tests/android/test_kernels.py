"""The CPU engine's kernels on ARM compute what PyTorch computes, on old and new cores.

Which of XNNPACK's kernels run depends on what the core knows (half precision, dot products, matrix
products), so each agent runs on several that QEMU has.
"""

import json
import os
import subprocess

import numpy as np
import pytest
import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.program import all_values, to_memory
from tests.agent.regions import Channels, put_request, results_of
from tests.android.phone import AndroidPhone

CORES = {
    "arm64-v8a": ("cortex-a53", "neoverse-n1", "max"),
    "armeabi-v7a": ("cortex-a7", "max"),
    "x86_64": (None,),  # this host's
}


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


@pytest.mark.parametrize("network, size", [(Float, 19), (lambda: Channels(21), 9)])
@pytest.mark.parametrize("abi, core", [(abi, core) for abi in CORES for core in CORES[abi]])
def test_cpu_engine(abi, core, network, size, android_phone, tmp_path):
    """With one thread and with two, and by XNNPACK where it can."""
    torch.manual_seed(5)
    x, module = torch.randn(1, 3, size, size), network()
    program = prepare(torch.export.export(module.eval(), (x,)), (x,), "network")
    units = [u.index for u in program.units.units]
    if isinstance(module, Channels):
        units = [next(u.index for u in program.units.units if "conv2d" in u.label)]
    region = convert_region(program, units, 29)
    values = all_values(program, (x,))
    arguments = put_request(tmp_path, region, values[region.inputs[0]], threads=(1, 2))
    phone = android_phone(abi)
    done = subprocess.run(
        phone.command(*arguments),
        cwd=tmp_path,
        env={**os.environ, **({} if core is None else {"QEMU_CPU": core})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    results = results_of(done.stdout)
    assert len(results) == 2
    fast = "xnnpack" in engines(phone)
    expected = to_memory(values[region.outputs[0]], region.output_types[0])
    for result in results:
        kernels = result["segments"][0]["kernels"]
        assert (kernels["xnnpack"] > 0) == fast
        actual = (tmp_path / result["outputs"][0]["file"]).read_bytes()
        if isinstance(module, Float):
            numbers = [np.frombuffer(raw, np.float32) for raw in (actual, expected)]
            np.testing.assert_allclose(*numbers, rtol=1e-4, atol=1e-6)
        else:
            assert max(abs(a - b) for a, b in zip(actual, expected, strict=True)) <= 1


def engines(phone: AndroidPhone) -> list[str]:
    """What computes on the CPU of a phone."""
    done = subprocess.run(phone.command("info"), capture_output=True, check=True)
    return json.loads(done.stdout)["engines"]["cpu"]


def test_xnnpack_is_in(android_phone):
    """Unless it was left out on purpose: NNAPI_PROF_XNNPACK set and empty."""
    if os.environ.get("NNAPI_PROF_XNNPACK") == "":
        pytest.skip("NNAPI_PROF_XNNPACK is empty")
    for abi in CORES:
        assert engines(android_phone(abi)) == ["xnnpack", "portable"]
