"""The device nnapi-fast: regions on XNNPACK, the rest on the reference, one NNAPI to its caller.

Skipped where the library was built without XNNPACK; NNAPI_PROF_REQUIRE_ALL=1 fails there, unless
an empty NNAPI_PROF_XNNPACK says that it is left out on purpose.
"""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nnapi_prof.device import xnnpack
from tests.emulator.kernels.one_operation import F32, I32, QUANT8, Kind, execute, quant8
from tests.emulator.nnapi import Model, Op, T, compute, operand_type

BENCH = Path(__file__).resolve().parents[3] / "benchmarks" / "bench_backends.py"
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


def network(nn, weights, nchw):
    """conv 3x3/2 RELU6 -> depthwise 3x3 -> L2 normalisation (not XNNPACK's) -> conv 1x1 -> add."""
    model, n = Model(nn), 6
    shape = (lambda h, c: (1, c, h, h)) if nchw else (lambda h, c: (1, h, h, c))
    source, numbers = model.tensor(*shape(13, 3)), model.scalar

    def convolve(name, before, key, height, stride, fuse, more=()):
        tensors = [before, model.constant(weights[key]), model.constant(weights[key + "_bias"])]
        after = model.tensor(*shape(height, n))
        scalars = [numbers(v) for v in (SAME, stride, stride, *more, fuse)]
        model.operation(Op[name], [*tensors, *scalars, numbers(nchw)], [after])
        return after

    first = convolve("CONV_2D", source, "first", 7, 2, RELU6)
    second = convolve("DEPTHWISE_CONV_2D", first, "second", 7, 1, NONE, (1,))
    normal = model.tensor(*shape(7, n))
    axis = 1 if nchw else 3
    model.operation(Op["L2_NORMALIZATION"], [second, numbers(axis)], [normal])
    third = convolve("CONV_2D", normal, "third", 7, 1, NONE)
    result = model.tensor(*shape(7, n))
    model.operation(Op["ADD"], [third, first, numbers(NONE)], [result])
    return model.finish([source], [result])


def random_weights(rng):
    shapes = {"first": (6, 3, 3, 3), "second": (1, 3, 3, 6), "third": (6, 1, 1, 6)}
    result = {key: rng.standard_normal(shape) for key, shape in shapes.items()}
    result.update({f"{key}_bias": rng.standard_normal(6) for key in shapes})
    return {key: value.astype(np.float32) for key, value in result.items()}


def by_torch(image, weights):
    """The network of an image [1, C, H, W]."""
    w = {key: torch.from_numpy(value) for key, value in weights.items()}
    first = F.conv2d(image, w["first"].permute(0, 3, 1, 2), w["first_bias"], stride=2, padding=1)
    first = first.clamp(0, 6)
    depthwise = w["second"].permute(3, 0, 1, 2)
    second = F.conv2d(first, depthwise, w["second_bias"], padding=1, groups=6)
    third = F.conv2d(F.normalize(second, dim=1), w["third"].permute(0, 3, 1, 2), w["third_bias"])
    return third + first


@pytest.mark.parametrize("nchw", [False, True], ids=["nhwc", "nchw"])
def test_a_network_of_both_back_ends_gives_torchs_results(nn, fast, nchw):
    rng = np.random.default_rng(5)
    weights = random_weights(rng)
    model = network(nn, weights, nchw)
    compilation = model.compile([fast])
    for _ in range(3):
        image = rng.standard_normal((1, 3, 13, 13)).astype(np.float32)
        expected = by_torch(torch.from_numpy(image), weights).numpy()
        if nchw:
            actual = compute(nn, compilation, image, dims=(1, 6, 7, 7))
        else:
            pixels = np.ascontiguousarray(image.transpose(0, 2, 3, 1))
            actual = compute(nn, compilation, pixels, dims=(1, 7, 7, 6)).transpose(0, 3, 1, 2)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "first", "function"),
    [
        ("LOG", np.inf, np.log),
        ("SQRT", 0.01, np.sqrt),
        ("RSQRT", 0.01, lambda values: 1 / np.sqrt(values)),
    ],
    ids=["LOG", "SQRT", "RSQRT"],
)
def test_zero_and_infinity(nn, fast, name, first, function):
    values = np.array([[1.0, first, 0.0, 1e-30], [2.0, 7.5, 1e30, 0.3]], np.float32)
    actual = execute(nn, name, [values], (F32, values.shape), device="nnapi-fast")
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(actual, function(values), rtol=1e-6)


