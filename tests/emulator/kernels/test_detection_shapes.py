"""Shapes and parameters that operations of object detection refuse, and outputs without boxes."""

import numpy as np
import pytest

from tests.emulator.kernels.one_operation import F32, I32, Kind, attempt, execute
from tests.emulator.nnapi import OK, Model, Op, R, T

HARD = 0
NAN, INF = float("nan"), float("inf")
BOX, ANCHOR = Kind(T.TENSOR_QUANT16_ASYMM, 0.125), Kind(T.TENSOR_QUANT16_SYMM, 0.125)
floats, ints = F32.make, I32.make


def ones(*shape):
    return floats(np.ones(shape))


# Cases are a name, inputs and outputs.


def proposals_case(**changed):
    case = {
        "scores": ones(1, 2, 2, 1),
        "deltas": floats(np.zeros((1, 2, 2, 4))),
        "anchors": floats([[0, 0, 4, 4]]),
        "images": floats([[9, 9]]),
    } | changed
    inputs = [*case.values(), 1.0, 1.0, -1, -1, 0.5, 0.0, False]
    return "GENERATE_PROPOSALS", inputs, [(F32, (0,)), (F32, (0, 4)), (I32, (0,))]


LIMITED = [(F32, (0,)), (F32, (0, 4)), (I32, (0,)), (I32, (0,))]


def limit_case(scores=(3, 2), boxes=(3, 8), batches=(3,)):
    arrays = [ones(*scores), ones(*boxes), ints(np.zeros(batches))]
    return "BOX_WITH_NMS_LIMIT", [*arrays, 0.1, -1, 0, 0.5, 1.0, 0.1], LIMITED


def detection_case(scores=(1, 3, 2), deltas=(1, 3, 4), anchors=(3, 4), **changed):
    case = {"scale": 1.0, "regular": True, "limits": (2, 2, 2), "threshold": 0.1, "iou": 0.5}
    case |= changed
    inputs = [ones(*shape) for shape in (scores, deltas, anchors)]
    inputs += [case["scale"], 1.0, 1.0, 1.0, case["regular"], *case["limits"]]
    inputs += [case["threshold"], case["iou"], True]
    outputs = [(F32, (0, 0)), (F32, (0, 0, 4)), (I32, (0, 0)), (I32, (0,))]
    return "DETECTION_POSTPROCESSING", inputs, outputs


def align_case(size=(2, 2), ratio=2.0, samples=(2, 2), rois=(1, 4), batches=(1,), kind=None):
    image_kind = F32 if kind is None else Kind(T.TENSOR_QUANT8_ASYMM, 0.1)
    tensors = [image_kind.make(np.ones((1, 4, 4, 1))), (kind or F32).make(np.ones(rois))]
    inputs = [*tensors, ints(np.zeros(batches)), *size, ratio, 2.0, *samples, False]
    return "ROI_ALIGN", inputs, [(image_kind, (0, 0, 0, 0))]


def heatmap_case(maps=(1, 3, 3, 1), boxes=(1, 4)):
    outputs = [(F32, (0, 0)), (F32, (0, 0, 0))]
    return "HEATMAP_MAX_KEYPOINT", [ones(*maps), ones(*boxes), False], outputs


def transform_case(rois=(3, 4), deltas=(3, 8), batches=(3,), images=(1, 2)):
    inputs = [ones(*rois), ones(*deltas), ints(np.zeros(batches)), ones(*images)]
    return "AXIS_ALIGNED_BBOX_TRANSFORM", inputs, [(F32, (0, 0))]


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
    "align: scale of rois": align_case(kind=Kind(T.TENSOR_QUANT16_ASYMM, 0.25)),
    "align: zero point of rois": align_case(kind=Kind(T.TENSOR_QUANT16_ASYMM, 0.125, 1)),
    "heatmap: not square": heatmap_case(maps=(1, 3, 4, 1)),
    "heatmap: one pixel": heatmap_case(maps=(1, 1, 1, 1)),
    "heatmap: boxes": heatmap_case(boxes=(2, 4)),
    "transform: rois": transform_case(rois=(3, 5)),
    "transform: deltas": transform_case(deltas=(3, 6)),
    "transform: batches": transform_case(batches=(4,)),
    "transform: images": transform_case(images=(1, 3)),
}
GOOD = (proposals_case, limit_case, detection_case, align_case, heatmap_case, transform_case)


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_what_does_not_fit_is_refused(nn, case):
    assert attempt(nn, *case)[0] not in (OK, R.OUT_OF_MEMORY)


