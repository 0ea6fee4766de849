"""Run regions on NNAPI in this process: compiled by the host's own library, without an agent.

The purpose is a region's outputs in NNAPI's own arithmetic, for many inputs: nothing is timed, and
a run starts no process. The library is the emulator, whose accelerator ``nnapi-reference`` is the
specification in plain loops.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import torch

from nnapi_prof.convert import BufferSlice, NnapiModel
from nnapi_prof.convert.region import Region
from nnapi_prof.errors import DeviceError
from nnapi_prof.graph.node import torch_dtype
from nnapi_prof.graph.plan import REFERENCE
from nnapi_prof.graph.program import laid_out, logical
from nnapi_prof.nnapi.codes import ResultCode

_VARIABLES = ("NNAPI_EMULATOR_PHONE", "NNAPI_EMULATOR_FAULTS", "NNAPI_EMULATOR_BACKEND")
"""Variables that would turn the library into a simulated phone; it reads them once."""


class _OperandType(ctypes.Structure):
    _fields_ = (
        ("type", c_int32),
        ("rank", c_uint32),
        ("dims", POINTER(c_uint32)),
        ("scale", c_float),
        ("zero_point", c_int32),
    )


class _ChannelScales(ctypes.Structure):
    _fields_ = (("dim", c_uint32), ("count", c_uint32), ("scales", POINTER(c_float)))


_WORDS = (c_uint32, POINTER(c_uint32))
"""A count, and that many words."""
_BYTES = (c_void_p, c_size_t)
_FUNCTIONS: Mapping[str, tuple[Any, ...]] = {
    "_getDeviceCount": (POINTER(c_uint32),),
    "_getDevice": (c_uint32, POINTER(c_void_p)),
    "Device_getName": (c_void_p, POINTER(c_char_p)),
    "Model_create": (POINTER(c_void_p),),
    "Model_addOperand": (c_void_p, POINTER(_OperandType)),
    "Model_setOperandSymmPerChannelQuantParams": (c_void_p, c_int32, POINTER(_ChannelScales)),
    "Model_setOperandValue": (c_void_p, c_int32, *_BYTES),
    "Model_addOperation": (c_void_p, c_int32, *_WORDS, *_WORDS),
    "Model_identifyInputsAndOutputs": (c_void_p, *_WORDS, *_WORDS),
    "Model_finish": (c_void_p,),
    "Compilation_createForDevices": (c_void_p, POINTER(c_void_p), c_uint32, POINTER(c_void_p)),
    "Compilation_finish": (c_void_p,),
    "Execution_create": (c_void_p, POINTER(c_void_p)),
    "Execution_setInput": (c_void_p, c_int32, c_void_p, *_BYTES),
    "Execution_setOutput": (c_void_p, c_int32, c_void_p, *_BYTES),
    "Execution_compute": (c_void_p,),
}
"""Name after ``ANeuralNetworks`` -> types of its arguments; each returns a ResultCode."""
_FREE = ("Model_free", "Compilation_free", "Execution_free")


class HostNnapi:
    """The host's NNAPI library, loaded into this process.

    ``library`` is :attr:`nnapi_prof.device.build.HostBuild.library`. Raises DeviceError where it
    cannot be loaded or lacks the accelerator.
    """

    def __init__(self, library: Path, accelerator: str = REFERENCE) -> None:
        with _without(_VARIABLES):
            try:
                self._library = ctypes.CDLL(str(library))
            except OSError as error:
                raise DeviceError(f"{library} cannot be loaded: {error}") from error
            for name, types in _FUNCTIONS.items():
                function = getattr(self._library, f"ANeuralNetworks{name}")
                function.argtypes, function.restype = types, c_int32
            for name in _FREE:
                function = getattr(self._library, f"ANeuralNetworks{name}")
                function.argtypes, function.restype = (c_void_p,), None
            self._device = self._find(accelerator)

    def _find(self, accelerator: str) -> c_void_p:
        count, names = c_uint32(), []
        self.call("_getDeviceCount", byref(count))
        for index in range(count.value):
            device, name = c_void_p(), c_char_p()
            self.call("_getDevice", index, byref(device))
            self.call("Device_getName", device, byref(name))
            names.append((name.value or b"").decode(errors="replace"))
            if names[-1] == accelerator:
                return device
        raise DeviceError(
            f"this process's NNAPI has no accelerator {accelerator}: there are "
            f"{', '.join(names) or 'none'}; unset {', '.join(_VARIABLES)} and start anew"
        )

    def call(self, name: str, *arguments: Any) -> None:
        """Calls the function ``ANeuralNetworks{name}``. Raises DeviceError with the name of the
        code that it returns, unless that is NO_ERROR."""
        code = getattr(self._library, f"ANeuralNetworks{name}")(*arguments)
        if code != ResultCode.NO_ERROR:
            word = ResultCode(code).name if code in set(ResultCode) else str(code)
            raise DeviceError(f"NNAPI on this host: {name.strip('_')} returned {word}")

    def handle(self, name: str, *arguments: Any) -> c_void_p:
        """Returns the object that a function creates, which takes a pointer to it last."""
        handle = c_void_p()
        self.call(name, *arguments, byref(handle))
        return handle

    def freed(self, name: str) -> Callable[[c_void_p], None]:
        """Returns the function that frees a handle: ``Model_free``."""
        function: Callable[[c_void_p], None] = getattr(self._library, f"ANeuralNetworks{name}")
        return function

    def compile(self, region: Region) -> HostRegion:
        """Compiles a region. Raises DeviceError where NNAPI refuses it."""
        return HostRegion(self, self._device, region)


class HostRegion:
    """A compiled region. Its memory is freed with it."""

    def __init__(self, nnapi: HostNnapi, device: c_void_p, region: Region) -> None:
        self.region = region
        self._nnapi = nnapi
        self._constants: list[bytes] = list(region.buffers)
        """The model points into these."""
        self._model = nnapi.handle("Model_create")
        weakref.finalize(self, nnapi.freed("Model_free"), self._model)
        self._build(region.model)
        devices = (c_void_p * 1)(device)
        self._compilation = nnapi.handle("Compilation_createForDevices", self._model, devices, 1)
        weakref.finalize(self, nnapi.freed("Compilation_free"), self._compilation)
        nnapi.call("Compilation_finish", self._compilation)

    def _build(self, model: NnapiModel) -> None:
        call, handle = self._nnapi.call, self._model
        for index, operand in enumerate(model.operands):
            dims = (c_uint32 * len(operand.dims))(*operand.dims) if operand.dims else None
            kind = _OperandType(
                operand.type, len(operand.dims), dims, operand.scale, operand.zero_point
            )
            call("Model_addOperand", handle, byref(kind))
            if operand.channels is not None:
                scales = (c_float * len(operand.channels.scales))(*operand.channels.scales)
                channels = _ChannelScales(operand.channels.dim, len(scales), scales)
                call("Model_setOperandSymmPerChannelQuantParams", handle, index, byref(channels))
        for value in model.values:
            address, length = self._address(value.source)
            call("Model_setOperandValue", handle, value.operand, address, length)
        for operation in model.operations:
            ends = (*_uint32_array(operation.inputs), *_uint32_array(operation.outputs))
            call("Model_addOperation", handle, operation.code, *ends)
        ends = (*_uint32_array(model.inputs), *_uint32_array(model.outputs))
        call("Model_identifyInputsAndOutputs", handle, *ends)
        call("Model_finish", handle)

    def _address(self, source: bytes | BufferSlice) -> tuple[int | None, int]:
        """Returns the address of a constant, and its length; None for one that is left out."""
        if isinstance(source, BufferSlice):
            return _start(self._constants[source.buffer]) + source.offset, source.length
        self._constants.append(source)
        return (_start(source), len(source)) if source else (None, 0)

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Returns the region's outputs for logical tensors in the order of ``region.inputs``.

        Raises DeviceError where NNAPI fails, NnapiProfError where a value does not fit its type.
        """
        nnapi, region = self._nnapi, self.region
        sources = [laid_out(v, t) for v, t in zip(inputs, region.input_types, strict=True)]
        results = [
            torch.empty(t.memory_shape, dtype=torch_dtype(t.device_dtype))
            for t in region.output_types
        ]
        execution = nnapi.handle("Execution_create", self._compilation)
        try:
            for name, tensors in (("setInput", sources), ("setOutput", results)):
                for index, tensor in enumerate(tensors):
                    place = (tensor.data_ptr(), tensor.nbytes)
                    nnapi.call(f"Execution_{name}", execution, index, None, *place)
            nnapi.call("Execution_compute", execution)
        finally:
            nnapi.freed("Execution_free")(execution)
        return tuple(logical(v, t) for v, t in zip(results, region.output_types, strict=True))


def _start(data: bytes) -> int:
    """Returns the address of bytes, which the caller keeps alive."""
    address = ctypes.cast(c_char_p(data), c_void_p).value
    assert address is not None
    return address


def _uint32_array(values: Sequence[int]) -> tuple[int, Any]:
    return len(values), (c_uint32 * len(values))(*values)


@contextmanager
def _without(names: Sequence[str]) -> Iterator[None]:
    """Removes environment variables within a block."""
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)
