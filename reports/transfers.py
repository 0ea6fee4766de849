"""What crosses the boundaries of a plan's segments, and what the cost model says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from nnapi_prof.convert.permutes import Permutes
from nnapi_prof.costs.region import CostModel
from nnapi_prof.graph.plan import Engine, Plan
from nnapi_prof.reports.frames import NS_PER_MS

TRANSFER_COLUMNS = (
    "segment", "target", "in_values", "in_bytes", "out_values", "out_bytes", "invocation_ms",
    "in_ms", "out_ms", "predicted_ms", "share", "permutes", "permuted_bytes",
)  # fmt: skip


def transfer_frame(
    plan: Plan, costs: CostModel, permutes: Sequence[Permutes | None] = ()
) -> pd.DataFrame:
    """One row a segment: values and bytes that enter and leave, and their time by the cost model.

    ``share`` is that of invocation and transfer in the predicted latency, by the fit; on the host,
    and where nothing was fitted, times are NaN. ``permutes`` says of each segment what it
    permutes; without, NaN.
    """
    rows = []
    for number, segment in enumerate(plan.segments):
        entering, leaving = costs.graph.boundary(segment.units)
        in_bytes = sum(costs.graph.values[name].n_bytes for name in entering)
        out_bytes = sum(costs.graph.values[name].n_bytes for name in leaving)
        known = segment.target.engine is not Engine.HOST and segment.target in costs.fits
        invocation = costs.overhead(segment.target) if known else math.nan
        into = costs.transfer(segment.target, in_bytes, 0) if known else math.nan
        out = costs.transfer(segment.target, 0, out_bytes) if known else math.nan
        moved = permutes[number] if number < len(permutes) else None
        rows.append(
            {
                "segment": number,
                "target": segment.target.key,
                "in_values": len(entering),
                "in_bytes": in_bytes,
                "out_values": len(leaving),
                "out_bytes": out_bytes,
                "invocation_ms": invocation / NS_PER_MS,
                "in_ms": into / NS_PER_MS,
                "out_ms": out / NS_PER_MS,
                "predicted_ms": segment.predicted_ns / NS_PER_MS,
                "share": (invocation + into + out) / segment.predicted_ns
                if segment.predicted_ns
                else math.nan,
                "permutes": math.nan if moved is None else moved.count,
                "permuted_bytes": math.nan if moved is None else moved.n_bytes,
            }
        )
    return pd.DataFrame(rows, columns=list(TRANSFER_COLUMNS))
