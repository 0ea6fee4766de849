"""Proposals and detections from anchors against numpy and values worked out by hand."""

import numpy as np
import pytest

from tests.emulator.kernels.detection import (
    ANCHOR,
    DETECTION_POSTPROCESSING,
    FLOAT,
    GENERATE_PROPOSALS,
    HALF,
    HARD,
    INT,
    SCORES,
    distinct,
    fails,
    floats,
    quant8,
    run,
    suppress,
    transform,
)


def generate_proposals(scores, deltas, anchors, images, options):
    stride_h, stride_w, before, after, threshold, minimum = options
    rows = []
    for b, image in enumerate(images):
        items = []
        for h, w, a in np.ndindex(*scores.shape[1:]):
            placed = anchors[a] + np.array([w * stride_w, h * stride_h] * 2)
            box = transform(placed, deltas[b, h, w, 4 * a : 4 * a + 4], image)
            items.append((scores[b, h, w, a], box, b))
        items = sorted(items, key=lambda row: -row[0])
        items = items if before < 1 else items[:before]
        items = [
            row
            for row in items
            if min(row[1][2] - row[1][0], row[1][3] - row[1][1]) > minimum
            and (row[1][0] + row[1][2]) / 2 < image[1]
            and (row[1][1] + row[1][3]) / 2 < image[0]
        ]
        rows += suppress(items, HARD, threshold, 1, 1e-9, after if after > 0 else -1)
    return [np.array([row[k] for row in rows]) for k in range(3)]


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("limits", [(-1, -1), (30, 7), (0, 0), (5, 100)])
@pytest.mark.parametrize("nchw", [False, True])
def test_generate_proposals(nn, name, limits, nchw):
    kinds, rng = SCORES[name], np.random.default_rng(6)
    quantised = name in ("quant8", "signed")
    delta = quant8(kinds[0].code, 0.01, 128) if quantised else kinds[0]
    scores = kinds[0].make(distinct(rng, 2, 4, 5, 3))
    deltas = delta.make(rng.uniform(-0.5, 0.5, (2, 4, 5, 12)))
    anchors = (ANCHOR if quantised else kinds[0]).make(
        [[-8, -4, 24, 20], [0, 0, 16, 16], [-4, -16, 16, 32]]
    )
    images = kinds[1].make([[60, 70], [40, 30]])
    options = (16.0, 8.0, *limits, 0.3125, 6.0)
    reals = [tensor.real for tensor in (scores, deltas, anchors, images)]
    expected = generate_proposals(*reals, options)
    if nchw:
        scores = kinds[0].make(scores.real.transpose(0, 3, 1, 2))
        deltas = delta.make(deltas.real.transpose(0, 3, 1, 2))
    outputs = [(kinds[0], (0,)), (kinds[1], (0, 4)), (INT, (0,))]
    inputs = [scores, deltas, anchors, images, *options, nchw]
    actual = run(nn, GENERATE_PROPOSALS, inputs, outputs)
    np.testing.assert_allclose(actual[0], expected[0], atol=1e-6)
    atol = {"float": 1e-4, "half": 0.05}.get(name, 0.0626)
    np.testing.assert_allclose(actual[1], expected[1], atol=atol)
    assert actual[2].tolist() == expected[2].tolist()


