"""Android phones for tests: folders that look like a phone's root, with our emulator as NNAPI.

    /system/bin        linker64 (or linker), sh (mksh), toybox and its names, getprop
    /system/lib64      libc.so, libm.so, libdl.so, libneuralnetworks.so (/system/lib on 32 bits)
    /data/local/tmp    empty
    /rig               what no phone has: QEMU, and the glibc that the native programs use

musl stands in for bionic. Its linker takes the names libc.so, libm.so and libdl.so for itself
wherever they are asked for; the copy here has them changed to libC.so, libM.so and libDL.so, so
that /system's are loaded: libc.so is bionic.c, which asks for libC.so, that is musl.

The shell and the tools are native (Debian's mksh and toybox, which are Android's own), so that a
phone answers fast; foreign.c puts QEMU before what is not. Nothing of the host is visible inside.
"""

import hashlib
import importlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.device.build import agent_binary
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.toolchain import cache_dir, locked, python_tool, run_tool

HERE = Path(__file__).resolve().parent
TOOLCHAIN, INCLUDE = SOURCE_DIR / "android/zig.cmake", HERE / "emulator.cmake"
HOST_LIBRARIES = "usr/lib/x86_64-linux-gnu"

_RESERVED = b"c.pthread.rt.m.dl.util.xnet."
_RENAMED = b"C.pthread.rt.M.DL.util.xnet."


@dataclass(frozen=True, slots=True)
class Machine:
    """What an ABI's phone is made of."""

    target: str
    """zig's name."""
    musl: str
    """musl's name for the machine in its files."""
    uname: str
    """What the phone's kernel calls it."""
    bits: int = 64
    qemu: str | None = None

    @property
    def linker(self) -> str:
        return "system/bin/linker64" if self.bits == 64 else "system/bin/linker"

    @property
    def libraries(self) -> str:
        return "system/lib64" if self.bits == 64 else "system/lib"


MACHINES = {
    "arm64-v8a": Machine("aarch64-linux-musl", "aarch64", "aarch64", qemu="qemu-aarch64"),
    "armeabi-v7a": Machine("arm-linux-musleabi", "arm", "armv8l", 32, qemu="qemu-arm"),
    "x86_64": Machine("x86_64-linux-musl", "x86_64", "x86_64"),
}


def build_root(
    root: Path, abi: str, prefix: Path, adbd: Path, nnapi: Path | None, system: Path | None = None
) -> None:
    """Builds the phone of an ABI in the new folder ``root``.

    ``prefix`` and ``adbd`` are those of setup_android.sh and setup_adbd.sh, ``nnapi`` the phone's
    libneuralnetworks.so, None for a phone that has none. ``system`` is a real phone's folder of
    that name: its dynamic linker and libraries in place of musl's.
    """
    machine = MACHINES[abi]
    binaries, libraries = root / "system/bin", root / machine.libraries
    for folder in (binaries, libraries, root / "system/etc", root / "data/local/tmp", root / "rig"):
        folder.mkdir(parents=True)
    for mount_point in ("dev", "proc", "sys", "rig/own"):
        (root / mount_point).mkdir()
    for name, path in {"bin": "system/bin", "etc": "system/etc"}.items():
        (root / name).symlink_to(path)
    if system is None:
        _add_libc(root, machine, prefix)
    else:
        _add_system(root, machine, system)
    if nnapi is not None:
        shutil.copy(nnapi, libraries / "libneuralnetworks.so")
    _add_native(root, machine, prefix, adbd)
    if machine.qemu is not None:
        shutil.copy(prefix / "qemu" / machine.qemu, root / "rig" / machine.qemu)


