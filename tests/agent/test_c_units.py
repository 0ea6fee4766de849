"""C tests of what reads requests and bundles, and of what measures, on the agent's archives: ``make
sanitize`` runs all C tests under sanitizers, and these tell a mistake in seconds."""

import os
from pathlib import Path

import pytest

from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.toolchain import find_compiler
from tests.conftest import CACHE
from tests.processes import output_of

INCLUDES = ("include", "src", "library", "runtime", "runtime/graph", "tests")
NAMES = ("test_container", "test_library", "test_request", "test_timing")


@pytest.mark.parametrize("name", NAMES)
def test_part(name, built_host, tmp_path):
    folder, xnnpack = built_host.directory, os.environ["NNAPI_PROF_XNNPACK"]
    includes = [f"-I{SOURCE_DIR / name}" for name in INCLUDES]
    archives = [folder / "libnp_agent.a", folder / "libnp_runtime.a"]
    archives += (Path(xnnpack) / "lib").glob("*.a") if xnnpack else []
    emulator = [f"-L{folder}", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed", "-lneuralnetworks"]
    linked = ["-Wl,--start-group", *archives, "-Wl,--end-group", "-lm", "-ldl", "-pthread"]
    compiler, source = find_compiler(CACHE).path, SOURCE_DIR / "tests" / f"{name}.c"
    output_of([compiler, "-std=c11", *includes, source, "-o", tmp_path / name, *emulator, *linked])
    output_of([tmp_path / name], cwd=tmp_path)
