"""AOSP's own examples of each operation, run through the C API with strict checks.

Beyond the expected values and shapes, no byte outside an output's buffer may change, no input may
change, and every byte of an output must be written (buffers start poisoned).
"""

import ctypes as C
import functools
import itertools
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.nnapi import OK, ChannelQuant, handles, operand_type, u32

ARCHIVE = Path(__file__).parents[2] / "data" / "vectors" / "aosp.zip"
DTYPES = {
    "TENSOR_FLOAT32": "<f4",
    "TENSOR_FLOAT16": "<f2",
    "TENSOR_INT32": "<i4",
    "TENSOR_BOOL8": "u1",
    "TENSOR_QUANT8_ASYMM": "u1",
    "TENSOR_QUANT8_SYMM": "i1",
    "TENSOR_QUANT16_ASYMM": "<u2",
    "TENSOR_QUANT16_SYMM": "<i2",
}
"""Types of outputs."""
CANARY, POISON, MARGIN = 0xA5, 0xCD, 64
MODES = ("sync", "async", "burst")


@functools.cache
def archive():
    return zipfile.ZipFile(ARCHIVE)


def specs():
    return sorted(name[:-5] for name in archive().namelist() if name.endswith(".json"))


class Guarded:
    """A buffer between canaries."""

    def __init__(self, content):
        n = len(content)
        self.content = bytes(content)
        self.bytes = np.full(n + 2 * MARGIN, CANARY, np.uint8)
        self.inside = self.bytes[MARGIN : MARGIN + n]
        self.inside[:] = np.frombuffer(self.content, np.uint8)
        self.pointer = C.c_void_p(self.bytes.ctypes.data + MARGIN)

    def margins_stand(self):
        ends = self.bytes[:MARGIN].tobytes() + self.bytes[-MARGIN:].tobytes()
        return ends == bytes([CANARY]) * (2 * MARGIN)


