"""Models to bytes and back, and what is said of damaged bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnapi_prof.convert import (
    BufferSlice,
    ChannelScales,
    ConstantValue,
    NnapiModel,
    Operand,
    Operation,
)
from nnapi_prof.convert.deserialize import deserialize
from nnapi_prof.convert.region import serialize
from nnapi_prof.errors import SerializationError
from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from tests.convert.drawn_models import SHARED_MACHINE, models

PER_CHANNEL = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL


@SHARED_MACHINE
@given(models())
def test_what_is_serialized_is_parsed_back(model):
    data = serialize(model)
    assert len(data) % 4 == 0
    assert deserialize(data) == model


@SHARED_MACHINE
@given(models(), st.data())
def test_every_cut_is_refused(model, data):
    whole = serialize(model)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(SerializationError):
        deserialize(whole[:cut])


@SHARED_MACHINE
@given(models(), st.data())
def test_damage_is_refused_or_parsed(model, data):
    damaged = bytearray(serialize(model))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        result = deserialize(bytes(damaged))
    except SerializationError:
        return
    assert len(serialize(result)) == len(damaged)


ADD = NnapiModel(
    operands=(
        Operand(OperandCode.TENSOR_FLOAT32, (1, 2)),
        Operand(OperandCode.TENSOR_FLOAT32, (2,)),
        Operand(OperandCode.INT32),
        Operand(OperandCode.TENSOR_FLOAT32, (1, 2)),
    ),
    values=(ConstantValue(1, BufferSlice(7, 0, 8)), ConstantValue(2, b"\0\0\0\0")),
    operations=(Operation(OperationCode.ADD, (0, 1, 2), (3,)),),
    inputs=(0,),
    outputs=(3,),
)


def test_bytes_are_pytorchs():
    """Word for word what PROTOCOL.md, section 4, says."""
    words = [
        struct.pack("<6i", 1, 4, 2, 1, 1, 1),
        *(
            struct.pack("<iifi", code, rank, 0.0, 0)
            for code, rank in ((3, 2), (3, 1), (1, 0), (3, 2))
        ),
        struct.pack("<9i", 1, 2, 12, 2, 0, 4, 0, 3, 1),
        struct.pack("<5i", 1, 2, 2, 1, 2),
        struct.pack("<3Ii", 7, 0, 8, 0),
        struct.pack("<4i", 0, 1, 2, 3),
        struct.pack("<2i", 0, 3),
    ]
    assert serialize(ADD) == b"".join(words)


def patched(at, *words):
    """ADD's bytes with the words from word ``at`` on replaced."""
    data = bytearray(serialize(ADD))
    struct.pack_into(f"<{len(words)}i", data, 4 * at, *words)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the header takes 24 bytes from byte 0, the data ends at 0"),
        (patched(0, 3), "version 3 found, 1 and 2 are read"),
        (patched(1, -1), "-1 operands stated"),
        (patched(3, 1 << 24), "16777216 operations stated"),
        (patched(1, 1000), "the operand table takes 16000 bytes"),
        (patched(6, 99), "operand 0 has the unknown type 99"),
        (patched(7, 1 << 30), "the dimensions of operand 0 takes"),
        (patched(22, 4), "value 0 names operand 4, there are 4"),
        (patched(22, -1), "value 0 names operand -1"),
        (patched(23, 3), r"value 0 has source 3, only 0 \(immediate\) and 2"),
        (patched(24, 11, 2, 0, 5), "value 0 names a buffer in 11 bytes, 12 are required"),
        (patched(28, 777), "operation 0 has the unknown code 777"),
        (serialize(ADD) + bytes(4), "ends at byte 184, the data at 188"),
    ],
)
def test_a_bad_model_is_refused_in_words(data, message):
    with pytest.raises(SerializationError, match=message):
        deserialize(data)


def with_channels(*given):
    """A model of these operands, (dims, channel scales)."""
    code = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL
    operands = tuple(Operand(code, dims, channels=channels) for dims, channels in given)
    return NnapiModel(operands, (), (), (), ())


CHANNELED = with_channels(((2, 3), ChannelScales(0, (0.5, 0.25))))


def test_channel_scales_are_version_2():
    two = with_channels(
        ((2, 3), ChannelScales(0, (0.5, 0.25))), ((1, 3), ChannelScales(1, (1.0, 2.0, 4.0)))
    )
    assert deserialize(serialize(two)) == two
    for model, version in ((two, 2), (with_channels(((2, 3), None)), 1)):
        assert struct.unpack_from("<i", serialize(model)) == (version,)


@pytest.mark.parametrize(
    ("from_end", "word", "message"),
    [
        (20, 1, "names operand 1, there are 1"),
        (16, 2, r"are 2 along dimension 2 of \(2, 3\)"),
        (16, 1, r"are 2 along dimension 1 of \(2, 3\)"),
        (12, 1, r"are 1 along dimension 0 of \(2, 3\)"),
        (8, 0, "are not all above 0"),
        (4, 0x7F800000, "are not all above 0"),
        (24, 2, "channel scales 1"),
        (len(serialize(CHANNELED)) - 24, OperandCode.TENSOR_QUANT8_SYMM, "0, TENSOR_QUANT8_SYMM$"),
    ],
)
def test_bad_channel_scales_are_refused(from_end, word, message):
    broken = bytearray(serialize(CHANNELED))
    struct.pack_into("<I", broken, len(broken) - from_end, word)
    with pytest.raises(SerializationError, match=message):
        deserialize(bytes(broken))


def test_channel_scales_twice_or_with_more_behind_are_refused():
    data = serialize(CHANNELED)
    with pytest.raises(SerializationError, match="ends at byte"):
        deserialize(data + bytes(4))
    twice = bytearray(data) + data[-20:]
    struct.pack_into("<I", twice, len(data) - 24, 2)
    with pytest.raises(SerializationError, match="that has some"):
        deserialize(bytes(twice))
