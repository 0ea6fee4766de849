"""The cases of cases_windows.py that need no window and no layout: element by element, moved
values, and recurrent operations."""

from dataclasses import replace
from itertools import product

import numpy as np

from tests.emulator.kernels.cases_windows import ANCHOR, CASES, OTHER_Q8, Q8, case, listed
from tests.emulator.kernels.one_operation import BOOL, F16, F32, I32, Kind

__all__ = ["CASES"]

# ---- element by element --------------------------------------------------------------------------

for _name, _kinds in {
    "RELU": "fhq",
    "RELU1": "fhq",
    "RELU6": "fhq",
    "FLOOR": "fh",
    "ABS": "fh",
    "NEG": "fhi",
    "EXP": "fh",
    "SIN": "fh",
}.items():

    @case(_name, _kinds)
    def _(m):
        return [m.tensor(2, 3, 5)], [m.kind]


@case("LOGISTIC")
def _(m):
    return [m.tensor(2, 3, 5)], [m.output(1 / 256, 0)]


@case("TANH")
def _(m):
    return [m.tensor(2, 3, 5)], [m.output(1 / 128, 128)]


for _name in ("LOG", "SQRT", "RSQRT"):

    @case(_name, "fh")
    def _(m):
        return [m.tensor(2, 3, 5, low=0.1, high=9)], [m.kind]


for _name in ("ADD", "SUB", "MUL", "DIV"):

    @case(_name, "fh" if _name == "DIV" else "fhq")
    def _(m):
        return [m.tensor(2, 3, 5), m.tensor(1, 5, low=1, constant=True), 1], [m.output()]


for _name in ("MAXIMUM", "MINIMUM", "PRELU"):

    @case(_name, "fhq" if _name == "PRELU" else "fhqi")
    def _(m):
        return [m.tensor(2, 3, 5), m.tensor(1, 5, low=1, constant=True)], [m.output()]


@case("POW", "fh")
def _(m):
    return [m.tensor(2, 3, 5, low=0.5, high=2), m.tensor(3, 1, low=-2, high=2)], [m.kind]


for _name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):

    @case(_name, "fhqib", empty=False)
    def _(m):
        other = OTHER_Q8 if m.quantised else None
        return [m.tensor(2, 3, 5), m.tensor(3, 1, kind=other, constant=True)], [BOOL]


for _name in ("LOGICAL_AND", "LOGICAL_OR"):

    @case(_name, "b", empty=False)
    def _(m):
        return [m.tensor(2, 3, 5), m.tensor(3, 1)], [BOOL]


@case("LOGICAL_NOT", "b", empty=False)
def _(m):
    return [m.tensor(2, 3)], [BOOL]


@case("SELECT", "fhqi", empty=False)
def _(m):
    other = OTHER_Q8 if m.quantised else None
    return [m.tensor(2, 3, kind=BOOL), m.tensor(2, 3), m.tensor(2, 3, kind=other)], [m.output()]


for _to in (F32, F16, I32, Q8):

    @case("CAST", "fhqi", name=f"CAST_to_{_to.name}")
    def _(m, to=_to):
        return [m.tensor(2, 3, 7, low=-10, high=300)], [to]


@case("QUANTIZE", "fh")
def _(m):
    return [m.tensor(2, 3, 7)], [Q8]


for _to in (F32, F16):

    @case("DEQUANTIZE", "q", name=f"DEQUANTIZE_to_{_to.name}")
    def _(m, to=_to):
        return [m.tensor(2, 3, 7)], [to]

    @case("DEQUANTIZE", "q", empty=False, name=f"DEQUANTIZE_channels_to_{_to.name}")
    def _(m, to=_to):
        return [replace(m.weights(2, 3, 7, channel_dim=1), constant=False)], [to]

    @case("DEQUANTIZE", "q", empty=False, name=f"DEQUANTIZE_symmetric_to_{_to.name}")
    def _(m, to=_to):
        return [m.tensor(2, 3, 7, kind=Kind("TENSOR_QUANT8_SYMM", 0.1))], [to]


# ---- moved values --------------------------------------------------------------------------------


def move(operation, arguments, kinds="fhq", shape=(2, 3, 6), outputs=1):
    """A case whose first argument is a tensor of a shape; the others are made by a function."""

    @case(operation, kinds)
    def _(m):
        return [m.tensor(*shape), *arguments(m)], [m.kind] * outputs


