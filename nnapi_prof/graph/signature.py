"""Stable keys for units and regions: what joins graph, costs and measurements.

Two units with equal signatures compute the same function of their inputs up to the values of
weights: same operations, attributes, shapes, dtypes and dim orders. No names, no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from nnapi_prof.graph.types import TensorType
from nnapi_prof.graph.unit import UnitGraph

VERSION = 1
"""Part of every signature; raised when the same unit would lower or be described otherwise."""


def digest(description: Any) -> str:
    """32 hex digits: the first 16 bytes of the SHA-256 of canonical JSON."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def describe_type(value_type: TensorType) -> list[Any]:
    """A TensorType as JSON."""
    plain = [list(value_type.shape), value_type.dtype, value_type.dim_order.value]
    if value_type.quant is None:
        return plain
    return [*plain, repr(value_type.quant.scale), value_type.quant.zero_point]


def unit_signature(
    nodes: Iterable[Mapping[str, Any]],
    inputs: Iterable[TensorType],
    outputs: Iterable[TensorType],
) -> str:
    """Signature of one unit.

    ``nodes`` describe its operations in order, each ``{"op": name, "args": {name: value}}`` where a
    tensor argument is ``{"input": i}``, ``{"node": i}`` or ``{"constant": type}``.
    """
    return digest(
        {
            "version": VERSION,
            "nodes": list(nodes),
            "inputs": [describe_type(value_type) for value_type in inputs],
            "outputs": [describe_type(value_type) for value_type in outputs],
        }
    )


def region_signature(graph: UnitGraph, units: Iterable[int]) -> str:
    """Signature of a set of units with the wiring between them; of one unit, the unit's own.

    Independent of names and of the order in which independent units stand. Phases:
    1. Colour each unit by its signature, then again and again by the colours of the units and
       values around it, port by port, until no more units differ.
    2. While two units share a colour, single out the first of them and colour again.
    3. Write down the wiring with units in the order of their colours. What is written determines
       the region, so that different regions never share a signature; equal regions share theirs,
       as units that stay alike through phase 1 are interchangeable in every region but highly
       regular ones (where at worst the same region is measured twice).
    """
    members = sorted(set(units))
    if len(members) == 1:
        return graph.units[members[0]].signature
    outputs = set(graph.boundary(members)[1])
    colours = _refine(graph, members, {u: graph.units[u].signature for u in members}, outputs)
    while len(set(colours.values())) < len(members):
        shared = min(c for c, n in Counter(colours.values()).items() if n > 1)
        chosen = next(u for u in members if colours[u] == shared)
        colours[chosen] = digest([colours[chosen], "first"])
        colours = _refine(graph, members, colours, outputs)
    return digest(_wiring(graph, sorted(members, key=lambda u: colours[u]), outputs))


def _refine(
    graph: UnitGraph, members: list[int], colours: dict[int, str], leaving: set[str]
) -> dict[int, str]:
    """Colours units by their surroundings until the number of colours stands."""
    count = 0
    inside = set(members)
    while len(set(colours.values())) > count:
        count = len(set(colours.values()))
        values: dict[str, str] = {}
        for value in {
            v for u in members for v in (*graph.units[u].inputs, *graph.units[u].outputs)
        }:
            maker = graph.producer.get(value)
            maker_key = (
                [colours[maker], graph.units[maker].outputs.index(value)]
                if maker in inside
                else describe_type(graph.values[value])
            )
            read = sorted(
                [colours[reader], graph.units[reader].inputs.index(value)]
                for reader in graph.readers[value]
                if reader in inside
            )
            values[value] = digest([maker_key, read, value in leaving])
        colours = {
            u: digest(
                [
                    colours[u],
                    [values[v] for v in graph.units[u].inputs],
                    [values[v] for v in graph.units[u].outputs],
                ]
            )
            for u in members
        }
    return colours


def _wiring(graph: UnitGraph, ordered: list[int], leaving: set[str]) -> dict[str, Any]:
    numbers: dict[str, int] = {}
    rows = []
    for index in ordered:
        unit = graph.units[index]
        output_numbers = [numbers.setdefault(value, len(numbers)) for value in unit.outputs]
        read = [numbers.setdefault(value, len(numbers)) for value in unit.inputs]
        rows.append([unit.signature, read, output_numbers])
    types = [describe_type(graph.values[value]) for value in numbers]
    out = [numbers[value] for value in numbers if value in leaving]
    return {"version": VERSION, "units": rows, "values": types, "outputs": out}
