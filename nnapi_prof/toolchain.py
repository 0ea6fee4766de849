"""Compilers and build tools of this host, and the cache for builds.

cmake and ninja come from their Python packages. The C compiler for this host is the system's ``cc``
where one works, else ``zig cc`` from the ``ziglang`` package; $NNAPI_PROF_CC names another, ``zig``
forces zig. zig builds for an old glibc, so that its output runs on other Linux machines too.
Builds for another machine, or for Android, always use zig.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib
import logging
import os
import platform
import re
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.errors import BuildError
from nnapi_prof.progress import CountCallback, Notify

LOGGER = logging.getLogger(__name__)


ZIG_GLIBC = "2.28"
"""Debian 10's glibc, which has every libc function that agent and emulator use."""
SILENCE_TIMEOUT_S = 900.0
"""A build tool without output for so long counts as hung: one file takes less, even on a busy
machine. The whole build has no time limit."""
STOP_S = 10.0
"""Seconds that the processes of a stopped build get to remove half-written files."""
SAID_EVERY_S = 15.0
TAIL_LINES = 30

ANDROID_ABIS = ("arm64-v8a", "armeabi-v7a", "x86_64")

# CMake's name of the processor, and zig's of processor and C library.
_LINUX = {
    "arm64-v8a": ("aarch64", "aarch64-linux-gnu"),
    "armeabi-v7a": ("armv7-a", "arm-linux-gnueabihf"),
    "x86_64": ("x86_64", "x86_64-linux-gnu"),
}
# -march=armv8.2-a+fp16+dotprod -> -mcpu=generic+v8_2a+fullfp16+dotprod
_ZIG_FEATURES = (
    r"s/^-march=armv8\.\([0-9]\)-a/-mcpu=generic+v8_\1a/; s/+fp16\b/+fullfp16/; "
    r"s/+nofp16\b//"
)
_PROBE = '#include <pthread.h>\n#include <stdio.h>\nint main(void) { return puts("") < 0; }\n'


@dataclass(frozen=True, slots=True)
class Compiler:
    """A working C compiler: its executable, and further options for CMake."""

    path: Path
    identity: str
    """Part of the cache key, so that an update of the compiler causes a new build."""
    cxx: Path | None = None
    """Its C++ compiler, where that is not the same executable."""
    cmake_options: tuple[str, ...] = ()
    toolchain: Path | None = None
    """A CMake toolchain file for the executable."""

    @property
    def configure_options(self) -> tuple[str, ...]:
        """The options that choose this compiler on CMake's command line."""
        if self.toolchain is not None:
            return (f"-DCMAKE_TOOLCHAIN_FILE={self.toolchain}", *self.cmake_options)
        return (
            f"-DCMAKE_C_COMPILER={self.path}",
            f"-DCMAKE_CXX_COMPILER={self.cxx or self.path}",
            *self.cmake_options,
        )


def cache_dir() -> Path:
    """Returns the folder of built files: $NNAPI_PROF_CACHE_DIR, else nnapi-prof in $XDG_CACHE_HOME
    or ~/.cache."""
    if own := os.environ.get("NNAPI_PROF_CACHE_DIR"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base).absolute() / "nnapi-prof"


def host_abi() -> str:
    """Returns Android's name of this machine's ABI."""
    machine = platform.machine().lower()
    abis = {"amd64": "x86_64", "aarch64": "arm64-v8a", "arm64": "arm64-v8a"}
    return abis.get(machine, machine)


def find_compiler(cache: Path) -> Compiler:
    """Returns the C compiler to use for this host. Raises BuildError where none works."""
    request = os.environ.get("NNAPI_PROF_CC", "")
    if request and request != "zig":
        path = shutil.which(request)
        if path is None or not _works(path):
            raise BuildError(
                f"NNAPI_PROF_CC is {request!r}, which is not a working C compiler",
                "name another, or unset it (`nnapi-prof doctor` tells what is wrong)",
            )
        return _system_compiler(path)
    if not request:
        path = shutil.which("cc")
        if path is not None and _works(path):
            return _system_compiler(path)
    return _zig(cache)


