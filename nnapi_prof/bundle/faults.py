"""Faults that a bisection found, in a bundle's folder, where reports find them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from nnapi_prof.bundle.storage import read_file
from nnapi_prof.errors import SerializationError, UsageError

FILE = "faults.json"
MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Fault:
    """Units whose results on a target differ from PyTorch's."""

    label: str
    target: str
    """Key of the target."""
    kind: str
    line: str
    """``FILE:LINE`` of the user's Python, empty where unknown."""
    error: str
    """Relative to the largest value, as text: it may be infinite."""
    cure: str


def keep_faults(bundle: Path, faults: Sequence[Fault]) -> Path:
    """Write faults into a bundle's folder; returns the file.

    Raises UsageError where it cannot be written.
    """
    file = bundle / FILE
    try:
        file.write_text(json.dumps([asdict(fault) for fault in faults], indent=1), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error
    return file


def kept_faults(bundle: Path) -> tuple[Fault, ...]:
    """Read what :func:`keep_faults` wrote; empty where there is none. Raises SerializationError."""
    file = bundle / FILE
    if not file.exists():
        return ()
    try:
        listed = json.loads(read_file(file, MOST_BYTES))
        names = {field.name for field in fields(Fault)}
        if not isinstance(listed, list) or not all(
            isinstance(row, dict)
            and row.keys() == names
            and all(isinstance(text, str) for text in row.values())
            for row in listed
        ):
            raise ValueError("it is not a list of faults")
    except ValueError as error:
        raise SerializationError(f"{file} is damaged: {error}") from error
    return tuple(Fault(**row) for row in listed)