@pytest.mark.parametrize("case", GOOD)
def test_the_same_that_fits_is_not(nn, case):
    assert attempt(nn, *case())[0] == OK


# ---- scales of outputs ---------------------------------------------------------------------------

COARSE = Kind(T.TENSOR_QUANT16_ASYMM, 0.25)
Q8, OTHER = Kind(T.TENSOR_QUANT8_ASYMM, 0.5, 1), Kind(T.TENSOR_QUANT8_ASYMM, 0.5, 2)
BATCH, IMAGE = ints([0]), Q8.make(np.ones((1, 4, 4, 1)))
ONE_BOX, SIZE = BOX.make([[1, 1, 2, 2]]), BOX.make([[9, 9]])
LISTS = [(I32, (0,)), (I32, (0,))]
QUANTISED = {  # inputs, outputs with the scales that they must have or, where None, may
    "BOX_WITH_NMS_LIMIT": (
        [Q8.make(np.ones((1, 2))), BOX.make(np.ones((1, 8))), BATCH, 0.1, -1, 0, 0.5, 1.0, 0.1],
        [(Q8, (0,)), (BOX, (0, 4)), *LISTS],
    ),
    "GENERATE_PROPOSALS": (
        [
            *(Q8.make(np.ones((1, 1, 1, 1))), Q8.make(np.ones((1, 1, 1, 4)))),
            *(ANCHOR.make([[1, 1, 2, 2]]), SIZE, 1.0, 1.0, -1, -1, 0.5, 0.0, False),
        ],
        [(Q8, (0,)), (BOX, (0, 4)), LISTS[0]],
    ),
    "ROI_POOLING": ([IMAGE, ONE_BOX, BATCH, 2, 2, 1.0, 1.0, False], [(Q8, (0, 0, 0, 0))]),
    "AXIS_ALIGNED_BBOX_TRANSFORM": ([ONE_BOX, Q8.make([[0] * 4]), BATCH, SIZE], [(BOX, (0, 0))]),
    "HEATMAP_MAX_KEYPOINT": ([IMAGE, ONE_BOX, False], [(OTHER, (0, 0)), (BOX, (0, 0, 0))]),
}


@pytest.mark.parametrize("name", QUANTISED)
def test_scales_of_outputs(nn, name):
    inputs, outputs = QUANTISED[name]
    execute(nn, name, inputs, *outputs)
    for i, (kind, dims) in enumerate(outputs):
        if kind in (Q8, BOX):  # others are free
            wrong = [*outputs]
            wrong[i] = ({Q8: OTHER, BOX: COARSE}[kind], dims)
            assert attempt(nn, name, inputs, wrong)[0] != OK


# ---- boxes ---------------------------------------------------------------------------------------


def test_no_regions_give_empty_outputs(nn):
    """Where no box is left, what is computed for each of them has no elements either."""
    model = Model(nn)
    scores, batch = model.tensor(1, 2), model.constant(np.array([0], np.int32))
    boxes = model.constant(np.float32([[1, 1, 10, 10, 0, 0, 10, 10]]))
    numbers = [model.scalar(v) for v in (0.3, -1, HARD, 0.4, 1.0, 0.3)]
    limited = [model.operand(kind.code, dims) for kind, dims in LIMITED]
    model.operation(Op.BOX_WITH_NMS_LIMIT, [scores, boxes, batch, *numbers], limited)
    image, size = model.tensor(1, 4, 4, 2), model.constant(np.float32([[9, 9]]))
    nhwc, two, ratio = model.scalar(False), model.scalar(2), model.scalar(4.0)
    (aligned, pooled), moved = model.tensors(2, 0, 2, 2, 2), model.tensor(0, 4)
    points = [model.tensor(0, 2), model.tensor(0, 2, 2)]
    _, rois, _, batches = limited
    regions = [image, rois, batches, two, two, ratio, ratio]
    model.operation(Op.ROI_ALIGN, [*regions, two, two, nhwc], [aligned])
    model.operation(Op.ROI_POOLING, [*regions, nhwc], [pooled])
    model.operation(Op.AXIS_ALIGNED_BBOX_TRANSFORM, [rois, rois, batches, size], [moved])
    model.operation(Op.HEATMAP_MAX_KEYPOINT, [aligned, rois, nhwc], points)
    model.finish([scores, image], [*limited, aligned, pooled, moved, *points])
    compilation = model.compile()
    for score, n in ((0.1, 0), (0.8, 1)):
        inputs = [np.float32([[0.9, score]]), np.ones((1, 4, 4, 2), np.float32)]
        results = [np.zeros(64, np.float32) for _ in range(9)]
        execution = nn.prepared(compilation, inputs, results)
        assert nn.Execution_compute(execution) == OK
        dims = [[], [4], [], [], [2, 2, 2], [2, 2, 2], [4], [2], [2, 2]]
        assert [nn.shape_of(execution, i) for i in range(9)] == [(OK, [n, *one]) for one in dims]


