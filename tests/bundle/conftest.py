"""The emulator's libneuralnetworks.so, for modules that stock PyTorch runs."""

import ctypes
import os
from pathlib import Path

import pytest

from nnapi_prof.device.build import build_host


@pytest.fixture(scope="session")
def nnapi_library():
    """Path of the library, loaded: stock PyTorch then finds it by its soname.

    NNAPI_PROF_TEST_LIBRARY names one; else it is built, or taken from the build cache.
    """
    path = Path(os.environ.get("NNAPI_PROF_TEST_LIBRARY") or build_host().library)
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return path
