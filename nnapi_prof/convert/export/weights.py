"""The weights of a region as one file, for its JSON description and its C++ class.

Byte by byte, little-endian::

    0   8   b"NNPROFW1"
    8  32   SHA-256 of all bytes from 64 on
    40 24   zeros
    64      the region's buffers, each from a multiple of 64 on, zeros between them

Equal buffers stand there once. Whoever maps the file compares 40 bytes to know that it belongs to
his region, and hands NNAPI the slices as they lie.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnapi_prof.errors import SerializationError

MAGIC = b"NNPROFW1"
HEADER_BYTES = 64
ALIGNMENT = 64


@dataclass(frozen=True)
class Weights:
    """Where the buffers of a region lie in its weights file; ``offsets[i]`` is buffer i's."""

    buffers: tuple[bytes, ...] = field(repr=False)
    offsets: tuple[int, ...]
    n_bytes: int
    """Of the whole file."""
    sha256: str
    """Of the file from byte 64 on, in hex."""

    @property
    def header(self) -> bytes:
        """The first 64 bytes of the file."""
        return (MAGIC + bytes.fromhex(self.sha256)).ljust(HEADER_BYTES, b"\0")

    def chunks(self) -> Iterator[bytes]:
        """The file's bytes in turn, without a copy of the buffers."""
        yield self.header
        yield from _body(self.buffers, self.offsets)

    def write(self, path: Path) -> None:
        with path.open("wb") as file:
            file.writelines(self.chunks())


def lay_out(buffers: Sequence[bytes]) -> Weights:
    """The weights file of a region's buffers."""
    places: dict[bytes, int] = {}
    end = HEADER_BYTES
    for buffer in buffers:
        if buffer not in places:
            places[buffer] = end
            end += len(buffer) + -len(buffer) % ALIGNMENT
    offsets = tuple(places[buffer] for buffer in buffers)
    digest = hashlib.sha256()
    for chunk in _body(buffers, offsets):
        digest.update(chunk)
    return Weights(tuple(buffers), offsets, end, digest.hexdigest())


def _body(buffers: Sequence[bytes], offsets: Sequence[int]) -> Iterator[bytes]:
    end = HEADER_BYTES
    for buffer, offset in zip(buffers, offsets, strict=True):
        if offset >= end:  # the first of its equals
            yield buffer
            yield bytes(-len(buffer) % ALIGNMENT)
            end = offset + len(buffer) + -len(buffer) % ALIGNMENT


def check(content: bytes, sha256: str, n_bytes: int) -> None:
    """Raises SerializationError where ``content`` is not the weights file with this hash and size,
    or is damaged."""
    if len(content) != n_bytes:
        raise SerializationError(f"the weights file has {len(content)} bytes, wanted {n_bytes}")
    if content[:8] != MAGIC:
        raise SerializationError(f"the weights file does not begin with {MAGIC.decode()}")
    if content[8:40].hex() != sha256 or any(content[40:HEADER_BYTES]):
        raise SerializationError("the weights file belongs to another region: its hash differs")
    if hashlib.sha256(memoryview(content)[HEADER_BYTES:]).hexdigest() != sha256:
        raise SerializationError("the weights file was changed: its content has another hash")
