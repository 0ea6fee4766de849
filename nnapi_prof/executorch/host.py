"""Build the delegate for this host against the wheel of ExecuTorch, and load it into this process.

ExecuTorch's C++ interface changes with each version: the delegate works with :data:`VERSION` only.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.metadata
import os
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec
from pathlib import Path

from nnapi_prof.device.build import CMAKE_SOURCES, SOURCES, build_host, build_key, host_prefix
from nnapi_prof.device.find import LOCAL, SIMULATED, has_system_nnapi, phone_file
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.errors import BuildError, UsageError
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.progress import Notify
from nnapi_prof.toolchain import cache_dir, find_cxx_compiler, locked, python_tool, run_tool

VERSION = "1.5.1"
"""Version of ExecuTorch in the extra of pyproject.toml."""
TORCH = "2.13"
"""Version of PyTorch that ExecuTorch's wheel is linked with."""
INSTALL = "pip install 'nnapi-prof[executorch]'"


def require() -> None:
    """Raises UsageError where ExecuTorch is missing, or it or PyTorch are of another version."""
    try:
        installed = importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        raise UsageError(f"ExecuTorch is not installed: {INSTALL}") from None
    if installed.partition("+")[0] != VERSION:
        raise UsageError(
            f"executorch {installed} is installed, and {VERSION} is what the delegate is built"
            f" for: {INSTALL}"
        )
    torch = importlib.metadata.version("torch")
    if not torch.startswith(f"{TORCH}."):
        raise UsageError(
            f"torch {torch} is installed, and executorch {VERSION} is built for {TORCH}: {INSTALL}"
        )


LIBRARY = "libnnapi_prof_executorch.so"
DELEGATE_SOURCES = ("executorch/CMakeLists.txt", "executorch/*.cpp", "executorch/*.h")
_loaded: dict[str, ctypes.CDLL] = {}
"""Libraries by device: at most one, as a process cannot change its NNAPI after the first use."""


def build_delegate(
    cache: Path | None = None, progress: Notify | None = None, *, fast: bool = True
) -> Path:
    """Returns the delegate's library for this host, built unless the cache has it. That takes
    seconds; with ``fast``, XNNPACK is built first for its CPU engine, which takes minutes once.

    Raises UsageError without this version of ExecuTorch, BuildError without a C++ compiler or with
    the compiler's error.
    """
    require()
    base = cache or cache_dir()
    compiler = find_cxx_compiler()
    prefix = host_prefix(base, progress, fast=fast)
    patterns = (*SOURCES, *CMAKE_SOURCES, *DELEGATE_SOURCES)
    key = hashlib.sha256(f"{VERSION} {build_key(compiler, prefix, patterns)}".encode())
    folder = base / "executorch" / key.hexdigest()[:16]
    library = folder / LIBRARY
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f"{folder.name}.lock")):
            if library.exists():
                return library
            if progress is not None:
                progress(f"building ExecuTorch's delegate with {compiler.path.name}")
            with tempfile.TemporaryDirectory(prefix="build-", dir=folder.parent) as work:
                _build(Path(work), compiler.configure_options, prefix)
                folder.mkdir(exist_ok=True)
                (Path(work) / LIBRARY).replace(library)
    except OSError as error:
        raise BuildError(
            f"ExecuTorch's delegate cannot be built in {base}: {error.strerror or error}",
            "name a folder that is writable and has room in NNAPI_PROF_CACHE_DIR",
        ) from error
    return library


