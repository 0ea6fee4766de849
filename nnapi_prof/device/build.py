"""Build the agent and the emulator from their C sources, into a cache keyed by sources and tools.

Where XNNPACK has been built (see :mod:`nnapi_prof.device.xnnpack`), both get the back end `fast`;
it is built first to measure this host's CPU, or to build for another device.

A wheel contains the agents of all devices, one for each; they are used if they were built from
exactly these sources:

    agents/sources            the key of the sources that they were built from
    agents/android-ABI/agent
    agents/linux-ABI/agent

A source tree or an sdist has none of them: there they are built when a device first needs one.

``python -m nnapi_prof.device.build`` builds for this host and prints the paths of the results; with
``--abi ABI`` the agent for an Android of that ABI, with ``--os linux`` for a Linux. ``--shipped``
builds those of a wheel into this folder, for `make wheel`; ``--clean`` removes them again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.device import xnnpack
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.errors import BuildError
from nnapi_prof.progress import Notify
from nnapi_prof.toolchain import (
    ANDROID_ABIS,
    Compiler,
    build_steps_said,
    cache_dir,
    cross_compiler,
    find_compiler,
    host_abi,
    locked,
    python_tool,
    run_tool,
)

SOURCES = (
    "CMakeLists.txt",
    "include/*.h",
    "runtime/*/*.[ch]",
    "runtime/kernels/host_only/*.[ch]",
    "emulator/*.[ch]",
    "emulator/*.map",
    "emulator/doors/*",
    "src/*.[ch]",
    "library/*.[ch]",
    "library/CMakeLists.txt",
)
CMAKE_SOURCES = ("library/*.map", "library/java/*.[cm]*")
"""Sources that every build reads, but that are not part of an agent."""
HOST_LIBRARIES = ("libneuralnetworks.so", "libnnapi_support.so", "libneuron_adapter.so")
# Files that are kept of a build: an Android agent can be checked part by part, and the runtime
# library for Java is linked with an agent's archives.
ARCHIVES = ("libnp_agent.a", "libnp_runtime.a")
_PARTS = {"android": ("agent", *ARCHIVES, "android/libnp_android_shims.a")}
ANDROID_SOURCES = ("android/CMakeLists.txt", "android/*.c", "android/*.cmake", "android/*.txt")


AGENTS_DIR = Path(__file__).resolve().parent / "agents"
"""Folder of a wheel's agents."""
SHIPPED = (
    *(("android", abi) for abi in ANDROID_ABIS),
    ("linux", "x86_64"),
    ("linux", "arm64-v8a"),
)


@dataclass(frozen=True, slots=True)
class HostBuild:
    """The files that were built for this host."""

    directory: Path
    agent: Path
    library: Path
    """The emulator: libneuralnetworks.so."""
    support_library: Path
    """The emulator with the entry points of an NNAPI support library."""
    neuron_adapter: Path
    """The emulator with NeuronAdapter's entry points."""


def agent_binary(abi: str, os_name: str, progress: Notify | None = None) -> Path:
    """Returns the agent for a device with this ABI and operating system (``android`` or ``linux``).

    It is built unless a wheel or the cache has it. Raises BuildError where that fails.
    """
    if (abi, os_name) == (host_abi(), "linux"):
        return build_host(progress=progress).agent
    return shipped_agent(abi, os_name, sources_key()) or build_agent(
        abi, os_name, progress=progress
    )


def shipped_agent(abi: str, os_name: str, key: str, folder: Path = AGENTS_DIR) -> Path | None:
    """Returns the shipped agent for a device, if one was built from the sources ``key``."""
    agent = folder / f"{os_name}-{abi}" / "agent"
    sources = folder / "sources"
    if not agent.is_file() or not sources.is_file():
        return None
    return agent if sources.read_text().strip() == key else None


