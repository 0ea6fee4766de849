"""The agents for Android as they are, without a device: QEMU, and musl in bionic's place."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.program import all_values, to_memory
from tests.agent.regions import Channels, put_request, results_of
from tests.android.phone import MACHINES, AndroidPhone
from tests.conftest import REPO

# They race with the clock, and QEMU is slow.
NOT_UNDER_QEMU = (
    "test_slow_actions_meet_the_watchdog",
    "test_rounds_are_repeated_when_the_device_has_cooled_down",
)


def say(phone: AndroidPhone, *arguments: str, **where: Any) -> str:
    command, options = phone.command(*arguments), {"capture_output": True, "text": True}
    done = subprocess.run(command, timeout=60, check=False, **options, **where)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("abi", MACHINES)
def test_starts(abi, android_phone):
    """By the phone's dynamic linker, with the phone's libc; its NNAPI is found by name."""
    phone = android_phone(abi)
    assert say(phone, "version").startswith("nnapi-prof agent ")
    info = json.loads(say(phone, "info"))
    assert info["abi"] == abi
    assert info["cpus"] == os.cpu_count()
    assert info["memory_kb"] > 100_000
    assert info["nnapi"]["error"] is None
    assert info["nnapi"]["library"].endswith("/libneuralnetworks.so")
    assert [a["name"] for a in info["nnapi"]["accelerators"]] == ["nnapi-reference"]


def run_the_agents_tests(
    phone: AndroidPhone, folder: Path, left_out: Iterable[str] = (), files: Iterable[str] = ("",)
) -> None:
    """Those of tests/agent, or of these files there, with a phone's agent; ``folder`` is new.

    ``left_out`` has expressions of pytest's ``-k`` for more than what no QEMU does.
    """
    phone.build_folder(folder)
    chosen = " and ".join(f"not ({name})" for name in (*NOT_UNDER_QEMU, *left_out))
    command = [sys.executable, "-m", "pytest", "-q", "--durations=5", "-rP"]
    command += ["-p", "no:cacheprovider", "-k", chosen]
    build = {"NNAPI_PROF_TEST_BUILD": str(folder), "NNAPI_PROF_TEST_CC": str(folder / "cc")}
    done = subprocess.run(
        [*command, *(f"tests/agent/{name}" for name in files)],
        cwd=REPO,
        env=os.environ | build,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    lines = done.stdout.splitlines()
    errors = [line for line in lines if "roundings off" in line]  # of float16 on ARM
    print("\n".join(lines if done.returncode else [*errors, *lines[-8:]]))
    assert done.returncode == 0


def test_the_agents_own_tests(android_phone, tmp_path):
    """All of tests/agent with the agent for arm64-v8a."""
    run_the_agents_tests(android_phone("arm64-v8a"), tmp_path)


# ---- kernels on old and new cores ----------------------------------------------------------------
# Which of XNNPACK's kernels run depends on what the core knows (half precision, dot products,
# matrix products), so each agent runs on several that QEMU has.

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
    """It computes what PyTorch does: with one thread and with two, by XNNPACK where it can."""
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
    environment = os.environ | ({} if core is None else {"QEMU_CPU": core})
    results = results_of(say(phone, *arguments, cwd=tmp_path, env=environment))
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
    return json.loads(say(phone, "info"))["engines"]["cpu"]


def test_xnnpack_is_in(android_phone):
    """Unless it was left out on purpose: NNAPI_PROF_XNNPACK set and empty."""
    if os.environ.get("NNAPI_PROF_XNNPACK") == "":
        pytest.skip("NNAPI_PROF_XNNPACK is empty")
    for abi in CORES:
        assert engines(android_phone(abi)) == ["xnnpack", "portable"]