def rows(*values):
    return replace(listed(), array=np.array(values, np.int32))


move("CHANNEL_SHUFFLE", lambda m: [3, -1])
move("EXPAND_DIMS", lambda m: [-2], "fhqi")
move("GATHER", lambda m: [-2, rows((2, 0), (1, 1))], "fhqi")
move("PAD", lambda m: [rows((0, 0), (1, 2), (0, 1))])
move("PAD_V2", lambda m: [rows((0, 0), (1, 2), (0, 1)), 9 if m.quantised else m.scalar(1.5)])
move("SPLIT", lambda m: [-1, 3], "fhqi", outputs=3)
move("TILE", lambda m: [listed(2, 1, 3)], "fhqi")
move("TRANSPOSE", lambda m: [listed(0, 2, 1)])
move("SQUEEZE", lambda m: [listed(1)], shape=(2, 1, 3, 1))
move("RESHAPE", lambda m: [listed(-1, 6)])
move("SLICE", lambda m: [listed(0, 1, 2), listed(-1, -1, 3)], "fhqi")


@case("RANDOM_MULTINOMIAL", "fh")
def _(m):
    return [m.tensor(2, 3), 5, listed(37, 42)], [I32]


@case("STRIDED_SLICE", empty=False)
def _(m):
    ends = [listed(0, 1, 5), listed(2, 2, -7), listed(1, 1, -2)]  # the second axis goes
    return [m.tensor(2, 3, 6), *ends, 0, 0, 2], [m.kind]


@case("CONCATENATION")
def _(m):
    other = m.tensor(2, 3, 6, kind=OTHER_Q8 if m.quantised else None)
    return [m.tensor(2, 3, 6), other, 0], [m.output()]


@case("EMBEDDING_LOOKUP", "fqi", empty=False)
def _(m):
    return [listed(1, 0, 1), m.tensor(2, 3, 6)], [m.kind]


# ---- recurrent -----------------------------------------------------------------------------------

UNITS, INPUTS = 4, 3


def lstm_weights(m, cifg, projects):
    """Weights of one direction, with peepholes where there is a projection; and their outputs."""
    outputs = 2 if projects else UNITS

    def matrix(columns, rows=UNITS):
        return m.tensor(rows, columns, low=-1, high=1, constant=True)

    def vector():
        return m.tensor(UNITS, low=-1, high=1, constant=True)

    first = m.left_out(2) if cifg else matrix(INPUTS)
    weights = [first, *(matrix(INPUTS) for _ in range(3))]
    weights += [m.left_out(2) if cifg else matrix(outputs), *(matrix(outputs) for _ in range(3))]
    weights += [vector() if projects and not cifg else m.left_out(1)]
    weights += [vector() if projects else m.left_out(1) for _ in range(2)]
    weights += [m.left_out(1) if cifg else vector(), *(vector() for _ in range(3))]
    weights += [matrix(UNITS, outputs) if projects else m.left_out(2), m.left_out(1)]
    return weights, outputs


def norms(m, cifg, on):
    present = [on and not (cifg and gate == 0) for gate in range(4)]
    return [
        m.tensor(UNITS, low=0.5, high=1, constant=True) if g else m.left_out(1) for g in present
    ]


def states(m, outputs):
    return [m.tensor(2, outputs, low=-1, high=1), m.tensor(2, UNITS, low=-1, high=1)]


def lstm_scalars(m):
    return [4, m.scalar(0.75), m.scalar(0)]  # TANH, clips


