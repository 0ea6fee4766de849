"""Static model: costs estimated from shapes alone, for phones and models never measured.

This module has the features that predict the speed of one NNAPI operation, as plain numbers; it
needs neither torch nor a converted model. :func:`from_frame` reads tables of operations that others
measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.errors import CostError
from nnapi_prof.graph.unit import ELEMENT_BYTES, Work

if TYPE_CHECKING:
    import pandas as pd


Floats = NDArray[np.float64]

WEIGHTED = frozenset(
    {
        *("CONV_2D", "GROUPED_CONV_2D", "DEPTHWISE_CONV_2D"),
        *("TRANSPOSE_CONV_2D", "FULLY_CONNECTED"),
    }
)
"""Operations that have weights and multiply them."""


FEATURES = (
    *("macs", "in_bytes", "out_bytes", "weight_bytes", "pixels", "in_channels", "out_channels"),
    *("kernel", "stride", "out_by_4", "in_by_4", "out_by_8", "out_by_16", "width_by_4"),
    *("winograd", "n_inputs"),
)
"""Names of :func:`features`' columns: logarithms to base 2 of sizes; for "by" ones, of the factor
by which a size grows when rounded up to whole tiles; for "winograd", 1 where the fast 3x3 algorithm
applies."""


def _rounded(values: Floats, tile: int) -> Floats:
    grown: Floats = np.ceil(values / tile) * tile / values
    return grown


def features(works: Sequence[Work]) -> Floats:
    """Returns the features of operations. [n, len(FEATURES)]"""

    def column(name: str) -> Floats:
        return np.array([float(getattr(work, name)) for work in works])

    out, channels, width = column("out_channels"), column("in_channels"), column("width")
    kernel, stride = column("kernel"), column("stride")
    plain = np.array([work.kind == "CONV_2D" for work in works], dtype=float)
    raw = [
        *(np.maximum(column(name), 1) for name in FEATURES[:4]),
        *(column("pixels"), channels, out, kernel, stride),
        *(_rounded(out, 4), _rounded(channels, 4), _rounded(out, 8), _rounded(out, 16)),
        _rounded(width, 4),
        2.0 ** (plain * (kernel == 9) * (stride == 1)),
        column("n_inputs"),
    ]
    table: Floats = np.log2(np.stack(raw, axis=1)) if works else np.zeros((0, len(FEATURES)))
    return table


def raw_inputs(works: Sequence[Work], kinds: Sequence[str]) -> Floats:
    """Returns :func:`features`, and for each kind whether an operation is of it.
    [n, features + kinds]"""
    flags = np.array([[float(work.rate == kind) for kind in kinds] for work in works])
    return np.hstack([features(works), flags.reshape(len(works), len(kinds))])


COLUMNS = (
    *("op", "in_h", "in_w", "in_c", "out_h", "out_w", "out_c", "kernel_h", "kernel_w"),
    *("stride", "groups", "latency_ns"),
)
"""Columns that :func:`from_frame` needs. Optional are ``batch`` (default 1), ``dtype`` ("float32"),
``n_inputs`` (1) and ``sample`` (a different one for each row)."""


def conv_like(row: Any) -> Work:
    """Returns the work of a table's row, whose attributes are named as :data:`COLUMNS`. It maps
    ``in_h`` x ``in_w`` (with padding, if the table includes it) x ``in_c`` to ``out_h`` x ``out_w``
    x ``out_c``."""
    data = str(getattr(row, "dtype", "float32"))
    if data not in ELEMENT_BYTES:
        raise CostError(f"dtype {data!r} is not one of {', '.join(ELEMENT_BYTES)}")
    size = ELEMENT_BYTES[data]
    batch, n_inputs = int(getattr(row, "batch", 1)), int(getattr(row, "n_inputs", 1))
    pixels = batch * int(row.out_h) * int(row.out_w)
    window = int(row.kernel_h) * int(row.kernel_w)
    per_group = int(row.in_c) / int(row.groups)
    read = batch * int(row.in_h) * int(row.in_w) * int(row.in_c)
    written = pixels * int(row.out_c)
    weights = int(row.out_c) * per_group * window if row.op in WEIGHTED else 0.0
    return Work(
        kind=str(row.op),
        data=data,
        macs=float(pixels * weights or written),
        in_bytes=float(read * size * n_inputs),
        out_bytes=float(written * size),
        weight_bytes=weights * size,
        pixels=float(pixels),
        width=float(row.out_w),
        in_channels=per_group,
        out_channels=float(row.out_c),
        kernel=float(window),
        stride=float(row.stride),
        n_inputs=n_inputs,
    )


@dataclass(frozen=True, slots=True)
class WorkSample:
    """Measured latency of operations that ran one after the other.

    A row of a per-operation table has one operation; a region or a whole model has all of its own.
    ``invocations`` are the calls that the latency includes, 0 where operations were timed within a
    call.
    """

    works: tuple[Work, ...]
    ns: float
    invocations: float = 0.0
    in_bytes: float = 0.0
    """Bytes copied to the accelerator, and back from it (``out_bytes``)."""
    out_bytes: float = 0.0


def from_frame(frame: pd.DataFrame) -> list[WorkSample]:
    """Reads samples from a pandas frame with one operation per row: see :data:`COLUMNS`.

    Sizes are counts, ``latency_ns`` is in ns. Rows with the same ``sample`` were measured together:
    their latencies are added, and the sample takes the position of the first. Raises CostError
    where a column is missing or a latency is not positive.
    """
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise CostError(f"the table has no column {', '.join(missing)}")
    if not (frame["latency_ns"] > 0).all():
        raise CostError("the table has latencies that are not positive")
    groups: dict[Any, list[Any]] = {}
    for number, row in enumerate(frame.itertuples(index=False)):
        groups.setdefault(getattr(row, "sample", number), []).append(row)
    return [
        WorkSample(tuple(map(conv_like, rows)), float(sum(row.latency_ns for row in rows)))
        for rows in groups.values()
    ]


def kinds_of(samples: Iterable[WorkSample]) -> tuple[str, ...]:
    """Returns all :attr:`Work.rate` keys, sorted."""
    return tuple(sorted({work.rate for sample in samples for work in sample.works}))


__all__ = [
    "COLUMNS",
    "ELEMENT_BYTES",
    "FEATURES",
    "WEIGHTED",
    "Floats",
    "Work",
    "WorkSample",
    "conv_like",
    "features",
    "from_frame",
    "kinds_of",
    "raw_inputs",
]
