"""The NNAPI C API through ctypes, as the emulator's tests call it.

A method of :class:`Nnapi` with a capital is the C function of that name without its
``ANeuralNetworks`` prefix and returns its result code; nothing is checked or hidden there, since
result codes are what is tested. Others, and :class:`Model`, say in fewer words what must succeed.
"""

import ctypes as C
import enum
import itertools
import re
from pathlib import Path

import numpy as np

from nnapi_prof.nnapi.codes import OperandCode, OperationCode

Result = enum.IntEnum(
    "Result",
    "NO_ERROR OUT_OF_MEMORY INCOMPLETE UNEXPECTED_NULL BAD_DATA OP_FAILED BAD_STATE UNMAPPABLE "
    "OUTPUT_INSUFFICIENT_SIZE UNAVAILABLE_DEVICE MISSED_DEADLINE_TRANSIENT "
    "MISSED_DEADLINE_PERSISTENT RESOURCE_EXHAUSTED_TRANSIENT RESOURCE_EXHAUSTED_PERSISTENT "
    "DEAD_OBJECT",
    start=0,
)
"""What a function returns."""
R, T, Op, OK = Result, OperandCode, OperationCode, Result.NO_ERROR
DTYPES = {
    **dict.fromkeys((T.FLOAT32, T.TENSOR_FLOAT32), np.float32),
    **dict.fromkeys((T.FLOAT16, T.TENSOR_FLOAT16), np.float16),
    **dict.fromkeys((T.INT32, T.TENSOR_INT32), np.int32),
    **dict.fromkeys((T.BOOL, T.TENSOR_BOOL8, T.TENSOR_QUANT8_ASYMM), np.uint8),
    **dict.fromkeys((T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT8_SYMM_PER_CHANNEL), np.int8),
    T.TENSOR_QUANT8_ASYMM_SIGNED: np.int8,
    T.TENSOR_QUANT16_SYMM: np.int16,
    T.TENSOR_QUANT16_ASYMM: np.uint16,
}
DATA = np.array([[-1, 2, -3, 4, -5, 6, -7, 8]], np.float32)
POSITIVE = np.maximum(DATA, 0)


class OperandType(C.Structure):
    _fields_ = [
        *(("type", C.c_int32), ("dimensionCount", C.c_uint32)),
        *(("dimensions", C.POINTER(C.c_uint32)), ("scale", C.c_float), ("zeroPoint", C.c_int32)),
    ]


class ChannelQuant(C.Structure):
    _fields_ = [
        *(("channelDim", C.c_uint32), ("scaleCount", C.c_uint32)),
        ("scales", C.POINTER(C.c_float)),
    ]


class Work(C.Structure):
    """struct np_work of np_executor.h."""

    _fields_ = [
        *((name, C.c_uint64) for name in ("macs", "input_bytes", "output_bytes", "constant_bytes")),
        ("type", C.c_int32),
    ]


HEADER = Path(__file__).parents[2] / "device_agent" / "include" / "np_nnapi.h"
FUNCTIONS = re.findall(
    r"X\((\w+), ANeuralNetworks(\w+), \((.*)\), (\d+)\)", HEADER.read_text(encoding="utf-8")
)
"""Result, name, parameters and API level of each."""
C_TYPES = {
    **{name: getattr(C, f"c_{name}") for name in ("bool", "float", "int")},
    **{f"{name}_t": getattr(C, f"c_{name}") for name in ("int32", "int64", "uint32", "uint64")},
    "void": None,
    "size_t": C.c_size_t,
    "ANeuralNetworksOperationType": C.c_int32,
}
EMULATOR_FUNCTIONS = {
    **dict.fromkeys(("phone", "error", "identity"), (C.c_char_p, [])),
    "property": (C.c_char_p, [C.c_char_p]),
    **dict.fromkeys(("now", "driver_ns"), (C.c_uint64, [])),
    **dict.fromkeys(("temperature", "cpu_khz"), (C.c_int64, [])),
    "cpu_run": (None, [C.c_void_p, C.c_void_p, C.c_uint32, C.c_uint32]),
    "idle": (None, [C.c_uint64]),
    "lanes": (C.c_int32, [C.c_uint32]),
    "enter": (None, [C.c_uint32]),
    "leave": (None, []),
}


def argument_types(parameters):
    """ctypes' types of a list of C parameters."""
    each = parameters.replace("(void)", "").split(", ")
    types = [C.c_void_p if "*" in one else C_TYPES[one.split()[0]] for one in each]
    return [] if types == [None] else types


