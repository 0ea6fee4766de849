"""The document of ``nnapi-prof report`` with several sides: what differs between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nnapi_prof.documents.registry import (
    COUNT,
    COUNT_OR_NULL,
    NUMBER,
    NUMBER_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    Schema,
    array,
    choice,
    described,
    document,
    nullable,
    obj,
)

if TYPE_CHECKING:
    from nnapi_prof.reports.data import ReportData

_LATENCY = obj(
    ns=described(NUMBER_OR_NULL, "median of the runs, or what is predicted"),
    p10_ns=NUMBER_OR_NULL,
    p90_ns=NUMBER_OR_NULL,
    n_samples=COUNT,
    simulated=TRUTH,
    estimated=described(TRUTH, "rests in part on the static model"),
)
_RIVAL = nullable(
    obj(
        plan=TEXT,
        speedup=described(NUMBER, "above 1 the plan is faster"),
        measured=described(TRUTH, "both ran; else both are predicted"),
    )
)
_SIDE = obj(
    letter=TEXT,
    name=TEXT,
    model=TEXT,
    device=TEXT,
    units=COUNT,
    only_here=described(array(COUNT), "units that not every other side has"),
    segments=COUNT,
    targets=array(TEXT),
    measured=_LATENCY,
    predicted=_LATENCY,
    relative_error=described(NUMBER_OR_NULL, "(predicted - measured) / measured"),
    first_ns=described(COUNT_OR_NULL, "first run after compilation"),
    compile_ns=described(COUNT_OR_NULL, "all segments together"),
    against_fastest=described(_RIVAL, "the baseline that is hardest to beat"),
    against_best_single=_RIVAL,
    against_cpu=_RIVAL,
    outputs=choice("agree", "differ", "not compared"),
    largest_relative_difference=NUMBER_OR_NULL,
    run_at=TEXT_OR_NULL,
    error=described(TEXT_OR_NULL, "why the plan did not run to its end"),
)
_RATIO = obj(
    side=TEXT,
    ratio=described(NUMBER_OR_NULL, "latency of this side by that of the first"),
    low=NUMBER_OR_NULL,
    high=NUMBER_OR_NULL,
    measured=TRUTH,
    verdict=TEXT,
)
_MOVE = obj(
    label=TEXT,
    units=described(array(array(COUNT)), "indices in each side's model"),
    targets=described(array(TEXT), "of each side"),
    causes=described(array(TEXT), "of each side"),
)
_CHANGED = obj(
    signature=TEXT,
    label=TEXT,
    kind=TEXT,
    target=TEXT,
    verdict=TEXT,
    ratio=NUMBER_OR_NULL,
    low=NUMBER_OR_NULL,
    high=NUMBER_OR_NULL,
    first_ns=NUMBER_OR_NULL,
    second_ns=NUMBER_OR_NULL,
    simulated=TRUTH,
)
_LATENCIES = obj(
    side=TEXT,
    median_ratio=NUMBER_OR_NULL,
    compared=described(COUNT, "units and regions measured on both sides"),
    not_measured_again=COUNT,
    only_first=COUNT,
    only_here=COUNT,
    by_target=array(
        obj(
            target=TEXT,
            compared=COUNT,
            slower=described(COUNT, "beyond noise"),
            faster=described(COUNT, "beyond noise"),
            median_ratio=NUMBER,
        )
    ),
    changed=array(_CHANGED),
)
_REFUSAL = obj(
    unit=described(COUNT, "index in the first side's model"),
    label=TEXT,
    targets=array(TEXT),
    reasons=described(array(TEXT_OR_NULL), "of each side; null where it is not refused"),
)
_DIFFERENCE: Schema = obj(
    name=TEXT, values=described(array(TEXT_OR_NULL), "of each side; null where unknown")
)


@document(
    "compare",
    1,
    "Plans, devices or dates side by side: every other side against the first",
    confidence=described(NUMBER, "of the intervals low to high"),
    threshold=described(NUMBER, "latencies that changed by less are left out"),
    simulated=described(TRUTH, "some latencies are"),
    sides=array(_SIDE),
    changed=described(array(TEXT), "what changed, in words, the most important first"),
    ratios=described(array(_RATIO), "end to end, of each side but the first"),
    placement=obj(units_in_common=COUNT, units_elsewhere=COUNT, moves=array(_MOVE)),
    latencies=described(array(_LATENCIES), "of each side but the first"),
    refusals=array(_REFUSAL),
    conditions=array(_DIFFERENCE),
    device_facts=array(_DIFFERENCE),
)
def of_comparison(named: Sequence[tuple[str, ReportData]]) -> dict[str, Any]:
    """The document of several bundles, runs or dates, each with its name."""
    from nnapi_prof.reports.compare_summary import content

    return content(named)
