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
    CAST,
    INT32,
    OK,
    RELU,
    TENSOR_FLOAT32,
    TENSOR_INT32,
    UNAVAILABLE,
    Model,
    Result,
    convolution,
    function_names,
    handles,
    operand_type,
    prepared,
    relu_chain,
    set_input,
    set_output,
)

R = Result
DATA = np.array([[-1, 2, -3, 4, -5, 6, -7, 8]], np.float32)


@pytest.fixture
def chain(nn):
    """A compiled chain of two RELUs over [1, 8], for the one device by name."""
    model = relu_chain(nn, 2)
    device = nn.devices()["nnapi-reference"]
    compilation = model.compile([device])
    yield model, compilation
    nn.Compilation_free(compilation)
    model.free()


# ---- what exists -------------------------------------------------------------------------------


def test_every_function_up_to_api_30_is_exported(nn):
    header = Path(__file__).parents[2] / "device_agent" / "include" / "np_nnapi.h"
    found = re.findall(r"X\([^,]+, (ANeuralNetworks\w+), \(.*\), (\d+)\)", header.read_text())
    assert len(found) > 60
    for name, level in found:
        assert hasattr(nn.library, name) == (int(level) <= 30), name
    assert set(function_names()) <= {name for name, _ in found}


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


def test_real_time_clock_runs(nn):
    before = nn.emulator_now()
    assert nn.emulator_now() >= before > 0


# ---- results -----------------------------------------------------------------------------------


