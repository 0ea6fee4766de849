"""The device nnapi-fast: regions on XNNPACK, the rest on the reference, one NNAPI to its caller.

Skipped where the library was built without XNNPACK; NNAPI_PROF_REQUIRE_ALL=1 fails there, unless
an empty NNAPI_PROF_XNNPACK says that it is left out on purpose.
"""

import os
import shutil

import numpy as np
import pytest

from nnapi_prof.device import xnnpack
from tests.conftest import REPO
from tests.emulator.kernels.one_operation import F32, execute
from tests.emulator.nnapi import Model, Op, T, operand_type
from tests.parts import script
from tests.processes import output_of

BENCH = REPO / "benchmarks" / "bench_backends.py"
SAME, NONE, RELU6 = 1, 0, 3


@pytest.fixture
def fast(nn):
    """The device, in a build that has it."""
    device = nn.devices().get("nnapi-fast")
    expected = os.environ.get("NNAPI_PROF_REQUIRE_ALL") == "1"
    if device is None and expected and os.environ.get("NNAPI_PROF_XNNPACK") != "":
        pytest.fail("the library has no XNNPACK: python -m nnapi_prof.device.xnnpack")
    if device is None:
        pytest.skip("the library has no XNNPACK")
    return device


@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
def test_a_network_of_both_back_ends_gives_the_references_results(nn, fast, nchw):
    """conv 3x3 RELU6 -> L2 normalisation (not XNNPACK's) -> conv 1x1 -> add to the first."""
    rng, model = np.random.default_rng(5), Model(nn)
    dims = (1, 6, 7, 7) if nchw else (1, 7, 7, 6)
    source, first, normal, last, result = model.tensors(5, *dims)

    def convolve(before, after, size, fuse):
        weights, bias = rng.standard_normal((6, size, size, 6)), rng.standard_normal(6)
        inputs = [before, *(model.constant(one.astype(np.float32)) for one in (weights, bias))]
        inputs += [model.scalar(value) for value in (SAME, 1, 1, fuse, nchw)]
        model.operation(Op.CONV_2D, inputs, [after])

    convolve(source, first, 3, RELU6)
    model.operation(Op.L2_NORMALIZATION, [first, model.scalar(1 if nchw else 3)], [normal])
    convolve(normal, last, 1, NONE)
    model.operation(Op.ADD, [last, first, model.scalar(NONE)], [result])
    model.finish([source], [result])
    both = [model.compile([device]) for device in (fast, nn.devices()["nnapi-reference"])]
    for _ in range(3):
        image = rng.standard_normal(dims).astype(np.float32)
        actual, expected = (nn.compute(compilation, image, dims=dims) for compilation in both)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


FUNCTIONS = {"LOG": np.log, "SQRT": np.sqrt, "RSQRT": lambda values: 1 / np.sqrt(values)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_zero_and_infinity(nn, fast, name):
    first = np.inf if name == "LOG" else 0.01
    values = np.array([[1.0, first, 0.0, 1e-30], [2.0, 7.5, 1e30, 0.3]], np.float32)
    actual = execute(nn, name, [values], (F32, values.shape), device="nnapi-fast")
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(actual, FUNCTIONS[name](values), rtol=1e-6)


def test_shapes_known_at_run_time_only(nn, fast):
    """Nothing can be compiled for XNNPACK then: the reference computes, as the device says."""
    model = Model(nn)
    source, result = model.tensors(2, 0, 4)
    model.operation(Op.TANH, [source], [result])
    compilation = model.finish([source], [result]).compile([fast])
    for rows in (3, 1, 5):
        values = np.linspace(-2, 2, rows * 4, dtype=np.float32).reshape(rows, 4)
        shape = operand_type(T.TENSOR_FLOAT32, (rows, 4))
        actual = nn.compute(compilation, values, dims=(rows, 4), shapes=[shape])
        np.testing.assert_allclose(actual, np.tanh(values), rtol=1e-6, atol=1e-6)


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm, of binutils")
def test_xnnpack_stays_inside_the_library(emulator_library):
    words = output_of(["nm", "-D", "--defined-only", emulator_library])
    names = {line.split()[-1] for line in words.splitlines()}
    assert names
    strangers = {n for n in names if not n.startswith(("ANeuralNetworks", "np_emulator_"))}
    assert not strangers


def test_warm_executions_through_the_api_allocate_and_lock_nothing(fast):
    if xnnpack.built_prefix() is None:
        pytest.skip("XNNPACK for the benchmark is not built")
    result = script(BENCH).measure(rounds=1)
    assert result["control_allocations"] > 0
    assert (result["allocations"], result["frees"], result["locks"]) == (0, 0, 0)
    assert result["fast_difference"] < 1e-5
    assert result["reference_difference"] < 1e-5
