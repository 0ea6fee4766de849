"""Builds the agent and the emulator from their C sources, into a cache keyed by what they are.

cmake and ninja come from their Python packages. The compiler is the system's ``cc`` where one
works, else ``zig cc`` from the ``ziglang`` package; $NNAPI_PROF_CC names another, ``zig`` forces
zig. zig builds for an old glibc, so that what it makes runs on other Linux machines too.

``python -m nnapi_prof.device.build`` builds for this host and prints where the results are.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.errors import BuildError

Progress = Callable[[str], None]

ZIG_GLIBC = "2.28"
"""Debian 10's: has every libc function that agent and emulator use."""
BUILD_TIMEOUT_S = 1800.0
TAIL_LINES = 30
SOURCES = (
    "CMakeLists.txt",
    "include/*.h",
    "runtime/*/*.[ch]",
    "emulator/*.[ch]",
    "emulator/*.map",
    "src/*.[ch]",
)

_PROBE = '#include <pthread.h>\n#include <stdio.h>\nint main(void) { return puts("") < 0; }\n'


@dataclass(frozen=True, slots=True)
class HostBuild:
    """What was built for this host."""

    directory: Path
    agent: Path
    library: Path
    """The emulator: libneuralnetworks.so."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A working C compiler: one executable, and what CMake must be told besides."""

    path: Path
    identity: str
    """Part of the cache key: a compiler's update builds anew."""
    cmake_options: tuple[str, ...] = ()


def cache_dir() -> Path:
    """Where built things live: $NNAPI_PROF_CACHE_DIR, else nnapi-prof in $XDG_CACHE_HOME or
    ~/.cache."""
    if own := os.environ.get("NNAPI_PROF_CACHE_DIR"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base).absolute() / "nnapi-prof"


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


def build_host(cache: Path | None = None, progress: Progress | None = None) -> HostBuild:
    """Agent and emulator for this host, built unless the cache has them.

    ``cache`` replaces :func:`cache_dir`. Processes that need the same build at once build it once.
    Raises BuildError with the tail of the compiler's words, or where the cache cannot be written.
    """
    base = cache or cache_dir()
    try:
        return _build_host(base, progress)
    except OSError as error:
        raise BuildError(
            f"the agent cannot be built in {base}: {error.strerror or error}: name a folder that "
            "is writable and has room in NNAPI_PROF_CACHE_DIR"
        ) from error


def _build_host(base: Path, progress: Progress | None) -> HostBuild:
    compiler = find_compiler(base)
    directory = base / "agents" / _key(compiler)
    built = HostBuild(directory, directory / "agent", directory / "libneuralnetworks.so")
    if built.agent.exists() and built.library.exists():
        return built
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _locked(directory.with_suffix(".lock")):
        if built.agent.exists() and built.library.exists():
            return built  # another process built it while this one waited
        if progress is not None:
            hint = " (its first use takes a minute)" if compiler.path.name == "zig-cc" else ""
            progress(f"building the agent and the emulator with {compiler.path.name}{hint}")
        with tempfile.TemporaryDirectory(prefix="build-", dir=directory.parent) as work:
            _cmake_build(compiler, Path(work))
            directory.mkdir(exist_ok=True)
            for made in (built.library, built.agent):
                # A rename, so that nobody meets half a file.
                os.replace(Path(work) / made.name, made)
    return built


def find_compiler(cache: Path) -> Compiler:
    """The C compiler to use. Raises BuildError where none works."""
    wanted = os.environ.get("NNAPI_PROF_CC", "")
    if wanted and wanted != "zig":
        found = shutil.which(wanted)
        if found is None or not _works(found):
            raise BuildError(f"NNAPI_PROF_CC is {wanted!r}, which is no working C compiler")
        return _system_compiler(found)
    if not wanted:
        found = shutil.which("cc")
        if found is not None and _works(found):
            return _system_compiler(found)
    return _zig(cache)


