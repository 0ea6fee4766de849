"""Databases of older versions become those of this one, in place.

A migration takes the tables from one version of the schema to the next. It is written in SQL as it
was, not with the tables of :mod:`nnapi_prof.costs.store.schema`, which go on changing. All of them
run in the one transaction of :meth:`.database.Database.prepare`: all or nothing, and alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select, text, update

from nnapi_prof.costs.measurement import work_columns
from nnapi_prof.costs.store.rows import digest
from nnapi_prof.costs.store.schema import MEASUREMENTS, SCHEMA
from nnapi_prof.graph.unit import ELEMENT_BYTES, Work

KINDS = {
    "linear": "FULLY_CONNECTED",
    "addmm": "FULLY_CONNECTED",
    "cat": "CONCATENATION",
    "add": "ADD",
    "sub": "SUB",
    "mul": "MUL",
    "div": "DIV",
    "mean": "MEAN",
    "relu": "RELU",
    "sigmoid": "LOGISTIC",
    "tanh": "TANH",
    "hardswish": "HARD_SWISH",
    "_softmax": "SOFTMAX",
    "avg_pool2d": "AVERAGE_POOL_2D",
    "max_pool2d": "MAX_POOL_2D",
    "pad": "PAD",
    "adaptive_avg_pool2d": "MEAN",
    "view": "RESHAPE",
    "reshape": "RESHAPE",
    "permute": "TRANSPOSE",
    "transpose": "TRANSPOSE",
    "slice": "STRIDED_SLICE",
    "to_channels_last": "TRANSPOSE",
    "to_contiguous": "TRANSPOSE",
    "softmax": "SOFTMAX",
    "upsample_bilinear2d": "RESIZE_BILINEAR",
    "upsample_nearest2d": "RESIZE_NEAREST_NEIGHBOR",
    "bmm": "BATCH_MATMUL",
    "matmul": "BATCH_MATMUL",
    "mm": "BATCH_MATMUL",
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


_ROWS_PER_STEP = 1000

_ADDED_2 = (
    "precision VARCHAR(8) NOT NULL DEFAULT 'float32'",
    "mode VARCHAR(8) NOT NULL DEFAULT 'sync'",
    # Affinity was left to the system.
    "cpus VARCHAR(18) NOT NULL DEFAULT 'all'",
    "rounds JSON NOT NULL DEFAULT '[]'",
    "warmup_runs INTEGER",
    "warm BOOLEAN",
    "cpu_mask VARCHAR(18)",
    "kernels_xnnpack INTEGER",
    "kernels_portable INTEGER",
    "memory VARCHAR(8)",
)


def _to_2(connection: Connection) -> None:
    """Rounds, precision and mode in place of two truth values, affinity, kernels."""
    for column in _ADDED_2:
        connection.exec_driver_sql(f"ALTER TABLE measurements ADD COLUMN {column}")
    connection.exec_driver_sql("UPDATE measurements SET precision = 'relaxed' WHERE relaxed")
    connection.exec_driver_sql("UPDATE measurements SET mode = 'burst' WHERE burst")
    for column in ("relaxed", "burst"):
        connection.exec_driver_sql(f"ALTER TABLE measurements DROP COLUMN {column}")


def _to_3(connection: Connection) -> None:
    """A digest, which keeps a row from being there twice; :func:`migrate` sets it."""
    connection.exec_driver_sql(
        "ALTER TABLE measurements ADD COLUMN digest VARCHAR(64) NOT NULL DEFAULT ''"
    )


_ADDED_4 = (
    "operation VARCHAR(64)",
    "element VARCHAR(16)",
    "kernel_class VARCHAR(96)",
    "macs BIGINT",
    "weight_bytes BIGINT",
    "pixels BIGINT",
    *(f"{name} INTEGER" for name in ("width", "in_channels", "out_channels", "kernel")),
    *(f"{name} INTEGER" for name in ("stride", "n_inputs", "rank")),
)


def _to_4(connection: Connection) -> None:
    """The work of units in columns: until then it was read out of their labels, which is done here
    for the last time."""
    for column in _ADDED_4:
        connection.exec_driver_sql(f"ALTER TABLE measurements ADD COLUMN {column}")
    rows = connection.execute(
        text(
            "SELECT DISTINCT signature, label, input_bytes, output_bytes FROM measurements"
            " WHERE kind = 'unit'"
        )
    )
    works = [
        {
            "s": row.signature,
            "l": row.label,
            "i": row.input_bytes,
            "o": row.output_bytes,
            **labelled_work(row.label, row.input_bytes, row.output_bytes),
        }
        for row in rows
    ]
    if not works:
        return
    names = [column.split()[0] for column in _ADDED_4]
    sets = ", ".join(f"{name} = :{name}" for name in names)
    same = "signature = :s AND label = :l AND input_bytes = :i AND output_bytes = :o"
    connection.execute(
        text(f"UPDATE measurements SET {sets} WHERE kind = 'unit' AND {same}"), works
    )


def labelled_work(label: str, in_bytes: int, out_bytes: int) -> dict[str, Any]:
    """The work columns of a unit's row from before version 4; None throughout where a label of
    another's making says what no column takes."""
    columns = work_columns([unit_work(label, in_bytes, out_bytes)])
    small = {"operation": 64, "element": 16, "kernel_class": 96}
    long = any(len(columns[name]) > size for name, size in small.items())
    limits = {"macs": 63, "weight_bytes": 63, "pixels": 63}
    large = any(columns[n] >= 1 << limits.get(n, 31) for n in columns if n not in small)
    return dict.fromkeys(columns) if long or large else columns


