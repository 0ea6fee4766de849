"""The NNAPI C API through ctypes, as the emulator's tests call it.

Every method of :class:`Nnapi` is the C function of that name without its ``ANeuralNetworks`` prefix
and returns its result code; nothing is checked or hidden here, since result codes are what is
tested. :class:`Model` builds a model in fewer words and does check.
"""

import ctypes as C
import enum
import itertools
from pathlib import Path

import numpy as np


class Result(enum.IntEnum):
    """What a function returns."""

    NO_ERROR = 0
    OUT_OF_MEMORY = 1
    INCOMPLETE = 2
    UNEXPECTED_NULL = 3
    BAD_DATA = 4
    OP_FAILED = 5
    BAD_STATE = 6
    UNMAPPABLE = 7
    OUTPUT_INSUFFICIENT_SIZE = 8
    UNAVAILABLE_DEVICE = 9
    MISSED_DEADLINE_TRANSIENT = 10
    MISSED_DEADLINE_PERSISTENT = 11
    RESOURCE_EXHAUSTED_TRANSIENT = 12
    RESOURCE_EXHAUSTED_PERSISTENT = 13
    DEAD_OBJECT = 14


OK = Result.NO_ERROR
UNAVAILABLE = 2**64 - 1  # what getDuration gives where it cannot tell

FLOAT32, INT32, UINT32, TENSOR_FLOAT32, TENSOR_INT32 = 0, 1, 2, 3, 4
TENSOR_QUANT8_ASYMM, BOOL = 5, 6
TENSOR_QUANT16_SYMM, TENSOR_FLOAT16, TENSOR_BOOL8, FLOAT16 = 7, 8, 9, 10
TENSOR_QUANT8_SYMM_PER_CHANNEL, MODEL = 11, 15
TENSOR_QUANT16_ASYMM, TENSOR_QUANT8_SYMM, TENSOR_QUANT8_ASYMM_SIGNED = 12, 13, 14
ADD, CONV_2D, FULLY_CONNECTED, LOGISTIC, LSTM, MUL, RELU, RESHAPE = 0, 3, 9, 14, 16, 18, 19, 22
BOX_WITH_NMS_LIMIT = 44
SOFTMAX, TANH, CAST, LESS, IF, WHILE = 25, 28, 45, 58, 96, 97
LOW_POWER, FAST, SUSTAINED = 0, 1, 2


class OperandType(C.Structure):
    _fields_ = [
        ("type", C.c_int32),
        ("dimensionCount", C.c_uint32),
        ("dimensions", C.POINTER(C.c_uint32)),
        ("scale", C.c_float),
        ("zeroPoint", C.c_int32),
    ]


class ChannelQuant(C.Structure):
    _fields_ = [
        ("channelDim", C.c_uint32),
        ("scaleCount", C.c_uint32),
        ("scales", C.POINTER(C.c_float)),
    ]


class Work(C.Structure):
    """struct np_work of np_executor.h."""

    _fields_ = [
        ("macs", C.c_uint64),
        ("input_bytes", C.c_uint64),
        ("output_bytes", C.c_uint64),
        ("constant_bytes", C.c_uint64),
        ("type", C.c_int32),
    ]


