"""Operations that move values, against numpy, over random shapes and every data type."""

from dataclasses import replace

import numpy as np
import pytest

from tests.emulator.kernels.movement import (
    BATCH_TO_SPACE_ND,
    CHANNEL_SHUFFLE,
    CONCATENATION,
    DEPTH_TO_SPACE,
    EXPAND_DIMS,
    F16,
    F32,
    GATHER,
    MOVED,
    PAD,
    PAD_V2,
    QUANT8,
    RESHAPE,
    RESIZE_BILINEAR,
    RESIZE_NEAREST_NEIGHBOR,
    SEEDS,
    SLICE,
    SPACE_TO_BATCH_ND,
    SPACE_TO_DEPTH,
    SPLIT,
    SQUEEZE,
    STRIDED_SLICE,
    TILE,
    TRANSPOSE,
    WITH_INT32,
    Data,
    Empty,
    Listed,
    Omitted,
    check,
    fails,
    random_shape,
    run_both,
)


@MOVED
@SEEDS
def test_transpose(nn, kind, seed):
    rng = np.random.default_rng(seed)
    shape = random_shape(rng, 2) if seed else (3, 41, 19, 35)
    x, order = kind.random(rng, *shape), rng.permutation(len(shape))
    check(nn, TRANSPOSE, [Data(x, kind), Listed(order)], x.transpose(order), kind)
    check(nn, TRANSPOSE, [Data(x, kind), Omitted()], x.transpose(), kind)


@MOVED
@SEEDS
def test_reshape_and_squeeze(nn, kind, seed):
    rng = np.random.default_rng(seed)
    a, b = (int(n) for n in rng.integers(1, 5, 2))
    x = kind.random(rng, 1, a, 1, b)
    check(nn, RESHAPE, [Data(x, kind), Listed([b, -1])], x.reshape(b, a), kind)
    check(nn, SQUEEZE, [Data(x, kind), Listed([0, -2])], x.reshape(a, b), kind)
    full = kind.random(rng, 1, 3, 1)
    check(nn, SQUEEZE, [Data(full, kind), Omitted()], full.reshape(3), kind)
    one = kind.random(rng, 1, 1)
    check(nn, SQUEEZE, [Data(one, kind), Listed([0, 1])], one.reshape(1), kind)


@WITH_INT32
@SEEDS
def test_expand_dims(nn, kind, seed):
    rng = np.random.default_rng(seed)
    x = kind.random(rng, *random_shape(rng))
    for axis in range(-x.ndim - 1, x.ndim + 1):
        check(nn, EXPAND_DIMS, [Data(x, kind), axis], np.expand_dims(x, axis), kind)


@WITH_INT32
@SEEDS
def test_slice(nn, kind, seed):
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    x = kind.random(rng, *shape)
    begins = [int(rng.integers(0, d)) for d in shape]
    sizes = [int(rng.integers(1, d - b, endpoint=True)) for d, b in zip(shape, begins, strict=True)]
    expected = x[tuple(slice(b, b + s) for b, s in zip(begins, sizes, strict=True))]
    check(nn, SLICE, [Data(x, kind), Listed(begins), Listed(sizes)], expected, kind)
    expected = x[tuple(slice(b, None) for b in begins)]
    check(nn, SLICE, [Data(x, kind), Listed(begins), Listed([-1] * x.ndim)], expected, kind)


@MOVED
@SEEDS
def test_strided_slice(nn, kind, seed):
    rng = np.random.default_rng(seed)
    for _ in range(10):
        shape = random_shape(rng)
        x = kind.random(rng, *shape)
        begins = rng.integers(-8, 8, x.ndim)
        ends = rng.integers(-8, 8, x.ndim)
        strides = rng.choice([-3, -2, -1, 1, 2, 3], x.ndim)
        masks = [int(m) for m in rng.integers(0, 1 << x.ndim, 2)]
        index = []
        for d in range(x.ndim):
            begin = None if masks[0] >> d & 1 else int(begins[d])
            end = None if masks[1] >> d & 1 else int(ends[d])
            index.append(slice(begin, end, int(strides[d])))
        expected = x[tuple(index)]
        if expected.size == 0:  # dimensions of 0 cannot be declared: they mean "unknown"
            continue
        lists = [Listed(begins), Listed(ends), Listed(strides)]
        check(nn, STRIDED_SLICE, [Data(x, kind), *lists, *masks, 0], expected, kind)


@MOVED
def test_strided_slice_drops_axes(nn, kind):
    x = kind.random(np.random.default_rng(1), 3, 4, 5)
    lists = [Listed([1, -2, 0]), Listed([2, -1, 5]), Listed([1, 1, 2])]
    check(nn, STRIDED_SLICE, [Data(x, kind), *lists, 0, 0, 0b011], x[1, -2, ::2], kind)
    lists = [Listed([2, 3, 4]), Listed([3, 4, 5]), Listed([1, 1, 1])]
    check(nn, STRIDED_SLICE, [Data(x, kind), *lists, 0, 0, 0b111], x[2:, 3, 4], kind)
    lists = [Listed([0, 0, 0]), Listed([2, 1, 1]), Listed([1, 1, 1])]  # two rows cannot be one
    fails(nn, STRIDED_SLICE, [Data(x, kind), *lists, 0, 0, 0b001], (1, 1), kind)


