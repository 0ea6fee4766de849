"""Models and regions to bytes and JSON and back, and what is said of damaged ones."""

import json
import math
import struct
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from nnapi_prof.convert import (
    BufferSlice,
    ChannelScales,
    ConstantValue,
    NnapiModel,
    Operand,
    Operation,
)
from nnapi_prof.convert.deserialize import deserialize
from nnapi_prof.convert.export_json import (
    ELEMENTS,
    SCHEMA,
    RegionDescription,
    lay_out,
    model_to_json,
    operand_bytes,
    to_json,
)
from nnapi_prof.convert.region import serialize
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import Preference
from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from tests.convert.cases.convolution import convolve
from tests.convert.cases.recurrent import RECURRENT
from tests.convert.harness import LEVELS, aten, image, program_of, whole
from tests.convert.region_reader import VALIDATOR, from_json, model_from_json

PER_CHANNEL = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL
SHARED_MACHINE = settings(deadline=None, max_examples=100)
WORDS = st.integers(0, 2**32 - 1)


@st.composite
def operands(draw):
    """Operands with room for small values too."""
    code = draw(st.sampled_from(OperandCode))
    sizes = st.integers(1, 3) if draw(st.booleans()) else WORDS
    dims = tuple(draw(st.lists(sizes, max_size=4))) if code.name.startswith("TENSOR_") else ()
    channels = None
    short = [dim for dim, size in enumerate(dims) if size <= 3]
    if code is PER_CHANNEL and short:
        dim = draw(st.sampled_from(short))
        scale = st.floats(2.0**-100, 2.0**100, width=32)
        scales = draw(st.lists(scale, min_size=dims[dim], max_size=dims[dim]))
        channels = ChannelScales(dim, tuple(scales))
    return Operand(
        code,
        dims,
        draw(st.floats(width=32, allow_nan=False, allow_infinity=False)),
        draw(st.integers(-(2**31), 2**31 - 1)),
        channels,
    )


@st.composite
def values(draw, index, operand):
    """A value of an operand: of its size, or left out; any bytes at all."""
    size = operand_bytes(operand)
    if size is not None and size < 200 and draw(st.booleans()):
        return ConstantValue(index, draw(st.binary(min_size=size, max_size=size) | st.just(b"")))
    if size is None:
        size = draw(WORDS)
    length = size if size < 2**32 else 0
    return ConstantValue(index, BufferSlice(draw(st.integers(0, 9)), draw(WORDS), length))


@st.composite
def models(draw):
    """Models whose operands have one role each, as the converter makes them."""
    all_operands = draw(st.lists(operands(), min_size=1, max_size=8).map(tuple))
    ids = range(len(all_operands))
    roles = draw(st.tuples(*(st.sampled_from("iovt") for _ in ids)))
    id_lists = st.lists(st.sampled_from(ids), max_size=4).map(tuple)
    operations = st.builds(Operation, st.sampled_from(OperationCode), id_lists, id_lists)
    of_role = {role: [i for i in ids if roles[i] == role] for role in "iov"}
    return NnapiModel(
        all_operands,
        tuple(draw(values(i, all_operands[i])) for i in of_role["v"]),
        draw(st.lists(operations, max_size=4).map(tuple)),
        tuple(draw(st.permutations(of_role["i"]))),
        tuple(draw(st.permutations(of_role["o"]))),
    )


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


def of_operands(*operands):
    return NnapiModel(operands, (), (), (), ())


def with_channels(dims, *scales, dim=0):
    return Operand(PER_CHANNEL, dims, channels=ChannelScales(dim, scales))


CHANNELED = of_operands(with_channels((2, 3), 0.5, 0.25))


def test_channel_scales_are_version_2():
    two = of_operands(*CHANNELED.operands, with_channels((1, 3), 1.0, 2.0, 4.0, dim=1))
    assert deserialize(serialize(two)) == two
    for model, version in ((two, 2), (of_operands(Operand(PER_CHANNEL, (2, 3))), 1)):
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


@SHARED_MACHINE
@given(models())
def test_what_json_says_is_read_back(model):
    rows = {
        **json.loads(json.dumps(model_to_json(model), allow_nan=False)),
        "inputs": [{"operand": i} for i in model.inputs],
        "outputs": [{"operand": i} for i in model.outputs],
    }
    assert model_from_json(rows) == model
    schema = json.loads(SCHEMA.read_text())
    schema |= {
        "required": [],
        "properties": {k: schema["properties"][k] for k in model_to_json(model)},
    }
    Draft202012Validator(schema).validate(model_to_json(model))


