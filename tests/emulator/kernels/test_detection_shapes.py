"""Shapes and parameters that operations of object detection refuse, and outputs without boxes."""

import numpy as np
import pytest

from tests.emulator.kernels.detection import (
    ANCHOR,
    AXIS_ALIGNED_BBOX_TRANSFORM,
    BOX,
    BOX_WITH_NMS_LIMIT,
    DETECTION_POSTPROCESSING,
    FLOAT,
    GENERATE_PROPOSALS,
    HARD,
    HEATMAP_MAX_KEYPOINT,
    INF,
    INT,
    NAN,
    ROI_ALIGN,
    ROI_POOLING,
    Kind,
    compute,
    execute,
    fails,
    floats,
    ints,
    limit_outputs,
    quant8,
    run,
)
from tests.emulator.nnapi import OK, TENSOR_QUANT8_ASYMM, TENSOR_QUANT16_ASYMM, Model, Result


def proposals_case(**changed):
    case = {
        "scores": floats(np.ones((1, 2, 2, 1))),
        "deltas": floats(np.zeros((1, 2, 2, 4))),
        "anchors": floats([[0, 0, 4, 4]]),
        "images": floats([[9, 9]]),
    } | changed
    inputs = [*case.values(), 1.0, 1.0, -1, -1, 0.5, 0.0, False]
    return GENERATE_PROPOSALS, inputs, [(FLOAT, (0,)), (FLOAT, (0, 4)), (INT, (0,))]


def limit_case(scores=(3, 2), boxes=(3, 8), batches=(3,)):
    arrays = [floats(np.ones(scores)), floats(np.ones(boxes)), ints(np.zeros(batches))]
    return BOX_WITH_NMS_LIMIT, [*arrays, 0.1, -1, 0, 0.5, 1.0, 0.1], limit_outputs((FLOAT, FLOAT))


def detection_case(scores=(1, 3, 2), deltas=(1, 3, 4), anchors=(3, 4), **changed):
    case = {"scale": 1.0, "regular": True, "limits": (2, 2, 2), "threshold": 0.1, "iou": 0.5}
    case |= changed
    inputs = [floats(np.ones(shape)) for shape in (scores, deltas, anchors)]
    inputs += [case["scale"], 1.0, 1.0, 1.0, case["regular"], *case["limits"]]
    inputs += [case["threshold"], case["iou"], True]
    outputs = [(FLOAT, (0, 0)), (FLOAT, (0, 0, 4)), (INT, (0, 0)), (INT, (0,))]
    return DETECTION_POSTPROCESSING, inputs, outputs


def align_case(size=(2, 2), ratio=2.0, samples=(2, 2), rois=(1, 4), batches=(1,), kind=None):
    image, boxes = np.ones((1, 4, 4, 1)), np.ones(rois)
    image = floats(image) if kind is None else quant8(TENSOR_QUANT8_ASYMM, 0.1, 0).make(image)
    rois = (kind or FLOAT).make(boxes)
    inputs = [image, rois, ints(np.zeros(batches)), *size, ratio, 2.0, *samples, False]
    return ROI_ALIGN, inputs, [(image.kind, (0, 0, 0, 0))]


def heatmap_case(maps=(1, 3, 3, 1), boxes=(1, 4)):
    inputs = [floats(np.ones(maps)), floats(np.ones(boxes)), False]
    return HEATMAP_MAX_KEYPOINT, inputs, [(FLOAT, (0, 0)), (FLOAT, (0, 0, 0))]


def transform_case(rois=(3, 4), deltas=(3, 8), batches=(3,), images=(1, 2)):
    arrays = [floats(np.ones(rois)), floats(np.ones(deltas)), ints(np.zeros(batches))]
    return AXIS_ALIGNED_BBOX_TRANSFORM, [*arrays, floats(np.ones(images))], [(FLOAT, (0, 0))]