@MOVED
@SEEDS
def test_concatenation(nn, kind, seed):
    rng = np.random.default_rng(seed)
    shape = list(random_shape(rng))
    axis = int(rng.integers(len(shape)))
    parts = []
    for _ in range(int(rng.integers(1, 5))):
        shape[axis] = int(rng.integers(1, 5))
        parts.append(kind.random(rng, *shape))
    expected = np.concatenate(parts, axis)
    check(nn, CONCATENATION, [*(Data(p, kind) for p in parts), axis], expected, kind)


@QUANT8
@SEEDS
def test_concatenation_requantises(nn, kind, seed):
    rng = np.random.default_rng(seed)
    info, parts, real = np.iinfo(kind.dtype), [], []
    for _ in range(3):
        zero_point = int(rng.integers(info.min, info.max))
        one = replace(kind, scale=float(np.float32(rng.uniform(0.1, 2))), zero_point=zero_point)
        x = one.random(rng, 2, 3, 4)
        parts.append(Data(x, one))
        real.append((x.astype(np.float64) - zero_point) * one.scale)
    expected = np.round(np.concatenate(real, 1) / kind.scale) + kind.zero_point
    expected = expected.clip(info.min, info.max).astype(kind.dtype)
    check(nn, CONCATENATION, [*parts, 1], expected, kind, atol=1)
    same = np.concatenate([parts[0].array] * 2)  # values of the output's own scale do not change
    parts_ = [Data(parts[0].array, kind)] * 2
    check(nn, CONCATENATION, [*parts_, 0], same, kind)


@WITH_INT32
@SEEDS
def test_split(nn, kind, seed):
    rng = np.random.default_rng(seed)
    shape, parts = list(random_shape(rng)), int(rng.integers(1, 5))
    axis = int(rng.integers(-len(shape), len(shape)))
    shape[axis] *= parts
    x = kind.random(rng, *shape)
    expected = [np.ascontiguousarray(p) for p in np.split(x, parts, axis)]
    for actual in run_both(nn, SPLIT, [Data(x, kind), axis, parts], expected, [kind] * parts):
        for a, b in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@MOVED
@SEEDS
def test_pad(nn, kind, seed):
    rng = np.random.default_rng(seed)
    x = kind.random(rng, *random_shape(rng))
    paddings = rng.integers(0, 3, (x.ndim, 2))
    value = {F32: 2.5, F16: np.float16(-1.5)}[kind] if kind in (F32, F16) else 9
    plain = np.pad(x, paddings, constant_values=kind.zero_point)
    check(nn, PAD, [Data(x, kind), Listed(paddings)], plain, kind)
    framed = np.pad(x, paddings, constant_values=value)
    check(nn, PAD_V2, [Data(x, kind), Listed(paddings), value], framed, kind)
    fails(nn, PAD, [Data(x, kind), Listed(paddings - 3)], plain.shape, kind)


@WITH_INT32
@SEEDS
def test_tile(nn, kind, seed):
    rng = np.random.default_rng(seed)
    x = kind.random(rng, *random_shape(rng, high=5, size=4))
    multiples = rng.integers(1, 4, x.ndim)
    check(nn, TILE, [Data(x, kind), Listed(multiples)], np.tile(x, multiples), kind)


@WITH_INT32
@SEEDS
def test_gather(nn, kind, seed):
    rng = np.random.default_rng(seed)
    x = kind.random(rng, *random_shape(rng))
    axis = int(rng.integers(-x.ndim, x.ndim))
    indices = rng.integers(0, x.shape[axis], random_shape(rng, high=3))
    expected = np.take(x, indices, axis)
    check(nn, GATHER, [Data(x, kind), axis, Listed(indices)], expected, kind)
    for bad in (-1, x.shape[axis]):
        indices.flat[-1] = bad
        fails(nn, GATHER, [Data(x, kind), axis, Listed(indices)], expected.shape, kind)


@MOVED
@SEEDS
def test_space_and_depth(nn, kind, seed):
    rng = np.random.default_rng(seed)
    n, h, w, c, b = (int(d) for d in rng.integers(1, 4, 5))
    wide = kind.random(rng, n, h * b, w * b, c)
    deep = wide.reshape(n, h, b, w, b, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, h, w, b * b * c)
    for flag in ([], [False]):
        check(nn, SPACE_TO_DEPTH, [Data(wide, kind), b, *flag], deep, kind)
        check(nn, DEPTH_TO_SPACE, [Data(deep, kind), b, *flag], wide, kind)
    nchw, shuffled = deep.transpose(0, 3, 1, 2), wide.transpose(0, 3, 1, 2)
    check(nn, DEPTH_TO_SPACE, [Data(nchw, kind), b, True], shuffled, kind)
    check(nn, SPACE_TO_DEPTH, [Data(shuffled, kind), b, True], nchw, kind)


