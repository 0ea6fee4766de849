"""Build XNNPACK for this host into the cache, where the agent's build finds it.

The first use of the device ``local`` does it, once: it fetches the pinned sources (some 5 MB,
through apt on Debian, or from the folder that $NNAPI_PROF_XNNPACK_ARCHIVES names) and builds them.
From then on agent and emulator of this host have the back end ``fast``; without XNNPACK they only
have ``reference``, which computes the same more slowly. Simulated phones do not wait for it.

``python -m nnapi_prof.device.xnnpack`` does the same, reports its progress and prints the prefix.
If a build is interrupted or fails, its compiled files are kept: the next one continues from there.
$NNAPI_PROF_XNNPACK names the prefix of another build for this host; if it is set but empty, no
device uses XNNPACK.

Agents for other machines get a build of their own (:func:`for_device`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.errors import BuildError
from nnapi_prof.progress import Notify
from nnapi_prof.toolchain import (
    Compiler,
    build_steps_said,
    cache_dir,
    find_clang,
    locked,
    python_tool,
    run_tool,
)

RECIPE_DIR = SOURCE_DIR / "xnnpack"
RECIPE = ("CMakeLists.txt", "archives.txt")
LIBRARIES = ("XNNPACK", "microkernels-prod", "pthreadpool", "cpuinfo")
RETRY_S = 24 * 3600.0
"""Seconds after which a build that failed at first use is tried again."""


def built_prefix(cache: Path | None = None) -> Path | None:
    """Returns the folder of XNNPACK as built for this host; None where it has not been built.

    Raises BuildError where $NNAPI_PROF_XNNPACK names a folder without it.
    """
    named = os.environ.get("NNAPI_PROF_XNNPACK")
    if named == "":
        return None
    if named is not None:
        prefix = Path(named).absolute()
        if not _is_complete(prefix):
            raise BuildError(
                f"NNAPI_PROF_XNNPACK is {named}, where XNNPACK is not built",
                "unset it, and it is built at first use",
            )
        return prefix
    prefix = _own_prefix(cache or cache_dir())
    return prefix if _is_complete(prefix) else None


@dataclass(frozen=True, slots=True)
class State:
    """The state that a build of an agent would find. At most one field is set; none: XNNPACK would
    be built."""

    prefix: Path | None = None
    left_out: bool = False
    """Whether $NNAPI_PROF_XNNPACK is set but empty."""
    failed: str | None = None
    """Why its build failed, less than a day ago."""


def state(cache: Path | None = None, compiler: Compiler | None = None, device: str = "") -> State:
    """Returns the state for a device, by default this host. Builds nothing.

    Raises BuildError where $NNAPI_PROF_XNNPACK names a folder without it.
    """
    base = cache or cache_dir()
    if os.environ.get("NNAPI_PROF_XNNPACK") == "":
        return State(left_out=True)
    if not device and "NNAPI_PROF_XNNPACK" in os.environ:
        return State(built_prefix(base))
    prefix = _own_prefix(base, device, compiler)
    if _is_complete(prefix):
        return State(prefix)
    failed = _failed_lately(prefix)
    return State(failed=None if failed is None else failed.read_text())


def first_use(cache: Path | None = None, progress: Notify | None = None) -> Path | None:
    """Returns the prefix, fetched and built where it has not been yet; None where that fails.

    Reports why it fails, in one line and once: for a day after, it tries and reports nothing again.
    Raises BuildError where $NNAPI_PROF_XNNPACK names a folder without it.
    """
    base = cache or cache_dir()
    if (prefix := built_prefix(base)) is not None or "NNAPI_PROF_XNNPACK" in os.environ:
        return prefix
    return _try_build(base, None, "", progress)


def for_device(
    cache: Path, compiler: Compiler, device: str, progress: Notify | None = None
) -> Path | None:
    """Returns the prefix for another machine, which ``compiler`` builds for; as :func:`first_use`.

    ``device`` names the machine: ``android-arm64-v8a``.
    """
    if os.environ.get("NNAPI_PROF_XNNPACK") == "":
        return None
    return _try_build(cache, compiler, device, progress)


def _try_build(
    base: Path, compiler: Compiler | None, device: str, progress: Notify | None
) -> Path | None:
    prefix = _own_prefix(base, device, compiler)
    if not _is_complete(prefix) and _failed_lately(prefix) is not None:
        return None
    try:
        return build_xnnpack(base, progress, compiler, device)
    except (BuildError, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        failed = prefix.with_suffix(".failed")
        failed.parent.mkdir(parents=True, exist_ok=True)
        failed.write_text(str(error))
        if progress is not None:
            progress(
                f"going on without XNNPACK, with slower kernels for the CPU: {reason} "
                "(`python -m nnapi_prof.device.xnnpack` tries again)"
            )
        return None


def _failed_lately(prefix: Path) -> Path | None:
    """Returns the file with the reason of a failed build, until it is tried again; then None."""
    failed = prefix.with_suffix(".failed")
    lately = failed.exists() and 0 <= time.time() - failed.stat().st_mtime < RETRY_S
    return failed if lately else None


def identity(prefix: Path) -> str:
    """Returns the identity of the build in a prefix: another build there has another one."""
    stats = [path.stat() for path in _archives(prefix)]
    return " ".join([str(prefix), *(f"{s.st_size}:{s.st_mtime_ns}" for s in stats)])


def build_xnnpack(
    cache: Path | None = None,
    progress: Notify | None = None,
    compiler: Compiler | None = None,
    device: str = "",
) -> Path:
    """Fetches and builds XNNPACK unless the cache has it; returns its prefix. Raises BuildError.

    The build is for this host without ``compiler`` and ``device``.
    """
    base = cache or cache_dir()
    prefix = _own_prefix(base, device, compiler)
    if _is_complete(prefix):
        return prefix
    compiler = compiler or find_clang(base)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with locked(prefix.with_suffix(".lock")):
        if _is_complete(prefix):
            return prefix
        work = _work_folder(prefix, compiler)
        if progress is not None:
            whose, begun = device or "this host", (work / "build.ninja").is_file()
            progress(
                f"building XNNPACK for {whose} with {compiler.path.name}, "
                + ("from where it stopped" if begun else "once (1 to 3 minutes on an idle machine)")
            )
        _compile(work, _sources(base), compiler)
        draft = work / "prefix"
        cmake = python_tool("cmake", "CMAKE_BIN_DIR")
        install = [cmake, "--install", str(work), "--prefix", str(draft)]
        run_tool(install, "XNNPACK could not be installed")
        shutil.rmtree(prefix, ignore_errors=True)
        draft.rename(prefix)
        shutil.rmtree(work, ignore_errors=True)
    prefix.with_suffix(".failed").unlink(missing_ok=True)
    return prefix


def _work_folder(prefix: Path, compiler: Compiler) -> Path:
    """Returns the folder of a build's objects until it is done; each compiler has its own."""
    digest = hashlib.sha256(compiler.identity.encode()).hexdigest()[:8]
    return prefix.with_name(f"{prefix.name}-{digest}.build")


