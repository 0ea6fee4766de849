"""Reads tables of latencies that others measured on phones, as published by

* tlc-pack/tophub: ``tophub_per_op.csv``, best tuned latency of each operation (ms);
* qed-usc/mobile-ml-benchmark @40ba833 (MIT): ``usc_tflite_cnn_ops_gpu.csv``, TFLite's GPU delegate,
  operation by operation (us), and ``usc_tflite_cnn_e2e.csv``, whole models (us);
* itouchz/Neural-Predictor-Tensorflow @a660b8a3 (MIT, the ProxylessNAS table):
  ``pixel1_block_lut.csv``, blocks of up to three operations on a Pixel 1's CPU (ms).

None of them is in this repository; pass the folder that has them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd

GPUS = ("pixel4", "s10", "mi8se", "a03s", "iphone7", "iphonexs")
GROUPED = {"CONV_2D_GROUP": "GROUPED_CONV_2D"}
LINKED = {"add": "ADD", "mul": "MUL", "hard_swish": "HARD_SWISH", "sigmoid": "LOGISTIC"}
"""Operations that TFLite's GPU delegate joins to the one before; ReLUs are free everywhere."""
_LINKED_NAME = re.compile(r"linked_:_([a-z_]+)_\d+")


def tophub(folder: Path) -> dict[str, pd.DataFrame]:
    """Returns device and data -> frame for :func:`nnapi_prof.costs.estimate.from_frame`."""
    table = pd.read_csv(folder / "tophub_per_op.csv")
    rows = [_tophub_row(row) for row in table.itertuples()]
    frame = pd.DataFrame(rows)
    return {str(device): group for device, group in frame.groupby("device")}


def _tophub_row(row: object) -> dict[str, object]:
    shapes, weight = json.loads(row.input_nchw), json.loads(row.weight)  # type: ignore[attr-defined]
    columns: dict[str, object] = {
        "device": f"{row.device} {row.unit} {row.dtype}",  # type: ignore[attr-defined]
        "dtype": row.dtype,  # type: ignore[attr-defined]
        "batch": shapes[0],
        "latency_ns": row.best_latency_ms * 1e6,  # type: ignore[attr-defined]
        "groups": 1,
        "stride": 1,
    }
    if len(shapes) == 2:
        sizes = ("in_h", "in_w", "out_h", "out_w", "kernel_h", "kernel_w")
        flat = dict.fromkeys(sizes, 1)
        return {**columns, **flat, "op": "FULLY_CONNECTED", "in_c": shapes[1], "out_c": weight[0]}
    stride, pad = json.loads(row.stride), json.loads(row.pad)  # type: ignore[attr-defined]
    top, left, bottom, right = pad if len(pad) == 4 else pad * 2
    height, width = shapes[2] + top + bottom, shapes[3] + left + right
    deep = row.op == "depthwise_conv2d"  # type: ignore[attr-defined]
    return {
        **columns,
        "op": "DEPTHWISE_CONV_2D" if deep else "CONV_2D",
        "in_h": height,
        "in_w": width,
        "in_c": shapes[1],
        "out_h": (height - weight[2]) // stride[0] + 1,
        "out_w": (width - weight[3]) // stride[1] + 1,
        "out_c": weight[0] * weight[1] if deep else weight[0],
        "kernel_h": weight[2],
        "kernel_w": weight[3],
        "stride": stride[0],
        "groups": shapes[1] if deep else 1,
    }


def usc_operations(folder: Path) -> pd.DataFrame:
    """Returns all operations: ``model``, ``sample`` and a column of ns for each of :data:`GPUS`.

    A kernel of the GPU may compute more than the operation that its row names: a residual sum, a
    scale, a hard-swish. The name of the Galaxy S10's kernel reveals it. Each is an operation here
    with its row's ``sample`` and an equal part of its latency: a CPU runs them separately.

    The file's columns have other meanings for some operations: for a concatenation, Kernel counts
    inputs; for a depthwise convolution, Filter is the multiplier.
    """
    table = pd.read_csv(folder / "usc_tflite_cnn_ops_gpu.csv", na_values="-")
    rows: list[dict[str, object]] = []
    times = {device: f"{device}_us" for device in GPUS if f"{device}_us" in table}
    for number, row in enumerate(table.itertuples()):
        operation = _usc_row(row)
        kernel = str(getattr(row, "s10_kernel", ""))
        layers = [
            operation,
            *(_linked(operation, op) for op in _LINKED_NAME.findall(kernel) if op in LINKED),
        ]
        shares = {d: getattr(row, name) * 1e3 / len(layers) for d, name in times.items()}
        rows += [{**layer, "sample": number, **shares} for layer in layers]
    return pd.DataFrame(rows)


