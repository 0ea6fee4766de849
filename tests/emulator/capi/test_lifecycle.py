"""The life cycle of the C API: what it computes, and which misuse gives which result code."""

import ctypes as C
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.emulator.nnapi import (
    DATA,
    FUNCTIONS,
    OK,
    POSITIVE,
    Model,
    Op,
    R,
    compute,
    handles,
    relu_chain,
)

# ---- what exists -------------------------------------------------------------------------------


REUSE = "Execution_setReusable"
"""Of API 31: the emulator has it, so that reusable executions are tested."""


def test_every_function_up_to_api_30_is_exported(nn):
    assert len(FUNCTIONS) > 60
    for _, name, _, level in FUNCTIONS:
        there = hasattr(nn.library, "ANeuralNetworks" + name)
        assert there == (int(level) <= 30 or name == REUSE), name


def test_real_time_offers_a_device_for_each_back_end(nn):
    devices = nn.devices()
    assert list(devices) in (["nnapi-fast", "nnapi-reference"], ["nnapi-reference"])
    for device in devices.values():
        kind, level, version = C.c_int32(), C.c_int64(), C.c_char_p()
        assert nn.Device_getType(device, C.byref(kind)) == OK and kind.value == 2
        assert nn.Device_getFeatureLevel(device, C.byref(level)) == OK and level.value == 30
        assert nn.Device_getVersion(device, C.byref(version)) == OK and version.value == b"1.0"
        assert nn.Device_wait(device) == OK
    assert nn.emulator_phone() is None and nn.emulator_error() is None
    assert nn.emulator_identity() == b"" and nn.emulator_property(b"ro.product.model") is None
    assert nn._getDevice(len(devices), C.byref(C.c_void_p())) == R.BAD_DATA
    assert nn.Device_getName(device, None) == R.UNEXPECTED_NULL
    assert nn.Device_getVersion(device, None) == R.UNEXPECTED_NULL
    assert nn.Device_getFeatureLevel(device, None) == R.UNEXPECTED_NULL
    assert nn._getDefaultLoopTimeout() == 2 * 10**9
    assert nn._getMaximumLoopTimeout() == 15 * 10**9


def told(script, library, **environment):
    """Runs a program with the library's path as its argument, and these variables."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(library)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return (done.stdout + done.stderr).strip()


DEVICES = """
import sys
from tests.emulator.nnapi import Nnapi
nn = Nnapi(sys.argv[1])
error = nn.emulator_error()
print(",".join(nn.devices()), error.decode() if error else "fine")
"""


def test_one_back_end_can_be_chosen(nn, emulator_library):
    def devices(backend):
        return told(DEVICES, emulator_library, NNAPI_EMULATOR_BACKEND=backend)

    refusal = 'NNAPI_EMULATOR_BACKEND is "{}", this library has: reference'
    assert devices("reference") == "nnapi-reference fine"
    assert devices("") == ",".join(nn.devices()) + " fine"
    if "nnapi-fast" in nn.devices():
        assert devices("fast") == "nnapi-fast fine"
    else:
        assert devices("fast") == refusal.format("fast")
    assert devices("quick").startswith(refusal.format("quick"))


LEVELS = """
import ctypes as C, sys
from tests.emulator.nnapi import Model, Nnapi, T

nn = Nnapi(sys.argv[1])
level = C.c_int64()
for device in nn.devices().values():
    nn.Device_getFeatureLevel(device, C.byref(level))
model = Model(nn)
source, axes, target = (model.operand(*kind) for kind in (
    (T.TENSOR_FLOAT32, (2, 3)), (T.TENSOR_INT32, (1,)), (T.TENSOR_FLOAT32, (2, 3))))
nn.Model_setOperandValue(model.handle, axes, C.byref(C.c_int32()), 4)
reverse = 105
print(level.value, int(model.add_operation(reverse, [source, axes], [target])), nn.emulator_error())
"""


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("", "30 4 None"),
        ("1000007", "1000007 0 None"),
        ("28", "28 4 None"),
        ("1000006", "1000006 4 None"),
        ("10000", "10000 4 None"),  # Android 10's CPU; models are checked at level 4
    ],
)
def test_the_feature_level_can_be_chosen(emulator_library, level, expected):
    assert told(LEVELS, emulator_library, NNAPI_EMULATOR_FEATURE_LEVEL=level) == expected


@pytest.mark.parametrize("level", ["26", "32", "1000005", "1000009", "30x", "level"])
def test_other_feature_levels_leave_no_device(emulator_library, level):
    expected = "wanted is 27 to 31, 1000006 to 1000008, or 10000"
    text = told(DEVICES, emulator_library, NNAPI_EMULATOR_FEATURE_LEVEL=level)
    assert text == f'NNAPI_EMULATOR_FEATURE_LEVEL is "{level}", {expected}'


def test_real_time_clock_runs(nn):
    before = nn.emulator_now()
    assert nn.emulator_now() >= before > 0


# ---- results -----------------------------------------------------------------------------------


def test_operations_may_be_added_in_any_order(nn):
    model = Model(nn)
    a, b, c = model.tensors(3, 1, 8)
    model.operation(Op.ADD, [b, b, model.scalar(0)], [c])
    model.operation(Op.RELU, [a], [b])
    model.finish([a], [c])
    assert model.supported([*nn.devices().values()][:1], 2) == [True, True]
    np.testing.assert_array_equal(compute(nn, model.compile(), DATA), 2 * POSITIVE)


# ---- compilations ------------------------------------------------------------------------------


def test_device_lists(nn):
    model, device = relu_chain(nn, 1).handle, nn.devices()["nnapi-reference"]
    create, out = nn.Compilation_createForDevices, C.byref(C.c_void_p())
    assert create(model, None, 1, out) == R.UNEXPECTED_NULL
    assert create(model, handles([device]), 0, out) == R.BAD_DATA
    assert create(model, handles([None]), 1, out) == R.UNEXPECTED_NULL
    assert create(model, handles([device, device]), 2, out) == R.BAD_DATA
    assert create(model, handles([device]), 1, None) == R.UNEXPECTED_NULL
    assert create(model, handles([C.c_void_p(8)]), 1, out) == R.BAD_DATA
    ask, supported = nn.Model_getSupportedOperationsForDevices, (C.c_bool * 1)()
    assert ask(model, None, 1, supported) == R.UNEXPECTED_NULL
    assert ask(model, handles([device]), 1, None) == R.UNEXPECTED_NULL
    assert ask(model, handles([device]), 0, supported) == R.BAD_DATA
    assert ask(model, handles([None]), 1, supported) == R.UNEXPECTED_NULL
    assert ask(model, handles([device, device]), 2, supported) == R.BAD_DATA


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

DUMPED = """
import sys
from tests.emulator.nnapi import Nnapi, relu_chain
nn = Nnapi(sys.argv[1])
for _ in range(2):
    relu_chain(nn, 3).compile()
"""


def test_plans_are_dumped_on_request(emulator_library, tmp_path):
    path = tmp_path / "plans.txt"
    told(DUMPED, emulator_library, NNAPI_EMULATOR_DUMP=str(path))
    text = path.read_text()
    assert "RELU" in text and len(text.splitlines()) % 2 == 0
    half = len(text) // 2
    assert text[:half] == text[half:]  # appended, one for each compilation
    assert told(DUMPED, emulator_library, NNAPI_EMULATOR_DUMP="-") == text.strip()
    told(DUMPED, emulator_library, NNAPI_EMULATOR_DUMP=str(tmp_path / "no" / "folder"))