def test_shapes_known_at_run_time_only(nn, fast):
    """Nothing can be compiled for XNNPACK then: the reference computes, as the device says."""
    model = Model(nn)
    source, result = model.tensors(2, 0, 4)
    model.operation(Op.TANH, [source], [result])
    compilation = model.finish([source], [result]).compile([fast])
    for rows in (3, 1, 5):
        values = np.linspace(-2, 2, rows * 4, dtype=np.float32).reshape(rows, 4)
        shape = operand_type(T.TENSOR_FLOAT32, (rows, 4))
        actual = compute(nn, compilation, values, dims=(rows, 4), shapes=[shape])
        np.testing.assert_allclose(actual, np.tanh(values), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("code", QUANT8, ids=lambda code: code.name)
@pytest.mark.parametrize("depthwise", [False, True])
def test_scales_for_each_channel(nn, fast, code, depthwise):
    """Both kinds of data, though XNNPACK's kernels know signed ones only."""
    rng = np.random.default_rng(7)
    source, target = quant8(code, 0.02, 131), quant8(code, 0.05, 122)
    data = source.random(rng, (2, 7, 6, 8))
    scales = tuple(float(s) for s in rng.uniform(0.002, 0.008, 8).astype(np.float32))
    numbers = rng.integers(-127, 128, (1, 3, 3, 8) if depthwise else (8, 3, 3, 8))
    weights = Kind(T.TENSOR_QUANT8_SYMM_PER_CHANNEL).of(
        numbers, constant=True, channel_scales=scales, channel_dim=3 if depthwise else 0
    )
    bias = I32.of(rng.integers(-999, 999, 8), constant=True)
    arguments = [data, weights, bias, SAME, 1, 1, *([1] if depthwise else []), NONE]
    name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    result = execute(nn, name, arguments, (target, (2, 7, 6, 8)), device="nnapi-fast")
    order = (3, 0, 1, 2) if depthwise else (0, 3, 1, 2)
    channels = torch.tensor(scales, dtype=torch.float64)
    kernel = torch.from_numpy(numbers).permute(order) * channels[:, None, None, None]
    added = torch.from_numpy(bias.array) * channels * source.scale
    images, groups = torch.from_numpy(data.real).permute(0, 3, 1, 2), 8 if depthwise else 1
    real = F.conv2d(images, kernel, added, padding=1, groups=groups).permute(0, 2, 3, 1)
    assert np.abs(result.astype(int) - target.nearest(real)).max() <= 1


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm, of binutils")
def test_xnnpack_stays_inside_the_library(emulator_library):
    words = subprocess.run(
        ["nm", "-D", "--defined-only", emulator_library], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in words.stdout.splitlines()}
    assert names
    strangers = {n for n in names if not n.startswith(("ANeuralNetworks", "np_emulator_"))}
    assert not strangers


def test_warm_executions_through_the_api_allocate_and_lock_nothing(fast):
    if xnnpack.built_prefix() is None:
        pytest.skip("XNNPACK for the benchmark is not built")
    spec = importlib.util.spec_from_file_location("bench_backends", BENCH)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    result = bench.measure(rounds=1)
    assert result["control_allocations"] > 0
    assert (result["allocations"], result["frees"], result["locks"]) == (0, 0, 0)
    assert result["fast_difference"] < 1e-5
    assert result["reference_difference"] < 1e-5
