"""Sections of bundles for apps and for the agent, byte for byte: library/FORMAT.md."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

BUNDLE_VERSION = 1
"""Of each section that has one."""
NONE = 0xFFFFFFFF
"""No accelerator named, no preference set; a wait without end."""
ANY_CORES, BIG_CORES, MASKED_CORES = range(3)
MODEL_ALIGNMENT = 4
"""Of a serialized model in the section of data."""
WEIGHT_ALIGNMENT = 64


def words(*values: int) -> bytes:
    """Numbers of 32 bits."""
    return struct.pack(f"<{len(values)}I", *values)


def counted(values: Sequence[int]) -> bytes:
    """A count and that many words."""
    return words(len(values), *values)


def listed(rows: Iterable[bytes]) -> bytes:
    """A count and that many rows."""
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
    """Collects serialized models: the section of data, and the rows that tell where each lies."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._rows: list[bytes] = []

    def add(self, serialized: bytes, weights: Iterable[tuple[int, int]]) -> int:
        """Add a model, whose numbered buffers have these offsets and sizes among the weights;
        return its number."""
        self.data += bytes(-len(self.data) % MODEL_ALIGNMENT)
        buffers = listed(struct.pack("<QQ", *place) for place in weights)
        self._rows.append(struct.pack("<QQ", len(self.data), len(serialized)) + buffers)
        self.data += serialized
        return len(self._rows) - 1

    def sections(self) -> dict[str, bytes]:
        """Return both sections."""
        return {"MODL": listed(self._rows), "DATA": bytes(self.data)}


def tensor(type_code: int, dims: Sequence[int], scale: float = 0.0, zero_point: int = 0) -> bytes:
    """A tensor's row."""
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
    """A segment's row; ``accelerator`` is a string's number, inputs and outputs are tensors'."""
    optional = [NONE if value is None else value for value in (accelerator, preference)]
    ports = [listed(words(port, 0) for port in each) for each in (inputs, outputs)]
    return words(engine, *optional, flags, model) + b"".join(ports)


def conditions(
    cores: int, mask: int, compile_limit_ns: int, run_limit_ns: int, pointers: bool
) -> bytes:
    """The section of cores, limits of time and the kind of memory."""
    limits = struct.pack("<QQQI", mask, compile_limit_ns, run_limit_ns, pointers)
    return words(BUNDLE_VERSION, cores) + limits


def mixture(shares: Iterable[tuple[int, float]]) -> bytes:
    """The section of plans' shares of the frames."""
    return words(BUNDLE_VERSION) + listed(struct.pack("<Id", plan, share) for plan, share in shares)
