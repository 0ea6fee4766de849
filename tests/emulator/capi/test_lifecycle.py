"""The life cycle of the C API: what it computes, and which misuse gives which result code."""

import ctypes as C
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.nnapi import (
    ADD,
    OK,
    RELU,
    Model,
    Result,
    function_names,
    handles,
    prepared,
    relu_chain,
)

R = Result
DATA = np.array([[-1, 2, -3, 4, -5, 6, -7, 8]], np.float32)


# ---- what exists -------------------------------------------------------------------------------


REUSE = "ANeuralNetworksExecution_setReusable"
"""Of API 31: the emulator has it, so that reusable executions are tested."""


def test_every_function_up_to_api_30_is_exported(nn):
    header = Path(__file__).parents[3] / "device_agent" / "include" / "np_nnapi.h"
    result = re.findall(r"X\([^,]+, (ANeuralNetworks\w+), \(.*\), (\d+)\)", header.read_text())
    assert len(result) > 60
    for name, level in result:
        assert hasattr(nn.library, name) == (int(level) <= 30 or name == REUSE), name
    assert set(function_names()) <= {name for name, _ in result}


def test_real_time_offers_a_device_for_each_back_end(nn):
    devices = nn.devices()
    names = list(devices)
    assert names in (["nnapi-fast", "nnapi-reference"], ["nnapi-reference"])
    for device in devices.values():
        kind, level, version = C.c_int32(), C.c_int64(), C.c_char_p()
        assert nn.Device_getType(device, C.byref(kind)) == OK and kind.value == 2
        assert nn.Device_getFeatureLevel(device, C.byref(level)) == OK and level.value == 30
        assert nn.Device_getVersion(device, C.byref(version)) == OK and version.value == b"1.0"
        assert nn.Device_wait(device) == OK
    assert nn.emulator_phone() is None and nn.emulator_error() is None
    assert nn.emulator_identity() == b"" and nn.emulator_property(b"ro.product.model") is None
    handle = C.c_void_p()
    assert nn._getDevice(len(names), C.byref(handle)) == R.BAD_DATA
    assert nn._getDevice(0, None) == R.UNEXPECTED_NULL
    assert nn._getDeviceCount(None) == R.UNEXPECTED_NULL
    assert nn.Device_getName(None, None) == R.UNEXPECTED_NULL
    assert nn.Device_getName(device, None) == R.UNEXPECTED_NULL
    assert nn.Device_getType(None, C.byref(kind)) == R.UNEXPECTED_NULL
    assert nn.Device_getVersion(device, None) == R.UNEXPECTED_NULL
    assert nn.Device_getFeatureLevel(device, None) == R.UNEXPECTED_NULL
    assert nn.Device_wait(None) == R.UNEXPECTED_NULL
    assert nn._getDefaultLoopTimeout() == 2 * 10**9
    assert nn._getMaximumLoopTimeout() == 15 * 10**9


DEVICES = """
import sys
from tests.emulator.nnapi import Nnapi
nn = Nnapi(sys.argv[1])
error = nn.emulator_error()
print(",".join(nn.devices()), error.decode() if error else "fine")
"""


