"""Units whose results differ from PyTorch's, as `nnapi-prof bisect` found."""

from __future__ import annotations

from collections.abc import Sequence

from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.sections import Section


def rows(data: ReportData) -> Sequence[Sequence[str]]:
    """One row a fault, in topological order."""
    return [
        (fault.label, fault.target, fault.kind, fault.line, fault.error, fault.cure)
        for fault in data.faults
    ]


SECTION = Section(
    "faults",
    "Faults",
    "Where the device computes something else",
    rows,
    heads=("unit", "target", "kind", "from", "error", "cure"),
    about=(
        "With reference inputs, these units differ from PyTorch by more than rounding explains."
        " The error is relative to the largest value."
    ),
)