def _add_libc(root: Path, machine: Machine, prefix: Path) -> None:
    """The dynamic linker, and the three libraries of bionic."""
    suffix = "eabi" if machine.musl == "arm" else ""
    linker = root / machine.linker
    musl = (prefix / f"root/usr/lib/{machine.musl}-linux-musl{suffix}/libc.so").read_bytes()
    if musl.count(_RESERVED) != 1:
        raise RuntimeError("this musl has another list of the names that it takes for itself")
    linker.write_bytes(musl.replace(_RESERVED, _RENAMED))
    linker.chmod(0o755)
    paths = root / f"system/etc/ld-musl-{machine.musl}.path"
    paths.write_text(f"/{machine.libraries}\n")

    folder = root / machine.libraries
    empty, libc = folder / "empty.c", folder / "libc.so"
    empty.touch()
    _link(machine, empty, folder / "libC.so")
    _link(machine, HERE / "bionic.c", libc, folder / "libC.so")
    for name in ("libm.so", "libdl.so"):
        _link(machine, empty, folder / name, libc)
    (folder / "libC.so").unlink()
    empty.unlink()


def _add_system(root: Path, machine: Machine, system: Path) -> None:
    """A real phone's dynamic linker and libraries."""
    shutil.copytree(system.parent / machine.libraries, root / machine.libraries, dirs_exist_ok=True)
    shutil.copy(system.parent / machine.linker, root / machine.linker)
    (root / machine.linker).chmod(0o755)


def _link(machine: Machine, source: Path, library: Path, *needed: Path) -> None:
    """Compiles a source file into a library without what zig would link to it."""
    compiler = [zig(), "cc", "-target", machine.target]
    options = ["-fno-unwind-tables", "-fno-asynchronous-unwind-tables"]
    linked = ["-Wl,--no-as-needed", *needed, f"-Wl,-soname,{library.name}"]
    _compile(compiler, source, library, options, linked)


