"""A program of an app's own, with the delegate linked into it."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec

import pytest

from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.toolchain import find_cxx_compiler, python_tool

pytest.importorskip("executorch", reason="the extra executorch is not installed")

PROJECT = """
cmake_minimum_required(VERSION 3.28)
project(runner LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(executorch REQUIRED)
add_subdirectory({sources} nnapi_prof)
add_executable(runner main.cpp)
target_link_libraries(runner PRIVATE nnapi_prof::executorch)
"""
MAIN = """
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/platform/runtime.h>

int main() {
  executorch::runtime::runtime_init();
  return executorch::runtime::get_backend_class("NnapiBackend") == nullptr;
}
"""


@pytest.mark.slow
def test_a_runner_has_the_back_end_by_linking_it(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(sources=SOURCE_DIR / "executorch"))
    (tmp_path / "main.cpp").write_text(MAIN)
    prefix = next(iter(find_spec("executorch").submodule_search_locations))
    cmake, ninja = python_tool("cmake", "CMAKE_BIN_DIR"), python_tool("ninja", "BIN_DIR")
    for command in (
        [
            *(cmake, "-S", str(tmp_path), "-B", str(tmp_path / "build"), "-G", "Ninja"),
            *(f"-DCMAKE_MAKE_PROGRAM={ninja}", f"-DCMAKE_PREFIX_PATH={prefix}"),
            *("-DNP_XNNPACK=", *find_cxx_compiler().configure_options),
        ],
        [cmake, "--build", str(tmp_path / "build"), "--target", "runner"],
        [str(tmp_path / "build" / "runner")],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
