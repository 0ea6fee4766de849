"""Android phones for tests: a root of phone_root.py, our emulator as NNAPI, Android's agent."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.device.build import agent_binary
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.toolchain import cache_dir, locked, python_tool, run_tool
from tests.android.phone_root import HERE, MACHINES, build_root, zig


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
    # A build folder does not survive a change of its toolchain file.
    toolchain, include = SOURCE_DIR / "android/zig.cmake", HERE / "emulator.cmake"
    key = hashlib.sha256(f"{SOURCE_DIR}\0{zig()}\0".encode())
    key.update(toolchain.read_bytes() + include.read_bytes())
    folder = cache_dir() / f"phone-{abi}-{key.hexdigest()[:8]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    cmake = python_tool("cmake", "CMAKE_BIN_DIR")
    with locked(folder.with_suffix(".lock")):
        run_tool(
            [
                cmake,
                *("-S", str(SOURCE_DIR), "-B", str(folder), "-G", "Ninja"),
                f"-DCMAKE_MAKE_PROGRAM={python_tool('ninja', 'BIN_DIR')}",
                f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
                f"-DCMAKE_PROJECT_INCLUDE={include}",
                f"-DNP_ZIG={zig()}",
                f"-DNP_ANDROID_ABI={abi}",
                "-DCMAKE_BUILD_TYPE=Release",
                "-DNP_WERROR=OFF",
                "-DNP_XNNPACK=",
            ],
            "a phone's emulator could not be configured",
        )
        jobs = str(os.cpu_count() or 1)
        run_tool(
            [cmake, "--build", str(folder), "--target", "neuralnetworks", "--parallel", jobs],
            "a phone's emulator could not be compiled",
        )
    return folder / "libneuralnetworks.so"
