"""A unit's label and bytes -> its work: tables of versions before 4 kept no more of a unit.

Nothing but their migration (:mod:`nnapi_prof.costs.migrate`) reads labels; a unit knows its work
(:attr:`nnapi_prof.graph.unit.Unit.work`).
"""

from __future__ import annotations

import math
import re

from nnapi_prof.costs.static_work import ELEMENT_BYTES, WEIGHTED, Work

KINDS = {
    **{"linear": "FULLY_CONNECTED", "addmm": "FULLY_CONNECTED", "cat": "CONCATENATION"},
    **{"add": "ADD", "sub": "SUB", "mul": "MUL", "div": "DIV", "mean": "MEAN", "relu": "RELU"},
    **{"sigmoid": "LOGISTIC", "tanh": "TANH", "hardswish": "HARD_SWISH", "_softmax": "SOFTMAX"},
    **{"avg_pool2d": "AVERAGE_POOL_2D", "max_pool2d": "MAX_POOL_2D", "pad": "PAD"},
    **{"adaptive_avg_pool2d": "MEAN", "view": "RESHAPE", "reshape": "RESHAPE"},
    **{"permute": "TRANSPOSE", "transpose": "TRANSPOSE", "slice": "STRIDED_SLICE"},
    **{"to_channels_last": "TRANSPOSE", "to_contiguous": "TRANSPOSE", "softmax": "SOFTMAX"},
    **{"upsample_bilinear2d": "RESIZE_BILINEAR", "upsample_nearest2d": "RESIZE_NEAREST_NEIGHBOR"},
    **{"bmm": "BATCH_MATMUL", "matmul": "BATCH_MATMUL", "mm": "BATCH_MATMUL"},
}
"""First word of a label -> NNAPI's name; other words stand for themselves in capitals."""

_CONVOLUTIONS = re.compile(r"(depthwise_|grouped_)?conv(_transpose)?[123]d")
_WINDOW = re.compile(r"(\d+(?:x\d+)*)(?:/(\d+)(?:x\d+)*)?")
_CHANNELS = re.compile(r"(\d+)->(\d+)")


def unit_work(label: str, in_bytes: int, out_bytes: int, *, data: str = "float32") -> Work:
    """The work of a unit ``conv2d+relu6 3x3/2 3->32 112x112`` that reads and writes these bytes.

    ``data`` is what its values are held as; a label that begins with "quantised" says 8 bits. What
    a label does not tell (the channels of a group) follows from the bytes where it can.
    """
    words = label.split()
    if words and words[0] == "quantised":
        words, data = words[1:], "quant8"
    word = words[0].split("+")[0] if words else "unknown"
    convolution = _CONVOLUTIONS.fullmatch(word)
    channels = next((m for w in words[1:] if (m := _CHANNELS.fullmatch(w))), None)
    sizes = [m for w in words[1:] if (m := _WINDOW.fullmatch(w))]
    shape = [int(s) for s in sizes[-1][1].split("x")] if sizes else []
    if convolution and channels and len(sizes) > 1:
        return _convolution(convolution, channels, sizes[0], shape, in_bytes, out_bytes, data)
    if channels:
        c_in, c_out = int(channels[1]), int(channels[2])
        rows = math.prod(shape) if shape else 1
        weights = float(c_in * c_out)
        return _work("FULLY_CONNECTED", data, rows, 1, c_in, c_out, weights, in_bytes, out_bytes)
    kind = KINDS.get(word, word.upper())
    c_out = shape[1] if len(shape) > 1 else (shape or [1])[-1]
    pixels = math.prod(shape) // max(c_out, 1) if shape else 1
    if kind == "BATCH_MATMUL" and len(shape) > 1:
        return _product(shape, data, in_bytes, out_bytes)
    window = math.prod(map(int, sizes[0][1].split("x"))) if len(sizes) > 1 else 1
    stride = float(sizes[0][2] or 1) if len(sizes) > 1 else 1.0
    return Work(
        kind=kind,
        data=data,
        macs=float(max(math.prod(shape), 1)),
        in_bytes=float(in_bytes),
        out_bytes=float(out_bytes),
        weight_bytes=0.0,
        pixels=float(max(pixels, 1)),
        width=float(shape[-1] if len(shape) > 2 else 1),
        in_channels=float(max(c_out, 1)),
        out_channels=float(max(c_out, 1)),
        kernel=float(window),
        stride=stride,
    )


def _product(shape: list[int], data: str, in_bytes: int, out_bytes: int) -> Work:
    """[..., m, k] x [..., k, n] -> ``shape``: what is read are (m + n) * k elements a matrix, which
    tells k, which the label does not."""
    m, n = shape[-2:]
    batch = math.prod(shape[:-2])
    size = ELEMENT_BYTES[data]
    inner = max(in_bytes / size / max(batch * (m + n), 1), 1.0)
    return Work(
        kind="BATCH_MATMUL",
        data=data,
        macs=float(max(batch * m * n, 1)) * inner,
        in_bytes=float(in_bytes),
        out_bytes=float(out_bytes),
        weight_bytes=0.0,
        pixels=float(max(batch * m, 1)),
        width=1.0,
        in_channels=inner,
        out_channels=float(max(n, 1)),
        n_inputs=2,
        rank=len(shape),
    )


def _convolution(
    name: re.Match[str],
    channels: re.Match[str],
    window: re.Match[str],
    shape: list[int],
    in_bytes: int,
    out_bytes: int,
    data: str,
) -> Work:
    c_in, c_out = int(channels[1]), int(channels[2])
    kernel = math.prod(map(int, window[1].split("x")))
    kind = {"depthwise_": "DEPTHWISE_CONV_2D", "grouped_": "GROUPED_CONV_2D"}.get(name[1] or "")
    kind = kind or ("TRANSPOSE_CONV_2D" if name[2] else "CONV_2D")
    # A label does not tell the groups; grouped networks mostly have some tens of channels in one.
    per_group = {"DEPTHWISE_CONV_2D": 1, "GROUPED_CONV_2D": min(c_in, 16)}.get(kind, c_in)
    pixels = math.prod(shape)
    weights = float(c_out * per_group * kernel)
    work = _work(kind, data, pixels, shape[-1], per_group, c_out, weights, in_bytes, out_bytes)
    spread = math.prod([int(window[2] or 1)] * 2) if kind == "TRANSPOSE_CONV_2D" else 1
    return Work(
        **{name: getattr(work, name) for name in work.__slots__}
        | {
            "macs": work.macs / spread,
            "kernel": float(kernel),
            "stride": float(window[2] or 1),
        }
    )


def _work(
    kind: str,
    data: str,
    pixels: int,
    width: int,
    per_group: int,
    c_out: int,
    weights: float,
    in_bytes: int,
    out_bytes: int,
) -> Work:
    assert kind in WEIGHTED
    return Work(
        kind=kind,
        data=data,
        macs=pixels * weights,
        in_bytes=float(in_bytes),
        out_bytes=float(out_bytes),
        weight_bytes=weights * (1 if data.startswith("quant8") else 2 if data == "float16" else 4),
        pixels=float(pixels),
        width=float(width),
        in_channels=float(per_group),
        out_channels=float(c_out),
    )
