"""One model of each operation of levels 1 to 3, for tests that run it in many forms.

A case is a function of a Maker; it gives the operation's arguments and the kinds of its outputs.
The Maker draws the same numbers whatever the layout, and float16 ones for float32 alike.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from tests.emulator.kernels.one_operation import BOOL, F16, F32, I32, Half, Kind, Tensor, quant8

Q8 = quant8("TENSOR_QUANT8_ASYMM", 0.05, 120)
OTHER_Q8 = quant8("TENSOR_QUANT8_ASYMM", 0.07, 50)
BOX = Kind("TENSOR_QUANT16_ASYMM", 0.125)
ANCHOR = Kind("TENSOR_QUANT16_SYMM", 0.125)
TO_NCHW = (0, 3, 1, 2)
KINDS = {"f": F32, "h": F16, "q": Q8, "i": I32, "b": BOOL}


@dataclass(frozen=True)
class Omitted:
    """A tensor that is left out: of the model, or of the run."""

    kind: Kind
    rank: int


@dataclass(frozen=True)
class Case:
    operation: str
    kinds: str
    images: bool  # takes a layout; the first output is an image unless it is a list of findings
    empty: bool  # may run on a batch of none
    make: object


@dataclass
class Maker:
    kind: Kind
    nchw: bool = False
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(29))

    @property
    def quantised(self):
        return self.kind is Q8

    def tensor(self, *shape, low=-3.0, high=3.0, kind=None, constant=False):
        kind = kind or self.kind
        if kind in (F32, F16):
            # Float16 numbers for float32, too: the two results may be compared.
            array = self.rng.uniform(low, high, shape).astype(np.float16).astype(kind.dtype)
        elif kind is BOOL:
            array = self.rng.integers(0, 2, shape).astype(np.uint8)
        elif kind is I32:
            array = self.rng.integers(-5, 6, shape).astype(np.int32)
        else:
            array = self.rng.integers(*kind.limits, shape, endpoint=True).astype(kind.dtype)
        return Tensor(kind, array, constant)

    def image(self, *shape, **limits):
        tensor = self.tensor(*shape, **limits)
        return replace(tensor, array=tensor.array.transpose(TO_NCHW)) if self.nchw else tensor

    def weights(self, *shape, channel_dim=None):
        """Constant; with a scale for each channel where quantised and channel_dim is given."""
        if not self.quantised:
            return self.tensor(*shape, constant=True)
        tensor = self.tensor(*shape, kind=quant8("TENSOR_QUANT8_ASYMM", 0.02, 110), constant=True)
        if channel_dim is None:
            return tensor
        scales = tuple(np.linspace(0.01, 0.03, shape[channel_dim]).astype(np.float32).tolist())
        signed = np.maximum(tensor.array.astype(np.int16) - 128, -127).astype(np.int8)
        kind = Kind("TENSOR_QUANT8_SYMM_PER_CHANNEL")
        return Tensor(kind, signed, True, scales, channel_dim)

    def bias(self, n, channels=False):
        if not self.quantised:
            return self.tensor(n, constant=True)
        scale = 0.0 if channels else float(np.float32(0.05) * np.float32(0.02))
        numbers = self.rng.integers(-500, 500, n).astype(np.int32)
        return Tensor(Kind("TENSOR_INT32", scale), numbers, True)

    def boxes(self, corners, kind=BOX):
        kind = kind if self.quantised else self.kind
        steps = np.asarray(corners, np.float64) / (kind.scale or 1.0)
        return Tensor(kind, np.ascontiguousarray(steps.astype(kind.dtype)))

    def scalar(self, value):
        return Half(value) if self.kind is F16 else float(value)

    def output(self, scale=0.3, zero=100):
        return quant8("TENSOR_QUANT8_ASYMM", scale, zero) if self.quantised else self.kind

    def sizes(self, n, h, w, c):
        return listed(n, c, h, w) if self.nchw else listed(n, h, w, c)

    def left_out(self, rank):
        return Omitted(self.kind, rank)


def listed(*values):
    return Tensor(I32, np.array(values, np.int32), True)


CASES: dict[str, Case] = {}


def case(operation, kinds="fhq", images=False, empty=True, name=None):
    def add(make):
        label = name or operation
        assert label not in CASES
        CASES[label] = Case(operation, kinds, images, empty, make)
        return make

    return add


# ---- convolutions and pools ----------------------------------------------------------------------

for _channels, _kinds in ((None, "fhq"), (0, "q")):

    def _add(channels, kinds):
        end = "" if channels is None else "_channels"
        many = channels is not None

        @case("CONV_2D", kinds, images=True, name=f"CONV_2D{end}")
        def conv(m):
            w = m.weights(4, 3, 2, 3, channel_dim=channels)
            x = m.image(2, 7, 6, 3)
            return [x, w, m.bias(4, many), 1, 1, 1, 0, m.nchw, 2, 2], [m.output()]

        @case("CONV_2D", kinds, images=True, name=f"CONV_2D_explicit{end}")
        def conv_explicit(m):
            w = m.weights(4, 3, 3, 3, channel_dim=channels)
            x = m.image(2, 5, 4, 3)
            return [x, w, m.bias(4, many), 1, 1, 0, 2, 2, 1, 1, m.nchw], [m.output()]

        @case("DEPTHWISE_CONV_2D", kinds, images=True, name=f"DEPTHWISE_CONV_2D{end}")
        def depthwise(m):
            w = m.weights(1, 3, 3, 6, channel_dim=3 if many else None)
            x = m.image(2, 5, 4, 3)
            return [x, w, m.bias(6, many), 1, 1, 0, 2, 2, 1, 2, 1, m.nchw], [m.output()]

        @case("GROUPED_CONV_2D", kinds, images=True, name=f"GROUPED_CONV_2D{end}")
        def grouped(m):
            w = m.weights(6, 3, 3, 2, channel_dim=channels)
            return [m.image(2, 5, 4, 4), w, m.bias(6, many), 1, 1, 2, 2, 1, m.nchw], [m.output()]

        @case("TRANSPOSE_CONV_2D", kinds, images=True, name=f"TRANSPOSE_CONV_2D{end}")
        def transposed(m):
            w, b = m.weights(3, 3, 3, 2, channel_dim=channels), m.bias(3, many)
            return [m.image(2, 3, 4, 2), w, b, 1, 0, 0, 1, 2, 3, 0, m.nchw], [m.output()]

        @case("TRANSPOSE_CONV_2D", kinds, images=True, empty=False, name=f"TO_SHAPE{end}")
        def transposed_to_shape(m):
            w, b = m.weights(3, 3, 3, 2, channel_dim=channels), m.bias(3, many)
            x, shape = m.image(1, 3, 4, 2), m.sizes(1, 6, 8, 3)
            return [x, w, b, shape, 1, 2, 2, 1, m.nchw], [m.output()]

    _add(_channels, _kinds)

for _pool, _kinds in (("AVERAGE_POOL_2D", "fhq"), ("MAX_POOL_2D", "fhq"), ("L2_POOL_2D", "fh")):

    @case(_pool, _kinds, images=True)
    def _(m):
        return [m.image(2, 6, 5, 3), 1, 1, 0, 1, 2, 1, 3, 2, 1, m.nchw], [m.kind]

    @case(_pool, _kinds, images=True, name=f"{_pool}_implicit")
    def _(m):
        return [m.image(2, 6, 5, 3), 1, 2, 1, 3, 2, 3, m.nchw], [m.kind]


@case("FULLY_CONNECTED")
def _(m):
    return [m.tensor(2, 3, 4), m.weights(5, 4), m.bias(5), 1], [m.output()]


# ---- images --------------------------------------------------------------------------------------

for _resize in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):

    @case(_resize, images=True)
    def _(m):
        return [m.image(2, 3, 4, 2), 7, 5, m.nchw], [m.kind]

    @case(_resize, images=True, name=f"{_resize}_by_scale")
    def _(m):
        return [m.image(2, 3, 4, 2), m.scalar(1.75), m.scalar(0.75), m.nchw], [m.kind]


@case("DEPTH_TO_SPACE", images=True)
def _(m):
    return [m.image(2, 3, 4, 8), 2, m.nchw], [m.kind]


@case("SPACE_TO_DEPTH", images=True)
def _(m):
    return [m.image(2, 4, 6, 2), 2, m.nchw], [m.kind]


@case("BATCH_TO_SPACE_ND", images=True)
def _(m):
    return [m.image(6, 4, 6, 2), listed(2, 3), m.nchw], [m.kind]


@case("SPACE_TO_BATCH_ND", images=True)
def _(m):
    frame = replace(listed(1, 0, 0, 1), array=np.array([[1, 0], [0, 1]], np.int32))
    return [m.image(2, 3, 5, 2), listed(2, 3), frame, m.nchw], [m.kind]


@case("INSTANCE_NORMALIZATION", "fh", images=True)
def _(m):
    numbers = (m.scalar(v) for v in (1.5, 0.5, 2**-10))
    return [m.image(2, 3, 5, 2), *numbers, m.nchw], [m.kind]


@case("ROI_ALIGN", images=True, empty=False)
def _(m):
    rois = m.boxes([[0, 0, 8, 8], [2, 3, 10, 9]])
    numbers = (2, 3, m.scalar(2), m.scalar(2), 0, 3, m.nchw)
    return [m.image(2, 5, 6, 3), rois, listed(0, 1), *numbers], [m.output()]


@case("ROI_POOLING", images=True, empty=False)
def _(m):
    rois = m.boxes([[0, 0, 8, 8], [2, 3, 10, 9]])
    numbers = (2, 3, m.scalar(2), m.scalar(2), m.nchw)
    return [m.image(2, 5, 6, 3), rois, listed(0, 1), *numbers], [m.kind]


# ---- detection -----------------------------------------------------------------------------------


@case("AXIS_ALIGNED_BBOX_TRANSFORM", empty=False)
def _(m):
    rois, sizes = m.boxes([[0, 0, 8, 8], [2, 3, 10, 9]]), m.boxes([[16, 16], [16, 16]])
    return [rois, m.tensor(2, 8, low=-0.5, high=0.5), listed(0, 1), sizes], [rois.kind]


@case("BOX_WITH_NMS_LIMIT", empty=False)
def _(m):
    corners = m.rng.integers(0, 5, (4, 12)) + np.tile([0, 0, 6, 6], 3)
    boxes = m.boxes(corners)
    limits = [m.scalar(0.25), -1, 1, *(m.scalar(v) for v in (0.375, 0.5, 0.125))]
    scores = m.tensor(4, 3, low=0.1, high=0.9)
    return [scores, boxes, listed(0, 0, 1, 1), *limits], [m.kind, boxes.kind, I32, I32]


@case("DETECTION_POSTPROCESSING", "fh", empty=False)
def _(m):
    anchors = m.boxes([[0.5, y, 1, 1] for y in (0.5, 0.5, 0.5, 10.5, 10.5, 100.5)])
    scores = m.tensor(1, 6, 3, low=0, high=0.9)
    scales = [m.scalar(v) for v in (10, 10, 5, 5)]
    numbers = [*scales, True, 3, 1, 3, m.scalar(0), m.scalar(0.5), False]
    outputs = [m.kind, m.kind, I32, I32]
    return [scores, m.tensor(1, 6, 7, low=-1, high=1), anchors, *numbers], outputs


# ---- along axes ----------------------------------------------------------------------------------


@case("LOCAL_RESPONSE_NORMALIZATION", "fh")
def _(m):
    return [m.tensor(2, 3, 5), 2, *(m.scalar(v) for v in (1.5, 0.5, 0.75)), -2], [m.kind]


@case("L2_NORMALIZATION")
def _(m):
    return [m.tensor(2, 3, 5), 1], [m.output(1 / 128, 128)]


@case("SOFTMAX")
def _(m):
    return [m.tensor(2, 3, 5), m.scalar(1.5), -2], [m.output(1 / 256, 0)]


@case("LOG_SOFTMAX", "fh")
def _(m):
    return [m.tensor(2, 3, 5, 1, 2), m.scalar(1.5), 1], [m.kind]


@case("TOPK_V2", "fhqi")
def _(m):
    return [m.tensor(2, 3, 7), 4], [m.kind, I32]


for _arg in ("ARGMAX", "ARGMIN"):

    @case(_arg, "fhqi")
    def _(m):
        return [m.tensor(2, 3, 5), -2], [I32]


for _reduce, _kinds in (("SUM", "fh"), ("PROD", "fh"), ("MAX", "fhq"), ("MIN", "fhq")):

    @case(f"REDUCE_{_reduce}", _kinds)
    def _(m):
        return [m.tensor(2, 3, 5), listed(-1, 2, 1), True], [m.kind]


for _reduce in ("REDUCE_ALL", "REDUCE_ANY"):

    @case(_reduce, "b", empty=False)
    def _(m):
        return [m.tensor(2, 3, 5), listed(-1), False], [m.kind]


@case("MEAN")
def _(m):
    return [m.tensor(2, 3, 5), listed(-1, 1), 0], [m.kind]
