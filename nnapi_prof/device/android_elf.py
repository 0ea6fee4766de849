"""Mends what lld writes into an Android executable and old dynamic linkers of Android mind."""

from __future__ import annotations

import struct
from pathlib import Path

_PT_DYNAMIC = 2
_DT_NULL = 0
_DT_FLAGS_1 = 0x6FFFFFFB
DF_1_PIE = 0x08000000


def clear_pie_mark(path: Path) -> bool:
    """Takes DF_1_PIE out of an executable's DT_FLAGS_1; True where it was there.

    The mark means nothing to Android: an executable is position-independent by its type. Before
    Android 10 the dynamic linker does not know it, though, and says so on standard error at each
    start, before anything that the executable has to say. Neither lld nor an option of it leaves
    the mark out. Raises ValueError for what is no little-endian ELF file with a dynamic section.
    """
    data = bytearray(path.read_bytes())
    if data[:4] != b"\x7fELF" or data[5] != 1:
        raise ValueError(f"{path} is no little-endian ELF file")
    wide = data[4] == 2
    # Of the file header: program headers' offset, size and number. Of a program header: kind and
    # offset in the file. Of an entry of the dynamic section: tag and value.
    (headers,) = struct.unpack_from("<Q" if wide else "<I", data, 32 if wide else 28)
    header_bytes, n_headers = struct.unpack_from("<HH", data, 54 if wide else 42)
    entry = struct.Struct("<QQ" if wide else "<II")
    for at in range(headers, headers + header_bytes * n_headers, header_bytes):
        if struct.unpack_from("<I", data, at)[0] != _PT_DYNAMIC:
            continue
        (place,) = struct.unpack_from("<Q" if wide else "<I", data, at + (8 if wide else 4))
        while True:
            tag, value = entry.unpack_from(data, place)
            if tag == _DT_NULL:
                return False
            if tag == _DT_FLAGS_1 and value & DF_1_PIE:
                entry.pack_into(data, place, tag, value & ~DF_1_PIE)
                path.write_bytes(data)
                return True
            place += entry.size
    raise ValueError(f"{path} has no dynamic section")
