"""Reasons not to trust an estimate, as facts with numbers; only this module words them.

The limits are those of a study of 37 networks: good estimates have a ratio of v73 to v81 of 1.8 to
4.2, packed attention has 44; wrong ones have an upper bound of three times the lower.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnapi_prof.graph.causes import Fact
from nnapi_prof.qnn import NpuGeneration, QnnPrecision
from nnapi_prof.qnn.compiler import Compiled
from nnapi_prof.qnn.graphs import shapes_of

if TYPE_CHECKING:
    import onnx

WIDE = 2.0
"""Ratio of the simulator's upper to its lower bound beyond which an estimate is doubted."""
APART = 6.0
"""Ratio of v73 to v81 beyond which an estimate is doubted."""
SLOW = 5.0
"""Ratio to the time of arithmetic and memory alone beyond which an estimate is doubted."""
LEAST_US = 50
"""Smallest estimate to judge by ratios, in µs: smaller ones are near the simulator's floor."""
PEAK = {
    (NpuGeneration.V73, QnnPrecision.FP16): 3.0e12,
    (NpuGeneration.V81, QnnPrecision.FP16): 9.7e12,
    (NpuGeneration.V73, QnnPrecision.INT8): 17.0e12,
    (NpuGeneration.V81, QnnPrecision.INT8): 37.0e12,
}
"""Multiply-accumulates a second that the largest networks reach in the simulation."""
BYTES_PER_S = {NpuGeneration.V73: 42e9, NpuGeneration.V81: 60e9}
"""Bytes a second across large borders in the simulation."""
ELEMENT = {QnnPrecision.FP16: 2, QnnPrecision.INT8: 1}


class DoubtKind(enum.Enum):
    """The kind of doubt."""

    WIDE_BOUNDS = "wide bounds"
    GENERATIONS_APART = "generations apart"
    ABOVE_ROOFLINE = "above roofline"
    INT8_SLOWER = "int8 slower"
    INT8_IN_FLOAT = "int8 in float"
    NO_COSTS = "operations without costs"
    SEVERAL_SUBGRAPHS = "several subgraphs"
    PACKED_ATTENTION = "packed attention"
    EXPORTERS_DIFFER = "exporters differ"


SUSPECT = frozenset({DoubtKind.WIDE_BOUNDS, DoubtKind.GENERATIONS_APART, DoubtKind.ABOVE_ROOFLINE})
"""Doubts about a form of the graph that another exporter may not write."""


@dataclass(frozen=True, slots=True, eq=False)
class Doubt(Fact):
    """One doubt about the estimate of a network, a region or a unit."""

    kind: DoubtKind
    simulation: str = ""
    """The generation that it is about; empty where it is about the graph."""
    value: float = 0.0
    limit: float = 0.0
    nodes: tuple[str, ...] = ()

    def words(self, unit: str = "ms") -> str:
        """Returns the sentence."""
        kind, value, where = self.kind, self.value, self.simulation
        if kind is DoubtKind.WIDE_BOUNDS:
            return (
                f"the simulator's own bounds on {where} are {value:.1f} times apart (more than"
                f" {self.limit:g}): it does not know this graph well"
            )
        if kind is DoubtKind.GENERATIONS_APART:
            return (
                f"v73 is simulated {value:.1f} times as slow as v81 (others 1.8 to 4.2): a form of"
                " the graph that one of them handles badly"
            )
        if kind is DoubtKind.ABOVE_ROOFLINE:
            return (
                f"on {where} it takes {value:.1f} times what its arithmetic and its bytes take:"
                " data movement dominates, which the simulator may overestimate"
            )
        if kind is DoubtKind.INT8_SLOWER:
            return f"int8 takes {value:.2f} times as long as fp16 on {where}: suspect the Q/DQ form"
        names = ", ".join(self.nodes[:3]) + (" ..." if len(self.nodes) > 3 else "")
        if kind is DoubtKind.INT8_IN_FLOAT:
            return (
                f"{len(self.nodes)} convolutions or products stand outside a Q/DQ unit and compute"
                f" in float: {names}"
            )
        if kind is DoubtKind.EXPORTERS_DIFFER:
            times = f"{value:.1f} times as slow" if value else "not to be compiled"
            return (
                f"the graph of torch.onnx's tracing exporter (dynamo=False) is {times}: these are"
                " figures of the other one (dynamo=True); ship that one"
            )
        if kind is DoubtKind.NO_COSTS:
            return f"the simulator has no cost for {value:.0f} operations on {where}"
        if kind is DoubtKind.SEVERAL_SUBGRAPHS:
            return f"the NPU gets {value:.0f} parts, each an invocation with transfers of its own"
        assert kind is DoubtKind.PACKED_ATTENTION
        return (
            f"{len(self.nodes)} attention blocks project query, key and value packed, through a"
            f" transpose of rank 5 ({names}): write three linear layers, or timm's form of the"
            " network; as torch.onnx's exporter with dynamo=True writes it, v73 is simulated to"
            " take 20 to 50 times as long"
        )


