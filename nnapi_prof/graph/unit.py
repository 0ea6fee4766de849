"""Units: the smallest groups of nodes that are lowered, measured and placed together.

A :class:`UnitGraph` is the model for every stage after the front end: plain data, without torch.
Units are in topological order; an edge is a value that one unit makes and another reads.
:class:`Work` is the computation and traffic of a unit, from which the static model estimates its
time.

Signatures are stable keys of units and regions, which join graph, costs and measurements. Two units
with equal signatures compute the same function of their inputs, except for the values of weights:
they have the same operations, attributes, shapes, dtypes and dim orders. Signatures contain no
names.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nnapi_prof.errors import SerializationError
from nnapi_prof.graph import DimOrder, Quantisation, TensorType

ELEMENT_BYTES = {
    "float32": 4,
    "relaxed": 4,
    "float16": 2,
    "int32": 4,
    "quant16": 2,
    "quant8": 1,
    "quant8_signed": 1,
    "quant8_symm": 1,
    "per_channel": 1,
    "bool8": 1,
}
"""Kind of data, named as in the descriptions of simulated phones -> bytes of an element."""


@dataclass(frozen=True, slots=True)
class Work:
    """Computation and traffic of one operation. Sizes are those of NHWC images; a tensor that is
    not an image counts as one of 1 x 1."""

    kind: str
    """NNAPI's name of the operation: ``CONV_2D``."""
    data: str
    """Kind of data: a key of :data:`ELEMENT_BYTES`."""
    macs: float
    """Multiply-accumulates; without weights (also for pooling), the number of elements written."""
    in_bytes: float
    out_bytes: float
    weight_bytes: float
    pixels: float
    """Height x width of the output, times the batch."""
    width: float
    """Width of the output, in pixels."""
    in_channels: float
    """Input channels of one group."""
    out_channels: float
    kernel: float = 1.0
    """Height x width of the window."""
    stride: float = 1.0
    n_inputs: int = 1
    rank: int = 4
    """Highest rank of its tensors."""

    @property
    def moved(self) -> float:
        """All bytes: activations read and written, and weights."""
        return self.in_bytes + self.out_bytes + self.weight_bytes

    @property
    def gathered(self) -> float:
        """Bytes of all windows that a convolution reads, which are gathered to compute it as a
        matrix product. 0 where a window is one pixel, and for a depthwise convolution, which is
        computed in place."""
        if self.kernel == 1:
            return 0.0
        if self.kind == "CONV_2D":
            return self.pixels * self.kernel * self.in_channels * ELEMENT_BYTES[self.data]
        if self.kind == "GROUPED_CONV_2D":  # the number of groups is not known
            return self.in_bytes * self.kernel / self.stride**2
        return 0.0

    @property
    def rate(self) -> str:
        """The key of its rate of arithmetic: the kind, whether a plain convolution is 1x1 (matrix
        products run at another rate), and the data unless that is float32."""
        kind = "CONV_2D 1x1" if self.kind == "CONV_2D" and self.kernel == 1 else self.kind
        return kind if self.data == "float32" else f"{kind}/{self.data}"


# Units


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of a graph. ``inputs`` and ``outputs`` name values; constants are not values.

    ``signature`` is the key under which its cost is stored (see ``unit_signature``);
    ``macs`` counts multiply-accumulates, ``constant_bytes`` the bytes of its weights.
    """

    index: int
    name: str
    """Name of the fx node that computes the unit's result, unique in the graph."""
    operation: str
    """Operation for people: ``conv2d+relu6``."""
    nodes: tuple[str, ...]
    """Names of the fx nodes, in graph order."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    signature: str
    macs: int = 0
    constant_bytes: int = 0
    work: Work | None = None
    """Computation and traffic; None where a stored graph does not have them."""

    sizes: str = ""
    """Sizes for people: ``3x3/2 32x112x112``; may be empty."""
    quantised: bool = False
    """True where the model itself is quantised here: nodes convert values from and to 8 bits."""

    @property
    def full_operation(self) -> str:
        """Operation for people: ``quantised conv2d+relu6``."""
        return f"quantised {self.operation}" if self.quantised else self.operation

    @property
    def kind(self) -> str:
        """Kind of unit for sampling and advice; all quantised units are one kind."""
        return "quantised" if self.quantised else self.operation

    @property
    def label(self) -> str:
        """Label for people: ``conv2d+relu6 3x3/2 32x112x112``."""
        return f"{self.full_operation} {self.sizes}" if self.sizes else self.full_operation


@dataclass(frozen=True)
class UnitGraph:
    """Units of a model, the types of the values between them, and its inputs and outputs."""

    units: tuple[Unit, ...]
    values: Mapping[str, TensorType] = field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def producer(self) -> dict[str, int]:
        """Value name -> index of the unit that makes it; graph inputs are absent."""
        return {value: unit.index for unit in self.units for value in unit.outputs}

    @cached_property
    def readers(self) -> dict[str, tuple[int, ...]]:
        """Value name -> indices of the units that read it."""
        indices: dict[str, list[int]] = {value: [] for value in self.values}
        for unit in self.units:
            for value in unit.inputs:
                indices[value].append(unit.index)
        return {value: tuple(units) for value, units in indices.items()}

    def predecessors(self, index: int) -> tuple[int, ...]:
        """Returns the indices of the units whose values unit ``index`` reads, ascending."""
        producers = {self.producer[v] for v in self.units[index].inputs if v in self.producer}
        return tuple(sorted(producers))

    def label(self, region: Iterable[int]) -> str:
        """Returns ``conv2d 3x3``, or ``conv2d 3x3 … linear`` for the first and last of several."""
        inside = tuple(region)
        first, last = self.units[min(inside)].label, self.units[max(inside)].label
        return first if len(inside) == 1 else f"{first} … {last}"

    def boundary(self, region: Iterable[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the values that enter and those that leave a set of units, in order of mention.

        A value leaves if a unit outside reads it or if it is an output of the graph.
        """
        inside = frozenset(region)
        entering: dict[str, None] = {}
        leaving: dict[str, None] = {}
        for index in sorted(inside):
            for value in self.units[index].inputs:
                if self.producer.get(value) not in inside:
                    entering[value] = None
        for index in sorted(inside):
            for value in self.units[index].outputs:
                if value in self.outputs or any(r not in inside for r in self.readers[value]):
                    leaving[value] = None
        return tuple(entering), tuple(leaving)

    def shared_bytes(self, regions: Iterable[Iterable[int]]) -> int:
        """Returns the bytes of all values that enter or leave one of these sets of units, each
        counted once."""
        crossing = {name for units in regions for side in self.boundary(units) for name in side}
        return sum(self.values[name].n_bytes for name in crossing)