def test_convolution_agrees_with_numpy(nn):
    rng = np.random.default_rng(7)
    weights = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    bias = rng.standard_normal(4).astype(np.float32)
    data = rng.standard_normal((1, 8, 8, 3)).astype(np.float32)
    model = convolution(nn, weights=weights, bias=bias)
    compilation = model.compile()
    result = np.full((1, 8, 8, 4), np.nan, np.float32)
    execution = prepared(nn, compilation, [data], [result])
    assert nn.Execution_compute(execution) == OK
    padded = np.pad(data, ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = np.zeros((1, 8, 8, 4), np.float32) + bias
    for y in range(3):
        for x in range(3):
            wanted += padded[:, y : y + 8, x : x + 8] @ weights[:, y, x].T
    np.testing.assert_allclose(result, np.maximum(wanted, 0), rtol=1e-4, atol=1e-4)
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


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


def test_small_values_are_copied(nn):
    model = Model(nn)
    a, b, c = model.tensor(1, 8), model.tensor(1, 8), model.tensor(1, 8)
    values, fuse = np.ones((1, 8), np.float32), C.c_int32(0)
    act = model.operand(INT32)
    pointer = values.ctypes.data_as(C.c_void_p)
    assert nn.Model_setOperandValue(model.handle, b, pointer, values.nbytes) == OK
    assert nn.Model_setOperandValue(model.handle, act, C.byref(fuse), 4) == OK
    values[:] = 100
    fuse.value = 77
    model.operation(ADD, [a, b, act], [c])
    model.finish([a], [c])
    compilation, result = model.compile(), np.zeros((1, 8), np.float32)
    execution = prepared(nn, compilation, [DATA], [result])
    assert nn.Execution_compute(execution) == OK
    np.testing.assert_array_equal(result, DATA + 1)
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


def test_unknown_dimensions_are_given_by_the_execution(nn):
    model = Model(nn)
    a, b = model.tensor(0, 4), model.tensor(0, 0)
    model.operation(RELU, [a], [b])
    model.finish([a], [b])
    compilation, result = model.compile(), np.zeros(12, np.float32)
    execution = nn.new("Execution_create", compilation)
    data = DATA.reshape(2, 4)
    assert set_input(nn, execution, 0, data) == R.BAD_DATA
    assert set_input(nn, execution, 0, data, operand_type(3, (0, 4))) == R.BAD_DATA
    assert set_input(nn, execution, 0, data, operand_type(3, (2, 5))) == R.BAD_DATA
    assert set_input(nn, execution, 0, data, operand_type(3, (2,))) == R.BAD_DATA
    assert set_input(nn, execution, 0, data, operand_type(3, (3, 4))) == R.BAD_DATA
    assert set_input(nn, execution, 0, data, operand_type(3, (2, 4))) == OK
    assert set_output(nn, execution, 0, result) == OK  # larger than needed
    assert nn.Execution_compute(execution) == OK
    rank, dims = C.c_uint32(), (C.c_uint32 * 4)()
    assert nn.Execution_getOutputOperandRank(execution, 0, C.byref(rank)) == OK
    assert nn.Execution_getOutputOperandDimensions(execution, 0, dims) == OK
    assert rank.value == 2 and list(dims)[:2] == [2, 4]
    np.testing.assert_array_equal(result[:8], np.maximum(DATA.ravel(), 0))
    assert nn.Execution_getOutputOperandRank(execution, 1, C.byref(rank)) == R.BAD_DATA
    nn.Execution_free(execution)

    small = np.zeros(3, np.float32)
    execution = nn.new("Execution_create", compilation)
    assert set_input(nn, execution, 0, data, operand_type(3, (2, 4))) == OK
    assert set_output(nn, execution, 0, small) == OK
    assert nn.Execution_compute(execution) == R.OUTPUT_INSUFFICIENT_SIZE
    call = nn.Execution_getOutputOperandDimensions
    assert call(execution, 0, dims) == R.OUTPUT_INSUFFICIENT_SIZE and list(dims)[:2] == [2, 4]
    assert not small.any()
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


# ---- executions --------------------------------------------------------------------------------


def test_arguments(nn, chain):
    execution, result = nn.new("Execution_create", chain[1]), np.zeros((1, 8), np.float32)
    assert set_input(nn, execution, 1, DATA) == R.BAD_DATA
    assert set_input(nn, execution, -1, DATA) == R.BAD_DATA
    assert set_input(nn, execution, 0, DATA[:, :7]) == R.BAD_DATA
    assert set_input(nn, execution, 0, DATA, operand_type(TENSOR_INT32, (1, 8))) == R.BAD_DATA
    assert set_input(nn, execution, 0, DATA, operand_type(TENSOR_FLOAT32, (2, 4))) == R.BAD_DATA
    assert set_output(nn, execution, 0, result[:, :7]) == R.BAD_DATA
    assert set_output(nn, execution, 1, result) == R.BAD_DATA
    assert nn.Execution_setInput(execution, 0, None, None, 32) == R.UNEXPECTED_NULL
    assert nn.Execution_setOutput(None, 0, None, None, 0) == R.UNEXPECTED_NULL
    assert nn.Execution_compute(execution) == R.BAD_DATA  # nothing is set
    assert set_input(nn, execution, 0, DATA) == OK
    assert nn.Execution_compute(execution) == R.BAD_DATA  # the output is not set
    assert nn.Execution_setOutput(execution, 0, None, result.ctypes.data, 0) == R.BAD_DATA
    assert set_output(nn, execution, 0, result) == OK
    assert set_input(nn, execution, 0, DATA) == R.BAD_STATE  # they are set
    assert set_output(nn, execution, 0, result) == R.BAD_STATE
    assert nn.Execution_compute(execution) == OK
    np.testing.assert_array_equal(result, np.maximum(DATA, 0))
    nn.Execution_free(execution)
    nn.Execution_free(None)


def test_needed_inputs_cannot_be_omitted(nn, chain):
    result = np.zeros((1, 8), np.float32)
    execution = nn.new("Execution_create", chain[1])
    assert nn.Execution_setInput(execution, 0, None, None, 0) == OK
    assert set_output(nn, execution, 0, result) == OK
    assert nn.Execution_compute(execution) == R.BAD_DATA
    rank = C.c_uint32()
    assert nn.Execution_getOutputOperandRank(execution, 0, C.byref(rank)) == R.BAD_STATE
    nn.Execution_free(execution)


def test_a_cast_needs_its_input(nn):
    """CAST is what the lowering puts between an optional input and its reader: that one may be
    left out, a CAST of the model's may not."""
    model = Model(nn)
    a, b = model.tensor(1, 8), model.tensor(1, 8)
    model.operation(CAST, [a], [b])
    compilation = model.finish([a], [b]).compile()
    execution, result = nn.new("Execution_create", compilation), np.zeros((1, 8), np.float32)
    assert nn.Execution_setInput(execution, 0, None, None, 0) == OK
    assert set_output(nn, execution, 0, result) == OK
    assert nn.Execution_compute(execution) == R.BAD_DATA
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


def test_outputs_may_be_omitted(nn, chain):
    execution = nn.new("Execution_create", chain[1])
    assert set_input(nn, execution, 0, DATA) == OK
    assert nn.Execution_setOutput(execution, 0, None, None, 0) == OK
    assert nn.Execution_compute(execution) == OK
    nn.Execution_free(execution)


def test_scalars_are_inputs(nn):
    model = Model(nn)
    a, b, act, c = model.tensor(1, 8), model.tensor(1, 8), model.operand(INT32), model.tensor(1, 8)
    model.operation(ADD, [a, b, act], [c])
    compilation = model.finish([a, b, act], [c]).compile()
    for code, wanted in ((0, DATA - 1), (1, np.maximum(DATA - 1, 0))):
        result = np.zeros((1, 8), np.float32)
        inputs = [DATA, -np.ones((1, 8), np.float32), np.array(code, np.int32)]
        execution = prepared(nn, compilation, inputs, [result])
        assert nn.Execution_compute(execution) == OK
        np.testing.assert_array_equal(result, wanted)
        nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


def test_promised_output_shapes_are_kept(nn):
    """An output type given to an execution holds: another shape of the same size is refused."""
    model = Model(nn)
    a, b = model.tensor(0, 0), model.tensor(0, 0)
    model.operation(RELU, [a], [b])
    compilation = model.finish([a], [b]).compile()
    data = DATA.reshape(2, 4)
    for promised, wanted in (
        ((2, 4), OK),
        ((2, 0), OK),
        ((4, 2), R.OP_FAILED),
        ((0, 2), R.OP_FAILED),
    ):
        result = np.zeros(8, np.float32)
        execution = nn.new("Execution_create", compilation)
        assert set_input(nn, execution, 0, data, operand_type(3, (2, 4))) == OK
        assert set_output(nn, execution, 0, result, operand_type(3, promised)) == OK
        assert nn.Execution_compute(execution) == wanted, promised
        nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


def test_executions_run_once(nn, chain):
    result, rank, ns = np.zeros((1, 8), np.float32), C.c_uint32(), C.c_uint64(5)
    execution = prepared(nn, chain[1], [DATA], [result])
    dims = (C.c_uint32 * 2)()
    assert nn.Execution_getOutputOperandRank(execution, 0, C.byref(rank)) == R.BAD_STATE
    assert nn.Execution_getOutputOperandDimensions(execution, 0, dims) == R.BAD_STATE
    assert nn.Execution_setTimeout(execution, 10**9) == OK
    assert nn.Execution_setLoopTimeout(execution, 10**9) == OK
    assert nn.Execution_compute(execution) == OK
    assert nn.Execution_compute(execution) == R.BAD_STATE
    assert set_input(nn, execution, 0, DATA) == R.BAD_STATE
    assert set_output(nn, execution, 0, result) == R.BAD_STATE
    assert nn.Execution_setMeasureTiming(execution, True) == R.BAD_STATE
    assert nn.Execution_setTimeout(execution, 10**9) == R.BAD_STATE
    assert nn.Execution_setLoopTimeout(execution, 10**9) == R.BAD_STATE
    event = C.c_void_p()
    assert nn.Execution_startCompute(execution, C.byref(event)) == R.BAD_STATE
    assert nn.Execution_getDuration(execution, 0, C.byref(ns)) == R.BAD_STATE
    assert ns.value == UNAVAILABLE
    nn.Execution_free(execution)


def test_duration_is_real_time(nn, chain):
    result, ns = np.zeros((1, 8), np.float32), C.c_uint64()
    execution = prepared(nn, chain[1], [DATA], [result])
    assert nn.Execution_setMeasureTiming(execution, True) == OK
    assert nn.Execution_getDuration(execution, 0, C.byref(ns)) == R.BAD_STATE
    before = nn.emulator_now()
    assert nn.Execution_compute(execution) == OK
    elapsed = nn.emulator_now() - before
    for code in range(4):
        assert nn.Execution_getDuration(execution, code, C.byref(ns)) == OK
        assert 0 < ns.value <= elapsed
    assert nn.Execution_getDuration(execution, 4, C.byref(ns)) == R.BAD_DATA
    assert nn.Execution_getDuration(execution, 0, None) == R.UNEXPECTED_NULL
    nn.Execution_free(execution)


def test_timing_needs_one_named_device(nn, chain):
    compilation = chain[0].compile()
    execution = nn.new("Execution_create", compilation)
    assert nn.Execution_setMeasureTiming(execution, True) == R.BAD_DATA
    assert nn.Execution_setTimeout(execution, 1) == R.BAD_DATA
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)


