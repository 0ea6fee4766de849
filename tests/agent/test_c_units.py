"""C tests on the archives of the agent: ``make sanitize`` runs all of them under sanitizers, and
these, of what Python tests do not look at, tell a mistake in seconds."""

import os
from pathlib import Path

import pytest

from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.toolchain import find_compiler
from tests.conftest import CACHE, PHONES
from tests.processes import output_of

INCLUDES = ("include", "src", "library", "runtime", "runtime/graph", "tests")
NAMES = (
    *("test_container", "test_control", "test_emulator", "test_emulator_api", "test_library"),
    *("test_queue", "test_request", "test_sysfs", "test_timing"),
)


@pytest.mark.parametrize("name", NAMES)
def test_part(name, built_host, tmp_path):
    folder, xnnpack = built_host.directory, os.environ["NNAPI_PROF_XNNPACK"]
    options = ["-std=c11", "-O1", "-DN_MUTATED=3000", f'-DNP_PHONES="{PHONES}"']
    options += [f"-I{SOURCE_DIR / name}" for name in INCLUDES]
    archives = [folder / "libnp_agent.a", folder / "libnp_runtime.a"]
    archives += (Path(xnnpack) / "lib").glob("*.a") if xnnpack else []
    emulator = [f"-L{folder}", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed", "-lneuralnetworks"]
    linked = ["-Wl,--start-group", *archives, "-Wl,--end-group", "-lm", "-ldl", "-pthread"]
    compiler, source = find_compiler(CACHE).path, SOURCE_DIR / "tests" / f"{name}.c"
    output_of([compiler, *options, source, "-o", tmp_path / name, *emulator, *linked])
    output_of([tmp_path / name], cwd=tmp_path)
