"""The zip archive of a model, looked into before PyTorch reads it: names and unpacked sizes."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from nnapi_prof.errors import ModelFileError, visible

FREE_BYTES = 256 << 20
"""However small an archive is, this much may come out of it."""
MAX_RATIO = 20
"""Beyond that, how many times its own size. PyTorch packs nothing, so its archives have 1."""
MAX_RECORDS = 1_000_000
AGAIN = "save the model again with torch.jit.save or torch.export.save"


@dataclass(frozen=True)
class Archive:
    """A model's archive that was looked into; ``sizes`` are unpacked bytes by name, the names
    without the folder that all of them lie in."""

    path: Path
    sizes: Mapping[str, int]

    @cached_property
    def _reader(self) -> Any:
        return torch._C.PyTorchFileReader(str(self.path))

    def read(self, name: str) -> bytes:
        """The bytes of a record, by the reader that the model is loaded with."""
        data: bytes = self._reader.get_record(name)
        return data

    def same_to_torch(self) -> bool:
        """Whether PyTorch's own reader finds these names and sizes, too: a file may be made so that
        readers differ on where its directory is. Raises RuntimeError where PyTorch cannot read it.
        """
        names = self._reader.get_all_records()
        found = {name: self._reader.get_record_size(name) for name in names}
        return len(names) == len(found) and found == self.sizes


def look_into(path: Path) -> Archive:
    """The archive at ``path``. Raises ModelFileError where its names leave it or occur twice, or
    where it unpacks to more than a model's archive does."""
    sizes = _sizes(path, path, path.stat().st_size)
    roots = {name.partition("/")[0] for name in sizes}
    if len(roots) == 1 and all("/" in name for name in sizes):
        return Archive(path, {name.partition("/")[2]: size for name, size in sizes.items()})
    return Archive(path, sizes)


def check_inner(path: Path, name: str, data: bytes) -> None:
    """As :func:`look_into`, of an archive within the archive ``path``; other bytes are left to
    their reader. Raises ModelFileError."""
    if data.startswith(b"PK"):
        _sizes(BytesIO(data), f"{path} ({visible(name)})", len(data))


def _sizes(file: Path | BytesIO, shown: Path | str, n_bytes: int) -> dict[str, int]:
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ModelFileError(
            f"{shown} is truncated or damaged ({visible(str(error))}): save or copy the file again"
        ) from error
    if len(infos) > MAX_RECORDS:
        raise ModelFileError(
            f"{shown} holds {len(infos)} records, {MAX_RECORDS} at most are read: {AGAIN}"
        )
    seen: set[str] = set()
    for info in infos:
        name = info.filename
        if _leaves(name):
            raise ModelFileError(
                f"{shown} holds the name {visible(name, 100)}, which leads out of the archive: "
                f"{AGAIN}"
            )
        if name.lower() in seen:  # PyTorch's reader does not heed case
            raise ModelFileError(
                f"{shown} holds {visible(name, 100)} twice, so that readers differ on what it is: "
                f"{AGAIN}"
            )
        seen.add(name.lower())
    total = sum(info.file_size for info in infos)
    if total > FREE_BYTES and total > MAX_RATIO * n_bytes:
        raise ModelFileError(
            f"{shown} has {_size(n_bytes)} and would unpack to {_size(total)}, as no model does: "
            f"{AGAIN}"
        )
    return {info.filename: info.file_size for info in infos if not info.is_dir()}


def _leaves(name: str) -> bool:
    return (
        not name
        or name.startswith("/")
        or "\\" in name
        or not name.isprintable()
        or re.match(r"[A-Za-z]:", name) is not None
        or ".." in name.split("/")
    )


def _size(n_bytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes} bytes"
