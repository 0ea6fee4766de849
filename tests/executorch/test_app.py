"""A program of an app's own, with the delegate linked into it."""

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from elftools.elf.elffile import ELFFile

import nnapi_prof
from nnapi_prof.device.build import build_host
from nnapi_prof.device.find import phone_file
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.toolchain import cross_compiler, find_cxx_compiler, python_tool

pytest.importorskip("executorch", reason="no executorch: pip install -e '.[executorch]'")

LOADS = 1000
PROJECT = """
cmake_minimum_required(VERSION 3.28)
project(runner LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(executorch REQUIRED)
add_subdirectory({sources} nnapi_prof)
add_executable(runner {runner})
target_link_libraries(runner PRIVATE nnapi_prof::executorch)
"""
SANITIZED = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"


def build(sources: Path, folder: Path, target: str, *options: str) -> None:
    prefix = next(iter(find_spec("executorch").submodule_search_locations))
    cmake, ninja = python_tool("cmake", "CMAKE_BIN_DIR"), python_tool("ninja", "BIN_DIR")
    tools = (f"-DCMAKE_MAKE_PROGRAM={ninja}", f"-DCMAKE_PREFIX_PATH={prefix}", "-DNP_XNNPACK=")
    for command in (
        [cmake, "-S", sources, "-B", folder, "-G", "Ninja", *tools, *options],
        [cmake, "--build", folder, "--target", target],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.again("a soak: compiles a runner in C++ and loads a program in it often")
def test_a_runner_loads_a_program_often_and_leaves_nothing(picture_plan, picture_model, tmp_path):
    """Under the address sanitizer, which finds what is not freed, too."""
    from nnapi_prof.executorch import lower

    pte = lower(picture_plan, whole=True, priority="high").save(tmp_path / "pictures.pte")
    runner = Path(__file__).with_name("runner.cpp")
    text = PROJECT.format(sources=SOURCE_DIR / "executorch", runner=runner)
    (tmp_path / "CMakeLists.txt").write_text(text)
    flags = (f"-DCMAKE_{language}_FLAGS={SANITIZED}" for language in ("C", "CXX"))
    compiler = find_cxx_compiler().configure_options
    build(tmp_path, tmp_path / "build", "runner", "-DCMAKE_BUILD_TYPE=", *flags, *compiler)
    cache = tmp_path / "cache"
    cache.mkdir()
    done = subprocess.run(
        [tmp_path / "build/runner", pte, build_host().library, cache, str(LOADS)],
        env={**os.environ, "NNAPI_EMULATOR_PHONE": str(phone_file("gpu-phone"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert "fell back" not in done.stderr and "runs on the CPU" not in done.stderr
    expected = nnapi_prof.load(picture_model).eager(torch.ones(1, 3, 16, 16))[0].sum().item()
    sums = [float(line) for line in done.stdout.split()]
    assert sums == pytest.approx([expected] * (LOADS // 10), rel=1e-4)
    assert len(list(cache.iterdir())) == 2  # a driver's compilation of each convolution


def test_the_delegate_shares_no_library_with_executorch():
    """Of another version of cpuinfo it would ask for instructions and get none."""
    from nnapi_prof.executorch.host import build_delegate

    with build_delegate().open("rb") as stream:
        symbols = list(ELFFile(stream).get_section_by_name(".dynsym").iter_symbols())
    missing = {each.name for each in symbols if each["st_shndx"] == "SHN_UNDEF"}
    given = {each.name for each in symbols if each["st_shndx"] != "SHN_UNDEF"}
    assert not [name for name in missing if name.startswith(("xnn_", "pthreadpool_", "cpuinfo_"))]
    assert {name for name in given if not name.startswith("_")} == {
        "nnapi_prof_executorch_configure",
        "nnapi_prof_executorch_describe",
        "nnapi_prof_executorch_units",
    }


@pytest.mark.again("another processor")
def test_the_delegate_compiles_for_android(tmp_path):
    compiler = cross_compiler("arm64-v8a", "android", tmp_path)
    build(
        *(SOURCE_DIR / "executorch", tmp_path, "nnapi_prof_executorch"),
        *("-DNP_EXECUTORCH_SHARED=OFF", *compiler.configure_options),
    )
    objects = sorted(tmp_path.rglob("nnapi_prof_executorch.dir/*.o"))
    assert [file.name for file in objects] == ["backend.cpp.o", "describe.cpp.o", "layout.cpp.o"]
    for file in objects:
        with file.open("rb") as stream:
            assert ELFFile(stream)["e_machine"] == "EM_AARCH64"