BAD = {
    "proposals: deltas": proposals_case(deltas=floats(np.zeros((1, 2, 2, 8)))),
    "proposals: place of deltas": proposals_case(deltas=floats(np.zeros((1, 2, 3, 4)))),
    "proposals: anchors": proposals_case(anchors=floats(np.zeros((2, 4)))),
    "proposals: images": proposals_case(images=floats(np.ones((2, 2)))),
    "limit: one class": limit_case(scores=(3, 1), boxes=(3, 4)),
    "limit: boxes": limit_case(boxes=(3, 4)),
    "limit: rows": limit_case(boxes=(2, 8)),
    "limit: batches": limit_case(batches=(2,)),
    "detection: one class": detection_case(scores=(1, 3, 1)),
    "detection: deltas": detection_case(deltas=(1, 3, 3)),
    "detection: anchors": detection_case(anchors=(2, 4)),
    "detection: scale": detection_case(scale=0.0),
    "detection: NaN scale": detection_case(scale=NAN),
    "detection: none": detection_case(limits=(0, 2, 2)),
    "detection: no class": detection_case(limits=(2, 0, 2), regular=False),
    "detection: none of a class": detection_case(limits=(2, 2, 0)),
    "detection: too many": detection_case(limits=(1 << 30, 1 << 30, 1), regular=False),
    "detection: score threshold": detection_case(threshold=-0.1),
    "detection: overlap threshold": detection_case(iou=-0.1),
    "align: size": align_case(size=(0, 2)),
    "align: ratio": align_case(ratio=0.0),
    "align: NaN ratio": align_case(ratio=NAN),
    "align: samples": align_case(samples=(-1, 2)),
    "align: absurd samples": align_case(samples=(1 << 30, 1 << 30)),
    "align: rois": align_case(rois=(1, 5)),
    "align: batches": align_case(batches=(2,)),
    "align: scale of rois": align_case(kind=Kind(TENSOR_QUANT16_ASYMM, 0.25)),
    "align: zero point of rois": align_case(kind=Kind(TENSOR_QUANT16_ASYMM, 0.125, 1)),
    "heatmap: not square": heatmap_case(maps=(1, 3, 4, 1)),
    "heatmap: one pixel": heatmap_case(maps=(1, 1, 1, 1)),
    "heatmap: boxes": heatmap_case(boxes=(2, 4)),
    "transform: rois": transform_case(rois=(3, 5)),
    "transform: deltas": transform_case(deltas=(3, 6)),
    "transform: batches": transform_case(batches=(4,)),
    "transform: images": transform_case(images=(1, 3)),
}
COARSE = Kind(TENSOR_QUANT16_ASYMM, 0.25)
Q8, OTHER = Kind(TENSOR_QUANT8_ASYMM, 0.5, 1), Kind(TENSOR_QUANT8_ASYMM, 0.5, 2)


def quantised_cases():
    """Name, case, whether it is good: each operation with its outputs' scales as they must be, and
    with one of them changed."""
    ones, box, batch = Q8.make(np.ones((1, 2))), BOX.make(np.ones((1, 8))), ints([0])
    one_box, image = BOX.make([[1, 1, 2, 2]]), Q8.make(np.ones((1, 4, 4, 1)))
    limits = [ones, box, batch, 0.1, -1, 0, 0.5, 1.0, 0.1]
    scores, deltas = Q8.make(np.ones((1, 1, 1, 1))), Q8.make(np.ones((1, 1, 1, 4)))
    proposals = [scores, deltas, ANCHOR.make([[1, 1, 2, 2]]), BOX.make([[9, 9]])]
    proposals += [1.0, 1.0, -1, -1, 0.5, 0.0, False]
    pooling = [image, one_box, batch, 2, 2, 1.0, 1.0, False]
    transform = [one_box, Q8.make([[0] * 4]), batch, BOX.make([[9, 9]])]
    heatmap, lists = [image, one_box, False], [(INT, (0,)), (INT, (0,))]
    for name, code, inputs, kinds, dims in (
        ("limit", BOX_WITH_NMS_LIMIT, limits, (Q8, BOX), ((0,), (0, 4))),
        ("proposals", GENERATE_PROPOSALS, proposals, (Q8, BOX), ((0,), (0, 4))),
        ("pooling", ROI_POOLING, pooling, (Q8,), ((0, 0, 0, 0),)),
        ("transform", AXIS_ALIGNED_BBOX_TRANSFORM, transform, (BOX,), ((0, 0),)),
        ("heatmap", HEATMAP_MAX_KEYPOINT, heatmap, (None, BOX), ((0, 0), (0, 0, 0))),
    ):
        more = lists[: {"limit": 2, "proposals": 1}.get(name, 0)]
        for changed in (None, *range(len(kinds))):
            if changed is not None and kinds[changed] is None:
                continue  # free
            types = [
                {Q8: OTHER, BOX: COARSE}[k] if i == changed else k or OTHER
                for i, k in enumerate(kinds)
            ]
            outputs = [*zip(types, dims, strict=True), *more]
            yield f"{name} {changed}", (code, inputs, outputs), changed is None