def build_agent(
    abi: str, os_name: str, cache: Path | None = None, progress: Notify | None = None
) -> Path:
    """Returns the agent for another device than this host, built unless the cache has it.

    The first time takes minutes: XNNPACK is built for the device, too. Raises as
    :func:`build_host`.
    """
    base = cache or cache_dir()
    try:
        compiler = cross_compiler(abi, os_name, base)
        device = f"{os_name}-{abi}"
        prefix = None
        if _has_fast(abi, os_name):
            prefix = _pinned_prefix(
                base, device, lambda: xnnpack.for_device(base, compiler, device, progress)
            )
        directory = base / "agents" / f"{device}-{_key(compiler, prefix)}"
        _built(directory, _PARTS.get(os_name, ("agent",)), device, compiler, prefix, progress)
        return directory / "agent"
    except OSError as error:
        raise _cannot_write(base, error) from error


def find_agent(abi: str, os_name: str, cache: Path | None = None) -> Path | None:
    """Returns the agent that :func:`agent_binary` would take without a build; None where it would
    build.

    Raises BuildError where no agent can be built for the device.
    """
    base = cache or cache_dir()
    if (abi, os_name) == (host_abi(), "linux"):
        agent = base / "agents" / _key(find_compiler(base), host_prefix(base)) / "agent"
        return agent if agent.is_file() else None
    if (brought := shipped_agent(abi, os_name, sources_key())) is not None:
        return brought
    compiler = cross_compiler(abi, os_name, base)
    device = f"{os_name}-{abi}"
    prefix = None
    if _has_fast(abi, os_name):
        fast = xnnpack.state(base, compiler, device)
        if fast == xnnpack.State():
            return None  # XNNPACK would be built first
        prefix = fast.prefix
    agent = base / "agents" / f"{device}-{_key(compiler, prefix)}" / "agent"
    return agent if agent.is_file() else None


def _has_fast(abi: str, os_name: str) -> bool:
    """Returns whether XNNPACK is built for such a device: zig spells the flags of one
    differently."""
    return (abi, os_name) != ("armeabi-v7a", "linux")


def build_host(
    cache: Path | None = None, progress: Notify | None = None, *, fast: bool = False
) -> HostBuild:
    """Returns agent and emulator for this host, built unless the cache has them.

    With ``fast`` XNNPACK is built first where possible, which takes minutes, once; otherwise it is
    used where it was built when this process first asked. ``cache`` replaces :func:`cache_dir`.
    Processes that need the same build at once build it once. Raises BuildError with the end of the
    compiler's output, or where the cache cannot be written.
    """
    base = cache or cache_dir()
    try:
        return _build_host(base, host_prefix(base, progress, fast=fast), progress)
    except OSError as error:
        raise _cannot_write(base, error) from error


_PINNED: dict[tuple[Path, str | None, str], Path | None] = {}
"""The XNNPACK that this process builds with: by cache, $NNAPI_PROF_XNNPACK and device."""


def _pinned_prefix(
    base: Path, device: str, find: Callable[[], Path | None], *, again: bool = False
) -> Path | None:
    """Return the XNNPACK that this process uses for a device, looked up once.

    Another process may finish a build of XNNPACK at any time. An agent with other kernels must not
    replace the one that a running profile measures with. With ``again`` a prefix that was missing
    is looked up once more.
    """
    key = (base.absolute(), os.environ.get("NNAPI_PROF_XNNPACK"), device)
    if key not in _PINNED or (again and _PINNED[key] is None):
        _PINNED[key] = find()
    return _PINNED[key]


def host_prefix(
    cache: Path | None = None, progress: Notify | None = None, *, fast: bool = False
) -> Path | None:
    """Return the XNNPACK that this process builds for this host with; None without any.

    With ``fast`` it is built where possible. A build by another process meanwhile counts from the
    next process on. Raises BuildError where $NNAPI_PROF_XNNPACK names a folder without it.
    """
    base = cache or cache_dir()

    def find() -> Path | None:
        return xnnpack.first_use(base, progress) if fast else xnnpack.built_prefix(base)

    return _pinned_prefix(base, "", find, again=fast)


