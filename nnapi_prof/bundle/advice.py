"""Advice in a bundle's folder: written by who looked for it, shown by reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nnapi_prof.bundle.storage import read_file
from nnapi_prof.errors import SerializationError, UsageError
from nnapi_prof.graph.advice import Advice, advice_from_json, advice_to_json

FILE = "advice.json"
MOST_BYTES = 16 << 20


def keep_advice(bundle: Path, advice: Sequence[Advice]) -> Path:
    """Writes advice into a bundle's folder, where reports find it; the file. Raises UsageError
    where it cannot be written."""
    file = bundle / FILE
    try:
        file.write_text(advice_to_json(advice), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error
    return file


def kept_advice(bundle: Path) -> tuple[Advice, ...]:
    """Reads the advice that :func:`keep_advice` wrote; empty where there is none. Raises
    SerializationError."""
    file = bundle / FILE
    if not file.exists():
        return ()
    try:
        return advice_from_json(read_file(file, MOST_BYTES).decode())
    except (SerializationError, UnicodeDecodeError) as error:
        raise SerializationError(f"{file}: {error}") from error
