"""Devices of the C API, and compilations: which misuse gives which result code, and what a cache
changes."""

import ctypes as C
import os

import numpy as np
import pytest

from tests.emulator.nnapi import DATA, FUNCTIONS, OK, POSITIVE, R, handles, relu_chain
from tests.emulator.phones.process import run_jobs

# ---- devices -----------------------------------------------------------------------------------


def test_every_function_up_to_api_30_is_exported(nn):
    """One of API 31, too: so reusable executions are tested."""
    assert len(FUNCTIONS) > 60
    for _, name, _, level in FUNCTIONS:
        there = hasattr(nn.library, "ANeuralNetworks" + name)
        assert there == (int(level) <= 30 or name == "Execution_setReusable"), name


def test_real_time_offers_a_device_for_each_back_end(nn):
    devices = nn.devices()
    assert list(devices) in (["nnapi-fast", "nnapi-reference"], ["nnapi-reference"])
    for device in devices.values():
        kind, version = C.c_int32(), C.c_char_p()
        assert nn.Device_getType(device, C.byref(kind)) == OK and kind.value == 2
        assert nn.Device_getVersion(device, C.byref(version)) == OK and version.value == b"1.0"
        assert nn.Device_wait(device) == OK
    assert set(nn.levels().values()) == {30}
    assert nn.emulator_phone() is None and nn.emulator_error() is None
    assert nn.emulator_identity() == b"" and nn.emulator_property(b"ro.product.model") is None
    assert nn._getDevice(len(devices), C.byref(C.c_void_p())) == R.BAD_DATA
    for ask in (nn.Device_getName, nn.Device_getVersion, nn.Device_getFeatureLevel):
        assert ask(device, None) == R.UNEXPECTED_NULL
    assert nn._getDefaultLoopTimeout() == 2 * 10**9
    assert nn._getMaximumLoopTimeout() == 15 * 10**9


BACKEND, LEVEL = "NNAPI_EMULATOR_BACKEND", "NNAPI_EMULATOR_FEATURE_LEVEL"
BACKENDS = ("reference", "", "fast", "quick")
LEVELS, NO_LEVELS = ("", "28", "1000006", "1000007", "10000"), "26 32 1000005 1000009 30x level"
SETTINGS = [(BACKEND, name) for name in BACKENDS]
SETTINGS += [(LEVEL, level) for level in (*LEVELS, *NO_LEVELS.split())]


@pytest.fixture(scope="module")
def answers(emulator_library):
    """The answers of a process for each of the settings."""
    jobs = [{"phone": "", "env": dict([setting])} for setting in SETTINGS]
    return dict(zip(SETTINGS, run_jobs(emulator_library, jobs), strict=True))


def test_one_back_end_can_be_chosen(nn, answers):
    outcomes = [
        (answers[BACKEND, name]["devices"], answers[BACKEND, name]["error"]) for name in BACKENDS
    ]
    reference, either, fast, (none, error) = outcomes
    refusal = f'{BACKEND} is "{{}}", this library has: reference'
    assert (reference, either) == ((["nnapi-reference"], None), (list(nn.devices()), None))
    if "nnapi-fast" in nn.devices():
        assert fast == (["nnapi-fast"], None)
    else:
        assert fast == ([], refusal.format("fast"))
    assert none == [] and error.startswith(refusal.format("quick"))


def test_the_feature_level_can_be_chosen(answers):
    """REVERSE came with level 7. Models for Android 10's CPU, 10000, are checked at level 4."""
    for level in LEVELS:
        answer = answers[LEVEL, level]
        assert (set(answer["levels"]), answer["error"]) == ({int(level or 30)}, None)
        assert answer["reverse"] == (OK if level == "1000007" else R.BAD_DATA)


def test_other_feature_levels_leave_no_device(answers):
    for level in NO_LEVELS.split():
        error = f'{LEVEL} is "{level}", wanted is 27 to 31, 1000006 to 1000008, or 10000'
        assert (answers[LEVEL, level]["devices"], answers[LEVEL, level]["error"]) == ([], error)


# ---- compilations ------------------------------------------------------------------------------


def test_device_lists(nn):
    model, device = relu_chain(nn, 1).handle, nn.devices()["nnapi-reference"]
    create, ask = nn.Compilation_createForDevices, nn.Model_getSupportedOperationsForDevices
    for call, out in ((create, C.byref(C.c_void_p())), (ask, (C.c_bool * 1)())):
        assert call(model, None, 1, out) == R.UNEXPECTED_NULL
        assert call(model, handles([device]), 1, None) == R.UNEXPECTED_NULL
        assert call(model, handles([device]), 0, out) == R.BAD_DATA
        assert call(model, handles([None]), 1, out) == R.UNEXPECTED_NULL
        assert call(model, handles([device, device]), 2, out) == R.BAD_DATA
    assert create(model, handles([C.c_void_p(8)]), 1, C.byref(C.c_void_p())) == R.BAD_DATA


