"""Caches of compilations: what is a hit, what is a miss, and that results never depend on it."""

import os

import numpy as np
import pytest

from tests.emulator.nnapi import DATA, POSITIVE, compute, relu_chain

TOKEN = bytes(range(32))


@pytest.fixture
def model(nn):
    return relu_chain(nn, 2)


def compile_cached(nn, model, folder, token=TOKEN, **settings):
    """Compiles with a cache and runs: a wrong result would be a cache's worst fault."""
    compilation = model.compile(cache=folder, token=token, **settings)
    np.testing.assert_array_equal(compute(nn, compilation, DATA), POSITIVE)


def files(folder):
    """The inode of each file: it stays while a file is only read."""
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def test_a_second_compilation_is_a_hit(nn, model, tmp_path):
    compile_cached(nn, model, tmp_path)
    before = files(tmp_path)
    assert len(before) == 1 and next(iter(before)).startswith(TOKEN.hex())
    compile_cached(nn, model, tmp_path)
    compile_cached(nn, model, f"{tmp_path}/")
    compile_cached(nn, relu_chain(nn, 2), tmp_path)  # the same model, built again
    assert files(tmp_path) == before


def test_tokens_devices_and_preferences_have_files_of_their_own(nn, model, tmp_path):
    compile_cached(nn, model, tmp_path)
    compile_cached(nn, model, tmp_path, token=bytes(32))
    compile_cached(nn, model, tmp_path, preference=2)
    for device in nn.devices().values():
        compile_cached(nn, model, tmp_path, devices=[device])
    assert len(files(tmp_path)) == 3 + len(nn.devices())


def test_another_model_under_the_token_is_a_miss(nn, model, tmp_path):
    compile_cached(nn, model, tmp_path)
    before, other = files(tmp_path), relu_chain(nn, 3)
    compile_cached(nn, other, tmp_path)
    after = files(tmp_path)
    assert before.keys() == after.keys() and before != after
    compile_cached(nn, other, tmp_path)
    assert files(tmp_path) == after


DAMAGES = {
    "flip": lambda good: good[:50] + bytes([good[50] ^ 1]) + good[51:],
    "cut": lambda good: good[:-1],
    "longer": lambda good: good + b"\0",
    "empty": lambda good: b"",
    "foreign": lambda good: os.urandom(4096),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_are_written_anew(nn, model, tmp_path, damage):
    compile_cached(nn, model, tmp_path)
    path = next(tmp_path.iterdir())
    good = path.read_bytes()
    path.write_bytes(damage(good))
    compile_cached(nn, model, tmp_path)
    assert path.read_bytes() == good and len(files(tmp_path)) == 1


def test_folders_that_cannot_be_written_cache_nothing(nn, model, tmp_path):
    compile_cached(nn, model, tmp_path / "missing")
    file = tmp_path / "file"
    file.write_bytes(b"")
    compile_cached(nn, model, file)
    assert list(files(tmp_path)) == ["file"] and file.read_bytes() == b""