_P, _I, _U, _Z, _Q = C.c_void_p, C.c_int32, C.c_uint32, C.c_size_t, C.c_uint64
_PP, _PU = C.POINTER(C.c_void_p), C.POINTER(C.c_uint32)
_TYPE = C.POINTER(OperandType)
_SIGNATURES = {
    "_getDeviceCount": [_PU],
    "_getDevice": [_U, _PP],
    "_getDefaultLoopTimeout": [],
    "_getMaximumLoopTimeout": [],
    "Device_getName": [_P, C.POINTER(C.c_char_p)],
    "Device_getVersion": [_P, C.POINTER(C.c_char_p)],
    "Device_getType": [_P, C.POINTER(C.c_int32)],
    "Device_getFeatureLevel": [_P, C.POINTER(C.c_int64)],
    "Device_wait": [_P],
    "Model_create": [_PP],
    "Model_free": [_P],
    "Model_addOperand": [_P, _TYPE],
    "Model_setOperandValue": [_P, _I, _P, _Z],
    "Model_setOperandValueFromMemory": [_P, _I, _P, _Z, _Z],
    "Model_setOperandValueFromModel": [_P, _I, _P],
    "Model_setOperandSymmPerChannelQuantParams": [_P, _I, C.POINTER(ChannelQuant)],
    "Model_addOperation": [_P, _I, _U, _PU, _U, _PU],
    "Model_identifyInputsAndOutputs": [_P, _U, _PU, _U, _PU],
    "Model_relaxComputationFloat32toFloat16": [_P, C.c_bool],
    "Model_finish": [_P],
    "Model_getSupportedOperationsForDevices": [_P, _PP, _U, C.POINTER(C.c_bool)],
    "Compilation_create": [_P, _PP],
    "Compilation_createForDevices": [_P, _PP, _U, _PP],
    "Compilation_free": [_P],
    "Compilation_setPreference": [_P, _I],
    "Compilation_setCaching": [_P, C.c_char_p, _P],
    "Compilation_setPriority": [_P, C.c_int],
    "Compilation_setTimeout": [_P, _Q],
    "Compilation_finish": [_P],
    "Execution_create": [_P, _PP],
    "Execution_free": [_P],
    "Execution_setInput": [_P, _I, _TYPE, _P, _Z],
    "Execution_setOutput": [_P, _I, _TYPE, _P, _Z],
    "Execution_setInputFromMemory": [_P, _I, _TYPE, _P, _Z, _Z],
    "Execution_setOutputFromMemory": [_P, _I, _TYPE, _P, _Z, _Z],
    "Execution_compute": [_P],
    "Execution_startCompute": [_P, _PP],
    "Execution_startComputeWithDependencies": [_P, _PP, _U, _Q, _PP],
    "Execution_burstCompute": [_P, _P],
    "Execution_setMeasureTiming": [_P, C.c_bool],
    "Execution_getDuration": [_P, _I, C.POINTER(_Q)],
    "Execution_getOutputOperandRank": [_P, _I, _PU],
    "Execution_getOutputOperandDimensions": [_P, _I, _PU],
    "Execution_setTimeout": [_P, _Q],
    "Execution_setLoopTimeout": [_P, _Q],
    "Burst_create": [_P, _PP],
    "Burst_free": [_P],
    "Event_wait": [_P],
    "Event_free": [_P],
    "Event_createFromSyncFenceFd": [C.c_int, _PP],
    "Event_getSyncFenceFd": [_P, C.POINTER(C.c_int)],
    "Memory_createFromFd": [_Z, C.c_int, C.c_int, _Z, _PP],
    "Memory_createFromAHardwareBuffer": [_P, _PP],
    "Memory_createFromDesc": [_P, _PP],
    "Memory_copy": [_P, _P],
    "Memory_free": [_P],
    "MemoryDesc_create": [_PP],
    "MemoryDesc_free": [_P],
    "MemoryDesc_addInputRole": [_P, _P, _U, C.c_float],
    "MemoryDesc_addOutputRole": [_P, _P, _U, C.c_float],
    "MemoryDesc_setDimensions": [_P, _U, _PU],
    "MemoryDesc_finish": [_P],
}
_VOID = {name for name in _SIGNATURES if name.endswith("_free")}


def function_names():
    """Names of all functions that :class:`Nnapi` binds, as the library exports them."""
    return ["ANeuralNetworks" + name for name in _SIGNATURES]


class Nnapi:
    """The functions of one library."""

    def __init__(self, path: Path):
        self.library = C.CDLL(str(path))
        for name, types in _SIGNATURES.items():
            function = getattr(self.library, "ANeuralNetworks" + name)
            function.argtypes = types
            timeout = name.endswith("LoopTimeout") and name.startswith("_get")
            function.restype = None if name in _VOID else _Q if timeout else Result
            setattr(self, name, function)
        for name, result, types in (
            ("phone", C.c_char_p, []),
            ("error", C.c_char_p, []),
            ("identity", C.c_char_p, []),
            ("property", C.c_char_p, [C.c_char_p]),
            ("now", _Q, []),
            ("cpu_run", None, [C.POINTER(C.c_int32), C.POINTER(Work), _U, _U]),
            ("idle", None, [_Q]),
            ("temperature", C.c_int64, []),
            ("cpu_khz", C.c_int64, []),
            ("lanes", C.c_int32, [_U]),
            ("enter", None, [_U]),
            ("leave", None, []),
            ("driver_ns", _Q, []),
        ):
            function = getattr(self.library, "np_emulator_" + name)
            function.restype, function.argtypes = result, types
            setattr(self, "emulator_" + name, function)

    def new(self, name, *arguments):
        """Calls a function whose last argument receives a handle, which must succeed."""
        handle = _P()
        result = getattr(self, name)(*arguments, C.byref(handle))
        assert result == OK, f"{name}: {result!r}"
        assert handle.value
        return handle

    def devices(self):
        """Handles of all devices by name."""
        count = _U()
        assert self._getDeviceCount(C.byref(count)) == OK
        items = {}
        for i in range(count.value):
            device, name = self.new("_getDevice", i), C.c_char_p()
            assert self.Device_getName(device, C.byref(name)) == OK
            items[name.value.decode()] = device
        return items


def u32(values):
    """An array of uint32, never empty in memory."""
    return (C.c_uint32 * max(1, len(values)))(*values)


def handles(items):
    """An array of handles."""
    return (C.c_void_p * max(1, len(items)))(*[getattr(i, "value", i) for i in items])


def operand_type(code, dims=(), scale=0.0, zero_point=0):
    """An operand type; the array of dimensions lives as long as the object."""
    array = u32(dims)
    return OperandType(code, len(dims), array if len(dims) else None, scale, zero_point)