def _linked(into: dict[str, object], op: str) -> dict[str, object]:
    """Returns an elementwise operation on the output of another one."""
    side, channels = int(str(into["out_h"])), int(str(into["out_c"]))
    return {"model": into["model"], **_layer(LINKED[op], (side, channels), (side, channels), 1, 1)}


def _usc_row(row: object) -> dict[str, object]:
    def number(name: str, otherwise: int = 1) -> int:
        value = getattr(row, name)
        return otherwise if pd.isna(value) else int(value)

    op, channels = str(row.op), number("Input_channel")  # type: ignore[attr-defined]
    joins, averages, deep = op == "CONCATENATION", op == "MEAN", op == "DEPTHWISE_CONV_2D"
    kernel = 1 if joins or averages else max(number("Kernel"), 1)
    written = number("Filter", channels) * (channels if deep else 1)
    side = 1 if averages else number("Output_shape")
    return {
        "model": row.model,  # type: ignore[attr-defined]
        "op": GROUPED.get(op, op),
        "in_h": number("Input_shape"),
        "in_w": number("Input_shape"),
        "in_c": channels,
        "out_h": side,
        "out_w": side,
        "out_c": written,
        "kernel_h": kernel,
        "kernel_w": kernel,
        "stride": number("Stride"),
        "groups": channels if deep else number("Group"),
        "n_inputs": number("Kernel") if joins else 1,
    }


def usc_whole(folder: Path) -> pd.DataFrame:
    """Returns whole models by name; columns ``device|cores|data``, in ns."""
    table = pd.read_csv(folder / "usc_tflite_cnn_e2e.csv").set_index("model")
    return table[[name for name in table.columns if "|" in name]] * 1e3


def pixel1_blocks(folder: Path) -> pd.DataFrame:
    """Returns the blocks' operations; those of a block share a ``sample`` and its latency."""
    table = pd.read_csv(folder / "pixel1_block_lut.csv")
    rows: list[dict[str, object]] = []
    for number, block in enumerate(table.itertuples()):
        wide = int(block.in_c * (1 if pd.isna(block.expand) else block.expand))
        into, out = (int(block.in_h), int(block.in_c)), (int(block.out_h), int(block.out_c))
        if block.block == "Conv":
            layers = [_layer("CONV_2D", into, out, 3, 2)]
        elif block.block == "Conv_1":
            layers = [_layer("CONV_2D", into, out, 1, 1)]
        elif block.block == "Logits":  # of the mean over the image
            layers = [_layer("MEAN", into, (1, into[1]), 1, 1)]
            layers += [_layer("FULLY_CONNECTED", (1, into[1]), out, 1, 1)]
        else:
            expanded, filtered = (into[0], wide), (out[0], wide)
            layers = [_layer("CONV_2D", into, expanded, 1, 1)] if wide != into[1] else []
            kernel, stride = int(block.kernel), int(block.stride)
            layers += [_layer("DEPTHWISE_CONV_2D", expanded, filtered, kernel, stride)]
            layers += [_layer("CONV_2D", filtered, out, 1, 1)]
            layers += [_layer("ADD", out, out, 1, 1)] if block.idskip == 1 else []
        share = block.mean_ms * 1e6 / len(layers)
        rows += [{**layer, "sample": number, "latency_ns": share} for layer in layers]
    return pd.DataFrame(rows)


def _layer(
    op: str, into: tuple[int, int], out: tuple[int, int], kernel: int, stride: int
) -> dict[str, object]:
    """Returns a layer; ``into`` and ``out`` are (height = width, channels)."""
    sizes = {"in_h": into[0], "in_w": into[0], "in_c": into[1]}
    sizes |= {"out_h": out[0], "out_w": out[0], "out_c": out[1]}
    groups = into[1] if op == "DEPTHWISE_CONV_2D" else 1
    sizes |= {"kernel_h": kernel, "kernel_w": kernel, "stride": stride, "groups": groups}
    return {"op": op, **sizes, "n_inputs": 2 if op in ("ADD", "MUL") else 1}