def _cannot_write(base: Path, error: OSError) -> BuildError:
    return BuildError(
        f"the agent cannot be built in {base}: {error.strerror or error}",
        "name a folder that is writable and has room in NNAPI_PROF_CACHE_DIR",
    )


def _build_host(base: Path, prefix: Path | None, progress: Notify | None) -> HostBuild:
    compiler = find_compiler(base)
    directory = base / "agents" / _key(compiler, prefix)
    names = ("agent", *HOST_LIBRARIES)
    built = HostBuild(directory, *(directory / name for name in names))
    _built(directory, (*names, *ARCHIVES), "", compiler, prefix, progress)
    return built


def _built(
    directory: Path,
    files: tuple[str, ...],
    device: str,
    compiler: Compiler,
    prefix: Path | None,
    progress: Notify | None,
) -> None:
    """Builds files into a folder of the cache, once."""
    files_by_path = {directory / Path(name).name: name for name in files}
    if all(path.exists() for path in files_by_path):
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with locked(directory.with_name(directory.name + ".lock")):
        if all(path.exists() for path in files_by_path):
            return  # another process built it while this one waited
        if progress is not None:
            hint = " (its first use takes a minute)" if compiler.path.name == "zig-cc" else ""
            what = f"the agent for {device}" if device else "the agent and the emulator"
            what += "" if prefix is None else " with XNNPACK,"
            progress(f"building {what} with {compiler.path.name}{hint}")
        with tempfile.TemporaryDirectory(prefix="build-", dir=directory.parent) as work:
            emulators = () if device else ("neuralnetworks", "nnapi_support", "neuron_adapter")
            targets = ("agent", *emulators)
            options = ("-DCMAKE_EXE_LINKER_FLAGS=-s",) if device else ()
            cmake_build(compiler, prefix, Path(work), targets, options)
            if device.startswith("android-"):
                clear_pie_mark(Path(work) / "agent")
            directory.mkdir(exist_ok=True)
            # Renamed, so that nobody sees half a file; the agent, which callers look for, last.
            for path, name in reversed(files_by_path.items()):
                (Path(work) / name).replace(path)


def sources_key() -> str:
    """Returns a hash of the sources of agents for other devices, whatever the compiler."""
    digest = hashlib.sha256(xnnpack.recipe_hash().encode())
    _add_sources(digest, (*SOURCES, *ANDROID_SOURCES))
    return digest.hexdigest()[:16]


def _key(compiler: Compiler, prefix: Path | None) -> str:
    patterns = SOURCES if compiler.toolchain is None else (*SOURCES, *ANDROID_SOURCES)
    return build_key(compiler, prefix, patterns)


def build_key(compiler: Compiler, prefix: Path | None, patterns: tuple[str, ...]) -> str:
    """Returns the key of a build: a hash over compiler, XNNPACK and all files of ``patterns``."""
    digest = hashlib.sha256(compiler.identity.encode())
    if prefix is not None:
        digest.update(f"\0{xnnpack.identity(prefix)}".encode())
    _add_sources(digest, patterns)
    return digest.hexdigest()[:16]


def all_sources() -> list[Path]:
    """Lists every file that a build for some device reads."""
    recipe = [xnnpack.RECIPE_DIR / name for name in (*xnnpack.RECIPE, "fetch.py")]
    return _matching((*SOURCES, *ANDROID_SOURCES, *CMAKE_SOURCES)) + recipe


def _matching(patterns: tuple[str, ...]) -> list[Path]:
    return sorted(p for pattern in patterns for p in SOURCE_DIR.glob(pattern))


def _add_sources(digest: hashlib._Hash, patterns: tuple[str, ...]) -> None:
    for path in _matching(patterns):
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(SOURCE_DIR)}\0{len(content)}\0".encode() + content)