def test_equal_scores(nn):
    """The first of equal scores is taken; what is dropped changes places with the last one left:
    A drops B, so that of the order A B C D remains A D C."""
    rows = [[0, 0, 10, 10], [1, 0, 11, 10], [20, 0, 30, 10], [40, 0, 50, 10]]
    scores = floats([[0, 0.75], [0, 0.5], [0, 0.5], [0, 0.5]])
    boxes = floats([[0] * 4 + row for row in rows])
    inputs = [scores, boxes, ints([0] * 4), 0.1, -1, HARD, 0.4, 1.0, 0.1]
    result = execute(nn, "BOX_WITH_NMS_LIMIT", inputs, *LIMITED)
    assert result[1][:, 0].tolist() == [0, 40, 20]
    scores = floats(np.reshape([0.75, 0.5, 0.5, 0.5], (1, 1, 1, 4)))
    inputs = [scores, floats(np.zeros((1, 1, 1, 16))), floats(rows), floats([[60, 60]])]
    inputs += [1.0, 1.0, -1, -1, 0.4, 1.0, False]
    _, result, _ = execute(nn, "GENERATE_PROPOSALS", inputs, *proposals_case()[2])
    assert result[:, 0].tolist() == [0, 40, 20]


def limit_of(box, kernel=HARD):
    inputs = [floats([[0.1, 0.9]]), floats([[0] * 4 + box]), ints([0])]
    return "BOX_WITH_NMS_LIMIT", [*inputs, 0.3, -1, kernel, 0.4, 1.0, 0.3], LIMITED


def proposals_of(box):
    return proposals_case(anchors=floats([box]))


def key_points_of(box):
    inputs = [ones(1, 2, 2, 1), floats([box]), False]
    return "HEATMAP_MAX_KEYPOINT", inputs, [(F32, (1, 1)), (F32, (1, 1, 2))]


@pytest.mark.parametrize("case", [limit_of, proposals_of, key_points_of])
def test_boxes_inside_out(nn, case):
    assert attempt(nn, *case([1, 1, 2, 2]))[0] == OK
    for box in ([2, 1, 1, 2], [1, 2, 2, 1], [1, 1, 2, NAN]):
        assert attempt(nn, *case(box))[0] == R.OP_FAILED


@pytest.mark.parametrize("kernel", [-1, 3])
def test_unknown_kernels_of_suppression(nn, kernel):
    assert attempt(nn, *limit_of([1, 1, 2, 2], kernel))[0] != OK


@pytest.mark.parametrize("name", ["ROI_ALIGN", "ROI_POOLING"])
def test_regions_that_are_none(nn, name):
    def result(roi, batch=0):
        inputs = [ones(2, 4, 4, 1), floats([roi]), ints([batch]), 2, 2, 2.0, 2.0]
        inputs += [0, 0, False] if name == "ROI_ALIGN" else [False]
        return attempt(nn, name, inputs, [(F32, (1, 2, 2, 1))])[0]

    assert result([0, 0, 8, 8], 1) == OK
    for batch in (2, -1):
        assert result([0, 0, 8, 8], batch) == R.OP_FAILED
    for roi in (
        *([3, 0, 2, 8], [0, 3, 8, 2], [-1, 0, 8, 8], [0, 0, 8.5, 8], [0, 0, 8, 8.5]),
        *([0, NAN, 8, 8], [0, 0, INF, 8]),
    ):
        assert result(roi) == R.OP_FAILED
