"""Files that a stranger may have written: read where they are files, and no larger than they may
be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from nnapi_prof.errors import SerializationError


def read_file(path: Path, most_bytes: int) -> bytes:
    """The content of a file.

    Raises SerializationError where it is a link, which may lead anywhere, a pipe or a device, which
    may never end, or larger than ``most_bytes``; OSError where it cannot be read.
    """
    check_file(path, most_bytes)
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:  # it grew
        raise SerializationError(_too_large(path, len(content), most_bytes))
    return content


def check_file(path: Path, most_bytes: int) -> None:
    """What :func:`read_file` checks, for who reads piece by piece."""
    try:
        found = os.lstat(path)
    except OSError as error:
        raise SerializationError(f"{path.name} is no file of its own") from error
    if not stat.S_ISREG(found.st_mode):
        raise SerializationError(f"{path.name} is no file of its own")
    if found.st_size > most_bytes:
        raise SerializationError(_too_large(path, found.st_size, most_bytes))


def _too_large(path: Path, n_bytes: int, most_bytes: int) -> str:
    return f"{path.name} has {n_bytes:,} bytes, {most_bytes:,} at most are read"