@SHARED_MACHINE
@given(st.lists(st.binary(max_size=200) | st.sampled_from([b"", b"a" * 64, b"b"]), max_size=6))
def test_a_weights_file_holds_its_buffers(buffers):
    weights = lay_out(buffers)
    content = b"".join(weights.chunks())
    assert len(content) == weights.n_bytes
    for buffer, offset in zip(buffers, weights.offsets, strict=True):
        assert offset % 64 == 0 and content[offset : offset + len(buffer)] == buffer
    n_distinct = sum(-(-len(buffer) // 64) for buffer in set(buffers))
    assert weights.n_bytes == 64 * (1 + n_distinct), "equal buffers stand there once"


def network(x, skip):
    """Two convolutions by one weight, a skip connection, and a small constant."""
    y = aten.relu.default(convolve(WEIGHT, padding=1)(x))
    return aten.add.Tensor(convolve(WEIGHT, BIAS, padding=1)(y), skip)


WEIGHT, BIAS = image(4, 4, 3, 3), torch.tensor([0.1, -1.5, 1e-7, 3e30])
NETWORK = program_of(network, (image(1, 4, 6, 5), image(1, 4, 1, 1)))
LEFT_OUT = RECURRENT["lstm, both directions, outputs"].program
"""Its operation leaves out peepholes and norms."""


@pytest.mark.parametrize(
    ("program", "level", "options"),
    [
        *((NETWORK, level, ()) for level in LEVELS),
        (NETWORK, 30, (Preference.LOW_POWER, True, "npu")),
        (LEFT_OUT, 29, ()),
        (program_of(lambda x: aten.view.default(x, [4, 2, 21]), (image(4, 2, 1, 3, 7),)), 30, ()),
    ],
)
def test_a_region_is_read_back(program, level, options):
    described = RegionDescription(whole(program, level), *options)
    text, weights = to_json(described, "net.weights")
    assert from_json(text, b"".join(weights.chunks())) == described
    assert to_json(described, "net.weights")[0] == text


def test_a_description_can_be_read_by_people_and_programs():
    described = RegionDescription(whole(NETWORK))
    text, weights = to_json(described, "net.weights")
    weights, data = b"".join(weights.chunks()), json.loads(text)
    VALIDATOR.validate(data)
    assert data["weights"]["file"] == "net.weights"
    assert data["inputs"][0] == {
        "name": described.region.inputs[0],
        "operand": 0,
        "shape": [1, 4, 6, 5],
        "dtype": "float32",
        "dim_order": "channels_last",
    }
    assert data["operands"][0]["dims"] == [1, 6, 5, 4]
    assert [o["name"] for o in data["operations"]] == list(described.region.operations)
    shown = [o["value"]["numbers"] for o in data["operands"] if "numbers" in o.get("value", {})]
    assert [0.1, -1.5, 1e-7, 3e30] in shown, "as few digits as say it"
    assert [o["lifetime"] for o in data["operands"]].count("input") == 2
    # The convolution's weight, found as the schema says; NNAPI's order is [O, H, W, I].
    conv = data["operations"][0]
    slice_ = data["operands"][conv["inputs"][1]]["value"]
    start = data["buffers"][slice_["buffer"]]["offset"] + slice_["offset"]
    bytes_there = weights[start : start + slice_["length"]]
    assert bytes_there == WEIGHT.permute(0, 2, 3, 1).numpy().tobytes()
    assert max(map(len, text.splitlines())) < 200, "a row a line"


def test_a_region_without_weights_needs_no_file():
    region = whole(program_of(lambda x: aten.relu.default(x), (image(2, 3),)), 27)
    text, weights = to_json(RegionDescription(region), "none.weights")
    assert json.loads(text)["weights"] is None and weights.n_bytes == 64
    assert from_json(text).region.operations == ("RELU",)


def test_the_schema_is_a_schema_and_knows_every_code():
    schema = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    kinds = schema["$defs"]
    assert kinds["operand"]["properties"]["type"]["enum"] == [c.name for c in OperandCode]
    assert kinds["operation"]["properties"]["name"]["enum"] == [c.name for c in OperationCode]
    assert set(ELEMENTS) == set(OperandCode) - {OperandCode.MODEL}


def test_what_numbers_cannot_say_is_hex():
    value = ConstantValue(1, struct.pack("<2f", 1, math.nan))
    written = model_to_json(replace(ADD, values=(value,)))
    assert written["operands"][1]["value"] == {"hex": "0000803f0000c07f"}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (replace(ADD, values=ADD.values * 2), "two values"),
        (replace(ADD, values=(ConstantValue(1, bytes(4)),)), "has 4 bytes, wanted 8"),
        (replace(ADD, inputs=(0, 1)), "operand 1 is more than one of"),
        (replace(ADD, outputs=(0,)), "operand 0 is more than one of"),
        (replace(ADD, inputs=(0, 0)), "twice among the inputs"),
        (of_operands(Operand(OperandCode.INT32, scale=math.inf)), "scale inf"),
        (
            of_operands(Operand(OperandCode.INT32, channels=ChannelScales(0, (0.5,)))),
            "INT32 has no scales for",
        ),
        (of_operands(with_channels((2,), 0.5)), "1 scales along dimension 0"),
        (of_operands(with_channels((), 0.5)), "1 scales along dimension 0"),
        (of_operands(with_channels((1,), 0.0)), "are above 0"),
    ],
)
def test_models_that_json_cannot_say_are_refused(model, message):
    with pytest.raises(SerializationError, match=message):
        model_to_json(model)
