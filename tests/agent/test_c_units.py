"""C tests of the agent's parts that need no more than a few files: ``make sanitize`` runs them all
under sanitizers, and these two tell a mistake in seconds."""

import subprocess

import pytest

from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.toolchain import find_compiler
from tests.conftest import CACHE

INCLUDES = ("include", "src", "library", "runtime", "runtime/graph", "tests")
CONTAINER = ("container", "crc32", "sha256", "sha256_native")
PARTS = {
    "test_timing": ("src/timing.c",),
    "test_container": (*(f"src/{name}.c" for name in CONTAINER), "runtime/graph/status.c"),
}


@pytest.mark.parametrize("name", PARTS)
def test_part(name, tmp_path):
    sources = [SOURCE_DIR / "tests" / f"{name}.c", *(SOURCE_DIR / file for file in PARTS[name])]
    includes = [f"-I{SOURCE_DIR / folder}" for folder in INCLUDES]
    program = tmp_path / name
    compiler = find_compiler(CACHE).path
    subprocess.run([compiler, "-std=c11", *includes, *sources, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
