"""A region as JSON, for people and for other programs.

``data/region.schema.json`` says what stands where (JSON Schema, draft 2020-12). Short constants
stand in the text, long ones in a weights file beside it (:mod:`.constants`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnapi_prof.convert.export.constants import (
    Weights,
    lay_out,
    require_consistent,
    short_float32,
    value_to_json,
)
from nnapi_prof.convert.model import (
    NnapiModel,
    Operand,
    OperandId,
)
from nnapi_prof.convert.region import Region
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import Preference
from nnapi_prof.graph.types import TensorType
from nnapi_prof.graph.unit import type_to_json
from nnapi_prof.nnapi.codes import OperandCode

FORMAT = "nnapi-prof-region"
VERSION = 1
SCHEMA = Path(__file__).resolve().parents[1] / "data" / "region.schema.json"


@dataclass(frozen=True)
class RegionDescription:
    """A region, and how a compilation of it should be asked for."""

    region: Region
    preference: Preference = Preference.SUSTAINED_SPEED
    relaxed: bool = False
    device: str | None = None
    """Name of the NNAPI device; None leaves the choice to NNAPI."""


def to_json(described: RegionDescription, weights_file: str) -> tuple[str, Weights]:
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
    return _json_text(data), weights


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


def _boundary(
    names: Sequence[str], operands: Sequence[int], types: Sequence[TensorType]
) -> list[dict[str, Any]]:
    return [
        {"name": name, "operand": operand, **type_to_json(type_)}
        for name, operand, type_ in zip(names, operands, types, strict=True)
    ]


def _json_text(data: Mapping[str, Any]) -> str:
    """JSON with a line for each member and each row of a list."""
    lines = []
    for name, value in data.items():
        rendered = json.dumps(value, allow_nan=False)
        if isinstance(value, list) and value:
            rows = ",\n".join(f"  {json.dumps(row, allow_nan=False)}" for row in value)
            rendered = f"[\n{rows}\n ]"
        lines.append(f" {json.dumps(name)}: {rendered}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
