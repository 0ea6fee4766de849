"""Regions of interest and key points against numpy and values worked out by hand."""

import numpy as np
import pytest

from tests.emulator.kernels.detection import (
    BOX,
    FLOAT,
    HALF,
    HEATMAP_MAX_KEYPOINT,
    INF,
    NAN,
    QUANT8,
    ROI_ALIGN,
    ROI_POOLING,
    fails,
    floats,
    ints,
    quant8,
    run,
    some_boxes,
)
from tests.emulator.nnapi import TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED


def roi_align(image, rois, batches, size, ratios, samples):
    """The mean of bilinear samples, from the definition."""
    _, height, width, depth = image.shape
    out = np.zeros((len(rois), *size, depth))
    for r, (roi, b) in enumerate(zip(rois, batches, strict=True)):
        x1, y1, x2, y2 = (
            roi[0] / ratios[1],
            roi[1] / ratios[0],
            roi[2] / ratios[1],
            roi[3] / ratios[0],
        )
        step = (max(y2 - y1, 1) / size[0], max(x2 - x1, 1) / size[1])
        count = [n or int(np.ceil(s)) for n, s in zip(samples, step, strict=True)]
        for i, j in np.ndindex(*size):
            ys = y1 + step[0] * (i + (np.arange(count[0]) + 0.5) / count[0])
            xs = x1 + step[1] * (j + (np.arange(count[1]) + 0.5) / count[1])
            rows = hat(ys, height).mean(0)
            columns = hat(xs, width).mean(0)
            out[r, i, j] = np.einsum("h,w,hwc->c", rows, columns, image[b])
    return out


def hat(at, size):
    """Weights [len(at), size] of linear interpolation; beyond the last pixel that one's value."""
    return np.maximum(0, 1 - abs(np.minimum(at, size - 1)[:, None] - np.arange(size)))


def some_rois(rng, n, height, width):
    x, y = rng.uniform(0, width, (n, 2)), rng.uniform(0, height, (n, 2))
    rois = np.stack([x.min(1), y.min(1), x.max(1), y.max(1)], 1)
    rois[0] = [0, 0, width, height]
    rois[1, 2:] = rois[1, :2] + 0.2  # smaller than a pixel
    rois[1] = rois[1].clip(0, min(height, width))
    return rois


@pytest.mark.parametrize("samples", [(2, 2), (0, 0), (3, 1), (0, 4)])
@pytest.mark.parametrize("kind", [FLOAT, HALF], ids=["float", "half"])
@pytest.mark.parametrize("nchw", [False, True])
def test_roi_align(nn, samples, kind, nchw):
    rng = np.random.default_rng(1)
    image, rois = kind.make(rng.normal(size=(2, 6, 7, 3))), kind.make(some_rois(rng, 7, 12, 28))
    batches = [0, 0, 1, 0, 1, 1, 0]
    expected = roi_align(image.real, rois.real, batches, (2, 3), (2, 4), samples)
    if nchw:
        image = kind.make(image.real.transpose(0, 3, 1, 2))
    dims = (7, 3, 2, 3) if nchw else (7, 2, 3, 3)
    inputs = [image, rois, ints(batches), 2, 3, 2.0, 4.0, *samples, nchw]
    (actual,) = run(nn, ROI_ALIGN, inputs, [(kind, dims)])
    actual = actual.transpose(0, 2, 3, 1) if nchw else actual
    np.testing.assert_allclose(actual, expected, atol=1e-5 if kind is FLOAT else 5e-3)


def test_roi_align_by_hand(nn):
    """Where values rise evenly a bin's mean is the value at its centre: 16.5 is x + 10 y at
    (1.5, 1.5). A region of no size counts as one pixel."""
    image = np.add.outer(np.arange(4) * 10, np.arange(4)).reshape(1, 4, 4, 1)
    rois = [[2, 2, 6, 6], [2, 4, 2, 4]]
    inputs = [floats(image), floats(rois), ints([0, 0]), 2, 2, 2.0, 2.0, 2, 2, False]
    (result,) = run(nn, ROI_ALIGN, inputs, [(FLOAT, (2, 2, 2, 1))])
    np.testing.assert_allclose(result[0].ravel(), [16.5, 17.5, 26.5, 27.5], rtol=1e-6)
    np.testing.assert_allclose(result[1].ravel(), [23.75, 24.25, 28.75, 29.25], rtol=1e-6)


