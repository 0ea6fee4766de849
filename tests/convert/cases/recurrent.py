"""Cases of LSTMs, RNNs and GRUs, and of their single steps."""

import torch

from tests.convert.cases.common import case
from tests.convert.harness import aten, image

T, B, N, H = 3, 2, 4, 5
X = image(T, B, N)
NO_SLICE = "(STRIDED_SLICE|TRANSPOSE) exists from level"
GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


def weights(kind, layers=1, directions=1, bias=True, projection=0):
    """Random weights in PyTorch's order."""
    result, out = [], projection or H
    for layer in range(layers):
        for direction in range(directions):
            seed = 10 * layer + direction
            width = out * directions if layer else N
            rows = GATES[kind] * H
            result += [image(rows, width, seed=seed) / 2, image(rows, out, seed=seed + 1) / 2]
            result += [image(rows, seed=seed + 2), image(rows, seed=seed + 3)] if bias else []
            result += [image(projection, H, seed=seed + 4)] if projection else []
    return result


def recurrent(
    kind,
    value,
    layers=1,
    directions=1,
    bias=True,
    batch_first=False,
    projection=0,
    x=X,
    states=False,
    below_2=NO_SLICE,
    **known,
):
    """Value ``value`` of a recurrent layer; its first states are inputs of the model or zeros."""
    params = weights(kind, layers, directions, bias, projection)
    batch = x.shape[0 if batch_first else 1]
    shapes = [(layers * directions, batch, projection or H)]
    if kind == "lstm":
        shapes.append((layers * directions, batch, H))
    function = getattr(aten, kind).input
    zeros = [torch.zeros(shape) for shape in shapes]

    def call(x, *states_in):
        first = list(states_in or zeros)
        hx = first if kind == "lstm" else first[0]
        both = directions == 2
        return function(x, hx, params, bias, layers, 0.0, False, both, batch_first)[value]

    states_in = tuple(image(*shape, seed=5 + i) for i, shape in enumerate(shapes)) if states else ()
    # as many parameters as there are inputs, for the tracer
    of_inputs = [lambda x: call(x), lambda x, h: call(x, h), lambda x, h, c: call(x, h, c)]
    return case(of_inputs[len(states_in)], x, *states_in, below_2=below_2, **known)


BOTH = "BIDIRECTIONAL_SEQUENCE_LSTM"
STEPS = "RESHAPE" + " STRIDED_SLICE" * T + " LSTM" * T + " CONCATENATION RESHAPE"
FORMS = {
    "": {},
    ", two layers": {"layers": 2},
    ", both directions": {"directions": 2},
    ", two layers and directions": {"layers": 2, "directions": 2},
    ", batch first": {"batch_first": True},
    ", both directions, batch first": {"directions": 2, "batch_first": True},
    ", no bias": {"bias": False},
    ", states given": {"states": True},
    ", both directions, states given": {"directions": 2, "states": True, "layers": 2},
}
PARTS = ("outputs", "last states", "last cells")

RECURRENT = {
    f"{kind}{form}, {PARTS[value]}": recurrent(kind, value, **options)
    for kind in GATES
    for form, options in FORMS.items()
    for value in range(3 if kind == "lstm" else 2)
}
RECURRENT |= {
    f"lstm with a projection{form}, {PARTS[value]}": recurrent(
        "lstm", value, projection=3, **options
    )
    for form, options in (("", {}), (", both directions", {"directions": 2, "layers": 2}))
    for value in range(3)
}
RECURRENT |= {
    "lstm as one operation": recurrent(
        "lstm", 0, gives={28: STEPS, 29: "UNIDIRECTIONAL_SEQUENCE_LSTM"}
    ),
    "lstm of both directions as one operation": recurrent(
        "lstm", 0, directions=2, gives={29: "RESHAPE " * 4 + BOTH, 30: BOTH}
    ),
    **{
        f"{kind} of wide states": recurrent(kind, 0, directions=2, layers=2, x=image(T, 9, N))
        for kind in ("lstm", "rnn_relu")
    },
    "rnn as one operation": recurrent("rnn_relu", 0, gives={29: "UNIDIRECTIONAL_SEQUENCE_RNN"}),
    "rnn of both directions as one operation": recurrent(
        "rnn_relu", 0, directions=2, gives={29: "BIDIRECTIONAL_SEQUENCE_RNN"}
    ),
    "lstm of one step": recurrent("lstm", 0, x=image(1, B, N), below_2=None),
    "gru of one step": recurrent("gru", 1, x=image(1, B, N), below_2=None),
    "long lstm": recurrent(
        "lstm", 0, x=image(300, 1, N) / 3, below_2=None, below_3="300 steps, up to 256 are"
    ),
    "long lstm and its cells": recurrent(
        "lstm", 2, x=image(300, 1, N) / 3, below_2=None, below_4="300 steps, up to 256 are"
    ),
    "long gru": recurrent(
        "gru", 0, x=image(129, 1, N), layers=2, below_2=None, never="258 steps, up to 256 are"
    ),
}


def cell(kind, bias=True):
    """One step of a GRU or an RNN."""
    packet = {"gru": aten.gru_cell, "rnn_tanh": aten.rnn_tanh_cell, "rnn_relu": aten.rnn_relu_cell}
    params = weights(kind, bias=bias)
    return case(lambda x, h: packet[kind].default(x, h, *params), image(B, N), image(B, H))


def lstm_cell(value, bias=True, **known):
    params, states = weights("lstm", bias=bias), (image(B, H), image(B, H, seed=1))
    return case(
        lambda x, h, c: aten.lstm_cell.default(x, [h, c], *params)[value],
        *(image(B, N), *states),
        **known,
    )


RECURRENT |= {f"one {kind} cell": cell(kind) for kind in GATES if kind != "lstm"}
RECURRENT |= {
    "one gru cell without a bias": cell("gru", bias=False),
    "one lstm cell, state": lstm_cell(0, gives="LSTM"),
    "one lstm cell, memory": lstm_cell(1, bias=False),
}
