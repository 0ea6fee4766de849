"""The emulator's library for the tests of the emulator, and models that they share."""

import os

import pytest

from tests.emulator.nnapi import Nnapi, relu_chain


@pytest.fixture(scope="session")
def emulator_library(nnapi_library):
    """Path of libneuralnetworks.so, which NNAPI_PROF_TEST_LIBRARY may name."""
    return nnapi_library


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


@pytest.fixture(scope="module")
def answers(request, emulator_library, tmp_path_factory):
    """The answers to a module's jobs on simulated phones, by name."""
    return request.module.jobs.answers(emulator_library, tmp_path_factory.mktemp("phones"))
