"""AOSP's examples in forms that levels 1 and 2 did not have: float16 data, and NCHW images.

The models are those of test_aosp.py, rewritten here; the expected values stay AOSP's.
"""

import copy

import numpy as np
import pytest

from tests.emulator.nnapi import BOOL, OK, handles
from tests.emulator.vectors.test_aosp import DTYPES, VectorRunner, specs

FLOAT16, TENSOR_FLOAT16 = 10, 8
HALVES = {"FLOAT32": ("FLOAT16", FLOAT16), "TENSOR_FLOAT32": ("TENSOR_FLOAT16", TENSOR_FLOAT16)}
HALF_TOLERANCE = {"rtol": 5 * 2**-10, "atol": 5 * 2**-10, "quant8": 1}
"""AOSP's own for float16."""
HASHTABLE_LOOKUP, LSH_PROJECTION, MEAN = 10, 15, 31
NOT_HALF = {
    HASHTABLE_LOOKUP: "takes no float16 at any level",
    LSH_PROJECTION: "hashes the bytes of what it is given, so other bytes have other hashes",
}
IMAGES = {1, 3, 4, 5, 12, 17, 23, 26, 29, 33}
"""AVERAGE_POOL_2D, CONV_2D, DEPTHWISE_CONV_2D, DEPTH_TO_SPACE, L2_POOL_2D, MAX_POOL_2D,
RESIZE_BILINEAR, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND: a last BOOL says NCHW."""


class VariedRunner(VectorRunner):
    """A runner whose tests may be rewritten; new data are appended to the spec's."""

    def store(self, array):
        reference = [len(self.data), array.nbytes]
        self.data += array.tobytes()
        return reference

    def array(self, reference, type_name):
        return np.frombuffer(self.bytes_of(reference), DTYPES[type_name])


def halved(runner, test):
    """The test with float16 for float32; None where there is nothing to halve."""
    test = copy.deepcopy(test)
    changed = {i for i, operand in enumerate(test["operands"]) if operand["type"] in HALVES}
    has_data = any(test["operands"][i]["type"] == "TENSOR_FLOAT32" for i in changed)
    if not has_data or any(op["code"] in NOT_HALF for op in test["operations"]):
        return None

    def halve(reference):
        with np.errstate(over="ignore"):
            return runner.store(runner.array(reference, "FLOAT32").astype("<f2"))

    for i in changed:
        operand = test["operands"][i]
        operand["type"], operand["code"] = HALVES[operand["type"]]
        if operand.get("data"):
            operand["data"] = halve(operand["data"])
    for example in test["examples"]:
        example["tol"] = HALF_TOLERANCE
        example["inputs"] = [
            halve(data) if index in changed else data
            for index, data in zip(test["inputs"], example["inputs"], strict=True)
        ]
        for index, output in zip(test["outputs"], example["outputs"], strict=True):
            if index in changed:
                output["data"] = halve(output["data"])
    test["relaxed"] = False
    return test


def turned(runner, test):
    """The test with its images in NCHW and the flag that says so; None where it has no image."""
    if len(test["operations"]) != 1 or test["operations"][0]["code"] not in IMAGES:
        return None
    test = copy.deepcopy(test)
    operation = test["operations"][0]
    source, result = operation["in"][0], operation["out"][0]
    if test["inputs"][:1] != [source] or len(test["operands"][source]["dims"]) != 4:
        return None

    def turn(reference, dims, type_name):
        array = runner.array(reference, type_name).reshape(dims)
        return runner.store(np.ascontiguousarray(array.transpose(0, 3, 1, 2)))

    type_name = test["operands"][source]["type"]
    shape = test["operands"][source]["dims"]
    for example in test["examples"]:
        example["inputs"][0] = turn(example["inputs"][0], shape, type_name)
        output = example["outputs"][0]
        output["data"] = turn(output["data"], output["dims"], type_name)
        output["dims"] = [output["dims"][axis] for axis in (0, 3, 1, 2)]
    for index in (source, result):
        dims = test["operands"][index]["dims"]
        if len(dims) == 4:
            test["operands"][index]["dims"] = [dims[axis] for axis in (0, 3, 1, 2)]
    operation["in"] = [*operation["in"], len(test["operands"])]
    flag = {"type": "BOOL", "code": BOOL, "dims": [], "scale": 0.0, "zp": 0}
    test["operands"].append({**flag, "data": runner.store(np.array([1], np.uint8))})
    return test


def specs_to(vary):
    """The specs that have something to vary."""
    found = []
    for spec in specs():
        runner = VariedRunner(None, spec)
        if any(vary(runner, test) is not None for test in runner.tests):
            found.append(spec)
    return found


def run_varied(nn, spec, device, vary):
    devices = nn.devices()
    if device not in devices:
        pytest.skip("a build without XNNPACK")
    chosen = handles([devices[device]])
    runner = VariedRunner(nn, spec)
    tests = [varied for test in runner.tests if (varied := vary(runner, test)) is not None]
    for test in tests:
        model = runner.model(test)
        compilation = nn.new("Compilation_createForDevices", model, chosen, 1)
        assert nn.Compilation_finish(compilation) == OK, test["name"]
        for example in test["examples"]:
            runner.check(test, example, *runner.run(test, compilation, example, "sync"))
        nn.Compilation_free(compilation)
        nn.Model_free(model)


@pytest.mark.parametrize("device", ["nnapi-fast", "nnapi-reference"])
@pytest.mark.parametrize("spec", specs_to(halved))
def test_float16(nn, spec, device):
    run_varied(nn, spec, device, halved)


@pytest.mark.parametrize("device", ["nnapi-fast", "nnapi-reference"])
@pytest.mark.parametrize("spec", specs_to(turned))
def test_nchw(nn, spec, device):
    run_varied(nn, spec, device, turned)