class VectorRunner:
    """Builds and runs the tests of one spec."""

    def __init__(self, nn, spec):
        self.tests = json.loads(archive().read(spec + ".json"))["tests"]
        self.data = archive().read(spec + ".bin")
        self.nn, self.constants = nn, []

    def bytes_of(self, reference):
        offset, length = reference
        return self.data[offset : offset + length]

    def add_operand(self, model, index, operand):
        nn = self.nn
        kind = operand_type(operand["code"], operand["dims"], operand["scale"], operand["zp"])
        assert nn.Model_addOperand(model, C.byref(kind)) == OK
        if quant := operand.get("channel_quant"):
            scales = (C.c_float * len(quant["scales"]))(*quant["scales"])
            quant = ChannelQuant(quant["dim"], len(scales), scales)
            setter = nn.Model_setOperandSymmPerChannelQuantParams
            assert setter(model, index, C.byref(quant)) == OK
        if operand["lifetime"] == "NO_VALUE":
            assert nn.Model_setOperandValue(model, index, None, 0) == OK
        elif "data" in operand:
            value = Guarded(self.bytes_of(operand["data"]))
            self.constants.append(value)
            size = len(value.content)
            assert nn.Model_setOperandValue(model, index, value.pointer, size) == OK
            if size <= 128:
                value.inside[:] = POISON  # it was copied

    def model(self, test):
        nn, model = self.nn, self.nn.new("Model_create")
        for index, operand in enumerate(test["operands"]):
            self.add_operand(model, index, operand)
        for operation in test["operations"]:
            ins, outs = operation["in"], operation["out"]
            code = operation["code"]
            added = nn.Model_addOperation(model, code, len(ins), u32(ins), len(outs), u32(outs))
            assert added == OK, operation
        ins, outs = test["inputs"], test["outputs"]
        identify = nn.Model_identifyInputsAndOutputs
        assert identify(model, len(ins), u32(ins), len(outs), u32(outs)) == OK
        if test["relaxed"]:
            assert nn.Model_relaxComputationFloat32toFloat16(model, True) == OK
        assert nn.Model_finish(model) == OK
        return model

    def compute(self, compilation, execution, mode):
        nn = self.nn
        if mode == "sync":
            return nn.Execution_compute(execution)
        if mode == "burst":
            burst = nn.new("Burst_create", compilation)
            result = nn.Execution_burstCompute(execution, burst)
            nn.Burst_free(burst)
            return result
        event = nn.new("Execution_startCompute", execution)
        result = nn.Event_wait(event)
        nn.Event_free(event)
        return result

    def run(self, compilation, example, mode):
        """Runs one example; returns the result code, the outputs' buffers and their shapes."""
        nn, execution = self.nn, self.nn.new("Execution_create", compilation)
        inputs = [Guarded(self.bytes_of(reference)) for reference in example["inputs"]]
        outputs = [Guarded(bytes([POISON]) * out["data"][1]) for out in example["outputs"]]
        for setter, buffers in ((nn.Execution_setInput, inputs), (nn.Execution_setOutput, outputs)):
            for index, buffer in enumerate(buffers):
                length = len(buffer.content)
                pointer = buffer.pointer if length else None  # nothing is left out
                assert setter(execution, index, None, pointer, length) == OK
        result = self.compute(compilation, execution, mode)
        assert all(b.inside.tobytes() == b.content and b.margins_stand() for b in inputs)
        assert all(b.margins_stand() for b in outputs)
        shapes = []
        for index in range(len(outputs) if result == OK else 0):
            rank, dims = C.c_uint32(), (C.c_uint32 * 8)()
            assert nn.Execution_getOutputOperandRank(execution, index, C.byref(rank)) == OK
            if rank.value:
                assert nn.Execution_getOutputOperandDimensions(execution, index, dims) == OK
            shapes.append(list(dims)[: rank.value])
        nn.Execution_free(execution)
        return result, outputs, shapes

    def check(self, test, example, outputs, shapes):
        for index, expected, buffer, shape in zip(
            test["outputs"], example["outputs"], outputs, shapes, strict=True
        ):
            kind = test["operands"][index]["type"]
            dtype, tolerance, count = np.dtype(DTYPES[kind]), example["tol"], expected["count"]
            assert shape == expected["dims"]
            rest = buffer.inside[count * dtype.itemsize :]  # of an output of no elements
            assert (rest == POISON).all()
            if test["operands"][index].get("ignored"):
                continue  # scratch, whose content the spec leaves open
            actual = buffer.inside.view(dtype)[:count]
            golden = np.frombuffer(self.bytes_of(expected["data"]), dtype)[:count]
            if dtype.kind == "f":
                rtol, atol = tolerance["rtol"], tolerance["atol"]
                np.testing.assert_allclose(actual, golden, rtol=rtol, atol=atol)
            elif "QUANT" in kind:
                off = np.abs(actual.astype(int) - golden.astype(int))
                assert off.max(initial=0) <= tolerance["quant16" if "16" in kind else "quant8"]
            else:
                np.testing.assert_array_equal(actual, golden)
        if most := example.get("multinomial_tol"):
            kind = test["operands"][test["inputs"][0]]["type"]
            logits = np.frombuffer(self.bytes_of(example["inputs"][0]), DTYPES[kind])
            expected = np.exp(logits.astype(float)) / np.exp(logits.astype(float)).sum()
            drawn = outputs[0].inside.view("<i4")
            frequencies = np.bincount(drawn, minlength=len(logits)) / len(drawn)
            assert np.abs(frequencies - expected).max() <= most


@pytest.mark.parametrize("device", ["nnapi-fast", "nnapi-reference"])
@pytest.mark.parametrize("spec", specs())
def test_spec(nn, spec, device):
    devices = nn.devices()
    if device not in devices:
        pytest.skip("a build without XNNPACK")
    chosen = handles([devices[device]])
    runner, modes = VectorRunner(nn, spec), itertools.cycle(MODES)
    for test in runner.tests:
        model = runner.model(test)
        compilation = nn.new("Compilation_createForDevices", model, chosen, 1)
        refused = nn.Compilation_finish(compilation) != OK
        assert refused == test.get("expect_failure", False), test["name"]
        for example in [] if refused else test["examples"]:
            for mode in MODES if test["base"] else (next(modes),):
                result, *outcome = runner.run(compilation, example, mode)
                assert result == OK, test["name"]
                runner.check(test, example, *outcome)
        nn.Compilation_free(compilation)
        nn.Model_free(model)