def roi_align_integers(image, rois, batches, size, ratios, samples, out):
    """ROI_ALIGN in integers, as the reference does it: weights of 8 bits, and one rounding."""
    expected = np.zeros((len(rois.array), *size, image.array.shape[3]), int)
    for r, (roi, b) in enumerate(zip(rois.real, batches, strict=True)):
        x1, y1, x2, y2 = roi / [ratios[1], ratios[0], ratios[1], ratios[0]]
        step = (max(y2 - y1, 1) / size[0], max(x2 - x1, 1) / size[1])
        count = [n or int(np.ceil(s)) for n, s in zip(samples, step, strict=True)]
        scale = image.kind.scale / 255 / out.scale / np.prod(count)
        for i, j in np.ndindex(*size):
            ys = y1 + step[0] * (i + (np.arange(count[0]) + 0.5) / count[0])
            xs = x1 + step[1] * (j + (np.arange(count[1]) + 0.5) / count[1])
            rows, columns = hat(ys, image.array.shape[1]), hat(xs, image.array.shape[2])
            weights = np.floor(np.einsum("ah,bw->abhw", rows, columns) * 255 + 0.5).sum((0, 1))
            sums = np.einsum("hw,hwc->c", weights, image.array[b].astype(int) - image.kind.zero)
            expected[r, i, j] = np.floor(sums * scale + 0.5) + out.zero
    limits = np.iinfo(image.array.dtype)
    return expected.clip(limits.min, limits.max)


@pytest.mark.parametrize("code", QUANT8)
@pytest.mark.parametrize("samples", [(2, 2), (0, 0)])
def test_roi_align_quantised(nn, code, samples):
    rng = np.random.default_rng(2)
    kind, out = quant8(code, 0.05, 120), quant8(code, 0.02, 130)
    image = kind.make(rng.uniform(-4, 4, (2, 6, 7, 3)))
    rois, batches = BOX.make(some_rois(rng, 7, 12, 28)), [0, 0, 1, 0, 1, 1, 0]
    inputs = [image, rois, ints(batches), 2, 3, 2.0, 4.0, *samples, False]
    (actual,) = run(nn, ROI_ALIGN, inputs, [(out, (7, 2, 3, 3))])
    expected = roi_align_integers(image, rois, batches, (2, 3), (2, 4), samples, out)
    off = abs(np.rint(actual / out.scale) + out.zero - expected)
    assert off.max() <= 1  # where float32 finds a weight on the other side of a half
    assert off.mean() < 0.02


def roi_pooling(image, rois, batches, size, ratios, empty=0.0):
    """The maximum over pixels, whose ends are found in float32: they decide what is inside."""
    _, height, width, depth = image.shape
    out = np.full((len(rois), *size, depth), empty)
    for r, (roi, b) in enumerate(zip(rois, batches, strict=True)):
        ends = np.floor(np.float32(roi) / np.float32(ratios)[[1, 0, 1, 0]] + np.float32(0.5))
        for at in np.ndindex(*size):
            spans = []
            for axis, limit in ((0, height), (1, width)):
                first, last = ends[1 - axis], ends[3 - axis]
                step = np.float32(last - first + 1) / np.float32(size[axis])
                low, high = (step * np.float32(k) + first for k in (at[axis], at[axis] + 1))
                spans.append(slice(int(np.floor(low)), min(limit, int(np.ceil(high)))))
            pixels = image[b][tuple(spans)].reshape(-1, depth)
            if len(pixels):
                out[(r, *at)] = pixels.max(0)
    return out


@pytest.mark.parametrize(
    "kind", [FLOAT, HALF, *(quant8(code, 0.05, 128) for code in QUANT8)], ids=lambda k: k.code
)
@pytest.mark.parametrize("nchw", [False, True])
def test_roi_pooling(nn, kind, nchw):
    rng = np.random.default_rng(3)
    image = kind.make(rng.normal(size=(2, 6, 7, 3)))
    rois = (BOX if kind.scale else kind).make(some_rois(rng, 7, 12, 28))
    batches = [0, 0, 1, 0, 1, 1, 0]
    expected = roi_pooling(image.real, rois.real, batches, (2, 3), (2, 4))
    pixels = kind.make(image.real.transpose(0, 3, 1, 2)) if nchw else image
    dims = (7, 3, 2, 3) if nchw else (7, 2, 3, 3)
    inputs = [pixels, rois, ints(batches), 2, 3, 2.0, 4.0, nchw]
    (actual,) = run(nn, ROI_POOLING, inputs, [(kind, dims)])
    actual = actual.transpose(0, 2, 3, 1) if nchw else actual
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_roi_pooling_by_hand(nn):
    """[2, 2, 6, 6] at half size is pixels 1 to 3, both included: bins of 1.5 pixels, [1, 3) and
    [2, 4). At the far corner only pixels behind the last one are left: nothing, 0."""
    image = np.add.outer(np.arange(4) * 10, np.arange(4)).reshape(1, 4, 4, 1) - 50
    rois = [[2, 2, 6, 6], [8, 8, 8, 8]]
    inputs = [floats(image), floats(rois), ints([0, 0]), 2, 2, 2.0, 2.0, False]
    (result,) = run(nn, ROI_POOLING, inputs, [(FLOAT, (2, 2, 2, 1))])
    assert result[0].ravel().tolist() == [-28, -27, -18, -17]
    assert result[1].ravel().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("operation", [ROI_ALIGN, ROI_POOLING])