QUANTISED = list(quantised_cases())


@pytest.mark.parametrize(
    ("case", "good"), [q[1:] for q in QUANTISED], ids=[q[0] for q in QUANTISED]
)
def test_scales_of_outputs(nn, case, good):
    assert (execute(nn, *case)[0] == OK) is good


GOOD = (proposals_case, limit_case, detection_case, align_case, heatmap_case, transform_case)


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_what_does_not_fit_is_refused(nn, case):
    assert execute(nn, *case)[0] not in (OK, Result.OUT_OF_MEMORY)


@pytest.mark.parametrize("case", GOOD)
def test_the_same_that_fits_is_not(nn, case):
    assert execute(nn, *case())[0] == OK


def test_no_regions_give_empty_outputs(nn):
    """Where no box is left, what is computed for each of them has no elements either."""
    model = Model(nn)
    scores, batch = model.tensor(1, 2), model.constant(np.array([0], np.int32))
    boxes = model.constant(np.float32([[1, 1, 10, 10, 0, 0, 10, 10]]))
    numbers = [model.scalar(v) for v in (0.3, -1, HARD, 0.4, 1.0, 0.3)]
    outputs_ = [model.operand(kind.code, dims) for kind, dims in limit_outputs((FLOAT, FLOAT))]
    model.operation(BOX_WITH_NMS_LIMIT, [scores, boxes, batch, *numbers], outputs_)
    image, size = model.tensor(1, 4, 4, 2), model.constant(np.float32([[9, 9]]))
    nhwc = model.scalar(False)
    aligned, pooled, moved = model.tensor(0, 2, 2, 2), model.tensor(0, 2, 2, 2), model.tensor(0, 4)
    two, ratio = model.scalar(2), model.scalar(4.0)
    regions = [image, outputs_[1], outputs_[3], two, two, ratio, ratio]
    model.operation(ROI_ALIGN, [*regions, two, two, nhwc], [aligned])
    model.operation(ROI_POOLING, [*regions, nhwc], [pooled])
    model.operation(
        AXIS_ALIGNED_BBOX_TRANSFORM, [outputs_[1], outputs_[1], outputs_[3], size], [moved]
    )
    points = [model.tensor(0, 2), model.tensor(0, 2, 2)]
    model.operation(HEATMAP_MAX_KEYPOINT, [aligned, outputs_[1], nhwc], points)
    model.finish([scores, image], [*outputs_, aligned, pooled, moved, *points])
    compilation = model.compile()
    dims = [(0,), (0, 4), (0,), (0,), *[(0, 2, 2, 2)] * 2, (0, 4), (0, 2), (0, 2, 2)]
    outputs = [(FLOAT, one) for one in dims]
    arrays = [np.float32([[0.9, score]]) for score in (0.1, 0.8)]
    for array, n in zip(arrays, (0, 1), strict=True):
        image = np.ones((1, 4, 4, 2), np.float32)
        result, values = compute(nn, compilation, [array, image], outputs)
        assert result == OK
        assert [one.shape for one in values] == [(n, *one[1:]) for one in dims]
    nn.Compilation_free(compilation)
    model.free()


