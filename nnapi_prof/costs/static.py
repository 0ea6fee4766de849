"""The static cost model: a roofline for what was not, or cannot be, measured.

In this version it prices only units that no engine of the agent can run (target ``host``); what
rests on it is marked as estimated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nnapi_prof.graph.unit import Unit, UnitGraph


@dataclass(frozen=True, slots=True)
class Roofline:
    """A processor: rates of arithmetic and of memory, and a fixed price for each operation."""

    macs_per_ns: float
    bytes_per_ns: float
    operation_ns: float

    def unit_ns(self, graph: UnitGraph, unit: Unit) -> float:
        """max(arithmetic, memory) + one fixed price for each node of the unit, in ns."""
        names = dict.fromkeys((*unit.inputs, *unit.outputs))
        moved = sum(graph.values[name].n_bytes for name in names) + unit.constant_bytes
        work = max(unit.macs / self.macs_per_ns, moved / self.bytes_per_ns)
        return work + self.operation_ns * max(1, len(unit.nodes))

    def region_ns(self, graph: UnitGraph, units: Iterable[int]) -> float:
        """Sum over units: operations run one after the other and share nothing."""
        return sum(self.unit_ns(graph, graph.units[index]) for index in units)


PHONE_CPU = Roofline(
    # TensorFlow Lite's documentation gives MobileNet v1 1.0 224 float32 (569 million MACs) as
    # 14.0 ms on a Pixel 4's CPU: 569e6 / 14.0e6 ns = 40.6.
    macs_per_ns=40.6,
    # assumed: a third of LPDDR4X-4266 on four 16-bit channels (34 GB/s) for plain loops
    bytes_per_ns=11.0,
    # assumed: eager PyTorch's dispatch of one operator on a phone core
    operation_ns=10_000.0,
)
"""A phone's CPU as eager PyTorch uses it."""
