"""The content of the document ``nnapi-prof/compare``; its schema stands in
:mod:`nnapi_prof.documents.compare`.

Times are ns, null where unknown; a ratio is of another side by the first.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from nnapi_prof.costs.diff import CONFIDENCE, Comparison
from nnapi_prof.costs.diff import Difference as LatencyDifference
from nnapi_prof.reports.compare_changes import (
    THRESHOLD,
    Difference,
    Move,
    Refusal,
    by_target,
)
from nnapi_prof.reports.compare_sides import Latency, Ratio, Rival, Side
from nnapi_prof.reports.compare_summary import Compared, compared
from nnapi_prof.reports.data import ReportData


def content(named: Sequence[tuple[str, ReportData]]) -> dict[str, Any]:
    """What a comparison shows, as JSON. Raises UsageError as
    :func:`~nnapi_prof.reports.compare_summary.compared` does."""
    found = compared(named)
    return {
        "confidence": CONFIDENCE,
        "threshold": THRESHOLD,
        "simulated": found.simulated,
        "sides": [_side(found, side) for side in found.sides],
        "changed": [sentence.text for sentence in found.sentences],
        "ratios": [
            _ratio(side, ratio) for side, ratio in zip(found.others, found.ratios, strict=True)
        ],
        "placement": {
            "units_in_common": len(found.matched),
            "units_elsewhere": found.n_moved,
            "moves": [_move(move) for move in found.moves],
        },
        "latencies": [
            _latencies(side, each) for side, each in zip(found.others, found.latencies, strict=True)
        ],
        "refusals": [_refusal(each) for each in found.refusals],
        "conditions": [_difference(each) for each in found.conditions],
        "device_facts": [_difference(each) for each in found.descriptions],
    }


def _side(found: Compared, side: Side) -> dict[str, Any]:
    data, run = side.data, side.data.run
    return {
        "letter": side.letter,
        "name": side.name,
        "model": data.model,
        "device": data.device_name,
        "units": len(data.graph.units),
        "only_here": list(found.only(side)),
        "segments": len(data.plan.segments),
        "targets": sorted({segment.target.key for segment in data.plan.segments}),
        "measured": _latency(side.measured),
        "predicted": _latency(side.predicted),
        "relative_error": side.error,
        "first_ns": side.first_ns,
        "compile_ns": side.compile_ns,
        "against_fastest": _rival(side.fastest),
        "against_best_single": _rival(side.against("best-single")),
        "against_cpu": _rival(side.against("all-cpu")),
        "outputs": side.outputs,
        "largest_relative_difference": _finite(side.worst_difference),
        "run_at": run.created_at if run else None,
        "error": data.run_of_plan.error if data.run_of_plan else None,
    }


def _finite(number: float | None) -> float | None:
    """JSON has neither infinity nor NaN."""
    return number if number is not None and math.isfinite(number) else None


def _latency(latency: Latency) -> dict[str, Any]:
    return {
        "ns": latency.ns,
        "p10_ns": latency.low_ns,
        "p90_ns": latency.high_ns,
        "n_samples": len(latency.samples_ns),
        "simulated": latency.simulated,
        "estimated": latency.estimated,
    }


def _rival(rival: Rival | None) -> dict[str, Any] | None:
    if rival is None:
        return None
    return {"plan": rival.plan, "speedup": rival.factor, "measured": rival.measured}


def _ratio(side: Side, ratio: Ratio | None) -> dict[str, Any]:
    return {
        "side": side.letter,
        "ratio": ratio and ratio.value,
        "low": ratio and ratio.low,
        "high": ratio and ratio.high,
        "measured": bool(ratio and ratio.measured),
        "verdict": ratio.verdict if ratio else "no latency on both sides",
    }


def _move(move: Move) -> dict[str, Any]:
    return {
        "label": move.label,
        "units": [list(units) for units in move.units],
        "targets": [stay.target for stay in move.stays],
        "causes": [stay.cause for stay in move.stays],
    }


def _latencies(side: Side, found: Comparison) -> dict[str, Any]:
    return {
        "side": side.letter,
        "median_ratio": found.median_ratio,
        "compared": len(found.differences),
        "not_measured_again": found.same_row,
        "only_first": found.only_first,
        "only_here": found.only_second,
        "by_target": [dataclasses.asdict(each) for each in by_target(found)],
        "changed": [_changed(each) for each in found.changed],
    }


def _changed(each: LatencyDifference) -> dict[str, Any]:
    one, two = each.first, each.second
    return {
        "signature": one.signature,
        "label": one.label,
        "kind": one.kind.value,
        "target": one.target.key,
        "verdict": each.verdict.value,
        "ratio": each.ratio,
        "low": each.low,
        "high": each.high,
        "first_ns": one.summary.median_ns if one.usable else None,
        "second_ns": two.summary.median_ns if two.usable else None,
        "simulated": one.simulated or two.simulated,
    }


def _refusal(each: Refusal) -> dict[str, Any]:
    return {
        "unit": each.unit,
        "label": each.label,
        "targets": list(each.targets),
        "reasons": list(each.reasons),
    }


def _difference(each: Difference) -> dict[str, Any]:
    return {"name": each.name, "values": list(each.values)}