def _compile(work: Path, sources: Path, compiler: Compiler) -> None:
    """Compiles the files that are not compiled yet. Raises BuildError."""
    cmake, ninja = python_tool("cmake", "CMAKE_BIN_DIR"), python_tool("ninja", "BIN_DIR")
    configure = [
        *(cmake, "-Wno-dev", "-S", str(RECIPE_DIR), "-B", str(work), "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={ninja}",
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DNP_XNNPACK_SOURCES={sources}",
        *compiler.configure_options,
    ]
    if not (work / "build.ninja").is_file():
        shutil.rmtree(work, ignore_errors=True)  # stopped before it was configured
    try:
        run_tool(configure, "XNNPACK could not be configured")
    except BuildError:
        shutil.rmtree(work, ignore_errors=True)  # it had other paths, as of a checkout that moved
        run_tool(configure, "XNNPACK could not be configured")
    run_tool(
        [cmake, "--build", str(work)],
        "XNNPACK could not be compiled (what was compiled is kept for the next try)",
    )


def _sources(base: Path) -> Path:
    """Returns the folder of the unpacked sources, which each device's build uses."""
    digest = hashlib.sha256((RECIPE_DIR / "archives.txt").read_bytes()).hexdigest()[:16]
    folder = base / "xnnpack" / f"sources-{digest}"
    with locked(folder.with_suffix(".lock")):
        _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    command = [sys.executable, str(RECIPE_DIR / "fetch.py"), str(folder)]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"the sources of XNNPACK are not available: {result.stderr.strip()}")


def recipe_hash() -> str:
    """Returns a hash of the recipe, which names the sources and how they are built."""
    digest = hashlib.sha256()
    for path in (RECIPE_DIR / name for name in RECIPE):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _own_prefix(cache: Path, device: str = "", compiler: Compiler | None = None) -> Path:
    """Returns the prefix in the cache, which is named by the recipe, and by a device's compiler."""
    name = recipe_hash()
    if compiler is not None:
        digest = hashlib.sha256(compiler.identity.encode())
        if compiler.toolchain is not None:
            digest.update(compiler.toolchain.read_bytes())
        name += f"-{device}-{digest.hexdigest()[:8]}"
    return cache / "xnnpack" / name


def _archives(prefix: Path) -> list[Path]:
    return [prefix / "lib" / f"lib{name}.a" for name in LIBRARIES]


def _is_complete(prefix: Path) -> bool:
    return all(path.is_file() for path in [*_archives(prefix), prefix / "include" / "xnnpack.h"])


if __name__ == "__main__":

    def said(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        with build_steps_said(said):
            print(build_xnnpack(progress=said))
    except KeyboardInterrupt:
        sys.exit("interrupted; what was compiled is kept for the next try")
    except BuildError as error:
        sys.exit(f"python -m nnapi_prof.device.xnnpack: {error}")