@MOVED
@pytest.mark.parametrize("seed", range(12))
def test_space_and_batch(nn, kind, seed):
    rng = np.random.default_rng(seed)
    n, c, bh, bw = (int(d) for d in rng.integers(1, 4, 4))
    h, w = (int(d) for d in rng.integers(1, 7, 2))
    (top, bottom), (left, right) = paddings = rng.integers(0, 5, (2, 2))
    paddings[0, 1] += -(h + top + bottom) % bh
    paddings[1, 1] += -(w + left + right) % bw
    x = kind.random(rng, n, h, w, c)
    padded = np.pad(x, [(0, 0), *paddings, (0, 0)], constant_values=kind.zero_point)
    rows, columns = padded.shape[1] // bh, padded.shape[2] // bw
    blocks = padded.reshape(n, rows, bh, columns, bw, c).transpose(2, 4, 0, 1, 3, 5)
    batch = blocks.reshape(n * bh * bw, rows, columns, c)
    inputs = [Data(x, kind), Listed([bh, bw]), Listed(paddings), False]
    check(nn, SPACE_TO_BATCH_ND, inputs, batch, kind)
    check(nn, BATCH_TO_SPACE_ND, [Data(batch, kind), Listed([bh, bw]), False], padded, kind)
    inputs[1] = Listed([bh, 0])
    fails(nn, SPACE_TO_BATCH_ND, inputs, batch.shape, kind)


@MOVED
@SEEDS
def test_channel_shuffle(nn, kind, seed):
    rng = np.random.default_rng(seed)
    shape, groups, size = list(random_shape(rng)), *(int(d) for d in rng.integers(1, 5, 2))
    axis = int(rng.integers(-len(shape), len(shape)))
    shape[axis] = groups * size
    x = kind.random(rng, *shape)
    moved = np.moveaxis(x, axis, -1)
    expected = moved.reshape(*moved.shape[:-1], groups, size).swapaxes(-1, -2).reshape(moved.shape)
    inputs = [Data(x, kind), groups, axis]
    check(nn, CHANNEL_SHUFFLE, inputs, np.moveaxis(expected, -1, axis), kind)


EMPTY = (0, 2, 4, 4)
OF_NOTHING = [
    (TRANSPOSE, [Listed([3, 0, 1, 2])], [(4, 0, 2, 4)]),
    (RESHAPE, [Listed([2, 0])], [(2, 0)]),
    (
        STRIDED_SLICE,
        [Listed([0] * 4), Listed([9] * 4), Listed([1, 2, 1, 1]), 0, 0, 0],
        [(0, 1, 4, 4)],
    ),
    (EXPAND_DIMS, [1], [(0, 1, 2, 4, 4)]),
    (SPLIT, [-1, 2], [(0, 2, 4, 2)] * 2),
    (PAD, [Listed([[0, 0], [1, 0], [0, 0], [0, 2]])], [(0, 3, 4, 6)]),
    (PAD, [Listed([[1, 1], [0, 0], [0, 0], [0, 0]])], [(2, 2, 4, 4)]),
    (TILE, [Listed([2, 1, 1, 3])], [(0, 2, 4, 12)]),
    (GATHER, [1, Listed([[1, 0, 1]])], [(0, 1, 3, 4, 4)]),
    (CHANNEL_SHUFFLE, [2, 3], [EMPTY]),
    (SPACE_TO_DEPTH, [2], [(0, 1, 2, 16)]),
    (DEPTH_TO_SPACE, [2], [(0, 4, 8, 1)]),
    (SPACE_TO_BATCH_ND, [Listed([2, 2]), Listed([[0, 0], [2, 0]])], [(0, 1, 3, 4)]),
    (BATCH_TO_SPACE_ND, [Listed([2, 3])], [(0, 4, 12, 4)]),
    (RESIZE_BILINEAR, [5, 3, False], [(0, 3, 5, 4)]),
    (RESIZE_NEAREST_NEIGHBOR, [5, 3, False], [(0, 3, 5, 4)]),
    (RESIZE_BILINEAR, [5, 3, True], [(0, 2, 3, 5)]),
    (RESIZE_NEAREST_NEIGHBOR, [5, 3, True], [(0, 2, 3, 5)]),
    (SPACE_TO_DEPTH, [2, True], [(0, 8, 2, 2)]),
    (SPACE_TO_BATCH_ND, [Listed([2, 2]), Listed([[0, 0], [2, 0]]), True], [(0, 2, 2, 3)]),
]


@MOVED
@pytest.mark.parametrize(("code", "rest", "shapes"), OF_NOTHING)
def test_empty_tensors(nn, kind, code, rest, shapes):
    expected = [np.full(shape, kind.zero_point, kind.dtype) for shape in shapes]
    for actual in run_both(nn, code, [Empty(EMPTY, kind), *rest], expected, [kind] * len(expected)):
        for a, b in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@MOVED
def test_empty_tensors_join(nn, kind):
    x = kind.random(np.random.default_rng(9), 3, 2)
    check(nn, CONCATENATION, [Empty((0, 2), kind), Data(x, kind), Empty((0, 2), kind), 0], x, kind)