def of_compiled(
    compiled: Mapping[NpuGeneration, Compiled],
    precision: QnnPrecision,
    macs: float | None = None,
    moved: float | None = None,
) -> Iterator[Doubt]:
    """Yields doubts about simulations of one graph.

    ``macs`` are its multiply-accumulates, ``moved`` counts the numbers in its weights and borders.
    """
    for simulation, one in compiled.items():
        if one.us is None:
            continue
        name = simulation.value
        if one.us >= LEAST_US and one.high_us > WIDE * one.low_us > 0:
            yield Doubt(DoubtKind.WIDE_BOUNDS, name, one.high_us / one.low_us, WIDE)
        if one.missing:
            yield Doubt(DoubtKind.NO_COSTS, name, one.missing)
        if macs is not None and moved is not None and one.us >= LEAST_US:
            seconds = macs / PEAK[simulation, precision]
            seconds += moved * ELEMENT[precision] / BYTES_PER_S[simulation]
            if seconds > 0 and one.us * 1e-6 > SLOW * seconds:
                yield Doubt(DoubtKind.ABOVE_ROOFLINE, name, one.us * 1e-6 / seconds, SLOW)
    old, new = compiled.get(NpuGeneration.V73), compiled.get(NpuGeneration.V81)
    if old is not None and new is not None and old.us and new.us:
        if old.us >= LEAST_US and old.us > APART * new.us:
            yield Doubt(DoubtKind.GENERATIONS_APART, "", old.us / new.us, APART)
        several = max(old.subgraphs, new.subgraphs)
        if several > 1:
            yield Doubt(DoubtKind.SEVERAL_SUBGRAPHS, "", several, 1)


def of_int8(
    int8: Mapping[NpuGeneration, Compiled], fp16: Mapping[NpuGeneration, Compiled]
) -> Iterator[Doubt]:
    """Yields doubts where eight bits are no faster than sixteen."""
    for simulation, one in int8.items():
        other = fp16.get(simulation)
        if one.us and other is not None and other.us and one.us > max(other.us, LEAST_US):
            yield Doubt(DoubtKind.INT8_SLOWER, simulation.value, one.us / other.us, 1.0)


PACKED = (3, 1, 2, 0, 4)
"""Permutation by which ``nn.MultiheadAttention`` moves query, key and value to the front."""


def packed_attention(model: onnx.ModelProto) -> tuple[str, ...]:
    """Returns the names of transposes that unpack query, key and value of one projection: of rank
    5, exchanging a leading 1 with a 3. A traced graph has no shapes there; the 1 then comes from an
    Unsqueeze before the transpose, and a Squeeze behind removes it."""
    shapes = shapes_of(model)
    producer = {name: node for node in model.graph.node for name in node.output}
    readers = {name: node for node in model.graph.node for name in node.input}

    def unpacks(node: onnx.NodeProto) -> bool:
        if node.op_type != "Transpose" or _perm(node) != PACKED:
            return False
        shape = shapes.get(node.input[0], ())
        if len(shape) == 5 and all(shape):
            return shape[0] == 1 and shape[3] == 3
        before, behind = producer.get(node.input[0]), readers.get(node.output[0])
        kinds = [None if one is None else one.op_type for one in (before, behind)]
        return kinds == ["Unsqueeze", "Squeeze"]

    return tuple(node.name for node in model.graph.node if unpacks(node))


def _perm(node: onnx.NodeProto) -> Sequence[int] | None:
    return next((tuple(a.ints) for a in node.attribute if a.name == "perm"), None)


MAC_OPERATIONS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def outside_quantisation(model: onnx.ModelProto) -> tuple[str, ...]:
    """Returns convolutions and products of a Q/DQ model that the compiler computes in float: an
    input does not come from a DequantizeLinear, or the output does not go straight to a
    QuantizeLinear.

    A ReLU in between is fused where the zero point is its lower limit, 0; with any other it stays,
    and the convolution silently drops out of its unit.
    """
    from onnx import numpy_helper

    constants = {constant.name: constant for constant in model.graph.initializer}
    producer = {name: node for node in model.graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    outputs = {value.name for value in model.graph.output}
    outside = []
    for node in model.graph.node:
        if node.op_type not in MAC_OPERATIONS:
            continue
        read = [producer.get(name) for name in node.input[:2]]
        reads = all(one is not None and one.op_type == "DequantizeLinear" for one in read)
        written = readers.get(node.output[0], [])
        if len(written) == 1 and written[0].op_type in ("Relu", "Clip"):
            behind = readers.get(written[0].output[0], [])
            zero_points = [constants.get(one.input[-1]) for one in behind]
            if all(zero is not None and not numpy_helper.to_array(zero) for zero in zero_points):
                written = behind
        writes = bool(written) and all(one.op_type == "QuantizeLinear" for one in written)
        if not (reads and writes and node.output[0] not in outputs):
            outside.append(node.name)
    return tuple(outside)