def _build(work: Path, options: tuple[str, ...], prefix: Path | None) -> None:
    cmake, ninja = python_tool("cmake", "CMAKE_BIN_DIR"), python_tool("ninja", "BIN_DIR")
    spec = find_spec("executorch")
    assert spec is not None and spec.submodule_search_locations is not None
    configure = [
        *(cmake, "-S", str(SOURCE_DIR / "executorch"), "-B", str(work), "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={ninja}",
        f"-DCMAKE_PREFIX_PATH={next(iter(spec.submodule_search_locations))}",
        "-DNP_WERROR=OFF",
        f"-DNP_XNNPACK={prefix or ''}",
        *options,
    ]
    run_tool(configure, "ExecuTorch's delegate could not be configured")
    target = ("--target", "nnapi_prof_executorch_host")
    run_tool([cmake, "--build", str(work), *target], "ExecuTorch's delegate could not be compiled")


@dataclass(frozen=True, slots=True)
class Caution:
    """Protection of a process against faults of its NNAPI."""

    fallback: bool = True
    """Runs a segment on the CPU where NNAPI lacks its accelerator, refuses it, fails or is too
    slow, and logs that in ExecuTorch's log; otherwise loading or running fails."""
    trial: bool = False
    """Compiles and runs each segment once in the agent first, a process that may crash. With a
    cache folder this happens only once."""
    compile_limit_ms: float = 0
    """Time limit in ms for compiling a segment; 0: no limit."""
    run_limit_ms: float = 0
    """Time limit in ms for a run of a segment; 0: no limit."""


USUAL = Caution()


def build(device: str, progress: Notify | None = None) -> tuple[Path | None, Path]:
    """Builds the libraries that :func:`load` loads, unless they exist: the one in place of NNAPI,
    None where the host has its own, and the delegate's. Raises UsageError, BuildError."""
    if device != LOCAL and not device.startswith(SIMULATED):
        raise UsageError(
            f"the delegate runs on this host, and {device} is not one of its devices",
            "use"
            f" {LOCAL} or {SIMULATED}NAME; on a phone, an app's runner has it (docs/executorch.md)",
        )
    fast = device == LOCAL
    nnapi: Path | None = None
    if not (fast and has_system_nnapi()):
        nnapi = build_host(progress=progress, fast=fast).library
    return nnapi, build_delegate(progress=progress, fast=fast)


class _Unit(ctypes.Structure):
    """``nnp_unit`` of nnapi_prof_runtime.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("segment", ctypes.c_uint32),
        ("engine", ctypes.c_char_p),
        ("accelerator", ctypes.c_char_p),
        ("share", ctypes.c_double),
        ("fell_back", ctypes.c_int32),
        ("cause", ctypes.c_int),
        ("why", ctypes.c_char_p),
    )


@dataclass(frozen=True, slots=True)
class DelegatedUnit:
    """A unit of a delegated call, and what runs it."""

    name: str
    segment: int
    """Number of its segment, counted across the calls."""
    engine: str
    """``nnapi`` or ``cpu``"""
    accelerator: str | None
    share: float | None
    """Share of its call's predicted latency, from 0 to 1; None where the file does not say."""
    why: str
    """Reason that it fell back to the CPU; empty where it did not."""


def describe_units() -> tuple[DelegatedUnit, ...]:
    """Return the units in delegated calls of the program loaded last, as of its last run. Empty
    before any program is loaded."""
    units: list[DelegatedUnit] = []
    for library in _loaded.values():
        function = library.nnapi_prof_executorch_units
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_uint32), ctypes.c_uint32
        rows = (_Unit * function(None, 0))()
        function(rows, len(rows))
        units += [
            DelegatedUnit(
                *(row.name.decode(), row.segment, row.engine.decode()),
                *(
                    row.accelerator and row.accelerator.decode(),
                    row.share if row.share >= 0 else None,
                ),
                row.why.decode(),
            )
            for row in rows
        ]
    return tuple(units)


def describe() -> str:
    """Return a line for each delegated call of the last loaded program, as of its last run: the
    segments on each device, their shares of the predicted latency, and what fell back and why.
    Empty before any."""
    for library in _loaded.values():
        function = library.nnapi_prof_executorch_describe
        function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_size_t
        line = ctypes.create_string_buffer(function(None, 0) + 1)
        function(line, len(line))
        return line.value.decode()
    return ""


def import_runtime() -> None:
    """Loads ExecuTorch's runtime and its kernels into this process.

    ``executorch.runtime`` needs one class of ``executorch.exir``, the package that lowers models,
    whose imports take four seconds. A module of that package that is not executed stands in for it.
    """
    package = "executorch.exir"
    spec = None if package in sys.modules else find_spec(package)
    if spec is not None:
        sys.modules[package] = module_from_spec(spec)
    try:
        with quiet_torch():
            importlib.import_module("executorch.runtime")  # which loads libexecutorch.so
            importlib.import_module("executorch.kernels.quantized")  # registers kernels
    finally:
        if spec is not None:
            del sys.modules[package]


def load(
    device: str = LOCAL,
    *,
    caution: Caution = USUAL,
    cache_folder: str | os.PathLike[str] | None = None,
    threads: int = 0,
    cpu_mask: int = 0,
    progress: Notify | None = None,
) -> Path:
    """Registers ``NnapiBackend`` with ExecuTorch in this process; call it before
    ``executorch.runtime.Runtime.get()``. Returns the library that was loaded.

    ``device`` selects the process's only NNAPI: ``local``, this host's accelerators, or a simulated
    phone such as ``sim:npu-phone``. ``caution`` applies to programs loaded from then on. Drivers
    cache compiled segments in ``cache_folder``. ``threads`` and the CPUs of ``cpu_mask`` are for
    the CPU engine, 0: as the file says. The delegate is built at first use. Raises UsageError,
    BuildError, DeviceNotFound.
    """
    if _loaded and device not in _loaded:
        raise UsageError(
            f"this process's NNAPI is that of {next(iter(_loaded))}, and stays so: load {device} in"
            " another process"
        )
    nnapi, path = build(device, progress)
    if device.startswith(SIMULATED):
        os.environ["NNAPI_EMULATOR_PHONE"] = str(phone_file(device.removeprefix(SIMULATED)))
    else:
        os.environ.pop("NNAPI_EMULATOR_PHONE", None)
    if device not in _loaded:
        import_runtime()
        _loaded[device] = ctypes.CDLL(str(path))
    configure = _loaded[device].nnapi_prof_executorch_configure
    configure.argtypes = (
        *(ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
        *(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64),
    )
    limits = (int(ms * 1e6) for ms in (caution.compile_limit_ms, caution.run_limit_ms))
    helper = build_host(progress=progress, fast=device == LOCAL).agent if caution.trial else None
    texts = (os.fspath(text).encode() if text else None for text in (nnapi, cache_folder, helper))
    if configure(*texts, caution.fallback, caution.trial, *limits, threads, cpu_mask) != 0:
        raise UsageError(
            "ExecuTorch has a back end NnapiBackend already: load this one alone, in a new process"
        )
    return path