# JSON, for bundles and their readers


def type_to_json(value: TensorType) -> dict[str, Any]:
    """Returns ``{"shape": [...], "dtype": "float32", "dim_order": "contiguous"}``, for a quantised
    value with ``"scale": 0.5, "zero_point": 128``."""
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
    """Returns the graph as JSON, from which :func:`graph_from_json` makes an equal one."""
    return {
        "units": [
            {
                "name": unit.name,
                "label": unit.label,
                "operation": unit.operation,
                "sizes": unit.sizes,
                "quantised": unit.quantised,
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
    """Reads the output of :func:`graph_to_json`. Raises SerializationError where a field is missing
    or of another type."""
    try:
        units = tuple(
            Unit(
                index=index,
                name=row["name"],
                # Earlier bundles have only labels.
                operation=row.get("operation", row["label"]),
                sizes=row.get("sizes", ""),
                quantised=row.get("quantised", False),
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
        raise SerializationError(f"this is not a graph of units: {error!r}") from error


# Text, for errors, tests and ``--dump``


def draw(graph: UnitGraph) -> str:
    """Returns a line for each unit: index, label, values read and made with their types.

    0  conv2d+relu6 3x3/2 3->32 112x112   x: float32[1x3x224x224] -> relu: float32[...]
    """
    lines = [f"inputs: {_values(graph, graph.inputs)}"]
    width = max((len(unit.label) for unit in graph.units), default=0)
    lines += [_line(graph, unit, width) for unit in graph.units]
    lines.append(f"outputs: {_values(graph, graph.outputs)}")
    return "\n".join(lines)


def _line(graph: UnitGraph, unit: Unit, width: int) -> str:
    read, written = _values(graph, unit.inputs), _values(graph, unit.outputs)
    return f"{unit.index:4d}  {unit.label:{width}}  {read} -> {written}"


def _values(graph: UnitGraph, names: tuple[str, ...]) -> str:
    return ", ".join(f"{name}: {graph.values[name]}" for name in names)


VERSION = 1
"""Version in every signature, raised when the same unit is lowered or described differently."""


def digest(description: Any) -> str:
    """Returns 32 hex digits: the first 16 bytes of the SHA-256 of canonical JSON."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def describe_type(value_type: TensorType) -> list[Any]:
    """Describes a TensorType for signatures."""
    plain = [list(value_type.shape), value_type.dtype, value_type.dim_order.value]
    if value_type.quant is None:
        return plain
    return [*plain, repr(value_type.quant.scale), value_type.quant.zero_point]


def unit_signature(
    nodes: Iterable[Mapping[str, Any]],
    inputs: Iterable[TensorType],
    outputs: Iterable[TensorType],
) -> str:
    """Returns the signature of one unit.

    ``nodes`` describe its operations in order, each as ``{"op": name, "args": {name: value}}``,
    where a tensor argument is ``{"input": i}``, ``{"node": i}`` or ``{"constant": type}``.
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
    """Returns the signature of a set of units with the wiring between them; of one unit, its own.

    It does not depend on names or on the order of independent units. Phases:
    1. Colour each unit by its signature, then repeatedly by the colours of the units and values
       around it, port by port, until no more units differ.
    2. While two units share a colour, single out the first of them and colour again.
    3. Write down the wiring with units in the order of their colours. This text determines the
       region, so that different regions never share a signature. Equal regions share theirs, as
       units that stay alike through phase 1 are interchangeable in all but highly regular regions
       (where at worst the same region is measured twice).
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
    """Colours units by their surroundings until the number of colours no longer grows."""
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
