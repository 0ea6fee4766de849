"""Operations along axes: softmax, reductions, normalizations, against numpy and torch."""

import numpy as np
import pytest
import torch

from tests.emulator.kernels.one_operation import (
    BOOL,
    F16,
    F32,
    FLOATS,
    I32,
    QUANT8,
    RTOL,
    SEEDS,
    Kind,
    Tensor,
    assert_near,
    assert_rounded,
    execute,
    fixed_output,
    quant8,
    random_quant8,
    random_shape,
    scalar,
    tensor,
)


@pytest.mark.parametrize("kind", [F32, F16], ids=lambda k: k.name)
@pytest.mark.parametrize("name", ["SOFTMAX", "LOG_SOFTMAX"])
def test_softmax_float(nn, name, kind):
    compute = {"SOFTMAX": torch.softmax, "LOG_SOFTMAX": torch.log_softmax}[name]
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        shape, beta = random_shape(rng), 0.5 if seed % 2 else 1.0
        x, axis = tensor(rng, kind, shape), int(rng.integers(-len(shape), len(shape)))
        arguments = [x, scalar(beta, kind is F16), axis]
        if name == "SOFTMAX" and axis == -1:
            arguments = arguments[:2]
        expected = compute(torch.from_numpy(x.real * beta), axis).numpy()
        assert_near(execute(nn, name, arguments, kind, shape), expected, kind)


@pytest.mark.parametrize("quant", QUANT8)
def test_softmax_quantised(nn, quant):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        shape, kind, beta = random_shape(rng), random_quant8(rng, quant), rng.uniform(0.1, 3)
        x, axis = tensor(rng, kind, shape), int(rng.integers(-len(shape), len(shape)))
        out = fixed_output("SOFTMAX", quant)
        expected = torch.softmax(torch.from_numpy(x.real * np.float32(beta)), axis).numpy()
        actual = execute(nn, "SOFTMAX", [x, beta, axis], out, shape)
        assert_rounded(actual, expected, out, 0.95)


REDUCTIONS = {
    "MEAN": np.mean,
    "REDUCE_SUM": np.sum,
    "REDUCE_PROD": np.prod,
    "REDUCE_MAX": np.max,
    "REDUCE_MIN": np.min,
    "REDUCE_ALL": np.all,
    "REDUCE_ANY": np.any,
}


def reduction(rng, rank):
    """Axes, some negative or named twice, whether they stay, and the argument that says so."""
    axes = rng.choice(rank, int(rng.integers(1, rank + 1)), replace=False)
    named = [int(a) - (rank if rng.random() < 0.5 else 0) for a in axes]
    values = np.array([*named, named[0]], np.int32)
    return tuple(int(a) for a in axes), Tensor(I32, values, bool(rng.integers(0, 2)))


def check_reduction(nn, rng, name, x, compare):
    axes, listed = reduction(rng, x.array.ndim)
    keep = bool(rng.integers(0, 2))
    expected = np.asarray(REDUCTIONS[name](x.array.astype(np.float64), axis=axes, keepdims=keep))
    expected = expected.reshape(expected.shape or (1,))
    arguments = [x, listed, int(keep) if name == "MEAN" else keep]
    compare(execute(nn, name, arguments, x.kind, expected.shape), expected)


@pytest.mark.parametrize("kind", [F32, F16], ids=lambda k: k.name)
@pytest.mark.parametrize("name", list(REDUCTIONS)[:5])
def test_reduce_float(nn, name, kind):
    rtol = 2e-5 if kind is F32 else 2**-10

    def compare(found, wanted):
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=rtol, atol=1e-4)

    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        check_reduction(nn, rng, name, tensor(rng, kind, random_shape(rng), -1.5, 1.5), compare)


@pytest.mark.parametrize("quant", QUANT8)
@pytest.mark.parametrize("name", ["MEAN", "REDUCE_MAX", "REDUCE_MIN"])
def test_reduce_quantised(nn, name, quant):
    def compare(found, wanted):  # the mean is cut off, as Android's reference does
        np.testing.assert_array_equal(found, np.trunc(wanted + np.sign(wanted) * 1e-9))

    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        x = tensor(rng, random_quant8(rng, quant), random_shape(rng))
        check_reduction(nn, rng, name, x, compare)


