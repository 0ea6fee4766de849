"""AOSP's own examples of each operation, on both devices, and the same in other forms.

Beyond the expected values and shapes, no byte outside an output's buffer may change, no input may
change, and every byte of an output must be written (buffers start poisoned).
"""

import copy
import ctypes as C
import functools
import itertools
import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nnapi_prof.nnapi import all_facts
from tests.emulator.nnapi import DTYPES, OK, Model, Op, T, operand_type

ARCHIVE = Path(__file__).parents[2] / "data" / "vectors" / "aosp.zip"
ROUNDED = {
    *("conv2d_v1_2", "depthwise_conv2d_v1_2", "grouped_conv2d", "heatmap_max_keypoint", "maximum"),
    *("minimum", "resize_bilinear_v1_2", "roi_align", "select_v1_2", "transpose_conv2d"),
    *("sub_quantized_different_scales", "mean_quant8_2"),  # the latter if signed
}
"""Specifications of which some quantised values are one off; the reference has others exactly."""
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
            operand["code"] = T.TENSOR_QUANT8_ASYMM_SIGNED
            operand["zp"] -= 128
            if "data" in operand:
                operand["data"] = turned(operand["data"])
    for operation in test["operations"]:
        if operation["code"] == Op.PAD_V2:  # its last input is a value, as a number
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
    return functools.reduce(lambda each, form: form(each), forms, copy.deepcopy(test))


# ---- runs ----------------------------------------------------------------------------------------


class Guarded:
    """A buffer between canaries."""

    def __init__(self, content):
        n, self.content = len(content), bytes(content)
        self.bytes = np.full(n + 2 * MARGIN, CANARY, np.uint8)
        self.inside = self.bytes[MARGIN : MARGIN + n]
        self.inside[:] = np.frombuffer(self.content, np.uint8)
        self.argument = (self.bytes.ctypes.data + MARGIN if n else None, n)
        """Address and length; without content it is left out."""

    def margins_stand(self):
        ends = self.bytes[:MARGIN].tobytes() + self.bytes[-MARGIN:].tobytes()
        return ends == bytes([CANARY]) * (2 * MARGIN)


class VectorRunner:
    """Builds and runs tests on one device."""

    def __init__(self, nn, device):
        self.nn, self.device = nn, nn.devices()[device]
        self.is_exact = device == "nnapi-reference"

    def model(self, test):
        model, set_value = Model(self.nn), self.nn.Model_setOperandValue
        for operand in test["operands"]:
            quant = operand.get("channel_quant") or {"scales": (), "dim": 0}
            index = model.operand(*type_of(operand, "dims"), quant["scales"], quant["dim"])
            if operand["lifetime"] == "NO_VALUE":
                assert set_value(model.handle, index, None, 0) == OK
            elif "data" in operand:
                value = self.nn.keep(Guarded(operand["data"]))
                assert set_value(model.handle, index, *value.argument) == OK
                if len(value.content) <= 128:
                    value.inside[:] = POISON  # it was copied
        for operation in test["operations"]:
            model.operation(operation["code"], operation["in"], operation["out"])
        if test["relaxed"]:
            model.relax()
        return model.finish(test["inputs"], test["outputs"])

    def run(self, test, compilation, example, mode):
        """Runs one example; returns its outputs' buffers and shapes."""
        nn, execution = self.nn, self.nn.new("Execution_create", compilation)
        inputs = [Guarded(content) for content in example["inputs"]]
        outputs = [Guarded(bytes([POISON]) * len(out["data"])) for out in example["outputs"]]
        for i, buffer in enumerate(inputs):
            kind, operand = None, test["operands"][test["inputs"][i]]
            if buffer.content and operand.get("run_dims"):
                kind = C.byref(operand_type(*type_of(operand, "run_dims")))
            assert nn.Execution_setInput(execution, i, kind, *buffer.argument) == OK
        for i, buffer in enumerate(outputs):
            assert nn.Execution_setOutput(execution, i, None, *buffer.argument) == OK
        assert nn.execute(compilation, execution, mode) == OK, test["name"]
        assert all(b.inside.tobytes() == b.content and b.margins_stand() for b in inputs)
        assert all(b.margins_stand() for b in outputs)
        shapes = [nn.shape_of(execution, i) for i in range(len(outputs))]
        nn.Execution_free(execution)
        return outputs, shapes

    def check(self, test, modes=("sync",)):
        """Compiles a test and compares what its examples give in these modes."""
        compilation, result = self.model(test).try_compile([self.device])
        assert (result != OK) == test.get("expect_failure", False), test["name"]
        for example in test["examples"] if result == OK else []:
            for mode in modes:
                outputs, shapes = self.run(test, compilation, example, mode)
                compare(test, example, outputs, shapes, self.is_exact)
        self.nn.free_all()


