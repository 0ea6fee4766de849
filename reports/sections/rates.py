"""Frames per second, where a bundle ran many frames at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.frames import rate_frame
from nnapi_prof.reports.sections import Section
from nnapi_prof.reports.words import format_ms


def rows(data: ReportData) -> Sequence[Sequence[str]]:
    """The way that is meant, then the others."""
    if data.run is None or not data.run.frames:
        return []
    return [
        (
            row["way"],
            _rate(row["frames_per_second"]),
            _rate(row["predicted_per_second"]),
            format_ms(row["latency_ms"]),
            format_ms(row["latency_95_ms"]),
            f"{row['same']} of {row['frames']}",
        )
        for row in rate_frame(data.run.frames).to_dict("records")
    ]


def _rate(per_second: float) -> str:
    return "–" if math.isnan(per_second) else f"{per_second:.4g}"


SECTION = Section(
    "rates",
    "Frames at once",
    "Frames per second",
    rows,
    heads=(
        "way", "frames/s", "predicted", "latency of a frame, ms", "of 95 % at most, ms",
        "equal to a frame alone",
    ),
    numbers=(1, 2, 3, 4),
    about=(
        "Processors work on different frames at the same time. A frame's latency is from being"
        " handed in to its last segment's end; more frames in flight keep processors busier, and"
        " each frame waits longer."
    ),
)  # fmt: skip
