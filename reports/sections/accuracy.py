"""Shows what the chosen precisions cost in accuracy and save in latency, beside the other plans."""

from __future__ import annotations

from collections.abc import Sequence

from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.sections import Section
from nnapi_prof.reports.words import format_ms


def rows(data: ReportData) -> Sequence[Sequence[str]]:
    """The front, the chosen plan marked, and the baselines."""
    mixed = data.mixed
    if mixed is None:
        return []
    return [
        (
            f"{row.name} (chosen)" if row.name == mixed.chosen else row.name,
            format_ms(row.latency_ns / 1e6),
            f"{row.error:.2%}",
            f"{row.held_out_error:.2%} ({row.held_out_low:.2%} … {row.held_out_high:.2%})",
            str(row.n_segments),
            ", ".join(f"{n} {precision.value}" for precision, n in row.n_units.items() if n),
        )
        for row in mixed.front
    ]


SECTION = Section(
    "front",
    "Precision",
    "Latency against accuracy",
    rows,
    heads=("plan", "latency, predicted, ms", "error", "on held-out data", "segments", "units"),
    numbers=(1, 2, 3, 4),
    about=(
        "Plans (none is both faster and more accurate than another), and one precision for all"
        " units. The error is that of the whole plan, on the calibration data and on held-out"
        " data; in brackets is the 95 % interval for other data of the same kind."
    ),
    figure="front",
)