class Model:
    """A model under construction; every call must succeed."""

    def __init__(self, nn):
        self.nn, self.handle, self._n, self._keep = nn, nn.new("Model_create"), 0, []

    def operand(self, code, dims=(), scale=0.0, zero_point=0):
        result = self.nn.Model_addOperand(
            self.handle, C.byref(operand_type(code, dims, scale, zero_point))
        )
        assert result == OK, repr(result)
        self._n += 1
        return self._n - 1

    def tensor(self, *dims):
        return self.operand(TENSOR_FLOAT32, dims)

    def constant(self, array):
        """A constant tensor; float32 or int32 by the array's type."""
        array = np.ascontiguousarray(array)
        code = {"f": TENSOR_FLOAT32, "i": TENSOR_INT32}[array.dtype.kind]
        self._keep.append(array)
        index = self.operand(code, array.shape)
        pointer = array.ctypes.data_as(_P)
        assert self.nn.Model_setOperandValue(self.handle, index, pointer, array.nbytes) == OK
        return index

    def keep(self, array):
        """Keeps an array alive as long as the model may read it."""
        self._keep.append(array)

    def scalar(self, value):
        """An INT32, FLOAT32 or BOOL scalar by the value's Python type."""
        types = {int: (INT32, C.c_int32), float: (FLOAT32, C.c_float), bool: (BOOL, C.c_uint8)}
        code, ctype = types[type(value)]
        index, value = self.operand(code), ctype(value)
        size = C.sizeof(value)
        assert self.nn.Model_setOperandValue(self.handle, index, C.byref(value), size) == OK
        return index

    def operation(self, code, inputs, outputs):
        result = self.add_operation(code, inputs, outputs)
        assert result == OK, repr(result)

    def add_operation(self, code, inputs, outputs):
        return self.nn.Model_addOperation(
            self.handle, code, len(inputs), u32(inputs), len(outputs), u32(outputs)
        )

    def identify(self, inputs, outputs):
        return self.nn.Model_identifyInputsAndOutputs(
            self.handle, len(inputs), u32(inputs), len(outputs), u32(outputs)
        )

    def finish(self, inputs, outputs):
        assert self.identify(inputs, outputs) == OK
        result = self.nn.Model_finish(self.handle)
        assert result == OK, repr(result)
        return self

    def compile(self, devices=None, preference=None):
        """A finished compilation, for all devices where none are given."""
        compilation, result = self.try_compile(devices, preference)
        assert result == OK, repr(result)
        return compilation

    def try_compile(self, devices=None, preference=None):
        """A compilation and what its finish returned."""
        if devices is None:
            compilation = self.nn.new("Compilation_create", self.handle)
        else:
            compilation = self.nn.new(
                "Compilation_createForDevices", self.handle, handles(devices), len(devices)
            )
        if preference is not None:
            assert self.nn.Compilation_setPreference(compilation, preference) == OK
        return compilation, self.nn.Compilation_finish(compilation)

    def free(self):
        self.nn.Model_free(self.handle)


def set_input(nn, execution, index, array, operand=None):
    operand = C.byref(operand) if operand is not None else None
    pointer = array.ctypes.data_as(_P)
    return nn.Execution_setInput(execution, index, operand, pointer, array.nbytes)


def set_output(nn, execution, index, array, operand=None):
    operand = C.byref(operand) if operand is not None else None
    pointer = array.ctypes.data_as(_P)
    return nn.Execution_setOutput(execution, index, operand, pointer, array.nbytes)


def prepared(nn, compilation, inputs, outputs):
    """An execution with its arguments set."""
    execution = nn.new("Execution_create", compilation)
    for i, array in enumerate(inputs):
        assert set_input(nn, execution, i, array) == OK
    for i, array in enumerate(outputs):
        assert set_output(nn, execution, i, array) == OK
    return execution


def relu_chain(nn, length, dims=(1, 8), code=RELU):
    """A finished model of `length` element-wise operations in a row."""
    model = Model(nn)
    tensors = [model.tensor(*dims) for _ in range(length + 1)]
    for before, after in itertools.pairwise(tensors):
        model.operation(code, [before], [after])
    return model.finish(tensors[:1], tensors[-1:])


def convolution(nn, size=8, depth_in=3, depth_out=4, weights=None, bias=None):
    """A finished model of one 3x3 convolution, same padding, fused RELU:
    [1, size, size, depth_in] -> [1, size, size, depth_out]."""
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((depth_out, 3, 3, depth_in)) if weights is None else weights
    bias = rng.standard_normal(depth_out) if bias is None else bias
    model = Model(nn)
    source = model.tensor(1, size, size, depth_in)
    weight = model.constant(weights.astype(np.float32))
    offset = model.constant(bias.astype(np.float32))
    numbers = [model.scalar(v) for v in (1, 1, 1, 1)]  # SAME, strides, fused RELU
    target = model.tensor(1, size, size, depth_out)
    model.operation(CONV_2D, [source, weight, offset, *numbers], [target])
    return model.finish([source], [target])