def _add_native(root: Path, machine: Machine, prefix: Path, adbd: Path) -> None:
    """adbd, shell and tools, with their own libc."""
    libraries = root / "rig/lib"
    shutil.copytree(adbd / "root" / HOST_LIBRARIES, libraries, symlinks=True)
    shutil.copytree(prefix / "root" / HOST_LIBRARIES, libraries, symlinks=True, dirs_exist_ok=True)
    shutil.copy(adbd / "root/usr/sbin/adbd", root / "rig/adbd")
    # Where these programs look for their dynamic linker and their libraries.
    (root / "lib64").symlink_to("rig/lib")
    (root / "lib").mkdir()
    (root / "lib/x86_64-linux-gnu").symlink_to("../rig/lib")
    # These programs' glibc is newer than most.
    compiler = [zig(), "cc", "-target", "x86_64-linux-gnu.2.34"]
    options = [f'-DPHONE_MACHINE="{machine.uname}"']
    _compile(compiler, HERE / "foreign.c", root / "rig/foreign.so", options, [])
    (root / "system/etc/ld.so.preload").write_text("/rig/foreign.so\n")
    (root / "system/etc/passwd").write_text("root:x:0:0::/:/bin/sh\nshell:x:2000:2000::/:/bin/sh\n")
    (root / "system/etc/group").write_text("root:x:0:\nshell:x:2000:\n")

    binaries = root / "system/bin"
    shutil.copy(prefix / "root/usr/bin/mksh", binaries / "sh")
    shutil.copy(prefix / "root/usr/bin/toybox", binaries / "toybox")
    linker = libraries / "ld-linux-x86-64.so.2"
    command = [linker, "--library-path", libraries, binaries / "toybox"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    for name in listing.stdout.split():
        if not (binaries / name).exists():
            (binaries / name).symlink_to("toybox")
    shutil.copy(HERE.parent / "adbd/getprop", binaries / "getprop")


def _compile(
    compiler: list[str], source: Path, library: Path, options: list[str], linked: list[object]
) -> None:
    object_file = library.with_suffix(".o")
    compiled = ["-c", "-O2", "-fPIC", *options, source, "-o", object_file]
    subprocess.run([*compiler, *compiled], check=True, timeout=300)
    command = [*compiler, "-shared", "-nostdlib", object_file, *linked, "-o", library]
    subprocess.run(command, check=True, timeout=300)
    object_file.unlink()


def zig() -> str:
    """The executable of the Python package ziglang."""
    package = importlib.import_module("ziglang")
    return str(Path(str(package.__file__)).parent / "zig")


@dataclass(frozen=True, slots=True)
class AndroidPhone:
    """A phone's files; tests/adbd/daemon.py makes a running device of its ``root``."""

    abi: str
    root: Path
    agent: Path
    """What is pushed to it."""

    @property
    def library(self) -> Path:
        """Its NNAPI: our emulator."""
        return self.root / MACHINES[self.abi].libraries / "libneuralnetworks.so"

    def command(self, *arguments: str) -> list[str]:
        """Runs the agent outside the phone, with the phone's linker and libraries."""
        machine = MACHINES[self.abi]
        if machine.qemu is not None:
            qemu = str(self.root / "rig" / machine.qemu)
            return [qemu, "-L", str(self.root), str(self.agent), *arguments]
        libraries = self.root / machine.libraries
        linker = [str(self.root / machine.linker), "--library-path", str(libraries)]
        return [*linker, str(self.agent), *arguments]

    def build_folder(self, folder: Path) -> Path:
        """A folder as $NNAPI_PROF_TEST_BUILD names one, for tests that run the agent by its path:
        ``agent``, ``libneuralnetworks.so``, and ``cc``, a compiler for libraries of the phone."""
        target = f'"{zig()}" cc -target {MACHINES[self.abi].target}'
        scripts = {
            "agent": f'#!/bin/sh\nexec {" ".join(self.command())} "$@"\n',
            "cc": (HERE / "cc.sh").read_text().replace("@COMPILER@", target),
        }
        for name, text in scripts.items():
            path = folder / name
            path.write_text(text)
            path.chmod(0o755)
        (folder / "libneuralnetworks.so").symlink_to(self.library)
        return folder


def build_phone(abi: str, folder: Path, prefix: Path, adbd: Path) -> AndroidPhone:
    """Builds a phone in the new ``folder``; ``prefix`` and ``adbd`` as for ``build_root``."""
    agent = agent_binary(abi, "android")
    build_root(folder, abi, prefix, adbd, build_emulator(abi))
    return AndroidPhone(abi, folder, agent)


def build_emulator(abi: str) -> Path:
    """A phone's libneuralnetworks.so, built in the cache; a later call builds what has changed."""
    options = (f"-DCMAKE_PROJECT_INCLUDE={INCLUDE}", "-DCMAKE_BUILD_TYPE=Release")
    folder = build_for_phones(f"phone-{abi}", SOURCE_DIR, abi, options, "neuralnetworks")
    return folder / "libneuralnetworks.so"


def build_for_phones(
    name: str, source: Path, abi: str, options: Sequence[str], target: str = "all"
) -> Path:
    """Builds a CMake project for an ABI in the cache; the folder."""
    # A build folder does not survive a change of its toolchain file.
    key = hashlib.sha256(f"{SOURCE_DIR}\0{zig()}\0".encode())
    key.update(TOOLCHAIN.read_bytes() + INCLUDE.read_bytes())
    folder = cache_dir() / f"{name}-{key.hexdigest()[:8]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    cmake = python_tool("cmake", "CMAKE_BIN_DIR")
    configure = [
        *(cmake, "-S", str(source), "-B", str(folder), "-GNinja"),
        f"-DCMAKE_MAKE_PROGRAM={python_tool('ninja', 'BIN_DIR')}",
        f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}",
        *(f"-DNP_ZIG={zig()}", f"-DNP_ANDROID_ABI={abi}", "-DNP_WERROR=OFF", "-DNP_XNNPACK="),
        *options,
    ]
    build = [cmake, "--build", str(folder), "--target", target, "--parallel", str(os.cpu_count())]
    with locked(folder.with_suffix(".lock")):
        run_tool(configure, f"{name} could not be configured")
        run_tool(build, f"{name} could not be compiled")
    return folder