def cmake_build(
    compiler: Compiler,
    prefix: Path | None,
    work: Path,
    targets: Sequence[str],
    options: Sequence[str] = (),
) -> None:
    """Builds targets of our CMake project in a folder, with the XNNPACK of a prefix where there is
    one. Raises BuildError with the end of the tools' output."""
    cmake = python_tool("cmake", "CMAKE_BIN_DIR")
    ninja = python_tool("ninja", "BIN_DIR")
    run_tool(
        [
            cmake,
            *("-S", str(SOURCE_DIR), "-B", str(work), "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={ninja}",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DNP_WERROR=OFF",
            f"-DNP_XNNPACK={prefix or ''}",
            *options,
            *compiler.configure_options,
        ],
        f"the {targets[0]} could not be configured from {SOURCE_DIR}",
    )
    run_tool(
        [cmake, "--build", str(work), "--target", *targets],
        f"the {targets[0]} could not be compiled from {SOURCE_DIR}",
    )


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m nnapi_prof.device.build")
    parser.add_argument("--abi", help="arm64-v8a, armeabi-v7a or x86_64; default: this host's")
    parser.add_argument("--os", default="android", choices=("android", "linux"))
    parser.add_argument("--shipped", action="store_true", help="build the agents of a wheel")
    parser.add_argument("--clean", action="store_true", help="remove the agents of a wheel")
    options = parser.parse_args()

    def progress(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        with build_steps_said(progress):
            if options.clean:
                shutil.rmtree(AGENTS_DIR, ignore_errors=True)
            elif options.shipped:
                _build_shipped(progress)
            elif options.abi:
                print(build_agent(options.abi, options.os, progress=progress))
            else:
                build = build_host(progress=progress, fast=True)
                print(build.agent, build.library, sep="\n")
    except (BuildError, OSError) as error:
        print(f"python -m nnapi_prof.device.build: {error}", file=sys.stderr)
        return 1
    return 0


def _build_shipped(progress: Notify) -> None:
    """Builds the agents of a wheel, and prints their paths."""
    for os_name, abi in SHIPPED:
        target = AGENTS_DIR / f"{os_name}-{abi}" / "agent"
        built = build_agent(abi, os_name, progress=progress)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(built, target)
        print(target)
    (AGENTS_DIR / "sources").write_text(sources_key() + "\n")


_PT_DYNAMIC = 2
_DT_NULL = 0
_DT_FLAGS_1 = 0x6FFFFFFB
DF_1_PIE = 0x08000000


def clear_pie_mark(path: Path) -> bool:
    """Removes DF_1_PIE from an executable's DT_FLAGS_1; returns True where it was set.

    The flag means nothing to Android: an executable is position-independent by its type. But the
    dynamic linker before Android 10 does not know it, and says so on standard error at each start,
    before the executable's own output. lld always sets the flag, and no option prevents it. Raises
    ValueError for what is not a little-endian ELF file with a dynamic section.
    """
    data = bytearray(path.read_bytes())
    if data[:4] != b"\x7fELF" or data[5] != 1:
        raise ValueError(f"{path} is not a little-endian ELF file")
    wide = data[4] == 2
    # File header: program headers' offset, size and number. Program header: kind and offset in the
    # file. Entry of the dynamic section: tag and value.
    (headers,) = struct.unpack_from("<Q" if wide else "<I", data, 32 if wide else 28)
    header_bytes, n_headers = struct.unpack_from("<HH", data, 54 if wide else 42)
    entry = struct.Struct("<QQ" if wide else "<II")
    for at in range(headers, headers + header_bytes * n_headers, header_bytes):
        if struct.unpack_from("<I", data, at)[0] != _PT_DYNAMIC:
            continue
        (place,) = struct.unpack_from("<Q" if wide else "<I", data, at + (8 if wide else 4))
        while True:
            tag, value = entry.unpack_from(data, place)
            if tag == _DT_NULL:
                return False
            if tag == _DT_FLAGS_1 and value & DF_1_PIE:
                entry.pack_into(data, place, tag, value & ~DF_1_PIE)
                path.write_bytes(data)
                return True
            place += entry.size
    raise ValueError(f"{path} has no dynamic section")


if __name__ == "__main__":
    sys.exit(_main())
