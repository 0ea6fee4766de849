"""A :class:`UnitGraph` as JSON, for bundles and for anybody who wants to read one."""

from __future__ import annotations

import dataclasses
from typing import Any

from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.types import DimOrder, Quantisation, TensorType
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.graph.work import Work


def type_to_json(value: TensorType) -> dict[str, Any]:
    """``{"shape": [...], "dtype": "float32", "dim_order": "contiguous"}``, and of a quantised value
    ``"scale": 0.5, "zero_point": 128``."""
    plain = {
        "shape": list(value.shape),
        "dtype": value.dtype,
        "dim_order": value.dim_order.value,
    }
    if value.quant is None:
        return plain
    return {**plain, "scale": value.quant.scale, "zero_point": value.quant.zero_point}


def type_from_json(data: dict[str, Any]) -> TensorType:
    quant = Quantisation(data["scale"], data["zero_point"]) if "scale" in data else None
    return TensorType(tuple(data["shape"]), data["dtype"], DimOrder(data["dim_order"]), quant)


def graph_to_json(graph: UnitGraph) -> dict[str, Any]:
    """Every field of the graph; :func:`graph_from_json` gives an equal one."""
    return {
        "units": [
            {
                "name": unit.name,
                "label": unit.label,
                "nodes": list(unit.nodes),
                "inputs": list(unit.inputs),
                "outputs": list(unit.outputs),
                "signature": unit.signature,
                "macs": unit.macs,
                "constant_bytes": unit.constant_bytes,
                **({} if unit.work is None else {"work": dataclasses.asdict(unit.work)}),
            }
            for unit in graph.units
        ],
        "values": {name: type_to_json(value) for name, value in graph.values.items()},
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
    }


def graph_from_json(data: dict[str, Any]) -> UnitGraph:
    """Raises SerializationError where a field is missing or of another kind."""
    try:
        units = tuple(
            Unit(
                index=index,
                name=row["name"],
                label=row["label"],
                nodes=tuple(row["nodes"]),
                inputs=tuple(row["inputs"]),
                outputs=tuple(row["outputs"]),
                signature=row["signature"],
                macs=row["macs"],
                constant_bytes=row["constant_bytes"],
                work=Work(**row["work"]) if "work" in row else None,
            )
            for index, row in enumerate(data["units"])
        )
        values = {name: type_from_json(value) for name, value in data["values"].items()}
        return UnitGraph(units, values, tuple(data["inputs"]), tuple(data["outputs"]))
    except (KeyError, TypeError, ValueError) as error:
        raise SerializationError(f"this is no graph of units: {error!r}") from error
