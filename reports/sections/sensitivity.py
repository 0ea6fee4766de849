"""How much error each unit causes alone in less than float32."""

from __future__ import annotations

from collections.abc import Sequence

from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.sections import Section

PRECISIONS = ("relaxed", "float16", "int8")
MOST_UNITS = 40
"""The most sensitive of more."""


def rows(data: ReportData) -> Sequence[Sequence[str]]:
    """The most sensitive units first."""
    if data.mixed is None:
        return []
    units = sorted(data.mixed.sensitivity, key=lambda unit: -max(unit.errors.values(), default=0))
    rows = []
    for unit in units[:MOST_UNITS]:
        errors = {precision.value: error for precision, error in unit.errors.items()}
        cells = [f"{errors[p]:.3%}" if p in errors else "–" for p in PRECISIONS]
        rows.append((unit.label, *cells))
    return rows


SECTION = Section(
    "sensitivity",
    "Sensitivity",
    "What each unit loses in less than float32",
    rows,
    heads=("unit", *PRECISIONS),
    numbers=(1, 2, 3),
    about=(
        "The error of the model's outputs where this unit alone computes in that precision, on the"
        f" calibration data; the {MOST_UNITS} most sensitive units."
    ),
)
