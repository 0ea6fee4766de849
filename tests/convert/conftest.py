"""The emulator's libneuralnetworks.so, for tests that run what was converted."""

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def nnapi_library():
    """Path of the library, loaded: stock PyTorch then finds it by its soname.

    NNAPI_PROF_TEST_LIBRARY names one; else the CMake preset "host" builds it.
    """
    path = os.environ.get("NNAPI_PROF_TEST_LIBRARY")
    if path is None:
        agent = ROOT / "device_agent"
        for command in (
            ["cmake", "--preset", "host"],
            ["cmake", "--build", "--preset", "host", "--target", "neuralnetworks", "-j2"],
        ):
            done = subprocess.run(command, cwd=agent, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
        path = str(next((ROOT / "build" / "host").glob("**/libneuralnetworks.so")))
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return Path(path)
