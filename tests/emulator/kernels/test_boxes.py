"""Boxes moved, and those kept of many, against numpy and values worked out by hand."""

import numpy as np
import pytest

from tests.emulator.kernels.detection import (
    AXIS_ALIGNED_BBOX_TRANSFORM,
    BOX,
    BOX_WITH_NMS_LIMIT,
    FLOAT,
    GAUSSIAN,
    HALF,
    HARD,
    LINEAR,
    NAN,
    SCORES,
    distinct,
    execute,
    fails,
    floats,
    ints,
    limit_outputs,
    quant8,
    run,
    some_boxes,
    suppress,
    transform,
)
from tests.emulator.nnapi import OK, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED

KINDS = {
    "float": (FLOAT, FLOAT, 1e-4),
    "half": (HALF, HALF, 0.1),
    "quant8": (BOX, quant8(TENSOR_QUANT8_ASYMM, 0.01, 128), 0.0626),
    "signed": (BOX, quant8(TENSOR_QUANT8_ASYMM_SIGNED, 0.01, 128), 0.0626),
}


@pytest.mark.parametrize("name", KINDS)
def test_bbox_transform(nn, name):
    kind, delta_kind, atol = KINDS[name]
    rng = np.random.default_rng(4)
    boxes, deltas = kind.make(some_boxes(rng, 6)), delta_kind.make(rng.uniform(-1, 1, (6, 12)))
    images, batches = kind.make([[60, 50], [80, 70]]), [0, 0, 1, 1, 0, 1]
    expected = [
        [transform(boxes.real[i], delta, images.real[batches[i]]) for delta in row.reshape(3, 4)]
        for i, row in enumerate(deltas.real)
    ]
    inputs = [boxes, deltas, ints(batches), images]
    (actual,) = run(nn, AXIS_ALIGNED_BBOX_TRANSFORM, inputs, [(kind, (6, 12))])
    np.testing.assert_allclose(actual, np.reshape(expected, (6, 12)), atol=atol)


def test_bbox_transform_by_hand(nn):
    """[0, 0, 10, 20] moved by a tenth of its size is centred on (6, 12); twice as wide it spans
    -4 to 16 of an image of 15."""
    inputs = [floats([[0, 0, 10, 20]]), floats([[0.1, 0.1, np.log(2), 0, 0, 0, 0, 0]])]
    inputs += [ints([0]), floats([[21, 15]])]
    (result,) = run(nn, AXIS_ALIGNED_BBOX_TRANSFORM, inputs, [(FLOAT, (1, 8))])
    np.testing.assert_allclose(result, [[0, 2, 15, 21, 0, 0, 10, 20]], atol=1e-5)


def test_bbox_transform_refuses(nn):
    def refused(box, batch):
        inputs = [floats([box]), floats([[0] * 4]), ints([batch]), floats([[9, 9]])]
        return fails(nn, AXIS_ALIGNED_BBOX_TRANSFORM, inputs, [(FLOAT, (1, 4))])

    assert not refused([1, 1, 1, 1], 0)
    assert refused([1, 1, 2, 2], 1)
    assert refused([1, 1, 2, 2], -1)
    assert refused([2, 1, 1, 2], 0)
    assert refused([1, 2, 2, 1], 0)
    assert refused([1, NAN, 2, 2], 0)


def box_with_nms_limit(scores, boxes, batches, options):
    threshold, limit, kernel, iou_threshold, sigma, minimum = options
    rows = []
    for b in sorted(set(batches)):
        of_image = []
        for c in range(1, scores.shape[1]):
            result = [
                (scores[i, c], boxes[i, 4 * c : 4 * c + 4], c, b)
                for i in range(len(scores))
                if batches[i] == b and scores[i, c] > threshold
            ]
            of_image += suppress(result, kernel, iou_threshold, sigma, minimum, limit)
        best = sorted(of_image, key=lambda row: -row[0])
        best = best if limit < 0 else best[:limit]
        rows += sorted(best, key=lambda row: (row[2], -row[0]))
    return [np.array([row[k] for row in rows]) for k in range(4)]


def crowded_boxes(rng, n, size=40):
    """Boxes that overlap by much, on a grid of 1/8."""
    corner = rng.integers(0, size, (n, 2)) / 4
    return np.concatenate([corner, corner + rng.integers(40, 160, (n, 2)) / 8], 1)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("kernel", [HARD, LINEAR, GAUSSIAN])