def _system_compiler(path: str) -> Compiler:
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return Compiler(Path(path), f"{path} {version.stdout.partition(chr(10))[0]}")


@functools.cache
def _works(path: str) -> bool:
    """Whether a compiler makes an executable: on some machines ``cc`` lacks libc's headers."""
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as work:
        source = Path(work) / "probe.c"
        source.write_text(_PROBE)
        command = [path, str(source), "-o", f"{work}/probe", "-lm", "-ldl", "-lpthread"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _zig(cache: Path) -> Compiler:
    """zig's C compiler: CMake wants one executable, so scripts stand for ``zig cc`` and friends."""
    try:
        package = importlib.import_module("ziglang")
    except ImportError as error:
        raise BuildError(
            "there is no C compiler: install one (Debian: gcc and libc6-dev) or the Python "
            "package ziglang"
        ) from error
    zig = Path(str(package.__file__)).parent / "zig"
    version = subprocess.run([zig, "version"], capture_output=True, text=True, check=False)
    target = f"{platform.machine()}-linux-gnu.{ZIG_GLIBC}"
    tools = {
        "zig-cc": f'exec "{zig}" cc -target {target} "$@"',
        "zig-ar": f'exec "{zig}" ar "$@"',
        "zig-ranlib": f'exec "{zig}" ranlib "$@"',
    }
    folder = cache / "zig" / hashlib.sha256(str(tools).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    for name, line in tools.items():
        _write_script(folder / name, f"#!/bin/sh\n{line}\n")
    return Compiler(
        folder / "zig-cc",
        f"zig {version.stdout.strip()} {target}",
        (
            f"-DCMAKE_AR={folder / 'zig-ar'}",
            f"-DCMAKE_RANLIB={folder / 'zig-ranlib'}",
        ),
    )


def _write_script(path: Path, text: str) -> None:
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    draft.rename(path)


def _key(compiler: Compiler) -> str:
    """Names a build: hash over the compiler and every source file."""
    digest = hashlib.sha256(compiler.identity.encode())
    for path in _sources():
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(SOURCE_DIR)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _sources() -> list[Path]:
    return sorted(p for pattern in SOURCES for p in SOURCE_DIR.glob(pattern))


def _cmake_build(compiler: Compiler, work: Path) -> None:
    cmake = _python_tool("cmake", "CMAKE_BIN_DIR")
    ninja = _python_tool("ninja", "BIN_DIR")
    _run(
        [
            cmake,
            *("-S", str(SOURCE_DIR), "-B", str(work), "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={ninja}",
            f"-DCMAKE_C_COMPILER={compiler.path}",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DNP_WERROR=OFF",
            *compiler.cmake_options,
        ],
        "configured",
    )
    _run([cmake, "--build", str(work), "--target", "agent", "neuralnetworks"], "compiled")


def _python_tool(package: str, folder_name: str) -> str:
    """An executable that a Python package brings along, else the system's."""
    try:
        folder = getattr(importlib.import_module(package), folder_name)
    except (ImportError, AttributeError):
        found = shutil.which(package, path=str(Path(sys.executable).parent)) or shutil.which(
            package
        )
        if found is None:
            raise BuildError(
                f"{package} is missing: install the Python package {package}"
            ) from None
        return found
    return str(Path(folder) / package)


def _run(command: Sequence[str], done: str) -> None:
    # CFLAGS and the like are for the user's own projects; the cache key knows nothing of them.
    env = {k: v for k, v in os.environ.items() if k not in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")}
    try:
        result = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=BUILD_TIMEOUT_S,
            env=env,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"the agent could not be {done} within {BUILD_TIMEOUT_S:g} s") from error
    if result.returncode != 0:
        tail = "\n".join(result.stdout.splitlines()[-TAIL_LINES:])
        raise BuildError(f"the agent could not be {done} from {SOURCE_DIR}:\n{tail}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock that other processes respect; it ends with the process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    made = build_host(progress=print)
    print(made.agent)
    print(made.library)
