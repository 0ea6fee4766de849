"""A converted model through NNAPI's C API, for types that stock PyTorch does not carry."""

import ctypes as C
from collections.abc import Sequence

import numpy as np

from nnapi_prof.convert import BufferSlice, NnapiModel
from tests.emulator.nnapi import OK, ChannelQuant, Nnapi, operand_type, u32


def run_model(
    model: NnapiModel,
    buffers: Sequence[bytes],
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
) -> None:
    """Builds, compiles and runs ``model`` once; fills ``outputs``. The library is the one that this
    process has loaded (the fixture nnapi_library does)."""
    nn = Nnapi("libneuralnetworks.so")
    handle, references = _build(nn, model, buffers)
    compilation = nn.new("Compilation_create", handle)
    assert nn.Compilation_finish(compilation) == OK
    execution = nn.new("Execution_create", compilation)
    for index, array in enumerate(inputs):
        array = np.ascontiguousarray(array)
        references.append(array)
        result = nn.Execution_setInput(execution, index, None, array.ctypes.data, array.nbytes)
        assert result == OK
    for index, array in enumerate(outputs):
        result = nn.Execution_setOutput(execution, index, None, array.ctypes.data, array.nbytes)
        assert result == OK
    assert nn.Execution_compute(execution) == OK
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    nn.Model_free(handle)


def _build(nn, model, buffers):
    handle, references = nn.new("Model_create"), []
    for operand in model.operands:
        kind = operand_type(operand.type, operand.dims, operand.scale, operand.zero_point)
        assert nn.Model_addOperand(handle, C.byref(kind)) == OK, operand
    for index, operand in enumerate(model.operands):
        if operand.channels is not None:
            scales = (C.c_float * len(operand.channels.scales))(*operand.channels.scales)
            channels = ChannelQuant(operand.channels.dim, len(scales), scales)
            setter = nn.Model_setOperandSymmPerChannelQuantParams
            assert setter(handle, index, C.byref(channels)) == OK, operand
    for value in model.values:
        data = value.source
        if isinstance(data, BufferSlice):
            data = buffers[data.buffer][data.offset : data.offset + data.length]
        block = C.create_string_buffer(data, len(data)) if data else None  # none: left out
        references.append(block)
        assert nn.Model_setOperandValue(handle, value.operand, block, len(data)) == OK, value
    for operation in model.operations:
        ins, outs = operation.inputs, operation.outputs
        added = nn.Model_addOperation(
            handle, operation.code, len(ins), u32(ins), len(outs), u32(outs)
        )
        assert added == OK, operation
    ins, outs = model.inputs, model.outputs
    identified = nn.Model_identifyInputsAndOutputs(handle, len(ins), u32(ins), len(outs), u32(outs))
    assert identified == OK
    assert nn.Model_finish(handle) == OK
    return handle, references