class Nnapi:
    """The functions of one library."""

    def __init__(self, path: Path):
        self.library = C.CDLL(str(path))
        self._open = {}
        self._kept = []
        for result, name, parameters, _ in FUNCTIONS:
            function = getattr(self.library, "ANeuralNetworks" + name, None)
            if function is None:
                continue
            function.argtypes = argument_types(parameters)
            function.restype = Result if result == "int" else C_TYPES[result]
            setattr(self, name, self._forgetting(function) if name.endswith("_free") else function)
        for name, (result, types) in EMULATOR_FUNCTIONS.items():
            function = getattr(self.library, "np_emulator_" + name)
            function.restype, function.argtypes = result, types
            setattr(self, "emulator_" + name, function)

    def _forgetting(self, free):
        def freed(handle):
            self._open.pop(getattr(handle, "value", handle), None)
            free(handle)

        return freed

    def new(self, name, *arguments):
        """Calls a function whose last argument receives a handle, which must succeed."""
        handle = C.c_void_p()
        result = getattr(self, name)(*arguments, C.byref(handle))
        assert result == OK, f"{name}: {result!r}"
        assert handle.value
        kind = "Event" if "startCompute" in name else name.partition("_")[0]
        if kind:  # a device is nobody's to free
            self._open[handle.value] = getattr(self, kind + "_free")
        return handle

    def keep(self, value):
        """Keeps what the library may still read, until :meth:`free_all`."""
        self._kept.append(value)
        return value

    def free_all(self):
        """Frees what :meth:`new` made and nobody freed, the last first."""
        for handle, free in reversed(list(self._open.items())):
            free(handle)
        self._kept.clear()

    def devices(self):
        """Handles of all devices by name."""
        count = C.c_uint32()
        assert self._getDeviceCount(C.byref(count)) == OK
        items = {}
        for i in range(count.value):
            device, name = self.new("_getDevice", i), C.c_char_p()
            assert self.Device_getName(device, C.byref(name)) == OK
            items[name.value.decode()] = device
        return items

    def levels(self):
        """Feature levels of all devices by name."""
        level, items = C.c_int64(), {}
        for name, device in self.devices().items():
            assert self.Device_getFeatureLevel(device, C.byref(level)) == OK
            items[name] = level.value
        return items

    def set_input(self, execution, index, array, operand=None):
        address, operand = self.keep(array).ctypes.data, operand and C.byref(operand)
        return self.Execution_setInput(execution, index, operand, address, array.nbytes)

    def set_output(self, execution, index, array, operand=None):
        operand = operand and C.byref(operand)
        return self.Execution_setOutput(execution, index, operand, array.ctypes.data, array.nbytes)

    def prepared(self, compilation, inputs, outputs, shapes=()):
        """An execution with its arguments set: arrays without elements are left out, and operand
        types state the shapes of the first inputs."""
        execution = self.new("Execution_create", compilation)
        for i, (array, shape) in enumerate(itertools.zip_longest(inputs, shapes)):
            if array.size:
                assert self.set_input(execution, i, array, shape) == OK
            else:
                assert self.Execution_setInput(execution, i, None, None, 0) == OK
        for i, array in enumerate(outputs):
            assert self.set_output(execution, i, array) == OK
        return execution

    def compute(self, compilation, *inputs, dims=(1, 8), shapes=()):
        """The float output of an execution, which must succeed."""
        result = np.zeros(dims, np.float32)
        execution = self.prepared(compilation, inputs, [result], shapes)
        assert self.Execution_compute(execution) == OK
        self.Execution_free(execution)
        return result

    def shape_of(self, execution, index):
        """Result code and dimensions of an output."""
        rank, dims = C.c_uint32(), (C.c_uint32 * 8)()
        code = self.Execution_getOutputOperandRank(execution, index, C.byref(rank))
        if rank.value:
            assert self.Execution_getOutputOperandDimensions(execution, index, dims) == code
        return code, list(dims)[: rank.value]

    def duration(self, execution, code):
        """Result code and time in ns."""
        ns = C.c_uint64()
        return self.Execution_getDuration(execution, code, C.byref(ns)), ns.value

    def execute(self, compilation, execution, mode):
        """The result of an execution that runs "sync", "async" or as a "burst"."""
        if mode == "burst":
            burst = self.new("Burst_create", compilation)
            result = self.Execution_burstCompute(execution, burst)
            self.Burst_free(burst)
            return result
        if mode == "async":
            event = self.new("Execution_startCompute", execution)
            result = self.Event_wait(event)
            self.Event_free(event)
            return result
        return self.Execution_compute(execution)


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
        self.nn, self.handle, self._n = nn, nn.new("Model_create"), 0

    def operand(self, code, dims=(), scale=0.0, zero_point=0, channels=(), channel_dim=0):
        kind = operand_type(code, dims, scale, zero_point)
        result = self.nn.Model_addOperand(self.handle, C.byref(kind))
        assert result == OK, repr(result)
        self._n += 1
        if channels:
            scales = (C.c_float * len(channels))(*channels)
            quant = ChannelQuant(channel_dim, len(scales), scales)
            setter = self.nn.Model_setOperandSymmPerChannelQuantParams
            assert setter(self.handle, self._n - 1, C.byref(quant)) == OK
        return self._n - 1

    def tensor(self, *dims):
        return self.operand(T.TENSOR_FLOAT32, dims)

    def tensors(self, count, *dims):
        return [self.tensor(*dims) for _ in range(count)]

    def value(self, index, array):
        """Gives an operand its value."""
        array = self.nn.keep(np.ascontiguousarray(array))
        pointer = array.ctypes.data if array.nbytes else None  # none: left out
        assert self.nn.Model_setOperandValue(self.handle, index, pointer, array.nbytes) == OK
        return index

    def constant(self, array):
        """A constant tensor; float32 or int32 by the array's type."""
        code = {"f": T.TENSOR_FLOAT32, "i": T.TENSOR_INT32}[array.dtype.kind]
        return self.value(self.operand(code, array.shape), array)

    def scalar(self, value):
        """An INT32, FLOAT32 or BOOL scalar by the value's Python type."""
        code = {int: T.INT32, float: T.FLOAT32, bool: T.BOOL}[type(value)]
        return self.value(self.operand(code), np.array(value, DTYPES[code]))

    def model(self, value):
        """An operand whose value is another model."""
        index = self.operand(T.MODEL)
        assert self.nn.Model_setOperandValueFromModel(self.handle, index, value.handle) == OK
        return index

    def operation(self, code, inputs, outputs):
        result = self.add_operation(code, inputs, outputs)
        assert result == OK, repr(result)

    def add_operation(self, code, inputs, outputs):
        return self.nn.Model_addOperation(
            self.handle, code, len(inputs), u32(inputs), len(outputs), u32(outputs)
        )

    def relax(self, allow=True):
        assert self.nn.Model_relaxComputationFloat32toFloat16(self.handle, allow) == OK

    def identify(self, inputs, outputs):
        return self.nn.Model_identifyInputsAndOutputs(
            self.handle, len(inputs), u32(inputs), len(outputs), u32(outputs)
        )

    def finish(self, inputs, outputs):
        assert self.identify(inputs, outputs) == OK
        result = self.nn.Model_finish(self.handle)
        assert result == OK, repr(result)
        return self

    def supported(self, devices, count=1):
        """Whether devices take each of the first operations."""
        flags = (C.c_bool * count)()
        ask = self.nn.Model_getSupportedOperationsForDevices
        assert ask(self.handle, handles(devices), len(devices), flags) == OK
        return list(flags)

    def compile(self, devices=None, **settings):
        """A finished compilation, for all devices where none are given."""
        compilation, result = self.try_compile(devices, **settings)
        assert result == OK, repr(result)
        return compilation

    def try_compile(self, devices=None, preference=None, cache=None, token=bytes(range(32))):
        """A compilation and what its finish returned."""
        if devices is None:
            compilation = self.nn.new("Compilation_create", self.handle)
        else:
            compilation = self.nn.new(
                "Compilation_createForDevices", self.handle, handles(devices), len(devices)
            )
        if preference is not None:
            assert self.nn.Compilation_setPreference(compilation, preference) == OK
        if cache is not None:
            assert self.nn.Compilation_setCaching(compilation, str(cache).encode(), token) == OK
        return compilation, self.nn.Compilation_finish(compilation)

    def free(self):
        self.nn.Model_free(self.handle)


def relu_chain(nn, length):
    """A finished model of RELUs in a row over [1, 8]."""
    model = Model(nn)
    tensors = model.tensors(length + 1, 1, 8)
    for before, after in itertools.pairwise(tensors):
        model.operation(Op.RELU, [before], [after])
    return model.finish(tensors[:1], tensors[-1:])


def relu(nn, before, after, code=T.TENSOR_FLOAT32, scale=0.0, zero_point=0):
    """A finished model of one RELU, from some dimensions to others."""
    model = Model(nn)
    a, b = (model.operand(code, dims, scale, zero_point) for dims in (before, after))
    model.operation(Op.RELU, [a], [b])
    return model.finish([a], [b])