def find_clang(cache: Path) -> Compiler:
    """Returns a compiler for XNNPACK, which is written for clang and has files in C++: clang or
    zig, or the one in $NNAPI_PROF_CC. Raises BuildError where none works."""
    if os.environ.get("NNAPI_PROF_CC"):
        return find_compiler(cache)
    path = shutil.which("clang")
    if path is not None and _works(path) and _has_cxx_headers(path):
        return _system_compiler(path)
    return _zig(cache)


def find_cxx_compiler() -> Compiler:
    """Returns a system compiler for C and C++ that uses the same C++ library as Python's wheels, so
    that a library loaded beside a wheel shares its types. Raises BuildError where there is none."""
    for c_name, cxx_name in (("gcc", "g++"), ("clang", "clang++")):
        c_path, cxx_path = shutil.which(c_name), shutil.which(cxx_name)
        if c_path and cxx_path and _works(c_path) and _has_cxx_headers(cxx_path):
            return replace(_system_compiler(c_path), cxx=Path(cxx_path))
    raise BuildError(
        "there is no C++ compiler: install g++ (Debian: g++), which builds what is loaded beside a"
        " Python wheel"
    )


def cross_compiler(abi: str, os_name: str, cache: Path) -> Compiler:
    """Returns the compiler for another machine, or for Android. Raises BuildError."""
    if not (
        (os_name == "android" and abi in ANDROID_ABIS) or (os_name == "linux" and abi in _LINUX)
    ):
        raise BuildError(
            f"the device is {os_name} on {abi}",
            f"agents exist for android and linux on {', '.join(ANDROID_ABIS)}; choose such a "
            "device",
        )
    try:
        zig, version = find_zig()
    except BuildError as error:
        raise BuildError(
            f"an agent for {os_name} on {abi} is built with the Python package ziglang, which is "
            "not installed",
            "`pip install ziglang`",
        ) from error
    if os_name == "android":
        return Compiler(
            zig,
            f"zig {version} android {abi}",
            cmake_options=(f"-DNP_ZIG={zig}", f"-DNP_ANDROID_ABI={abi}"),
            toolchain=SOURCE_DIR / "android" / "zig.cmake",
        )
    processor, target = _LINUX[abi]
    compiler = _zig_scripts(zig, version, f"{target}.{ZIG_GLIBC}", cache)
    foreign = ("-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={processor}")
    return replace(compiler, cmake_options=(*foreign, *compiler.cmake_options))


def _system_compiler(path: str) -> Compiler:
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return Compiler(Path(path), f"{path} {version.stdout.partition(chr(10))[0]}")


