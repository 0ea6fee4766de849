"""The emulator's library for the tests of the emulator."""

import os
from pathlib import Path

import pytest

from tests.emulator.nnapi import Nnapi


@pytest.fixture(scope="session")
def emulator_library(request):
    """Path of libneuralnetworks.so: NNAPI_PROF_TEST_LIBRARY names one; else it is built, or taken
    from the build cache."""
    named = os.environ.get("NNAPI_PROF_TEST_LIBRARY")
    return Path(named) if named else request.getfixturevalue("built_host").library


@pytest.fixture(scope="session")
def nn(emulator_library):
    """The API in this process: the emulator in real time, since no phone is named."""
    assert "NNAPI_EMULATOR_PHONE" not in os.environ
    return Nnapi(emulator_library)
