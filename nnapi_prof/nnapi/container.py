"""Write and read the container of requests, models and bundles, and the sections of bundles.

PROTOCOL.md, section 2, specifies the container:

    offset size
    0      4    magic "NNPF"
    4      2    container version, u16 = 1
    6      2    kind, u16
    8      4    n, number of sections, u32
    12     4    CRC-32 of bytes 0..11 followed by the section table
    16     24n  entries: tag (4 ASCII bytes), CRC-32 u32, offset u64, length u64

All numbers are little-endian. Sections are in table order, each at a multiple of 8; gaps are zero.
library/FORMAT.md specifies the sections that apps and the agent read.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence

from nnapi_prof.errors import SerializationError

MAGIC = b"NNPF"
VERSION = 1
MAX_SECTIONS = 64
ALIGNMENT = 8

_HEADER = struct.Struct("<4sHHI")
_CRC = struct.Struct("<I")
_ENTRY = struct.Struct("<4sIQQ")
_TABLE_AT = _HEADER.size + _CRC.size


class ContainerKind(enum.IntEnum):
    """Kind of a container's content."""

    REQUEST = 1
    MODEL = 2
    BUNDLE = 3


def write_container(kind: int, sections: Mapping[str, bytes], alignment: int = ALIGNMENT) -> bytes:
    """Return the container of ``kind`` with ``sections``, tag -> bytes, in the mapping's order.

    Sections begin at multiples of ``alignment``, itself a multiple of 8. The same arguments give
    the same bytes. Raises SerializationError where a tag is not four ASCII characters, there are
    more than 64 sections, or ``kind`` does not fit 16 bits.
    """
    if not 0 <= kind <= 0xFFFF:
        raise SerializationError(f"container kind {kind} does not fit 16 bits")
    if len(sections) > MAX_SECTIONS:
        raise SerializationError(
            f"{len(sections)} sections in a container, at most {MAX_SECTIONS} are allowed"
        )
    table = bytearray()
    body = bytearray()
    body_at = _TABLE_AT + len(sections) * _ENTRY.size
    for tag, data in sections.items():
        if len(tag) != 4 or not tag.isascii():
            raise SerializationError(f"section tag {tag!r} is not four ASCII characters")
        body += bytes(-(body_at + len(body)) % alignment)
        table += _ENTRY.pack(tag.encode(), zlib.crc32(data), body_at + len(body), len(data))
        body += data
    header = _HEADER.pack(MAGIC, VERSION, kind, len(sections))
    return header + _CRC.pack(zlib.crc32(table, zlib.crc32(header))) + bytes(table) + bytes(body)


def read_container(data: bytes, kind: int) -> dict[str, bytes]:
    """Return the sections of a container, tag -> bytes, in table order.

    Raises SerializationError where ``data`` is not an intact container of ``kind``: wrong magic,
    version or kind, a wrong checksum, sections that are misaligned, overlap or reach beyond the
    end, a repeated tag, gaps or trailing bytes that are not zero.
    """
    if len(data) < _TABLE_AT:
        raise SerializationError(
            f"a container has at least {_TABLE_AT} bytes, {len(data)} found: is it cut off?"
        )
    magic, version, found_kind, n = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise SerializationError(f"a container begins with {MAGIC!r}, found {magic!r}")
    if version != VERSION:
        raise SerializationError(f"container version {version} found, only {VERSION} is read")
    if n > MAX_SECTIONS:
        raise SerializationError(f"{n} sections in a container, at most {MAX_SECTIONS} are allowed")
    table_end = _TABLE_AT + n * _ENTRY.size
    if table_end > len(data):
        raise SerializationError(
            f"the table of {n} sections ends at byte {table_end}, the data at {len(data)}"
        )
    (stated,) = _CRC.unpack_from(data, _HEADER.size)
    checksum = zlib.crc32(data[_TABLE_AT:table_end], zlib.crc32(data[: _HEADER.size]))
    if stated != checksum:
        raise SerializationError(
            f"header and section table have CRC-32 {checksum:08x}, {stated:08x} is stated"
        )
    if found_kind != kind:
        raise SerializationError(f"a container of kind {found_kind} found, kind {kind} wanted")
    return _read_sections(data, n, table_end)


