"""A region as JSON and back, for people and for other programs.

``data/region.schema.json`` says what stands where (JSON Schema, draft 2020-12). Short constants
stand in the text, long ones in a weights file beside it (:mod:`constants`).
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnapi_prof.convert.export.constants import (
    Weights,
    check,
    float32,
    lay_out,
    require_consistent,
    require_inside,
    short_float32,
    value_from_json,
    value_to_json,
)
from nnapi_prof.convert.model import (
    ChannelScales,
    NnapiModel,
    Operand,
    OperandId,
    Operation,
)
from nnapi_prof.convert.pool import Blob
from nnapi_prof.convert.region import Region, operand_of
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import Preference
from nnapi_prof.graph.types import TensorType
from nnapi_prof.graph.unit import type_from_json, type_to_json
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


FORMAT = "nnapi-prof-region"
VERSION = 1
SCHEMA = Path(__file__).resolve().parents[1] / "data" / "region.schema.json"


@dataclass(frozen=True)
class Description:
    """A region, and how a compilation of it should be asked for."""

    region: Region
    preference: Preference = Preference.SUSTAINED_SPEED
    relaxed: bool = False
    device: str | None = None
    """Name of the NNAPI device; None leaves the choice to NNAPI."""


def to_json(described: Description, weights_file: str) -> tuple[str, Weights]:
    """The text and the weights that go to the file ``weights_file`` beside it (unless there are no
    buffers). Raises SerializationError as :func:`model_to_json` does."""
    region = described.region
    weights = lay_out(region.buffers)
    model = region.model
    data = {
        "format": FORMAT,
        "version": VERSION,
        "level": region.level,
        "preference": described.preference.short,
        "relaxed": described.relaxed,
        "device": described.device,
        "inputs": _boundary(region.inputs, model.inputs, region.input_types),
        "outputs": _boundary(region.outputs, model.outputs, region.output_types),
        "weights": None,
        "buffers": [
            {"offset": offset, "length": len(buffer)}
            for offset, buffer in zip(weights.offsets, region.buffers, strict=True)
        ],
        **model_to_json(model),
    }
    if region.buffers:
        data["weights"] = {
            "file": weights_file,
            "bytes": weights.n_bytes,
            "sha256": weights.sha256,
        }
    return _text(data), weights


def weights_name(text: str) -> str | None:
    """Name of the weights file that goes with a description; None where it needs none.

    Raises SerializationError as :func:`from_json` does.
    """
    file_row = _validated(text)["weights"]
    return None if file_row is None else str(file_row["file"])


def from_json(text: str, weights: bytes = b"") -> Description:
    """The inverse of :func:`to_json`; ``weights`` is the content of the weights file.

    Raises SerializationError with the place that is wrong: no JSON, against the schema, operands
    or buffers out of range, a value of another size than its operand, a lifetime that the rest
    contradicts, an input that is not what its type says, a weights file of another region.
    """
    data = _validated(text)
    model = model_from_json(data)
    file_row = data["weights"]
    if file_row is not None:
        check(weights, file_row["sha256"], file_row["bytes"])
    elif data["buffers"]:
        raise SerializationError("buffers are listed but there is no weights file")
    buffers = tuple(_buffer(weights, i, row) for i, row in enumerate(data["buffers"]))
    lengths = tuple(map(len, buffers))
    for value in model.values:
        require_inside(value.source, lengths, f"the value of operand {value.operand}")
    return Description(
        region=Region(
            model=model,
            blobs=tuple(map(Blob, buffers)),
            inputs=tuple(row["name"] for row in data["inputs"]),
            outputs=tuple(row["name"] for row in data["outputs"]),
            input_types=_types(data["inputs"], model, "inputs"),
            output_types=_types(data["outputs"], model, "outputs"),
            level=int(data["level"]),
        ),
        preference=next(p for p in Preference if p.short == data["preference"]),
        relaxed=data["relaxed"],
        device=data["device"],
    )


def model_to_json(model: NnapiModel) -> dict[str, Any]:
    """``operands`` and ``operations`` of the description.

    A reader gets an equal model, its values in the order of their operands (the converter's own
    order). Raises SerializationError where NNAPI would refuse the model for its operands: one with
    two values, one that is input or output and a constant or both, a scale that is not finite,
    scales of channels that are not one for each.
    """
    values = require_consistent(model)
    lifetimes = {
        **dict.fromkeys(model.inputs, "input"),
        **dict.fromkeys(model.outputs, "output"),
        **dict.fromkeys(values, "constant"),
    }
    operands = []
    for index, operand in enumerate(map(_checked, model.operands)):
        row: dict[str, Any] = {
            "type": operand.type.name,
            "dims": list(operand.dims),
            "scale": short_float32(operand.scale),
            "zero_point": operand.zero_point,
            "lifetime": lifetimes.get(OperandId(index), "temporary"),
        }
        if operand.channels is not None:
            scales = [short_float32(scale) for scale in operand.channels.scales]
            row["channel_scales"] = {"dim": operand.channels.dim, "scales": scales}
        if index in values:
            row["value"] = value_to_json(operand.type, values[OperandId(index)])
        operands.append(row)
    operations = [
        {"name": o.code.name, "inputs": list(o.inputs), "outputs": list(o.outputs)}
        for o in model.operations
    ]
    return {"operands": operands, "operations": operations}


def _checked(operand: Operand) -> Operand:
    """The operand; SerializationError where its scales cannot be."""
    if not math.isfinite(operand.scale):
        raise SerializationError(f"an operand has the scale {operand.scale}, which JSON cannot say")
    channels = operand.channels
    if channels is None:
        return operand
    if operand.type is not OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        raise SerializationError(f"{operand.type.name} has no scales for each channel")
    n = operand.dims[channels.dim] if channels.dim < len(operand.dims) else 0
    if n != len(channels.scales):
        raise SerializationError(
            f"{len(channels.scales)} scales along dimension {channels.dim} of {operand.dims}"
        )
    if not all(math.isfinite(scale) and scale > 0 for scale in channels.scales):
        raise SerializationError("scales of channels are above 0 and finite")
    return operand


def _operand(row: Mapping[str, Any]) -> Operand:
    scales = row.get("channel_scales")
    channels = scales and ChannelScales(int(scales["dim"]), tuple(map(float32, scales["scales"])))
    return _checked(
        Operand(
            OperandCode[row["type"]],
            tuple(map(int, row["dims"])),
            float32(row["scale"]),
            int(row["zero_point"]),
            channels,
        )
    )


def model_from_json(data: Mapping[str, Any]) -> NnapiModel:
    """The model of a description that fits the schema; inputs and outputs are those it names.

    Raises SerializationError where an index is out of range, or as :func:`require_consistent` does.
    """
    operands = tuple(map(_operand, data["operands"]))

    def operand_ids(ids: Sequence[int], what: str) -> tuple[OperandId, ...]:
        for index in ids:
            if index >= len(operands):
                raise SerializationError(f"{what} names operand {index}, there are {len(operands)}")
        return tuple(OperandId(int(index)) for index in ids)

    model = NnapiModel(
        operands,
        tuple(
            value_from_json(OperandId(index), operands[index], row["value"])
            for index, row in enumerate(data["operands"])
            if "value" in row
        ),
        tuple(
            Operation(
                OperationCode[row["name"]],
                operand_ids(row["inputs"], f"operation {index}"),
                operand_ids(row["outputs"], f"operation {index}"),
            )
            for index, row in enumerate(data["operations"])
        ),
        operand_ids([row["operand"] for row in data["inputs"]], "an input"),
        operand_ids([row["operand"] for row in data["outputs"]], "an output"),
    )
    values = require_consistent(model)
    for index, row in enumerate(data["operands"]):
        operand_id = OperandId(index)
        is_one = {
            "input": operand_id in model.inputs,
            "output": operand_id in model.outputs,
            "constant": operand_id in values,
        }
        lifetime = row["lifetime"]
        if not is_one.get(lifetime, not any(is_one.values())):
            truth = next((name for name, holds in is_one.items() if holds), "temporary")
            raise SerializationError(f"operand {index} is said to be {lifetime}, it is {truth}")
    return model


def _boundary(
    names: Sequence[str], operands: Sequence[int], types: Sequence[TensorType]
) -> list[dict[str, Any]]:
    return [
        {"name": name, "operand": operand, **type_to_json(type_)}
        for name, operand, type_ in zip(names, operands, types, strict=True)
    ]


def _types(rows: Sequence[Mapping[str, Any]], model: NnapiModel, what: str) -> tuple[Any, ...]:
    """The types of inputs or outputs, each compared with its operand."""
    types = []
    for row in rows:
        type_ = type_from_json(dict(row))
        operand = model.operands[row["operand"]]
        place = f"{what}: {row['name']!r} is {type_}"
        if type_.dim_order.value == "channels_last" and len(type_.shape) != 4:
            raise SerializationError(f"{place}, channels_last is for rank 4")
        if operand_of(type_) != operand:
            dims = "x".join(map(str, operand.dims))
            raise SerializationError(
                f"{place}, its operand {operand.type.name}[{dims}] with scale {operand.scale:.6g}"
                f" and zero point {operand.zero_point}"
            )
        types.append(type_)
    return tuple(types)


def _buffer(weights: bytes, index: int, row: Mapping[str, Any]) -> bytes:
    offset, length = int(row["offset"]), int(row["length"])
    if offset + length > len(weights):
        raise SerializationError(
            f"buffer {index} ends at byte {offset + length}, the weights file at {len(weights)}"
        )
    return weights[offset : offset + length]


@functools.cache
def _validator() -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(SCHEMA.read_text()))


def _validated(text: str) -> dict[str, Any]:
    from jsonschema.exceptions import best_match

    try:
        data = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"this is not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise SerializationError(f"this is not a description of a region: no format {FORMAT!r}")
    if data.get("version") != VERSION:
        raise SerializationError(
            f"a description of version {data.get('version')!r}, only {VERSION} is read"
        )
    worst = best_match(_validator().iter_errors(data))
    if worst is not None:
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in worst.absolute_path)
        message = re.sub(r"(?s)^(.{200}).*(.{80})$", r"\1 ... \2", worst.message)
        raise SerializationError(f"{place.lstrip('.') or 'the description'}: {message}")
    return data


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _text(data: Mapping[str, Any]) -> str:
    """JSON with a line for each member and each row of a list."""
    lines = []
    for name, value in data.items():
        rendered = json.dumps(value, allow_nan=False)
        if isinstance(value, list) and value:
            rows = ",\n".join(f"  {json.dumps(row, allow_nan=False)}" for row in value)
            rendered = f"[\n{rows}\n ]"
        lines.append(f" {json.dumps(name)}: {rendered}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
