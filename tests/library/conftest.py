"""Builds the runtime library and the example that embeds it, as a user would: with CMake.

$NNAPI_PROF_TEST_LIBRARY names a folder to build in; without it that is in the repository's build
cache, where the next run finds it.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import AUTO, CPU, Preference, Target
from nnapi_prof.toolchain import find_compiler, locked, python_tool
from tests.conftest import CACHE, REPO
from tests.library.embedding import Built, Runtime, Sample, make_bundle, plan_of

REFERENCE = Target.nnapi("nnapi-reference", Preference.FAST_SINGLE_ANSWER)
CHOICE = Target.nnapi(AUTO, Preference.SUSTAINED_SPEED)
ELSEWHERE = Target.nnapi("some-other-npu", Preference.LOW_POWER)


def _cmake(source: Path, build: Path, options: Sequence[str], targets: Sequence[str]) -> None:
    cmake, ninja = python_tool("cmake", "CMAKE_BIN_DIR"), python_tool("ninja", "BIN_DIR")
    configure = [
        cmake,
        *("-S", str(source), "-B", str(build), "-GNinja", f"-DCMAKE_MAKE_PROGRAM={ninja}"),
        f"-DCMAKE_C_COMPILER={find_compiler(CACHE).path}",
        # With other optimisation than the agent, whose kernels the other tests run: half the time.
        *("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1"),
        *options,
    ]
    for command in (configure, [cmake, "--build", str(build), "--target", *targets]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def built():
    """With XNNPACK's kernels, where the agent has them."""
    root = Path(os.environ.get("NNAPI_PROF_TEST_LIBRARY") or CACHE / "library-tests")
    root.mkdir(parents=True, exist_ok=True)
    with locked(root / "lock"):
        return _built(root)


@pytest.fixture(scope="session")
def opened(built, emulator_library):
    """Opens a bundle, or the bytes of its file."""
    return lambda content: Runtime(built.shared, content, emulator_library)


def _built(root: Path) -> Built:
    example = REPO / "examples" / "embed"
    targets = ["classify", "nnapi_prof_runtime", "nnapi_prof_runtime_static"]
    xnnpack = f"-DNP_XNNPACK={os.environ['NNAPI_PROF_XNNPACK']}"
    _cmake(example, root / "shared", [xnnpack], targets)
    built = root / "shared" / "nnapi_prof"
    prefix = root / "prefix"
    install = ["--install", built, "--component", "runtime", "--prefix", prefix]
    cmake = python_tool("cmake", "CMAKE_BIN_DIR")
    subprocess.run([cmake, *install], check=True, stdout=subprocess.DEVNULL)
    installed = ["-DEMBED_INSTALLED=ON", f"-DCMAKE_PREFIX_PATH={prefix}"]
    _cmake(example, root / "installed", installed, ["classify"])
    _cmake(example, root / "static", [*installed, "-DEMBED_STATIC=ON"], ["classify"])
    return Built(
        shared=built / "library" / "libnnapi_prof_runtime.so",
        prefix=prefix,
        classify=root / "shared" / "classify",
        classify_static=root / "static" / "classify",
        classify_installed=root / "installed" / "classify",
    )


@pytest.fixture(scope="session")
def sample():
    """Four plans: three segments that change between NNAPI and CPU, NNAPI's own choice for all, the
    CPU for all, and an accelerator that no test machine has."""
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU6(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, groups=8),
        nn.Sigmoid(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
        nn.Softmax(dim=1),
    ).eval()
    image = torch.randn(1, 3, 12, 10)
    program = prepare(model, (image,), "small")
    units = range(len(program.units.units))
    third = len(units) // 3

    plans = (
        plan_of(
            "mixed",
            (units[:third], REFERENCE),
            (units[third : 2 * third], CPU),
            (units[2 * third :], CHOICE),
        ),
        plan_of("auto", (units, CHOICE)),
        plan_of("cpu", (units, CPU)),
        plan_of("elsewhere", (units, ELSEWHERE)),
    )
    with torch.inference_mode():
        expected = model(image)
    return Sample(make_bundle(program, plans), program, image, expected)