def test_regions_that_are_none(nn, operation):
    image, more = floats(np.ones((2, 4, 4, 1))), (0, 0) if operation == ROI_ALIGN else ()
    output = [(FLOAT, (1, 2, 2, 1))]

    def refused(roi, batch=0):
        inputs = [image, floats([roi]), ints([batch]), 2, 2, 2.0, 2.0, *more, False]
        return fails(nn, operation, inputs, output)

    assert not refused([0, 0, 8, 8], 1)
    assert refused([0, 0, 8, 8], 2)
    assert refused([0, 0, 8, 8], -1)
    assert refused([3, 0, 2, 8])
    assert refused([0, 3, 8, 2])
    assert refused([-1, 0, 8, 8])
    assert refused([0, 0, 8.5, 8])
    assert refused([0, 0, 8, 8.5])
    assert refused([0, NAN, 8, 8])
    assert refused([0, 0, INF, 8])


def peak(grid):
    """Value and place (x, y from the middle) of the stationary point of the parabola through a
    middle value and its neighbours."""
    gradient = np.array([grid[1, 2] - grid[1, 0], grid[2, 1] - grid[0, 1]]) / 2
    cross = (grid[2, 2] - grid[2, 0] - grid[0, 2] + grid[0, 0]) / 4
    curve = [grid[1, 0] + grid[1, 2], grid[0, 1] + grid[2, 1]]
    hessian = np.diag(np.array(curve) - 2 * grid[1, 1]) + cross * (1 - np.eye(2))
    move = -np.linalg.solve(hessian, gradient)
    move *= 1.5 / max(1.5, abs(move).max())
    return grid[1, 1] + gradient @ move + move @ hessian @ move / 2, move


def key_points(maps, boxes):
    n, side, _, points = maps.shape
    scores, places = np.zeros((n, points)), np.zeros((n, points, 2))
    for i, k in np.ndindex(n, points):
        one = maps[i, :, :, k]
        y, x = np.unravel_index(one.argmax(), one.shape)
        scores[i, k], move = peak(np.pad(one, 1, mode="reflect")[y : y + 3, x : x + 3])
        share = (np.array([x, y]) + 0.5 + move) / side
        places[i, k] = boxes[i, :2] + share * (boxes[i, 2:] - boxes[i, :2])
    return scores, places


@pytest.mark.parametrize("name", ["float", "half", "quant8", "signed"])
@pytest.mark.parametrize("nchw", [False, True])
def test_heatmap_max_keypoint(nn, name, nchw):
    quantised, rng = name in ("quant8", "signed"), np.random.default_rng(8)
    code = TENSOR_QUANT8_ASYMM if name == "quant8" else TENSOR_QUANT8_ASYMM_SIGNED
    kind = quant8(code, 0.02, 128) if quantised else FLOAT if name == "float" else HALF
    out = quant8(code, 0.03, 100) if quantised else kind
    box_kind = BOX if quantised else kind
    maps, boxes = kind.make(rng.uniform(-2, 2, (6, 5, 5, 4))), box_kind.make(some_boxes(rng, 6))
    scores, places = key_points(maps.real, boxes.real)
    if nchw:
        maps = kind.make(maps.real.transpose(0, 3, 1, 2))
    outputs = [(out, (6, 4)), (box_kind, (6, 4, 2))]
    result = run(nn, HEATMAP_MAX_KEYPOINT, [maps, boxes, nchw], outputs)
    atol = {"float": 1e-3, "half": 0.06}.get(name, 0.0626)
    np.testing.assert_allclose(result[0], scores, atol=0.0151 if quantised else atol)
    np.testing.assert_allclose(result[1], places, atol=atol)


