"""AOSP's examples of operations: reads them, changes their form, and runs them through the C API.

Beyond the expected values and shapes, no byte outside an output's buffer may change, no input may
change, and every byte of an output must be written (buffers start poisoned).
"""

import copy
import ctypes as C
import functools
import json
import zipfile
from pathlib import Path

import numpy as np

from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from tests.emulator.nnapi import OK, ChannelQuant, handles, operand_type, u32

ARCHIVE = Path(__file__).parents[2] / "data" / "vectors" / "aosp.zip"
ROUNDED = {
    *("conv2d_v1_2", "depthwise_conv2d_v1_2", "grouped_conv2d", "heatmap_max_keypoint", "maximum"),
    *("minimum", "resize_bilinear_v1_2", "roi_align", "select_v1_2", "transpose_conv2d"),
    *("sub_quantized_different_scales", "mean_quant8_2"),  # the latter if signed
}
"""Specifications of which some quantised values are one off; the reference has others exactly."""
DTYPES = {
    "TENSOR_FLOAT32": "<f4",
    "TENSOR_FLOAT16": "<f2",
    "TENSOR_INT32": "<i4",
    "TENSOR_BOOL8": "u1",
    "TENSOR_QUANT8_ASYMM": "u1",
    "TENSOR_QUANT8_ASYMM_SIGNED": "i1",
    "TENSOR_QUANT8_SYMM": "i1",
    "TENSOR_QUANT16_ASYMM": "<u2",
    "TENSOR_QUANT16_SYMM": "<i2",
}
CANARY, POISON, MARGIN = 0xA5, 0xCD, 64


@functools.cache
def archive():
    return zipfile.ZipFile(ARCHIVE)


def specs():
    """Names of all specifications."""
    return sorted(name[:-5] for name in archive().namelist() if name.endswith(".json"))


def load(spec):
    """Reads the tests of a specification, with bytes in place of references to them."""
    tests = json.loads(archive().read(spec + ".json"))["tests"]
    data = archive().read(spec + ".bin")

    def taken(reference):
        offset, length = reference
        return data[offset : offset + length]

    for test in tests:
        for operand in test["operands"]:
            if "data" in operand:
                operand["data"] = taken(operand["data"])
        for example in test["examples"]:
            example["is_rounded"] = spec.rpartition("/")[2] in ROUNDED
            example["inputs"] = [taken(reference) for reference in example["inputs"]]
            for output in example["outputs"]:
                output["data"] = taken(output["data"])
    return tests


# ---- forms ---------------------------------------------------------------------------------------


def with_weights_given(test):
    """Constant tensors are inputs."""
    for index, operand in enumerate(test["operands"]):
        if "data" in operand and operand["type"].startswith("TENSOR"):
            test["inputs"].append(index)
            operand["lifetime"], data = "MODEL_INPUT", operand.pop("data")
            for example in test["examples"]:
                example["inputs"].append(data)
    return test


def sized_by_the_run(test):
    """Only the run tells the dimensions of inputs, and its results those of outputs."""
    for index in test["inputs"] + test["outputs"]:
        operand = test["operands"][index]
        if not operand.get("channel_quant"):
            operand["run_dims"] = operand["dims"]
            operand["dims"] = [0] * len(operand["dims"])
    return test


def left_out_of_the_model(test):
    """Inputs that every run leaves out have no value in the model."""
    positions = range(len(test["inputs"]))
    present = [k for k in positions if any(example["inputs"][k] for example in test["examples"])]
    for position in set(positions) - set(present):
        test["operands"][test["inputs"][position]]["lifetime"] = "NO_VALUE"
    test["inputs"] = [test["inputs"][k] for k in present]
    for example in test["examples"]:
        example["inputs"] = [example["inputs"][k] for k in present]
    return test


def signed(test):
    """Unsigned quantised data of 8 bits are signed ones of the same numbers, as of level 4."""
    unsigned = [o["type"] == "TENSOR_QUANT8_ASYMM" for o in test["operands"]]

    def turned(data):
        return (np.frombuffer(data, np.uint8) ^ 0x80).tobytes()

    for operand, is_unsigned in zip(test["operands"], unsigned, strict=True):
        if is_unsigned:
            operand["type"] = "TENSOR_QUANT8_ASYMM_SIGNED"
            operand["code"] = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
            operand["zp"] -= 128
            if "data" in operand:
                operand["data"] = turned(operand["data"])
    for operation in test["operations"]:
        if operation["code"] == OperationCode.PAD_V2:  # its last input is a value, as a number
            number = test["operands"][operation["in"][2]]
            if number["type"] == "INT32":
                number["data"] = (np.frombuffer(number["data"], "<i4") - 128).tobytes()
    for example in test["examples"]:
        for position, index in enumerate(test["inputs"]):
            if unsigned[index]:
                example["inputs"][position] = turned(example["inputs"][position])
        for index, output in zip(test["outputs"], example["outputs"], strict=True):
            if unsigned[index]:
                output["data"] = turned(output["data"])
    return test