def test_generate_proposals_by_hand(nn):
    """An anchor of 16 x 16 at 2 x 2 places 8 apart, clipped to a width of 20: A [0, 0, 16, 16],
    B [8, 0, 20, 16], C [0, 8, 16, 24] and D [8, 8, 20, 24]. D overlaps A by 64/384, B by 96/288 and
    C by 128/320, which is B's with A, too."""
    scores, deltas = floats(np.reshape([0.5, 0.9, 0.8, 1.0], (1, 2, 2, 1))), np.zeros((1, 2, 2, 4))
    outputs = [(FLOAT, (0,)), (FLOAT, (0, 4)), (INT, (0,))]

    def proposals(threshold, minimum=4.0, before=-1, after=-1, width=20):
        inputs = [scores, floats(deltas), floats([[0, 0, 16, 16]]), floats([[24, width]])]
        inputs += [8.0, 8.0, before, after, threshold, minimum, False]
        result = run(nn, GENERATE_PROPOSALS, inputs, outputs)
        assert all(len(one) == len(result[0]) for one in result)
        return result[0].round(4).tolist(), result[1].tolist()

    assert proposals(0.4) == ([1.0, 0.9], [[8, 8, 20, 24], [8, 0, 20, 16]])  # 0.4 is enough
    assert proposals(0.41)[0] == [1.0, 0.9, 0.8, 0.5]
    assert proposals(0.3)[0] == [1.0, 0.5]
    assert proposals(0.41, minimum=12.0)[0] == [0.8, 0.5]  # 12 is not more than 12
    assert proposals(0.41, before=1)[0] == [1.0]
    assert proposals(0.41, before=1, minimum=12.0) == ([], [])  # chosen first, then dropped
    assert proposals(0.41, after=2)[0] == [1.0, 0.9]
    assert proposals(0.41, minimum=-1.0, width=8)[0] == [0.8, 0.5]  # B and D begin at its end


def test_proposals_of_equal_scores(nn):
    """As in BOX_WITH_NMS_LIMIT, the last one takes the place of what is dropped: A D C."""
    rows = [[0, 0, 10, 10], [1, 0, 11, 10], [20, 0, 30, 10], [40, 0, 50, 10]]
    scores = floats(np.reshape([0.75, 0.5, 0.5, 0.5], (1, 1, 1, 4)))
    inputs = [scores, floats(np.zeros((1, 1, 1, 16))), floats(rows), floats([[60, 60]])]
    inputs += [1.0, 1.0, -1, -1, 0.4, 1.0, False]
    outputs = [(FLOAT, (0,)), (FLOAT, (0, 4)), (INT, (0,))]
    _, result, _ = run(nn, GENERATE_PROPOSALS, inputs, outputs)
    assert result[:, 0].tolist() == [0, 40, 20]


def test_generate_proposals_refuses_anchors_inside_out(nn):
    inputs = [floats(np.ones((1, 1, 1, 1))), floats(np.zeros((1, 1, 1, 4)))]
    inputs += [floats([[4, 0, 2, 4]]), floats([[9, 9]]), 1.0, 1.0, -1, -1, 0.5, 0.0, False]
    outputs = [(FLOAT, (0,)), (FLOAT, (0, 4)), (INT, (0,))]
    assert fails(nn, GENERATE_PROPOSALS, inputs, outputs)


def detect(scores, deltas, anchors, options):
    """The detections of one image as (score, box, class) rows."""
    scales, regular, detections, classes, per_class, threshold, overlap, background = options
    centre = anchors[:, :2] + anchors[:, 2:] * deltas[:, :2] / scales[:2]
    half = anchors[:, 2:] * np.exp(deltas[:, 2:4] / scales[2:]) / 2
    boxes, shift = np.concatenate([centre - half, centre + half], 1), 0 if background else 1
    rows = []
    if regular:
        for c in range(1, scores.shape[1]):
            result = [
                (s, box, c) for s, box in zip(scores[:, c], boxes, strict=True) if s > threshold
            ]
            rows += suppress(result, HARD, overlap, 1, 1e-9, per_class)
        rows = sorted(rows, key=lambda row: -row[0])[:detections]
    else:
        best = [(s[1:].max(), box, s) for s, box in zip(scores, boxes, strict=True)]
        result = [row for row in best if row[0] > threshold]
        for _, box, s in suppress(result, HARD, overlap, 1, 1e-9, detections):
            for c in sorted(range(1, len(s)), key=lambda c: -s[c])[:classes]:
                rows.append((s[c], box, c))
    return [(score, box, c - shift) for score, box, c in rows]