for _cifg, _projects, _norms in product((False, True), repeat=3):
    _end = f"_{_cifg:d}{_projects:d}{_norms:d}"
    _how = (_cifg, _projects, _norms)

    @case("LSTM", "fh", empty=False, name=f"LSTM{_end}")
    def _(m, how=_how):
        weights, outputs = lstm_weights(m, *how[:2])
        last = norms(m, how[0], True) if how[2] else []
        x = m.tensor(2, INPUTS)
        return [x, *weights, *states(m, outputs), *lstm_scalars(m), *last], [m.kind] * 4

    @case("UNIDIRECTIONAL_SEQUENCE_LSTM", "fh", empty=False, name=f"SEQUENCE{_end}")
    def _(m, how=_how):
        weights, outputs = lstm_weights(m, *how[:2])
        last = [False, *norms(m, how[0], how[2])]
        x = m.tensor(2, 5, INPUTS)
        return [x, *weights, *states(m, outputs), *lstm_scalars(m), *last], [m.kind]

    @case("BIDIRECTIONAL_SEQUENCE_LSTM", "fh", empty=False, name=f"BOTH_WAYS{_end}")
    def _(m, how=_how):
        cifg, projects, normalises = how
        forward, outputs = lstm_weights(m, cifg, projects)
        backward, _ = lstm_weights(m, cifg, projects)
        inputs = [*forward, *backward, *states(m, outputs), *states(m, outputs)]
        auxiliary = [m.left_out(3), *(m.left_out(2) for _ in range(8))]
        if normalises:  # cross-linking, too
            gates = [m.tensor(UNITS, INPUTS, low=-1, high=1, constant=True) for _ in range(8)]
            if cifg:
                gates[0] = gates[4] = m.left_out(2)
            auxiliary = [m.tensor(5, 2, INPUTS), *gates]
        last = [normalises, True, *norms(m, cifg, normalises), *norms(m, cifg, normalises)]
        x = m.tensor(5, 2, INPUTS)
        arguments = [x, *inputs, *auxiliary, *lstm_scalars(m), *last]
        return arguments, [m.kind] * (1 if normalises else 2)


def rnn_weights(m):
    matrices = [m.tensor(UNITS, n, low=-0.5, high=0.5, constant=True) for n in (INPUTS, UNITS)]
    return [*matrices, m.tensor(UNITS, constant=True), m.tensor(2, UNITS)]


@case("RNN", "fh", empty=False)
def _(m):
    return [m.tensor(2, INPUTS), *rnn_weights(m), 1], [m.kind] * 2


@case("UNIDIRECTIONAL_SEQUENCE_RNN", "fh", empty=False)
def _(m):
    return [m.tensor(2, 5, INPUTS), *rnn_weights(m), 1, 0], [m.kind]


for _linking in ("none", "parallel", "crossed"):

    @case("BIDIRECTIONAL_SEQUENCE_RNN", "fh", empty=False, name=f"BOTH_WAYS_RNN_{_linking}")
    def _(m, linking=_linking):
        auxiliary = [m.left_out(1) if linking == "none" else m.tensor(2, 5, INPUTS)]
        for _ in range(2):
            crossed = linking == "crossed"
            weights = m.tensor(UNITS, INPUTS, constant=True) if crossed else m.left_out(1)
            auxiliary.append(weights)
        merges = linking == "crossed"
        inputs = [m.tensor(2, 5, INPUTS), *rnn_weights(m), *rnn_weights(m), *auxiliary]
        return [*inputs, 1, False, merges], [m.kind] * (1 if merges else 2)


@case("SVDF", "fh", empty=False)
def _(m):
    weights = [m.tensor(UNITS, n, low=-0.5, high=0.5, constant=True) for n in (INPUTS, 10)]
    state = m.tensor(2, UNITS * 10)
    return [m.tensor(2, INPUTS), *weights, m.left_out(1), state, 2, 0], [m.kind] * 2


# ---- findings whose number is known after the run ------------------------------------------------


@case("GENERATE_PROPOSALS", images=True, empty=False)
def _(m):
    scores = m.image(2, 2, 3, 2, low=0.1, high=0.9)
    deltas = m.image(2, 2, 3, 8, low=-0.5, high=0.5)
    anchors = m.boxes([[0, 1, 4, 3], [1, 0, 3, 4]], ANCHOR)
    sizes = m.boxes([[32, 32], [32, 32]])
    limits = [m.scalar(4), m.scalar(4), -1, -1, m.scalar(0.5), m.scalar(1), m.nchw]
    return [scores, deltas, anchors, sizes, *limits], [m.kind, sizes.kind, I32]


@case("HEATMAP_MAX_KEYPOINT", images=True, empty=False)
def _(m):
    boxes = m.boxes([[0, 0, 8, 8], [2, 3, 10, 9]])
    return [m.image(2, 5, 5, 3), boxes, m.nchw], [m.output(0.06, 110), boxes.kind]