def in_form(test, *forms):
    """A copy of a test in these forms."""
    test = copy.deepcopy(test)
    for form in forms:
        test = form(test)
    return test


# ---- runs ----------------------------------------------------------------------------------------


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
    """Builds and runs tests on one device."""

    def __init__(self, nn, device):
        self.nn, self.device, self.constants = nn, handles([nn.devices()[device]]), []
        self.is_exact = device == "nnapi-reference"

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
            value = Guarded(operand["data"])
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

    def run(self, test, compilation, example, mode):
        """Runs one example; returns its outputs' buffers and shapes."""
        nn, execution = self.nn, self.nn.new("Execution_create", compilation)
        inputs = [Guarded(content) for content in example["inputs"]]
        outputs = [Guarded(bytes([POISON]) * len(out["data"])) for out in example["outputs"]]
        kinds = []
        for index in test["inputs"]:
            operand = test["operands"][index]
            dims, code = operand.get("run_dims"), operand["code"]
            kinds.append(dims and operand_type(code, dims, operand["scale"], operand["zp"]))
        for index, buffer in enumerate(inputs):
            length = len(buffer.content)
            pointer = buffer.pointer if length else None  # nothing is left out
            kind = C.byref(kinds[index]) if length and kinds[index] else None
            assert nn.Execution_setInput(execution, index, kind, pointer, length) == OK
        for index, buffer in enumerate(outputs):
            length = len(buffer.content)
            pointer = buffer.pointer if length else None
            assert nn.Execution_setOutput(execution, index, None, pointer, length) == OK
        assert self.compute(compilation, execution, mode) == OK, test["name"]
        assert all(b.inside.tobytes() == b.content and b.margins_stand() for b in inputs)
        assert all(b.margins_stand() for b in outputs)
        shapes = []
        for index in range(len(outputs)):
            rank, dims = C.c_uint32(), (C.c_uint32 * 8)()
            assert nn.Execution_getOutputOperandRank(execution, index, C.byref(rank)) == OK
            if rank.value:
                assert nn.Execution_getOutputOperandDimensions(execution, index, dims) == OK
            shapes.append(list(dims)[: rank.value])
        nn.Execution_free(execution)
        return outputs, shapes

    def check(self, test, modes=("sync",)):
        """Compiles a test and compares what its examples give in these modes."""
        nn, model = self.nn, self.model(test)
        compilation = nn.new("Compilation_createForDevices", model, self.device, 1)
        refused = nn.Compilation_finish(compilation) != OK
        assert refused == test.get("expect_failure", False), test["name"]
        for example in [] if refused else test["examples"]:
            for mode in modes:
                outputs, shapes = self.run(test, compilation, example, mode)
                compare(test, example, outputs, shapes, self.is_exact)
        nn.Compilation_free(compilation)
        nn.Model_free(model)
        self.constants.clear()


def compare(test, example, outputs, shapes, is_exact):
    """Compares results with AOSP's, as closely as AOSP does; `is_exact` of quantised ones."""
    for index, expected, buffer, shape in zip(
        test["outputs"], example["outputs"], outputs, shapes, strict=True
    ):
        kind = test["operands"][index]["type"]
        dtype, tolerance, count = np.dtype(DTYPES[kind]), example["tol"], expected["count"]
        assert shape == expected["dims"], test["name"]
        rest = buffer.inside[count * dtype.itemsize :]  # of an output of no elements
        assert (rest == POISON).all()
        if test["operands"][index].get("ignored"):
            continue  # scratch, whose content the spec leaves open
        actual = buffer.inside.view(dtype)[:count]
        golden = np.frombuffer(expected["data"], dtype)[:count]
        if dtype.kind == "f":
            rtol, atol = tolerance["rtol"], tolerance["atol"]
            np.testing.assert_allclose(actual, golden, rtol=rtol, atol=atol, err_msg=test["name"])
        elif "QUANT" in kind:
            off = np.abs(actual.astype(int) - golden.astype(int)).max(initial=0)
            most = tolerance["quant16" if "16" in kind else "quant8"]
            assert off <= (0 if is_exact and not example["is_rounded"] else most), test["name"]
        else:
            np.testing.assert_array_equal(actual, golden, test["name"])
    if limit := example.get("multinomial_tol"):
        kind = test["operands"][test["inputs"][0]]["type"]
        logits = np.frombuffer(example["inputs"][0], DTYPES[kind]).astype(float)
        drawn = outputs[0].inside.view("<i4")
        frequencies = np.bincount(drawn, minlength=len(logits)) / len(drawn)
        assert np.abs(frequencies - np.exp(logits) / np.exp(logits).sum()).max() <= limit