def _to_5(connection: Connection) -> None:
    """What ran side by side: beside whom, and its times alone."""
    for column in ("beside VARCHAR(128)", "alone_ns JSON", "cpu_ns JSON"):
        connection.exec_driver_sql(f"ALTER TABLE measurements ADD COLUMN {column}")


def _to_6(connection: Connection) -> None:
    """Indexes for what asks of all devices: a model's rows, and the rows of a time."""
    in_bytes = ' COLLATE "C"' if connection.dialect.name == "postgresql" else ""
    for name, column in (("signature", "signature"), ("time", f"measured_at{in_bytes}")):
        connection.exec_driver_sql(
            f"CREATE INDEX measurements_by_{name} ON measurements ({column})"
        )


def _to_7(connection: Connection) -> None:
    """For how long the device had been busy, what it told of itself, and whether it drifted."""
    numbers = ("skin_mc", "battery_percent", "load_percent", "drift_percent")
    added = ("sustained_s INTEGER NOT NULL DEFAULT 0", "charging BOOLEAN")
    for column in (*added, *(f"{name} INTEGER" for name in numbers)):
        connection.exec_driver_sql(f"ALTER TABLE measurements ADD COLUMN {column}")


class Migration(NamedTuple):
    """What makes version ``to`` of version ``to - 1``."""

    to: int
    run: Callable[[Connection], None]
    columns: bool = True
    """It changes what rows say."""


MIGRATIONS = (
    Migration(2, _to_2),
    Migration(3, _to_3),
    Migration(4, _to_4),
    Migration(5, _to_5),
    Migration(6, _to_6, columns=False),
    Migration(7, _to_7),
)
"""In order; the last leads to :data:`~nnapi_prof.costs.store.schema.SCHEMA_VERSION`."""


def migrate(connection: Connection, version: int) -> int:
    """Runs what comes after ``version``, in the caller's transaction; returns the version reached.

    What no migration starts from is left as it is.
    """
    ran = [step for step in MIGRATIONS if step.to > version >= MIGRATIONS[0].to - 1]
    for step in ran:
        step.run(connection)
    if any(step.columns for step in ran):
        _set_digests(connection)
    if ran:
        version = ran[-1].to
        connection.execute(update(SCHEMA).values(version=version))
    return version


def _set_digests(connection: Connection) -> None:
    """Digests tell of every column, so they change with the columns.

    Of rows that say the very same, which version 2 let in, the first stays.
    """
    connection.exec_driver_sql("DROP INDEX IF EXISTS measurements_by_digest")
    m = MEASUREMENTS.c
    set_one = (
        update(MEASUREMENTS).where(m.id == bindparam("row")).values(digest=bindparam("new_digest"))
    )
    seen: set[str] = set()
    last = None
    while True:
        query = select(MEASUREMENTS).order_by(m.id).limit(_ROWS_PER_STEP)
        rows = connection.execute(query if last is None else query.where(m.id > last))
        named = [{"row": row["id"], "new_digest": digest(dict(row))} for row in rows.mappings()]
        if not named:
            break
        last = named[-1]["row"]
        first = []
        for each in named:
            if each["new_digest"] in seen:
                connection.execute(delete(MEASUREMENTS).where(m.id == each["row"]))
                continue
            seen.add(each["new_digest"])
            first.append(each)
        if first:
            connection.execute(set_one, first)
    connection.exec_driver_sql(
        "CREATE UNIQUE INDEX measurements_by_digest ON measurements (digest)"
    )