@pytest.mark.parametrize("name", ["REDUCE_ALL", "REDUCE_ANY"])
def test_reduce_booleans(nn, name):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        x = tensor(rng, BOOL, random_shape(rng))
        check_reduction(nn, rng, name, x, np.testing.assert_array_equal)


@pytest.mark.parametrize("type_", [*FLOATS, "TENSOR_INT32", *QUANT8])
@pytest.mark.parametrize("name", ["ARGMAX", "ARGMIN"])
def test_arg(nn, name, type_):
    compute = {"ARGMAX": np.argmax, "ARGMIN": np.argmin}[name]
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        shape = random_shape(rng)
        kind = quant8(type_, 0.5, 9) if type_ in QUANT8 else Kind(type_)
        x = tensor(rng, kind, shape)
        if seed % 2:  # many ties
            x = Tensor(kind, np.round(x.array / 2).astype(kind.dtype))
        axis = int(rng.integers(-len(shape), len(shape)))
        expected = np.asarray(compute(x.array, axis))
        expected = expected.reshape(expected.shape or (1,))
        np.testing.assert_array_equal(execute(nn, name, [x, axis], I32, expected.shape), expected)


@pytest.mark.parametrize("kind", [F32, F16], ids=lambda k: k.name)
def test_l2_normalization(nn, kind):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        shape = random_shape(rng)
        x, axis = tensor(rng, kind, shape), int(rng.integers(-len(shape), len(shape)))
        expected = torch.nn.functional.normalize(torch.from_numpy(x.real), dim=axis).numpy()
        arguments = [x] if axis in (-1, len(shape) - 1) else [x, axis]
        assert_near(execute(nn, "L2_NORMALIZATION", arguments, kind, shape), expected, kind)
    zeros = Tensor(kind, np.zeros((2, 3), kind.dtype))
    assert not execute(nn, "L2_NORMALIZATION", [zeros], kind, (2, 3)).any()


@pytest.mark.parametrize("quant", QUANT8)
def test_l2_normalization_quantised(nn, quant):
    out = fixed_output("L2_NORMALIZATION", quant)
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        shape = (40, *random_shape(rng)[:3])
        x = tensor(rng, random_quant8(rng, quant), shape)
        axis = int(rng.integers(-len(shape), len(shape)))
        expected = torch.nn.functional.normalize(torch.from_numpy(x.real), dim=axis).numpy()
        actual = execute(nn, "L2_NORMALIZATION", [x, axis], out, shape)
        assert_rounded(actual, expected, out, 0.9)  # it rounds twice, as Android's reference does


@pytest.mark.parametrize("kind", [F32, F16], ids=lambda k: k.name)
def test_local_response_normalization(nn, kind):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        shape, radius = random_shape(rng), int(rng.integers(0, 4))
        x, axis = tensor(rng, kind, shape), int(rng.integers(-len(shape), len(shape)))
        lines = np.moveaxis(x.real, axis, -1)
        squares = np.pad(lines**2, [(0, 0)] * (len(shape) - 1) + [(radius, radius)])
        windows = np.lib.stride_tricks.sliding_window_view(squares, 2 * radius + 1, -1)
        expected = np.moveaxis(lines * (1.5 + 0.75 * windows.sum(-1)) ** -0.5, -1, axis)
        numbers = [scalar(v, kind is F16) for v in (1.5, 0.75, 0.5)]
        arguments = [x, radius, *numbers] + ([] if axis in (-1, len(shape) - 1) else [axis])
        actual = execute(nn, "LOCAL_RESPONSE_NORMALIZATION", arguments, kind, shape)
        assert_near(actual, expected, kind)


@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("kind", [F32, F16], ids=lambda k: k.name)
def test_instance_normalization(nn, kind, nchw):
    x = tensor(np.random.default_rng(4), kind, (2, 3, 4, 5))
    image = torch.from_numpy(x.real if nchw else x.real.transpose(0, 3, 1, 2))
    expected = torch.nn.functional.instance_norm(image, eps=0.25).numpy() * 1.5 - 0.5
    expected = expected if nchw else expected.transpose(0, 2, 3, 1)
    numbers = [scalar(v, kind is F16) for v in (1.5, -0.5, 0.25)]
    actual = execute(nn, "INSTANCE_NORMALIZATION", [x, *numbers, nchw], kind, x.array.shape)
    np.testing.assert_allclose(actual.astype(np.float64), expected, RTOL[kind.name] * 2, 2e-3)