@functools.cache
def _works(path: str) -> bool:
    """Returns whether a compiler can build an executable: some machines' ``cc`` lacks libc's
    headers."""
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as work:
        source = Path(work) / "probe.c"
        source.write_text(_PROBE)
        command = [path, str(source), "-o", f"{work}/probe", "-lm", "-ldl", "-lpthread"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@functools.cache
def _has_cxx_headers(path: str) -> bool:
    """Returns whether a C compiler compiles C++, whose headers are a separate package."""
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as work:
        source = Path(work) / "probe.cc"
        source.write_text("#include <algorithm>\n#include <cmath>\n")
        command = [path, "-c", str(source), "-o", f"{work}/probe.o"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def find_zig() -> tuple[Path, str]:
    """Returns zig's executable and version. Raises BuildError where the package is missing."""
    try:
        package = importlib.import_module("ziglang")
    except ImportError as error:
        raise BuildError(
            "there is no C compiler: install one (Debian: gcc and libc6-dev) or the Python "
            "package ziglang"
        ) from error
    zig = Path(str(package.__file__)).parent / "zig"
    version = subprocess.run([zig, "version"], capture_output=True, text=True, check=False)
    return zig, version.stdout.strip()


def _zig(cache: Path) -> Compiler:
    target = f"{platform.machine()}-linux-gnu.{ZIG_GLIBC}"
    return _zig_scripts(*find_zig(), target, cache)


def _zig_scripts(zig: Path, version: str, target: str, cache: Path) -> Compiler:
    """Returns zig's C compiler, as scripts for ``zig cc`` and the like: CMake needs executables."""
    # translates XNNPACK's spelling of an ARM processor's features to that of `zig cc`
    features = (
        'for a; do shift; case "$a" in -march=armv8.?-a*) '
        f"a=$(echo \"$a\" | sed '{_ZIG_FEATURES}');; esac; "
        'set -- "$@" "$a"; done; '
    )
    tools = {
        "zig-cc": f'{features}exec "{zig}" cc -target {target} "$@"',
        "zig-c++": f'{features}exec "{zig}" c++ -target {target} "$@"',
        "zig-ar": f'exec "{zig}" ar "$@"',
        "zig-ranlib": f'exec "{zig}" ranlib "$@"',
    }
    folder = cache / "zig" / hashlib.sha256(str(tools).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    for name, line in tools.items():
        _write_script(folder / name, f"#!/bin/sh\n{line}\n")
    return Compiler(
        folder / "zig-cc",
        f"zig {version} {target}",
        folder / "zig-c++",
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


def python_tool(package: str, folder_name: str) -> str:
    """Returns the path of the executable in a Python package, else of the system's."""
    try:
        folder = getattr(importlib.import_module(package), folder_name)
    except (ImportError, AttributeError):
        path = shutil.which(package, path=str(Path(sys.executable).parent)) or shutil.which(package)
        if path is None:
            raise BuildError(
                f"{package} is missing", f"install the Python package {package}"
            ) from None
        return path
    return str(Path(folder) / package)


_steps: ContextVar[CountCallback | None] = ContextVar("steps", default=None)
_STEP = re.compile(r"\[(\d+)/(\d+)\] ")


@contextmanager
def build_steps(heard: CountCallback) -> Iterator[None]:
    """Calls ``heard`` at each step of the builds that this thread waits for during a block."""
    token = _steps.set(heard)
    try:
        yield
    finally:
        _steps.reset(token)


@contextmanager
def build_steps_said(say: Notify) -> Iterator[None]:
    """Calls ``say`` with the progress of a build now and then during a block."""
    due = time.monotonic() + SAID_EVERY_S

    def heard(done: int, of: int) -> None:
        nonlocal due
        if done < of and time.monotonic() >= due:
            due = time.monotonic() + SAID_EVERY_S
            say(f"{done:,} of {of:,} files are compiled")

    with build_steps(heard):
        yield


def run_tool(command: Sequence[str], failed: str) -> None:
    """Runs a build tool; an interrupt stops it with all processes that it started.

    Raises BuildError with ``failed`` and the end of the tool's output, or where it hangs.
    """
    # CFLAGS and the like are for the user's own projects; the cache key does not contain them.
    env = {k: v for k, v in os.environ.items() if k not in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")}
    heard = _steps.get()
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    LOGGER.debug("runs %s", shlex.join(command))
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=env,
        process_group=0,  # cmake starts ninja, ninja compilers: they are stopped together
    ) as process:
        assert process.stdout is not None
        try:
            for line in _lines(process.stdout.fileno()):
                tail.append(line)
                if heard is not None and (step := _STEP.match(line)):
                    heard(int(step[1]), int(step[2]))
        except TimeoutError:
            _stop(process)
            raise BuildError(
                f"{failed}: it said nothing for {SILENCE_TIMEOUT_S:g} s; try again, on a machine"
                " that is less busy"
            ) from None
        except BaseException:
            _stop(process)
            raise
    if process.returncode != 0:
        raise BuildError("\n".join([f"{failed}:", *tail]))


def _lines(source: int) -> Iterator[str]:
    """Yields the lines of a pipe. Raises TimeoutError after SILENCE_TIMEOUT_S without output."""
    rest = b""
    while chunk := _read_pipe(source, SILENCE_TIMEOUT_S):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
    if rest:
        yield rest.decode(errors="replace")


def _read_pipe(source: int, timeout_s: float) -> bytes:
    if not select.select([source], [], [], timeout_s)[0]:
        raise TimeoutError
    return os.read(source, 1 << 16)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a tool and the processes it started, first by SIGTERM: ninja then removes half-written
    files."""
    assert process.stdout is not None
    deadline = time.monotonic() + STOP_S
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            while _read_pipe(process.stdout.fileno(), max(0.0, deadline - time.monotonic())):
                pass  # drops their last output
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock that other processes respect; it ends with the process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