def _read_sections(data: bytes, n: int, table_end: int) -> dict[str, bytes]:
    sections: dict[str, bytes] = {}
    spans: list[tuple[int, int]] = []
    for index in range(n):
        raw_tag, stated, offset, length = _ENTRY.unpack_from(data, _TABLE_AT + index * _ENTRY.size)
        if not raw_tag.isascii():
            raise SerializationError(f"section {index} has the tag {raw_tag!r}, which is not ASCII")
        tag = raw_tag.decode("ascii")
        if tag in sections:
            raise SerializationError(f"section {tag!r} occurs twice")
        if offset % ALIGNMENT:
            raise SerializationError(
                f"section {tag!r} begins at byte {offset}, not a multiple of {ALIGNMENT}"
            )
        if offset < table_end or offset + length > len(data):
            raise SerializationError(
                f"section {tag!r} spans bytes {offset} to {offset + length}, "
                f"{table_end} to {len(data)} are allowed"
            )
        section = data[offset : offset + length]
        if zlib.crc32(section) != stated:
            raise SerializationError(
                f"section {tag!r} has CRC-32 {zlib.crc32(section):08x}, {stated:08x} is stated"
            )
        sections[tag] = section
        spans.append((offset, offset + length))

    end = table_end
    for offset, stop in sorted(spans):
        if offset < end:
            raise SerializationError(f"sections overlap at byte {offset}")
        _require_zero(data, end, offset)
        end = stop
    _require_zero(data, end, len(data))
    return sections


def _require_zero(data: bytes, start: int, stop: int) -> None:
    if any(data[start:stop]):
        raise SerializationError(f"bytes {start} to {stop} lie between sections and are not zero")


BUNDLE_VERSION = 1
"""Version of each section that has one."""
NONE = 0xFFFFFFFF
"""Placeholder for no accelerator, no preference, or a wait without a limit."""
ANY_CORES, BIG_CORES, MASKED_CORES = range(3)
MODEL_ALIGNMENT = 4
"""Alignment of a serialized model in the section of data, in bytes."""
WEIGHT_ALIGNMENT = 64


def words(*values: int) -> bytes:
    """Return numbers as 32-bit words."""
    return struct.pack(f"<{len(values)}I", *values)


def counted(values: Sequence[int]) -> bytes:
    """Return a count and that many words."""
    return words(len(values), *values)


def listed(rows: Iterable[bytes]) -> bytes:
    """Return a count and that many rows."""
    rows = list(rows)
    return words(len(rows)) + b"".join(rows)


class Strings:
    """Numbers strings in the order of their first use."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Return the string's number."""
        return self._index.setdefault(text, len(self._index))

    def section(self) -> bytes:
        """Return the section of all strings."""
        raw = [text.encode() for text in self._index]
        return listed(words(len(each)) + each + bytes(-len(each) % 4) for each in raw)


class Models:
    """Collects serialized models: the section of data, and the rows with each model's place."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._rows: list[bytes] = []

    def add(self, serialized: bytes, weights: Iterable[tuple[int, int]]) -> int:
        """Add a model and return its number; ``weights`` has its buffers' (offset, size)."""
        self.data += bytes(-len(self.data) % MODEL_ALIGNMENT)
        buffers = listed(struct.pack("<QQ", *place) for place in weights)
        self._rows.append(struct.pack("<QQ", len(self.data), len(serialized)) + buffers)
        self.data += serialized
        return len(self._rows) - 1

    def sections(self) -> dict[str, bytes]:
        """Return both sections."""
        return {"MODL": listed(self._rows), "DATA": bytes(self.data)}


def tensor(type_code: int, dims: Sequence[int], scale: float = 0.0, zero_point: int = 0) -> bytes:
    """Return a tensor's row."""
    return words(type_code) + counted(dims) + struct.pack("<fi", scale, zero_point)


def segment(
    engine: int,
    accelerator: int | None,
    preference: int | None,
    flags: int,
    model: int,
    inputs: Iterable[int],
    outputs: Iterable[int],
) -> bytes:
    """Return a segment's row. ``accelerator`` is the number of a string; inputs and outputs are
    numbers of tensors."""
    optional = [NONE if value is None else value for value in (accelerator, preference)]
    ports = [listed(words(port, 0) for port in each) for each in (inputs, outputs)]
    return words(engine, *optional, flags, model) + b"".join(ports)


def conditions(
    cores: int, mask: int, compile_limit_ns: int, run_limit_ns: int, pointers: bool
) -> bytes:
    """Return the section of cores, time limits and the kind of memory."""
    limits = struct.pack("<QQQI", mask, compile_limit_ns, run_limit_ns, pointers)
    return words(BUNDLE_VERSION, cores) + limits


def mixture(shares: Iterable[tuple[int, float]]) -> bytes:
    """Return the section with each plan's share of the frames."""
    return words(BUNDLE_VERSION) + listed(struct.pack("<Id", plan, share) for plan, share in shares)