@pytest.mark.parametrize("limit", [-1, 0, 1, 4])
def test_box_with_nms_limit(nn, name, kernel, limit):
    kinds, rng = SCORES[name], np.random.default_rng(5)
    n, classes, batches = 24, 4, [1] * 9 + [3] * 14 + [4]
    scores = kinds[0].make(distinct(rng, n, classes))
    boxes = kinds[1].make(np.concatenate([crowded_boxes(rng, n) for _ in range(classes)], 1))
    options = (0.21875, limit, kernel, 0.40625, 0.5, 0.3125)
    expected = box_with_nms_limit(scores.real, boxes.real, batches, options)
    inputs = [scores, boxes, ints(batches), *options]
    actual = run(nn, BOX_WITH_NMS_LIMIT, inputs, limit_outputs(kinds))
    assert len(actual[0]) == len(expected[0]) == (0 if limit == 0 else len(expected[0]))
    if limit == 0:
        return
    coarse = kernel != HARD and name != "float"
    np.testing.assert_allclose(actual[0], expected[0], atol=1 / 500 if coarse else 1e-6)
    for one, other in zip(actual[1:], expected[1:], strict=True):
        assert one.tolist() == other.tolist()
    exact = run(nn, BOX_WITH_NMS_LIMIT, inputs, limit_outputs(kinds, len(expected[0])))
    assert all((a == b).all() for a, b in zip(actual, exact, strict=True))


def test_box_with_nms_limit_by_hand(nn):
    """Two overlapping boxes, (9 x 9) / (100 + 100 - 81) = 0.68, and one aside, in class 1 of 2.
    The scores of the background and those that only reach the threshold do not count."""
    boxes = [[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [40, 40, 50, 50]]
    boxes = floats([[0] * 4 + box for box in boxes])
    scores = floats([[0.99, 0.8], [0.99, 0.9], [0.99, 0.75], [0.99, 0.5]])
    more = [boxes, ints([0] * 4), 0.5, -1]
    overlap = 81 / 119
    for kernel, threshold, expected in (
        (HARD, 0.4, [(0.9, 1), (0.75, 20)]),
        (HARD, 0.7, [(0.9, 1), (0.8, 0), (0.75, 20)]),
        (LINEAR, 0.4, [(0.9, 1), (0.75, 20), (0.8 * (1 - overlap), 0)]),
        (GAUSSIAN, 0.4, [(0.9, 1), (0.75, 20), (0.8 * np.exp(-(overlap**2) / 0.5), 0)]),
    ):
        inputs = [scores, *more, kernel, threshold, 0.5, 0.1]
        result = run(nn, BOX_WITH_NMS_LIMIT, inputs, limit_outputs((FLOAT, FLOAT)))
        np.testing.assert_allclose(result[0], [score for score, _ in expected], rtol=1e-6)
        assert result[1][:, 0].tolist() == [x for _, x in expected]
        assert set(result[2]) == {1} and set(result[3]) == {0}


def test_nms_of_equal_scores(nn):
    """The first of equal scores is taken; what is dropped changes places with the last one left:
    A drops B, so that of the order A B C D remains A D C."""
    rows = [[0, 0, 10, 10], [1, 0, 11, 10], [20, 0, 30, 10], [40, 0, 50, 10]]
    boxes = floats([[0] * 4 + row for row in rows])
    scores = floats([[0, 0.75], [0, 0.5], [0, 0.5], [0, 0.5]])
    inputs = [scores, boxes, ints([0] * 4), 0.1, -1, HARD, 0.4, 1.0, 0.1]
    result = run(nn, BOX_WITH_NMS_LIMIT, inputs, limit_outputs((FLOAT, FLOAT)))
    assert result[1][:, 0].tolist() == [0, 40, 20]


def test_box_with_nms_limit_of_nothing(nn):
    more = [-1, HARD, 0.4, 1.0, 0.3]
    inputs = [floats([[0.9, 0.1]]), floats([[1, 1, 10, 10, 0, 0, 10, 10]]), ints([0]), 0.3, *more]
    result = run(nn, BOX_WITH_NMS_LIMIT, inputs, limit_outputs((FLOAT, FLOAT)))
    assert [one.shape for one in result] == [(0,), (0, 4), (0,), (0,)]


def test_box_with_nms_limit_refuses(nn):
    def refused(box, kernel=HARD):
        inputs = [floats([[0.1, 0.9]]), floats([[0] * 4 + box]), ints([0])]
        inputs += [0.3, -1, kernel, 0.4, 1.0, 0.3]
        return execute(nn, BOX_WITH_NMS_LIMIT, inputs, limit_outputs((FLOAT, FLOAT)))[0] != OK

    assert not refused([1, 1, 2, 2])
    assert refused([1, 1, 2, 2], 3)
    assert refused([1, 1, 2, 2], -1)
    assert refused([2, 1, 1, 2])
    assert refused([1, 1, 2, NAN])