def type_of(operand, dims):
    return operand["code"], operand[dims], operand["scale"], operand["zp"]


def compare(test, example, outputs, shapes, is_exact):
    """Compares results with AOSP's, as closely as AOSP does; `is_exact` of quantised ones."""
    for index, expected, buffer, shape in zip(
        test["outputs"], example["outputs"], outputs, shapes, strict=True
    ):
        kind = test["operands"][index]["type"]
        dtype, tolerance, count = np.dtype(DTYPES[T[kind]]), example["tol"], expected["count"]
        assert shape == (OK, expected["dims"]), test["name"]
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
        logits = np.frombuffer(example["inputs"][0], DTYPES[T[kind]]).astype(float)
        drawn = outputs[0].inside.view("<i4")
        frequencies = np.bincount(drawn, minlength=len(logits)) / len(drawn)
        assert np.abs(frequencies - np.exp(logits) / np.exp(logits).sum()).max() <= limit


# ---- tests ---------------------------------------------------------------------------------------

MODES = ("sync", "async", "burst")


@pytest.fixture(params=["nnapi-fast", "nnapi-reference"])
def runner(nn, request):
    if request.param not in nn.devices():
        pytest.skip("a build without XNNPACK")
    return VectorRunner(nn, request.param)


def kinds_of(tests):
    """One test of each set of operand types that a specification has, none to be refused."""
    first = {}
    for test in tests:
        types = tuple(operand["type"] for operand in test["operands"])
        if not test.get("expect_failure"):
            first.setdefault(types, test)
    return first.values()


def test_every_operation_of_levels_1_to_3_has_examples():
    names = set()
    for spec in specs():
        names.update(re.findall(rb'"op":"(\w+)"', archive().read(spec + ".json")))
    since = {code.name.encode(): facts.since for code, facts in all_facts().items()}
    assert names == {name for name, level in since.items() if level <= 3}


FORMS = (left_out_of_the_model,), (sized_by_the_run,), (with_weights_given, sized_by_the_run)
UNSIGNED = {Op.CAST, Op.HASHTABLE_LOOKUP, Op.QUANTIZED_16BIT_LSTM}
"""Operations that have no signed form, or another meaning of it."""


@pytest.mark.parametrize("spec", specs())
def test_spec(runner, spec):
    """Runs a specification as it is and in other forms; also signed: level 4 has each operation on
    8 bits with signed data, the same numbers."""
    tests, one_mode = load(spec), itertools.cycle(MODES)
    for test in tests:
        runner.check(test, MODES if test["base"] else (next(one_mode),))
    for test in kinds_of(tests):
        for form in FORMS:
            runner.check(in_form(test, *form))
    for test in tests:
        operations = {operation["code"] for operation in test["operations"]}
        has_signed = any(operand["type"] == "TENSOR_QUANT8_ASYMM" for operand in test["operands"])
        if has_signed and not test.get("expect_failure") and not operations & UNSIGNED:
            runner.check(in_form(test, signed))
