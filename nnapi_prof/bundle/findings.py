"""Keep findings in a bundle's folder, where reports show them: advice and a bisection's faults."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from nnapi_prof.bundle.storage import read_file
from nnapi_prof.errors import SerializationError, UsageError
from nnapi_prof.graph.advice import Advice, advice_from_json, advice_to_json

ADVICE_FILE = "advice.json"
MOST_ADVICE_BYTES = 16 << 20


def keep_advice(bundle: Path, advice: Sequence[Advice]) -> Path:
    """Writes advice into a bundle's folder, where reports find it; the file. Raises UsageError
    where it cannot be written."""
    file = bundle / ADVICE_FILE
    try:
        file.write_text(advice_to_json(advice), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error
    return file


def kept_advice(bundle: Path) -> tuple[Advice, ...]:
    """Reads the advice that :func:`keep_advice` wrote; empty where there is none. Raises
    SerializationError."""
    file = bundle / ADVICE_FILE
    if not file.exists():
        return ()
    try:
        return advice_from_json(read_file(file, MOST_ADVICE_BYTES).decode())
    except (SerializationError, UnicodeDecodeError) as error:
        raise SerializationError(f"{file}: {error}") from error


FAULTS_FILE = "faults.json"
MOST_FAULTS_BYTES = 1 << 20


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
    file = bundle / FAULTS_FILE
    try:
        file.write_text(json.dumps([asdict(fault) for fault in faults], indent=1), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error
    return file


def kept_faults(bundle: Path) -> tuple[Fault, ...]:
    """Read what :func:`keep_faults` wrote; empty where there is none. Raises SerializationError."""
    file = bundle / FAULTS_FILE
    if not file.exists():
        return ()
    try:
        listed = json.loads(read_file(file, MOST_FAULTS_BYTES))
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
