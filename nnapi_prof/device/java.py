"""Build the runtime library for Java: ``libnnapi_prof_jni.so`` and the class that calls it.

Both come from ``device_agent/library/java``. Besides the tools of every build they need a JDK, for
``javac`` and ``jni.h``, which is the same for Android, but neither Android's SDK nor its NDK.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.device import xnnpack
from nnapi_prof.device.build import (
    ANDROID_SOURCES,
    CMAKE_SOURCES,
    SOURCES,
    build_agent,
    build_host,
    build_key,
    cmake_build,
    host_prefix,
)
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.errors import BuildError
from nnapi_prof.progress import Notify
from nnapi_prof.toolchain import cache_dir, cross_compiler, find_compiler, locked, run_tool

JAVA_DIR = SOURCE_DIR / "library" / "java"
LIBRARY = "libnnapi_prof_jni.so"
RELEASE = 8
"""Java version of the class files: the oldest that Android's tools and today's javac support."""


@dataclass(frozen=True, slots=True)
class Jdk:
    """A Java Development Kit."""

    home: Path

    @property
    def javac(self) -> Path:
        return self.home / "bin" / "javac"

    @property
    def java(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def includes(self) -> tuple[Path, ...]:
        """Folders of ``jni.h`` and of the headers that it includes."""
        include = self.home / "include"
        return (include, *sorted(path.parent for path in include.glob("*/jni_md.h")))


def find_jdk() -> Jdk:
    """Finds the JDK of $JAVA_HOME, else of ``javac`` on the PATH. Raises BuildError without one."""
    named = os.environ.get("JAVA_HOME")
    javac = shutil.which("javac")
    if named:
        home = Path(named)
    elif javac is not None:
        home = Path(javac).resolve().parents[1]
    else:
        raise BuildError(
            "there is no Java compiler",
            "install a JDK (Debian: default-jdk-headless), or name its folder in JAVA_HOME",
        )
    jdk = Jdk(home)
    for path in (jdk.javac, jdk.home / "include" / "jni.h"):
        if not path.is_file():
            whose = "JAVA_HOME" if named else f"that of {javac}"
            raise BuildError(
                f"{home} ({whose}) is not a whole JDK, it has no {path.relative_to(home)}",
                "install one (Debian: default-jdk-headless), or name another in JAVA_HOME",
            )
    return jdk


def jni_library(
    abi: str | None = None, cache: Path | None = None, progress: Notify | None = None
) -> Path:
    """Returns the library for Android on an ABI, or for this host where ``abi`` is None. Unless the
    cache has it, it is built from the agent's archives; the first time takes some minutes if
    XNNPACK is built, too.

    Raises BuildError.
    """
    jdk = find_jdk()
    base = cache or cache_dir()
    if abi is None:
        compiler, device = find_compiler(base), "host"
        prefix = host_prefix(base)
    else:
        compiler, device = cross_compiler(abi, "android", base), f"android-{abi}"
        prefix = xnnpack.for_device(base, compiler, device, progress)
    key = build_key(compiler, prefix, (*SOURCES, *ANDROID_SOURCES, *CMAKE_SOURCES))
    folder = base / "java" / f"{device}-{key}"
    built = folder / LIBRARY
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f"{folder.name}.lock")):
            if built.is_file():
                return built
            if abi is None:
                agent = build_host(base, progress).agent
            else:
                agent = build_agent(abi, "android", base, progress)
            if progress is not None:
                progress(f"building the runtime library for {abi or 'this host'}")
            with tempfile.TemporaryDirectory(prefix="build-", dir=folder.parent) as work:
                options = (
                    "-DNP_LIBRARY=ON",
                    f"-DNP_PREBUILT={agent.parent}",
                    f"-DNP_JNI={';'.join(map(str, jdk.includes))}",
                    "-DCMAKE_SHARED_LINKER_FLAGS=-s",
                )
                cmake_build(compiler, prefix, Path(work), ("nnapi_prof_jni",), options)
                (Path(work) / "library" / LIBRARY).replace(built)
    except OSError as error:
        raise BuildError(
            f"the runtime library cannot be built in {base}: {error.strerror or error}",
            "name a folder that is writable and has room in NNAPI_PROF_CACHE_DIR",
        ) from error
    return built


def compile_classes(folder: Path) -> list[Path]:
    """Compiles the Java classes into a folder; returns the files, sorted. Raises BuildError."""
    sources = sorted((JAVA_DIR / "dev").rglob("*.java"))
    run_tool(
        [
            *(str(find_jdk().javac), "--release", str(RELEASE), "-encoding", "UTF-8", "-g:none"),
            *("-Xlint:all,-options", "-Werror", "-implicit:none"),
            *("-sourcepath", str(JAVA_DIR / "stubs"), "-d", str(folder), *map(str, sources)),
        ],
        f"the Java classes could not be compiled from {JAVA_DIR}",
    )
    return sorted(folder.rglob("*.class"))
