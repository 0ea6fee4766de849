"""Caches of compilations: what is a hit, what is a miss, and that results never depend on it."""

import ctypes as C
import os

import numpy as np
import pytest

from tests.emulator.nnapi import OK, Result, handles, prepared, relu_chain

R = Result
DATA = np.array([[-1, 2, -3, 4, -5, 6, -7, 8]], np.float32)
TOKEN = bytes(range(32))


@pytest.fixture
def model(nn):
    model = relu_chain(nn, 2)
    yield model
    model.free()


def compile_cached(nn, model, folder, token=TOKEN, device=None, preference=None):
    """Compiles with a cache and runs: a wrong result would be a cache's worst fault."""
    if device is None:
        compilation = nn.new("Compilation_create", model.handle)
    else:
        compilation = nn.new("Compilation_createForDevices", model.handle, handles([device]), 1)
    if preference is not None:
        assert nn.Compilation_setPreference(compilation, preference) == OK
    assert nn.Compilation_setCaching(compilation, os.fsencode(folder), token) == OK
    assert nn.Compilation_finish(compilation) == OK
    result = np.zeros((1, 8), np.float32)
    execution = prepared(nn, compilation, [DATA], [result])
    assert nn.Execution_compute(execution) == OK
    np.testing.assert_array_equal(result, np.maximum(DATA, 0))
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)


def files(folder):
    """The inode of each file: it stays while a file is only read."""
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def test_a_second_compilation_is_a_hit(nn, model, tmp_path):
    compile_cached(nn, model, tmp_path)
    before = files(tmp_path)
    assert len(before) == 1 and next(iter(before)).startswith(TOKEN.hex())
    compile_cached(nn, model, tmp_path)
    compile_cached(nn, model, f"{tmp_path}/")
    assert files(tmp_path) == before
    again = relu_chain(nn, 2)  # the same model, built again
    compile_cached(nn, again, tmp_path)
    assert files(tmp_path) == before
    again.free()


def test_tokens_devices_and_preferences_have_files_of_their_own(nn, model, tmp_path):
    compile_cached(nn, model, tmp_path)
    compile_cached(nn, model, tmp_path, token=bytes(32))
    compile_cached(nn, model, tmp_path, preference=2)
    for device in nn.devices().values():
        compile_cached(nn, model, tmp_path, device=device)
    assert len(files(tmp_path)) == 3 + len(nn.devices())


def test_another_model_under_the_token_is_a_miss(nn, model, tmp_path):
    compile_cached(nn, model, tmp_path)
    before = files(tmp_path)
    other = relu_chain(nn, 3)
    compile_cached(nn, other, tmp_path)
    after = files(tmp_path)
    assert before.keys() == after.keys() and before != after
    compile_cached(nn, other, tmp_path)
    assert files(tmp_path) == after
    other.free()


@pytest.mark.parametrize("damage", ["flip", "cut", "longer", "empty", "foreign"])
def test_damaged_files_are_written_anew(nn, model, tmp_path, damage):
    compile_cached(nn, model, tmp_path)
    path = next(tmp_path.iterdir())
    good = path.read_bytes()
    bad = {
        "flip": good[:50] + bytes([good[50] ^ 1]) + good[51:],
        "cut": good[:-1],
        "longer": good + b"\0",
        "empty": b"",
        "foreign": os.urandom(4096),
    }[damage]
    path.write_bytes(bad)
    compile_cached(nn, model, tmp_path)
    assert path.read_bytes() == good and len(files(tmp_path)) == 1


def test_folders_that_cannot_be_written_cache_nothing(nn, model, tmp_path):
    compile_cached(nn, model, tmp_path / "missing")
    file = tmp_path / "file"
    file.write_bytes(b"")
    compile_cached(nn, model, file)
    assert list(files(tmp_path)) == ["file"] and file.read_bytes() == b""


def test_caching_refusals(nn, model):
    compilation, token = nn.new("Compilation_create", model.handle), (C.c_uint8 * 32)()
    call = nn.Compilation_setCaching
    assert call(None, b"/", token) == R.UNEXPECTED_NULL
    assert call(compilation, None, token) == R.UNEXPECTED_NULL
    assert call(compilation, b"/", None) == R.UNEXPECTED_NULL
    assert nn.Compilation_finish(compilation) == OK
    assert call(compilation, b"/", token) == R.BAD_STATE
    nn.Compilation_free(compilation)