def devices_with(library, backend):
    environment = dict(os.environ, NNAPI_EMULATOR_BACKEND=backend)
    command = [sys.executable, "-c", DEVICES, str(library)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_one_back_end_can_be_chosen(nn, emulator_library):
    assert devices_with(emulator_library, "reference") == "nnapi-reference fine"
    assert devices_with(emulator_library, "") == ",".join(nn.devices()) + " fine"
    fast = devices_with(emulator_library, "fast")
    if "nnapi-fast" in nn.devices():
        assert fast == "nnapi-fast fine"
    else:
        assert fast.endswith('NNAPI_EMULATOR_BACKEND is "fast", this library has: reference')
    none = devices_with(emulator_library, "quick")
    assert none.startswith('NNAPI_EMULATOR_BACKEND is "quick", this library has: reference')


LEVELS = """
import ctypes as C, sys
from tests.emulator.nnapi import Nnapi, operand_type, u32

nn = Nnapi(sys.argv[1])
level = C.c_int64()
for device in nn.devices().values():
    nn.Device_getFeatureLevel(device, C.byref(level))
model = nn.new("Model_create")
kind = operand_type(3, (2, 3))  # TENSOR_FLOAT32
axes = operand_type(4, (1,))  # TENSOR_INT32
for one in (kind, axes, kind):
    nn.Model_addOperand(model, C.byref(one))
nn.Model_setOperandValue(model, 1, (C.c_int32 * 1)(0), 4)
result = nn.Model_addOperation(model, 105, 2, u32([0, 1]), 1, u32([2]))  # REVERSE
print(level.value, result, nn.emulator_error())
"""


@pytest.mark.parametrize(
    ("level", "found"),
    [
        ("", "30 4 None"),
        ("1000007", "1000007 0 None"),
        ("28", "28 4 None"),
        ("1000006", "1000006 4 None"),
        ("10000", "10000 4 None"),  # Android 10's CPU; models are checked at level 4
    ],
)
def test_the_feature_level_can_be_chosen(emulator_library, level, found):
    environment = dict(os.environ, NNAPI_EMULATOR_FEATURE_LEVEL=level)
    command = [sys.executable, "-c", LEVELS, str(emulator_library)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == found


@pytest.mark.parametrize("level", ["26", "32", "1000005", "1000009", "30x", "level"])
def test_other_feature_levels_leave_no_device(emulator_library, level):
    environment = dict(os.environ, NNAPI_EMULATOR_FEATURE_LEVEL=level)
    command = [sys.executable, "-c", DEVICES, str(emulator_library)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    expected = "wanted is 27 to 31, 1000006 to 1000008, or 10000"
    assert done.stdout.strip() == f'NNAPI_EMULATOR_FEATURE_LEVEL is "{level}", {expected}'


def test_real_time_clock_runs(nn):
    before = nn.emulator_now()
    assert nn.emulator_now() >= before > 0


# ---- results -----------------------------------------------------------------------------------


def test_operations_may_be_added_in_any_order(nn):
    model = Model(nn)
    a, b, c = (model.tensor(1, 8) for _ in range(3))
    zero = model.scalar(0)
    model.operation(ADD, [b, b, zero], [c])
    model.operation(RELU, [a], [b])
    model.finish([a], [c])
    supported = (C.c_bool * 2)()
    devices = list(nn.devices().values())
    call = nn.Model_getSupportedOperationsForDevices
    assert call(model.handle, handles(devices), 1, supported) == OK and list(supported) == [1, 1]
    compilation, result = model.compile(), np.zeros((1, 8), np.float32)
    execution = prepared(nn, compilation, [DATA], [result])
    assert nn.Execution_compute(execution) == OK
    np.testing.assert_array_equal(result, 2 * np.maximum(DATA, 0))
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


# ---- compilations ------------------------------------------------------------------------------


def test_device_lists(nn):
    model, handle = relu_chain(nn, 1), C.c_void_p()
    device = nn.devices()["nnapi-reference"]
    create, out = nn.Compilation_createForDevices, C.byref(handle)
    assert create(model.handle, None, 1, out) == R.UNEXPECTED_NULL
    assert create(model.handle, handles([device]), 0, out) == R.BAD_DATA
    assert create(model.handle, handles([None]), 1, out) == R.UNEXPECTED_NULL
    assert create(model.handle, handles([device, device]), 2, out) == R.BAD_DATA
    assert create(model.handle, handles([device]), 1, None) == R.UNEXPECTED_NULL
    assert create(model.handle, handles([C.c_void_p(8)]), 1, out) == R.BAD_DATA
    ask, supported = nn.Model_getSupportedOperationsForDevices, (C.c_bool * 1)()
    assert ask(model.handle, None, 1, supported) == R.UNEXPECTED_NULL
    assert ask(model.handle, handles([device]), 1, None) == R.UNEXPECTED_NULL
    assert ask(model.handle, handles([device]), 0, supported) == R.BAD_DATA
    assert ask(model.handle, handles([None]), 1, supported) == R.UNEXPECTED_NULL
    assert ask(model.handle, handles([device, device]), 2, supported) == R.BAD_DATA
    model.free()


def test_compilation_settings(nn, chain):
    model, finished = chain
    compilation, token = nn.new("Compilation_create", model.handle), (C.c_uint8 * 32)()
    assert nn.Compilation_setPreference(compilation, 3) == R.BAD_DATA
    assert nn.Compilation_setPreference(compilation, -1) == R.BAD_DATA
    assert nn.Compilation_setPreference(None, 1) == R.UNEXPECTED_NULL
    assert nn.Compilation_setPreference(compilation, 2) == OK
    assert nn.Compilation_setPriority(compilation, 95) == R.BAD_DATA
    assert nn.Compilation_setPriority(compilation, 110) == OK
    assert nn.Compilation_setCaching(compilation, b"/nowhere", token) == OK
    assert nn.Compilation_setCaching(compilation, None, token) == R.UNEXPECTED_NULL
    assert nn.Compilation_setTimeout(compilation, 10**9) == R.BAD_DATA  # no device was named
    handle = C.c_void_p()
    assert nn.Execution_create(compilation, C.byref(handle)) == R.BAD_STATE
    assert nn.Burst_create(compilation, C.byref(handle)) == R.BAD_STATE
    nn.Compilation_free(compilation)
    assert nn.Compilation_setPreference(finished, 1) == R.BAD_STATE
    assert nn.Compilation_setPriority(finished, 100) == R.BAD_STATE
    assert nn.Compilation_setCaching(finished, b"/nowhere", token) == R.BAD_STATE
    assert nn.Compilation_setTimeout(finished, 1) == R.BAD_STATE
    assert nn.Compilation_setTimeout(None, 1) == R.UNEXPECTED_NULL
    assert nn.Compilation_setPriority(None, 100) == R.UNEXPECTED_NULL
    assert nn.Compilation_finish(finished) == R.BAD_STATE
    assert nn.Compilation_finish(None) == R.UNEXPECTED_NULL
    nn.Compilation_free(None)


# ---- dumps ---------------------------------------------------------------------------------------

DUMPED = """
import sys
from tests.emulator.nnapi import Nnapi, relu_chain
nn = Nnapi(sys.argv[1])
for _ in range(2):
    relu_chain(nn, 3).compile()
"""


def test_plans_are_dumped_on_request(emulator_library, tmp_path):
    command = [sys.executable, "-c", DUMPED, str(emulator_library)]
    path = tmp_path / "plans.txt"
    subprocess.run(command, env=dict(os.environ, NNAPI_EMULATOR_DUMP=str(path)), check=True)
    once = path.read_text()
    assert "RELU" in once and len(once.splitlines()) % 2 == 0
    half = len(once) // 2
    assert once[:half] == once[half:]  # appended, one for each compilation
    to_error = dict(os.environ, NNAPI_EMULATOR_DUMP="-")
    done = subprocess.run(command, env=to_error, capture_output=True, text=True, check=True)
    assert done.stderr == once
    nowhere = dict(os.environ, NNAPI_EMULATOR_DUMP=str(tmp_path / "no" / "folder"))
    subprocess.run(command, env=nowhere, check=True)