def test_equal_scores(nn):
    """The first of equal scores is taken; what is dropped changes places with the last one left:
    A drops B, so that of the order A B C D remains A D C."""
    rows = [[0, 0, 10, 10], [1, 0, 11, 10], [20, 0, 30, 10], [40, 0, 50, 10]]
    scores = floats([[0, 0.75], [0, 0.5], [0, 0.5], [0, 0.5]])
    boxes = floats([[0] * 4 + row for row in rows])
    inputs = [scores, boxes, ints([0] * 4), 0.1, -1, HARD, 0.4, 1.0, 0.1]
    result = run(nn, BOX_WITH_NMS_LIMIT, inputs, limit_outputs((FLOAT, FLOAT)))
    assert result[1][:, 0].tolist() == [0, 40, 20]
    scores = floats(np.reshape([0.75, 0.5, 0.5, 0.5], (1, 1, 1, 4)))
    inputs = [scores, floats(np.zeros((1, 1, 1, 16))), floats(rows), floats([[60, 60]])]
    inputs += [1.0, 1.0, -1, -1, 0.4, 1.0, False]
    outputs = [(FLOAT, (0,)), (FLOAT, (0, 4)), (INT, (0,))]
    _, result, _ = run(nn, GENERATE_PROPOSALS, inputs, outputs)
    assert result[:, 0].tolist() == [0, 40, 20]


def limit_is_refused(nn, box, kernel=HARD):
    inputs = [floats([[0.1, 0.9]]), floats([[0] * 4 + box]), ints([0])]
    inputs += [0.3, -1, kernel, 0.4, 1.0, 0.3]
    return execute(nn, BOX_WITH_NMS_LIMIT, inputs, limit_outputs((FLOAT, FLOAT)))[0] != OK


def proposals_are_refused(nn, box):
    return fails(nn, *proposals_case(anchors=floats([box])))


def key_points_are_refused(nn, box):
    inputs = [floats(np.ones((1, 2, 2, 1))), floats([box]), False]
    return fails(nn, HEATMAP_MAX_KEYPOINT, inputs, [(FLOAT, (1, 1)), (FLOAT, (1, 1, 2))])


@pytest.mark.parametrize(
    "refuses", [limit_is_refused, proposals_are_refused, key_points_are_refused]
)
def test_boxes_inside_out(nn, refuses):
    assert not refuses(nn, [1, 1, 2, 2])
    for box in ([2, 1, 1, 2], [1, 2, 2, 1], [1, 1, 2, NAN]):
        assert refuses(nn, box)


def test_unknown_kernels_of_suppression(nn):
    for kernel in (-1, 3):
        assert limit_is_refused(nn, [1, 1, 2, 2], kernel)


@pytest.mark.parametrize("operation", [ROI_ALIGN, ROI_POOLING])
def test_regions_that_are_none(nn, operation):
    image, more = floats(np.ones((2, 4, 4, 1))), (0, 0) if operation == ROI_ALIGN else ()

    def refused(roi, batch=0):
        inputs = [image, floats([roi]), ints([batch]), 2, 2, 2.0, 2.0, *more, False]
        return fails(nn, operation, inputs, [(FLOAT, (1, 2, 2, 1))])

    assert not refused([0, 0, 8, 8], 1)
    for batch in (2, -1):
        assert refused([0, 0, 8, 8], batch)
    for roi in (
        *([3, 0, 2, 8], [0, 3, 8, 2], [-1, 0, 8, 8], [0, 0, 8.5, 8], [0, 0, 8, 8.5]),
        *([0, NAN, 8, 8], [0, 0, INF, 8]),
    ):
        assert refused(roi)
