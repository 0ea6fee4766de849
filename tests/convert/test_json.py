"""Regions as JSON, read back by a reader of the tests' own."""

import json
import math
import struct
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from nnapi_prof.convert import ChannelScales, ConstantValue, NnapiModel, Operand, Operation
from nnapi_prof.convert.export_json import (
    ELEMENTS,
    SCHEMA,
    RegionDescription,
    lay_out,
    model_to_json,
    to_json,
)
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import Preference
from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from tests.convert.drawn_models import SHARED_MACHINE, models
from tests.convert.harness import LEVELS, aten, image, program_of
from tests.convert.region_reader import from_json, model_from_json


@SHARED_MACHINE
@given(models())
def test_what_is_written_is_read_back(model):
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
    y = aten.convolution.default(x, WEIGHT, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    y = aten.relu.default(y)
    y = aten.convolution.default(y, WEIGHT, BIAS, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return aten.add.Tensor(y, skip)


WEIGHT, BIAS = image(4, 4, 3, 3), torch.tensor([0.1, -1.5, 1e-7, 3e30])


def region(level=30):
    program = program_of(network, (image(1, 4, 6, 5), image(1, 4, 1, 1)))
    return convert_region(program, [0], level)


OPTIONS = (Preference.LOW_POWER, True, "npu")


@pytest.mark.parametrize(("level", "options"), [*((level, ()) for level in LEVELS), (30, OPTIONS)])
def test_a_region_is_read_back(level, options):
    described = RegionDescription(region(level), *options)
    text, weights = to_json(described, "net.weights")
    assert from_json(text, b"".join(weights.chunks())) == described
    assert to_json(described, "net.weights")[0] == text
    assert json.loads(text)["weights"]["file"] == "net.weights"


def test_a_description_can_be_read_by_people_and_programs():
    described = RegionDescription(region())
    text, weights = to_json(described, "net.weights")
    weights, data = b"".join(weights.chunks()), json.loads(text)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(data)
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
    program = program_of(lambda x: aten.relu.default(x), (image(2, 3),))
    text, weights = to_json(RegionDescription(convert_region(program, [0], 27)), "none.weights")
    assert json.loads(text)["weights"] is None and weights.n_bytes == 64
    assert from_json(text).region.operations == ("RELU",)


def test_the_schema_is_a_schema_and_knows_every_code():
    schema = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    kinds = schema["$defs"]
    assert kinds["operand"]["properties"]["type"]["enum"] == [c.name for c in OperandCode]
    assert kinds["operation"]["properties"]["name"]["enum"] == [c.name for c in OperationCode]
    assert set(ELEMENTS) == set(OperandCode) - {OperandCode.MODEL}


ADD = NnapiModel(
    operands=(Operand(OperandCode.TENSOR_FLOAT32, (2,)),) * 3,
    values=(ConstantValue(1, struct.pack("<2f", 1, math.nan)),),
    operations=(Operation(OperationCode.ADD, (0, 1), (2,)),),
    inputs=(0,),
    outputs=(2,),
)


CHANNELED, ONE_SCALE = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, ChannelScales(0, (0.5,))


def of_operand(operand):
    return NnapiModel((operand,), (), (), (), ())


def test_what_numbers_cannot_say_is_hex():
    assert model_to_json(ADD)["operands"][1]["value"] == {"hex": "0000803f0000c07f"}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (replace(ADD, values=ADD.values * 2), "two values"),
        (replace(ADD, values=(ConstantValue(1, bytes(4)),)), "has 4 bytes, wanted 8"),
        (replace(ADD, inputs=(0, 1)), "operand 1 is more than one of"),
        (replace(ADD, outputs=(0,)), "operand 0 is more than one of"),
        (replace(ADD, inputs=(0, 0)), "twice among the inputs"),
        (of_operand(Operand(OperandCode.INT32, scale=math.inf)), "scale inf"),
        (of_operand(Operand(OperandCode.INT32, channels=ONE_SCALE)), "INT32 has no scales for"),
        (of_operand(Operand(CHANNELED, (2,), channels=ONE_SCALE)), "1 scales along dimension 0"),
        (of_operand(Operand(CHANNELED, (), channels=ONE_SCALE)), "1 scales along dimension 0"),
        (of_operand(Operand(CHANNELED, (1,), channels=ChannelScales(0, (0.0,)))), "are above 0"),
    ],
)
def test_models_that_json_cannot_say_are_refused(model, message):
    with pytest.raises(SerializationError, match=message):
        model_to_json(model)