@pytest.mark.parametrize("kind", [FLOAT, HALF], ids=["float", "half"])
@pytest.mark.parametrize("regular", [True, False])
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("limits", [(4, 2, 3), (30, 9, 1), (50, 1, 50)])
def test_detection_postprocessing(nn, kind, regular, background, limits):
    rng = np.random.default_rng(7)
    n, classes = 20, 6
    scores = kind.make(distinct(rng, 2, n, classes))
    deltas = kind.make(rng.uniform(-1, 1, (2, n, 7)))
    anchors = kind.make(np.concatenate([rng.uniform(0, 30, (n, 2)), rng.uniform(9, 20, (n, 2))], 1))
    scales, detections = (10.0, 10.0, 5.0, 4.0), limits[0]
    room = detections if regular else detections * limits[1]
    options = (scales, regular, *limits, 0.25, 0.3125, background)
    inputs = [scores, deltas, anchors, *scales, regular, *limits, 0.25, 0.3125, background]
    outputs = [(kind, (2, room)), (kind, (2, room, 4)), (INT, (2, room)), (INT, (2,))]
    result = run(nn, DETECTION_POSTPROCESSING, inputs, outputs)
    for b in range(2):
        rows = detect(scores.real[b], deltas.real[b], anchors.real, options)
        assert result[3][b] == len(rows) > 0
        atol = 1e-4 if kind is FLOAT else 0.05
        np.testing.assert_allclose(result[0][b, : len(rows)], [row[0] for row in rows], atol=1e-6)
        np.testing.assert_allclose(result[1][b, : len(rows)], [row[1] for row in rows], atol=atol)
        assert result[2][b, : len(rows)].tolist() == [row[2] for row in rows]
        assert not any(one[b, len(rows) :].any() for one in result[:3])


def test_detection_postprocessing_by_hand(nn):
    """Anchors of 2 x 2 at (1, 1), (1, 1.2) and (5, 5), which the deltas leave where they are: the
    first two overlap by 3.6 / 4.4."""
    anchors = [[1, 1, 2, 2], [1, 1.2, 2, 2], [5, 5, 2, 2]]
    scores = [[[0.0, 0.9, 0.8], [0.0, 0.75, 0.72], [0.0, 0.93, 0.95]]]
    tensors = [floats(scores), floats(np.zeros((1, 3, 4))), floats(anchors), *[1.0] * 4]

    def detections(regular, room, per_anchor, per_class, overlap=0.5):
        inputs = [*tensors, regular, room, per_anchor, per_class, 0.0, overlap, False]
        n = room if regular else room * per_anchor
        outputs = [(FLOAT, (1, n)), (FLOAT, (1, n, 4)), (INT, (1, n)), (INT, (1,))]
        result = run(nn, DETECTION_POSTPROCESSING, inputs, outputs)
        return [
            result[0][0].round(4).tolist(),
            result[1][0][:, 0].tolist(),
            result[2][0].tolist(),
            result[3].tolist(),
        ]

    assert detections(True, 3, 1, 1) == [[0.95, 0.93, 0], [4, 4, 0], [1, 0, 0], [2]]
    assert detections(True, 3, 1, 2) == [[0.95, 0.93, 0.9], [4, 4, 0], [1, 0, 0], [3]]
    assert detections(True, 5, 1, 2)[0] == [0.95, 0.93, 0.9, 0.8, 0]
    assert detections(False, 3, 1, 1) == [[0.95, 0.9, 0], [4, 0, 0], [1, 0, 0], [2]]
    assert detections(False, 2, 2, 1) == [[0.95, 0.93, 0.9, 0.8], [4, 4, 0, 0], [1, 0, 0, 1], [4]]
    assert detections(False, 3, 1, 1, 0.9)[0] == [0.95, 0.9, 0.75]
