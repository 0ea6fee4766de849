"""Builds the agent and the emulator from their C sources, into a cache keyed by what they are.

Where XNNPACK has been built (see :mod:`nnapi_prof.device.xnnpack`), both get the back end `fast`;
who measures this host's CPU has it built first.

``python -m nnapi_prof.device.build`` builds for this host and prints where the results are.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.device import xnnpack
from nnapi_prof.device.toolchain import (
    Compiler,
    Progress,
    cache_dir,
    find_compiler,
    locked,
    python_tool,
    run_tool,
)
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.errors import BuildError

SOURCES = (
    "CMakeLists.txt",
    "include/*.h",
    "runtime/*/*.[ch]",
    "emulator/*.[ch]",
    "emulator/*.map",
    "src/*.[ch]",
)


@dataclass(frozen=True, slots=True)
class HostBuild:
    """What was built for this host."""

    directory: Path
    agent: Path
    library: Path
    """The emulator: libneuralnetworks.so."""


def host_abi() -> str:
    """This machine's ABI in Android's words."""
    machine = platform.machine().lower()
    known = {"amd64": "x86_64", "aarch64": "arm64-v8a", "arm64": "arm64-v8a"}
    return known.get(machine, machine)


def agent_binary(abi: str, os_name: str, progress: Progress | None = None) -> Path:
    """The agent for a device with this ABI and operating system (``android`` or ``linux``).

    Raises BuildError where this host cannot build it.
    """
    if (abi, os_name) != (host_abi(), "linux"):
        raise BuildError(
            f"the device is {os_name} on {abi}; so far the agent can only be built for this host, "
            f"linux on {host_abi()}"
        )
    return build_host(progress=progress).agent


def build_host(
    cache: Path | None = None, progress: Progress | None = None, *, fast: bool = False
) -> HostBuild:
    """Agent and emulator for this host, built unless the cache has them.

    With ``fast`` XNNPACK is built first where it can be had, which takes minutes, once; otherwise
    it is used where it has been built already. ``cache`` replaces :func:`cache_dir`. Processes
    that need the same build at once build it once. Raises BuildError with the tail of the
    compiler's words, or where the cache cannot be written.
    """
    base = cache or cache_dir()
    try:
        prefix = xnnpack.first_use(base, progress) if fast else xnnpack.built_prefix(base)
        return _build_host(base, prefix, progress)
    except OSError as error:
        raise BuildError(
            f"the agent cannot be built in {base}: {error.strerror or error}: name a folder that "
            "is writable and has room in NNAPI_PROF_CACHE_DIR"
        ) from error


def _build_host(base: Path, prefix: Path | None, progress: Progress | None) -> HostBuild:
    compiler = find_compiler(base)
    directory = base / "agents" / _key(compiler, prefix)
    built = HostBuild(directory, directory / "agent", directory / "libneuralnetworks.so")
    if built.agent.exists() and built.library.exists():
        return built
    directory.parent.mkdir(parents=True, exist_ok=True)
    with locked(directory.with_suffix(".lock")):
        if built.agent.exists() and built.library.exists():
            return built  # another process built it while this one waited
        if progress is not None:
            hint = " (its first use takes a minute)" if compiler.path.name == "zig-cc" else ""
            progress(f"building the agent and the emulator with {compiler.path.name}{hint}")
        with tempfile.TemporaryDirectory(prefix="build-", dir=directory.parent) as work:
            _cmake_build(compiler, prefix, Path(work))
            directory.mkdir(exist_ok=True)
            for made in (built.library, built.agent):
                # A rename, so that nobody meets half a file.
                os.replace(Path(work) / made.name, made)
    return built


def _key(compiler: Compiler, prefix: Path | None) -> str:
    """Names a build: hash over the compiler, XNNPACK and every source file."""
    digest = hashlib.sha256(compiler.identity.encode())
    if prefix is not None:
        digest.update(f"\0{xnnpack.identity(prefix)}".encode())
    for path in _sources():
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(SOURCE_DIR)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _sources() -> list[Path]:
    return sorted(p for pattern in SOURCES for p in SOURCE_DIR.glob(pattern))


def _cmake_build(compiler: Compiler, prefix: Path | None, work: Path) -> None:
    cmake = python_tool("cmake", "CMAKE_BIN_DIR")
    ninja = python_tool("ninja", "BIN_DIR")
    run_tool(
        [
            cmake,
            *("-S", str(SOURCE_DIR), "-B", str(work), "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={ninja}",
            f"-DCMAKE_C_COMPILER={compiler.path}",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DNP_WERROR=OFF",
            f"-DNP_XNNPACK={prefix or ''}",
            *compiler.cmake_options,
        ],
        f"the agent could not be configured from {SOURCE_DIR}",
    )
    run_tool(
        [cmake, "--build", str(work), "--target", "agent", "neuralnetworks"],
        f"the agent could not be compiled from {SOURCE_DIR}",
    )


if __name__ == "__main__":
    made = build_host(progress=print, fast=True)
    print(made.agent)
    print(made.library)
