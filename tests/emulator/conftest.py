"""The emulator's library for the tests of the emulator, and models that they share."""

import ctypes
import os
from pathlib import Path

import pytest

from tests.emulator.nnapi import Nnapi, relu_chain


@pytest.fixture(scope="session")
def emulator_library(request):
    """Path of libneuralnetworks.so: NNAPI_PROF_TEST_LIBRARY names one; else it is built, or taken
    from the build cache."""
    named = os.environ.get("NNAPI_PROF_TEST_LIBRARY")
    return Path(named) if named else request.getfixturevalue("built_host").library


@pytest.fixture(scope="session")
def api(emulator_library):
    """The API in this process: the emulator in real time, since no phone is named."""
    assert "NNAPI_EMULATOR_PHONE" not in os.environ
    return Nnapi(emulator_library)


@pytest.fixture
def nn(api):
    """The API, which frees what a test leaves."""
    yield api
    api.free_all()


@pytest.fixture
def compiled(nn):
    """Two RELUs over [1, 8], for whatever device NNAPI chooses."""
    return relu_chain(nn, 2).compile()


@pytest.fixture
def named(nn):
    """The same for the one device by name."""
    return relu_chain(nn, 2).compile([nn.devices()["nnapi-reference"]])


@pytest.fixture
def torch_finds_the_emulator(emulator_library):
    """PyTorch's dlopen of ``libneuralnetworks.so`` finds what is loaded under that SONAME. Random
    numbers are the same in each test, and quantised data as phones have them."""
    import torch

    ctypes.CDLL(str(emulator_library))
    torch.manual_seed(29)
    engine = torch.backends.quantized.engine
    torch.backends.quantized.engine = "qnnpack"
    yield
    torch.backends.quantized.engine = engine


@pytest.fixture(scope="module")
def answers(request, emulator_library, tmp_path_factory):
    """The answers to a module's jobs on simulated phones, by name."""
    return request.module.jobs.answers(emulator_library, tmp_path_factory.mktemp("phones"))