def test_compilation_settings(nn, named):
    compilation = nn.new("Compilation_create", relu_chain(nn, 1).handle)
    token, out = bytes(32), C.byref(C.c_void_p())
    assert nn.Compilation_setPreference(compilation, 3) == R.BAD_DATA
    assert nn.Compilation_setPreference(compilation, -1) == R.BAD_DATA
    assert nn.Compilation_setPreference(compilation, 2) == OK
    assert nn.Compilation_setPriority(compilation, 95) == R.BAD_DATA
    assert nn.Compilation_setPriority(compilation, 110) == OK
    assert nn.Compilation_setCaching(compilation, b"/nowhere", token) == OK
    assert nn.Compilation_setCaching(compilation, None, token) == R.UNEXPECTED_NULL
    assert nn.Compilation_setCaching(compilation, b"/nowhere", None) == R.UNEXPECTED_NULL
    assert nn.Compilation_setTimeout(compilation, 10**9) == R.BAD_DATA  # no device was named
    assert nn.Execution_create(compilation, out) == R.BAD_STATE
    assert nn.Burst_create(compilation, out) == R.BAD_STATE
    assert nn.Compilation_setPreference(named, 1) == R.BAD_STATE
    assert nn.Compilation_setPriority(named, 100) == R.BAD_STATE
    assert nn.Compilation_setCaching(named, b"/nowhere", token) == R.BAD_STATE
    assert nn.Compilation_setTimeout(named, 1) == R.BAD_STATE
    assert nn.Compilation_finish(named) == R.BAD_STATE


# ---- dumps ---------------------------------------------------------------------------------------


def test_plans_are_dumped_on_request(nn, tmp_path, monkeypatch, capfd):
    path = tmp_path / "plans.txt"
    for where in (path, path, "-", tmp_path / "no" / "folder"):
        monkeypatch.setenv("NNAPI_EMULATOR_DUMP", str(where))
        relu_chain(nn, 3).compile()
    dump = capfd.readouterr().err
    assert "RELU" in dump and path.read_text() == 2 * dump  # appended, one for each compilation


# ---- caches --------------------------------------------------------------------------------------


@pytest.fixture
def compile_cached(nn, tmp_path):
    """Compiles RELUs with a cache and runs: a wrong result would be a cache's worst fault."""

    def compile_and_run(length=2, cache=tmp_path, **settings):
        compilation = relu_chain(nn, length).compile(cache=cache, **settings)
        np.testing.assert_array_equal(nn.compute(compilation, DATA), POSITIVE)

    return compile_and_run


def files(folder):
    """The inode of each file: it stays while a file is only read."""
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def test_hits_and_another_model_under_the_token(compile_cached, tmp_path):
    """A hit is the same model, built again."""
    compile_cached()
    before = files(tmp_path)
    assert len(before) == 1 and next(iter(before)).startswith(bytes(range(32)).hex())
    compile_cached()
    compile_cached(cache=f"{tmp_path}/")
    assert files(tmp_path) == before
    compile_cached(length=3)
    after = files(tmp_path)
    assert before.keys() == after.keys() and before != after
    compile_cached(length=3)
    assert files(tmp_path) == after


def test_tokens_devices_and_preferences_have_files_of_their_own(nn, compile_cached, tmp_path):
    compile_cached()
    compile_cached(token=bytes(32))
    compile_cached(preference=2)
    for device in nn.devices().values():
        compile_cached(devices=[device])
    assert len(files(tmp_path)) == 3 + len(nn.devices())


DAMAGES = {
    "flip": lambda good: good[:50] + bytes([good[50] ^ 1]) + good[51:],
    "cut": lambda good: good[:-1],
    "longer": lambda good: good + b"\0",
    "empty": lambda good: b"",
    "foreign": lambda good: os.urandom(4096),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_are_written_anew(compile_cached, tmp_path, damage):
    compile_cached()
    path = next(tmp_path.iterdir())
    good = path.read_bytes()
    path.write_bytes(damage(good))
    compile_cached()
    assert path.read_bytes() == good and len(files(tmp_path)) == 1


def test_folders_that_cannot_be_written_cache_nothing(compile_cached, tmp_path):
    compile_cached(cache=tmp_path / "missing")
    file = tmp_path / "file"
    file.write_bytes(b"")
    compile_cached(cache=file)
    assert list(files(tmp_path)) == ["file"] and file.read_bytes() == b""
