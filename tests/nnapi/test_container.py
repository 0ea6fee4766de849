"""The container: what is written is read back, and no damaged byte goes unnoticed."""

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnapi_prof.errors import SerializationError
from nnapi_prof.nnapi.container import ContainerKind, read_container, write_container

SHARED_MACHINE = settings(deadline=None, max_examples=60)
TAGS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=4, max_size=4)
SECTIONS = st.dictionaries(TAGS, st.binary(max_size=40), max_size=6)


@SHARED_MACHINE
@given(st.integers(0, 0xFFFF), SECTIONS)
def test_what_is_written_is_read_back(kind, sections):
    assert read_container(write_container(kind, sections), kind) == sections


@SHARED_MACHINE
@given(SECTIONS, st.data())
def test_every_flipped_bit_is_refused(sections, data):
    good = write_container(ContainerKind.REQUEST, sections)
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(SerializationError):
        read_container(bytes(bad), ContainerKind.REQUEST)


@SHARED_MACHINE
@given(SECTIONS, st.data())
def test_every_truncation_is_refused(sections, data):
    good = write_container(ContainerKind.REQUEST, sections)
    cut = data.draw(st.integers(0, len(good) - 1))
    with pytest.raises(SerializationError):
        read_container(good[:cut], ContainerKind.REQUEST)


@SHARED_MACHINE
@given(st.binary(max_size=200))
def test_noise_is_refused(noise):
    with pytest.raises(SerializationError):
        read_container(noise, ContainerKind.MODEL)


def test_sections_are_aligned_to_eight_bytes():
    data = write_container(1, {"AAAA": b"x", "BBBB": b"yz"})
    offsets = [struct.unpack_from("<Q", data, 16 + 24 * i + 8)[0] for i in range(2)]
    assert offsets == [64, 72]


def forged(entries, body=b"", n=None):
    """A container whose header checksum is right whatever the table says."""
    table = b"".join(struct.pack("<4sIQQ", *entry) for entry in entries)
    header = struct.pack("<4sHHI", b"NNPF", 1, 1, len(entries) if n is None else n)
    return header + struct.pack("<I", zlib.crc32(header + table)) + table + body


CRC_8 = zlib.crc32(bytes(8))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "at least 16 bytes, 0 found"),
        (b"PK\3\4" + bytes(12), "begins with b'NNPF', found b'PK"),
        (struct.pack("<4sHHII", b"NNPF", 2, 1, 0, 0), "version 2 found, only 1"),
        (struct.pack("<4sHHII", b"NNPF", 1, 1, 65, 0), "65 sections in a container, at most 64"),
        (struct.pack("<4sHHII", b"NNPF", 1, 1, 3, 0), "table of 3 sections ends at byte 88"),
        (struct.pack("<4sHHII", b"NNPF", 1, 1, 0, 0), "00000000 is stated"),
        (write_container(2, {}), "kind 2 found, kind 1 wanted"),
        (forged([(b"AAAA", 0, 40, 0)] * 2, bytes(32)), "'AAAA' spans bytes 40 to 40, 64 to 96"),
        (forged([(b"AAAA", 0, 64, 0)] * 2), "'AAAA' occurs twice"),
        (forged([(b"AAAA", 0, 41, 0)], bytes(9)), "byte 41, not a multiple of 8"),
        (forged([(b"AAAA", 0, 40, 2**63)]), "spans bytes 40 to"),
        (forged([(b"AAAA", 0, 16, 0)]), "spans bytes 16 to 16, 40 to 40 are allowed"),
        (forged([(b"AAAA", 1, 40, 8)], bytes(8)), "'AAAA' has CRC-32"),
        (forged([(b"AA\xffA", 0, 40, 0)]), "which is not ASCII"),
        (
            forged([(b"AAAA", zlib.crc32(bytes(16)), 64, 16), (b"BBBB", CRC_8, 72, 8)], bytes(16)),
            "sections overlap at byte 72",
        ),
        (forged([(b"AAAA", CRC_8, 48, 8)], b"stray!!!" + bytes(8)), "bytes 40 to 48 lie between"),
    ],
)
def test_a_bad_container_is_refused_in_words(data, message):
    with pytest.raises(SerializationError, match=message):
        read_container(data, 1)


@pytest.mark.parametrize(
    ("kind", "sections", "message"),
    [
        (70000, {}, "kind 70000 does not fit"),
        (1, {"ABC": b""}, "'ABC' is not four ASCII"),
        (1, {f"{i:04}": b"" for i in range(65)}, "65 sections"),
    ],
)
def test_a_bad_container_is_not_written(kind, sections, message):
    with pytest.raises(SerializationError, match=message):
        write_container(kind, sections)
