"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR against torch."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.emulator.kernels.movement import (
    F16,
    F32,
    MOVED,
    RESIZE_BILINEAR,
    RESIZE_NEAREST_NEIGHBOR,
    SEEDS,
    Data,
    check,
    fails,
)


def resized(x, size, **options):
    """What torch makes of [N, H, W, C]."""
    image = torch.from_numpy(x.astype(np.float64).transpose(0, 3, 1, 2))
    return functional.interpolate(image, size, **options).numpy().transpose(0, 2, 3, 1)


@MOVED
@SEEDS
@pytest.mark.parametrize("mode", ["align", "half"])
def test_resize_bilinear(nn, kind, seed, mode):
    rng = np.random.default_rng(seed)
    h, w, out_h, out_w = (int(d) for d in rng.integers(1, 9, 4))
    x = kind.random(rng, 2, h, w, 3)
    expected = resized(x, (out_h, out_w), mode="bilinear", align_corners=mode == "align")
    flags = [False, mode == "align", mode == "half"]
    atol = {F32: 1e-5, F16: 1e-2}[kind] if kind in (F32, F16) else 1
    shaped = expected.astype(kind.dtype)
    check(nn, RESIZE_BILINEAR, [Data(x, kind), out_w, out_h, *flags], shaped, kind, atol)
    nchw = Data(x.transpose(0, 3, 1, 2), kind)
    flags[0] = True
    moved = shaped.transpose(0, 3, 1, 2)
    check(nn, RESIZE_BILINEAR, [nchw, out_w, out_h, *flags], moved, kind, atol)


def plain_bilinear(x, out_h, out_w):
    """Bilinear interpolation where pixel i of the output lies at i * in / out."""
    for axis, size in ((1, out_h), (2, out_w)):
        at = np.arange(size) * x.shape[axis] / size
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, x.shape[axis] - 1)
        share = (at - low).reshape([-1 if d == axis else 1 for d in range(4)])
        x = np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share
    return x


@MOVED
@SEEDS
def test_resize_bilinear_of_level_1(nn, kind, seed):
    rng = np.random.default_rng(seed)
    h, w, out_h, out_w = (int(d) for d in rng.integers(1, 9, 4))
    x = kind.random(rng, 2, h, w, 3)
    expected = plain_bilinear(x.astype(np.float64), out_h, out_w).astype(kind.dtype)
    atol = {F32: 1e-5, F16: 1e-2}[kind] if kind in (F32, F16) else 1
    check(nn, RESIZE_BILINEAR, [Data(x, kind), out_w, out_h], expected, kind, atol)


@MOVED
@pytest.mark.parametrize("code", [RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR])
def test_resize_by_scale(nn, kind, code):
    rng = np.random.default_rng(5)
    x = kind.random(rng, 1, 3, 5, 2)
    number = np.float16 if kind is F16 else float
    inputs = [Data(x, kind), number(1.5), number(0.75), False]  # 5 * 1.5 wide, 3 * 0.75 high
    if code == RESIZE_BILINEAR:
        expected = plain_bilinear(x.astype(np.float64), 2, 7).astype(kind.dtype)
        check(nn, code, inputs, expected, kind, 1e-2 if kind in (F32, F16) else 1)
    else:
        expected = resized(x, (2, 7), mode="nearest").astype(kind.dtype)
        check(nn, code, inputs, expected, kind)
    fails(nn, code, [inputs[0], number(0.1), number(1), False], (1, 3, 1, 2), kind)


@MOVED
@SEEDS
def test_resize_nearest(nn, kind, seed):
    rng = np.random.default_rng(seed)
    h, w, out_h, out_w = (int(d) for d in rng.integers(1, 9, 4))
    x = kind.random(rng, 2, h, w, 3)
    plain = resized(x, (out_h, out_w), mode="nearest").astype(kind.dtype)
    half = resized(x, (out_h, out_w), mode="nearest-exact").astype(kind.dtype)
    inputs = [Data(x, kind), out_w, out_h, False]
    check(nn, RESIZE_NEAREST_NEIGHBOR, inputs, plain, kind)
    check(nn, RESIZE_NEAREST_NEIGHBOR, [*inputs, False, True], half, kind)
    if out_h > 1 and out_w > 1:  # corners onto corners, halves away from zero
        rows = np.floor(np.arange(out_h) * (h - 1) / (out_h - 1) + 0.5).astype(int)
        columns = np.floor(np.arange(out_w) * (w - 1) / (out_w - 1) + 0.5).astype(int)
        expected = x[:, rows][:, :, columns]
        check(nn, RESIZE_NEAREST_NEIGHBOR, [*inputs, True, False], expected, kind)


def test_resize_flags_exclude_each_other(nn):
    x = Data(np.zeros((1, 2, 2, 1), np.float32), F32)
    fails(nn, RESIZE_NEAREST_NEIGHBOR, [x, 2, 2, False, True, True], (1, 2, 2, 1), F32)
