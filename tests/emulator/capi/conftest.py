"""Compiled models that tests of the C API share: two RELUs over [1, 8]."""

import pytest

from tests.emulator.nnapi import relu_chain


@pytest.fixture
def chain(nn):
    """The model, and its compilation for the one device by name."""
    model = relu_chain(nn, 2)
    compilation = model.compile([nn.devices()["nnapi-reference"]])
    yield model, compilation
    nn.Compilation_free(compilation)
    model.free()


@pytest.fixture
def compiled(nn):
    """A compilation for whatever device NNAPI chooses."""
    model = relu_chain(nn, 2)
    compilation = model.compile()
    yield compilation
    nn.Compilation_free(compilation)
    model.free()