# ---- deadlines -----------------------------------------------------------------------------------


def test_compilation_deadline(nn, chain):
    model, device = chain[0], next(iter(nn.devices().values()))
    make = nn.Compilation_createForDevices
    for duration, wanted in ((1, R.MISSED_DEADLINE_PERSISTENT), (0, OK), (2**64 - 1, OK)):
        compilation = C.c_void_p()
        assert make(model.handle, handles([device]), 1, C.byref(compilation)) == OK
        assert nn.Compilation_setTimeout(compilation, duration) == OK
        assert nn.Compilation_finish(compilation) == wanted
        execution = C.c_void_p()
        made = nn.Execution_create(compilation, C.byref(execution))
        assert made == (OK if wanted == OK else R.BAD_STATE)
        nn.Execution_free(execution)
        nn.Compilation_free(compilation)


def test_execution_deadline(nn, chain):
    missed = (R.MISSED_DEADLINE_PERSISTENT, R.MISSED_DEADLINE_TRANSIENT)
    for duration, wanted in ((1, missed), (0, (OK,)), (2**64 - 1, (OK,))):
        result, rank = np.zeros((1, 8), np.float32), C.c_uint32()
        execution = prepared(nn, chain[1], [DATA], [result])
        assert nn.Execution_setTimeout(execution, duration) == OK
        assert nn.Execution_compute(execution) in wanted
        shape = nn.Execution_getOutputOperandRank(execution, 0, C.byref(rank))
        assert shape == (OK if wanted == (OK,) else R.BAD_STATE)
        assert result.any() == (wanted == (OK,))
        nn.Execution_free(execution)


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
