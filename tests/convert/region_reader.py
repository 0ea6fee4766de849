"""Read the JSON description of a region back, to judge what :mod:`nnapi_prof.convert.export_json`
writes: against its schema, and value by value."""

import hashlib
import json

import numpy as np
from jsonschema import Draft202012Validator

from nnapi_prof.convert import (
    Blob,
    BufferSlice,
    ChannelScales,
    ConstantValue,
    NnapiModel,
    Operand,
    OperandId,
    Operation,
)
from nnapi_prof.convert.export_json import (
    ELEMENTS,
    FORMAT,
    HEADER_BYTES,
    MAGIC,
    SCHEMA,
    VERSION,
    RegionDescription,
    float32,
    require_consistent,
    require_inside,
)
from nnapi_prof.convert.region import Region, operand_of
from nnapi_prof.graph.plan import Preference
from nnapi_prof.graph.unit import type_from_json
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

VALIDATOR = Draft202012Validator(json.loads(SCHEMA.read_text()))


def from_json(text, weights=b""):
    """The inverse of ``to_json``; ``weights`` is the content of the weights file."""
    data = json.loads(text)
    VALIDATOR.validate(data)
    assert (data["format"], data["version"]) == (FORMAT, VERSION)
    model = model_from_json(data)
    file_row = data["weights"]
    assert file_row is not None or not data["buffers"]
    if file_row is not None:
        check_weights(weights, file_row["sha256"], file_row["bytes"])
    buffers = [weights[row["offset"] :][: row["length"]] for row in data["buffers"]]
    lengths = [row["length"] for row in data["buffers"]]
    assert [len(buffer) for buffer in buffers] == lengths
    for value in model.values:
        require_inside(value.source, lengths, f"the value of operand {value.operand}")
    return RegionDescription(
        region=Region(
            model=model,
            blobs=tuple(map(Blob, buffers)),
            inputs=tuple(row["name"] for row in data["inputs"]),
            outputs=tuple(row["name"] for row in data["outputs"]),
            input_types=types_from_json(data["inputs"], model),
            output_types=types_from_json(data["outputs"], model),
            level=data["level"],
        ),
        preference=next(p for p in Preference if p.short == data["preference"]),
        relaxed=data["relaxed"],
        device=data["device"],
    )


def model_from_json(data):
    """The model of a description that fits the schema."""
    operands = tuple(map(_operand, data["operands"]))
    model = NnapiModel(
        operands,
        tuple(
            _value(OperandId(index), operands[index], row["value"])
            for index, row in enumerate(data["operands"])
            if "value" in row
        ),
        tuple(
            Operation(OperationCode[row["name"]], tuple(row["inputs"]), tuple(row["outputs"]))
            for row in data["operations"]
        ),
        tuple(row["operand"] for row in data["inputs"]),
        tuple(row["operand"] for row in data["outputs"]),
    )
    lifetimes = {
        **dict.fromkeys(model.inputs, "input"),
        **dict.fromkeys(model.outputs, "output"),
        **dict.fromkeys(require_consistent(model), "constant"),
    }
    for index, row in enumerate(data["operands"]):
        assert row["lifetime"] == lifetimes.get(index, "temporary")
    return model


def _operand(row):
    scales = row.get("channel_scales")
    channels = scales and ChannelScales(scales["dim"], tuple(map(float32, scales["scales"])))
    return Operand(
        OperandCode[row["type"]],
        tuple(row["dims"]),
        float32(row["scale"]),
        row["zero_point"],
        channels,
    )


def _value(index, operand, row):
    if "numbers" in row:
        source = np.array(row["numbers"], ELEMENTS[operand.type]).tobytes()
    elif "hex" in row:
        source = bytes.fromhex(row["hex"])
    else:
        source = BufferSlice(row["buffer"], row["offset"], row["length"])
    return ConstantValue(index, source)


def types_from_json(rows, model):
    """The types of inputs or outputs, each compared with its operand."""
    types = tuple(type_from_json(dict(row)) for row in rows)
    assert [operand_of(type_) for type_ in types] == [model.operands[r["operand"]] for r in rows]
    return types


def check_weights(content, sha256, n_bytes):
    """Compare a weights file with what the description says of it."""
    assert len(content) == n_bytes
    assert content[:HEADER_BYTES] == (MAGIC + bytes.fromhex(sha256)).ljust(HEADER_BYTES, b"\0")
    assert hashlib.sha256(content[HEADER_BYTES:]).hexdigest() == sha256