def test_heatmap_max_keypoint_by_hand(nn):
    """A true parabola is found exactly: 5 at (2.25, 1.75) of 5 x 5 pixels of 4 x 2 each. Where all
    values are equal there is no peak and the first pixel is it. In a corner the map is mirrored:
    with 3 there, 1 and 1 beside it and 0 across, 3 is a maximum itself."""
    y, x = np.mgrid[0:5, 0:5]
    maps = np.stack([5 - (x - 2.25) ** 2 - (y - 1.75) ** 2, 0 * x + 2, 0 * x], -1).astype(float)
    maps[4, 4, 2], maps[3, 4, 2], maps[4, 3, 2] = 3, 1, 1
    outputs = [(FLOAT, (1, 3)), (FLOAT, (1, 3, 2))]
    inputs = [floats(maps[None]), floats([[100, 50, 120, 60]]), False]
    actual = run(nn, HEATMAP_MAX_KEYPOINT, inputs, outputs)
    np.testing.assert_allclose(actual[0], [[5, 2, 3]], atol=1e-5)
    expected = [[100 + 2.75 * 4, 50 + 2.25 * 2], [100 + 0.5 * 4, 50 + 0.5 * 2], [118, 59]]
    np.testing.assert_allclose(actual[1][0], expected, atol=1e-4)


def test_heatmap_max_keypoint_far_away(nn):
    """-x^2 / 2 + x y / 2 - 0.12 y^2 + (x + y) / 20 around the middle of the map has its stationary
    point, a saddle, at -(3.7, 7.5). It is brought back to 1.5 pixels: -(0.74, 1.5)."""
    y, x = np.mgrid[-1:2, -1:2]
    maps = np.full((1, 5, 5, 1), -9.0)
    maps[0, 1:4, 1:4, 0] = -(x**2) / 2 + x * y / 2 - 0.12 * y**2 + (x + y) / 20
    outputs = [(FLOAT, (1, 1)), (FLOAT, (1, 1, 2))]
    result = run(nn, HEATMAP_MAX_KEYPOINT, [floats(maps), floats([[0, 0, 5, 5]]), False], outputs)
    np.testing.assert_allclose(result[0], [[-0.1008]], atol=1e-3)
    np.testing.assert_allclose(result[1], [[[2.5 - 0.74, 2.5 - 1.5]]], atol=1e-3)


def test_heatmap_max_keypoint_nearly_flat(nn):
    """Along both axes -16, 0, -4 (of 1024): curved by -20 and rising by 6, so that the peak lies
    0.3 away. The determinant, 0.00038, is enough for float32, and for float16 not."""
    line = np.array([-16, 0, -4]) / 1024
    maps = np.add.outer(line, line).reshape(1, 3, 3, 1)
    for kind, at in ((FLOAT, 1.8), (HALF, 1.5)):
        inputs = [kind.make(maps), kind.make([[0, 0, 3, 3]]), False]
        outputs = [(kind, (1, 1)), (kind, (1, 1, 2))]
        _, result = run(nn, HEATMAP_MAX_KEYPOINT, inputs, outputs)
        np.testing.assert_allclose(result, [[[at, at]]], atol=1e-3)


@pytest.mark.parametrize("code", QUANT8)
def test_quantised_results_saturate(nn, code):
    kind, out = quant8(code, 0.5, 128), quant8(code, 0.01, 128)
    maps = kind.make(np.broadcast_to([-9.0, 9.0], (1, 2, 2, 2)))
    inputs = [maps, BOX.make([[0, 0, 4, 4]]), False]
    result, _ = run(nn, HEATMAP_MAX_KEYPOINT, inputs, [(out, (1, 2)), (BOX, (1, 2, 2))])
    np.testing.assert_allclose(result, [[-1.28, 1.27]])


def test_heatmap_refuses_boxes_inside_out(nn):
    for box, good in (
        ([1, 1, 1, 1], True),
        ([2, 1, 1, 1], False),
        ([1, 2, 1, 1], False),
        ([NAN, 1, 1, 1], False),
        ([1, 1, 1, NAN], False),
    ):
        inputs = [floats(np.ones((1, 2, 2, 1))), floats([box]), False]
        outputs = [(FLOAT, (1, 1)), (FLOAT, (1, 1, 2))]
        assert fails(nn, HEATMAP_MAX_KEYPOINT, inputs, outputs) is not good
