"""Builds the document of ``compare --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.costs.diff import CONFIDENCE, DiffVerdict
from nnapi_prof.documents import schema as s
from nnapi_prof.documents.plans import NOTES
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.reports.comparison import Compared

_SIDE = s.obj(
    name=s.described(s.TEXT, "as it was named"),
    model=s.described(s.TEXT, "empty of a cost table"),
    device=s.TEXT,
    fingerprint=s.TEXT,
    simulated=s.TRUTH,
    median_ns=s.described(s.NUMBER_OR_NULL, "of the plan as it ran whole"),
    p95_ns=s.described(s.NUMBER_OR_NULL, "what 95 % of its runs keep to"),
    predicted_ns=s.NUMBER_OR_NULL,
    segments=s.COUNT_OR_NULL,
    outputs=s.described(
        s.nullable(s.choice("agree", "differ")), "against eager PyTorch; null: not compared"
    ),
    error=s.described(s.TEXT_OR_NULL, "why the plan did not run to its end"),
    notes=NOTES,
)
_ROW = s.obj(
    name=s.described(s.TEXT, "the plan as it ran whole, or a unit or region"),
    target=s.described(s.TEXT_OR_NULL, "null of the plan"),
    base_ns=s.described(s.NUMBER_OR_NULL, "the median; null where it did not run"),
    new_ns=s.NUMBER_OR_NULL,
    verdict=s.choice(*(verdict.value for verdict in DiffVerdict)),
    ratio=s.described(s.NUMBER_OR_NULL, "new by base"),
    low=s.described(s.NUMBER_OR_NULL, "of the interval of the ratio"),
    high=s.NUMBER_OR_NULL,
    simulated=s.TRUTH,
    failed=s.described(s.TRUTH, "it became slower, or does not run any more"),
)
_MOVE = s.obj(
    label=s.TEXT,
    base_units=s.described(s.array(s.COUNT), "indices in the base's model"),
    new_units=s.array(s.COUNT),
    base_target=s.TEXT,
    new_target=s.TEXT,
    base_cause=s.TEXT,
    new_cause=s.TEXT,
)
_REFUSAL = s.obj(
    unit=s.described(s.COUNT, "index in the base's model"),
    label=s.TEXT,
    target=s.TEXT,
    base=s.described(s.TEXT_OR_NULL, "the reason; null where it is not refused"),
    new=s.TEXT_OR_NULL,
)
_FACT = s.obj(name=s.TEXT, base=s.TEXT_OR_NULL, new=s.TEXT_OR_NULL)


@document(
    "compare",
    2,
    "Two bundles, runs or cost tables: what became slower, and what else differs",
    fail_if_slower=s.described(s.NUMBER_OR_NULL, "the slow-down that fails: 0.05 is 5 %"),
    confidence=s.described(s.NUMBER, "of the intervals low to high; with a limit, of all together"),
    threshold=s.described(s.NUMBER, "a unit's latency that changed by less counts as unchanged"),
    simulated=s.described(s.TRUTH, "some latencies are"),
    ok=s.described(s.TRUTH, "nothing fails; else the exit code is 1"),
    base=_SIDE,
    new=_SIDE,
    changed=s.described(s.array(s.TEXT), "what changed, in words, the most important first"),
    rows=s.described(s.array(_ROW), "the plan first, then what fails, then what changed"),
    same_rows=s.described(s.COUNT, "measurements that are the very same on both sides"),
    only_base=s.COUNT,
    only_new=s.COUNT,
    units_in_common=s.COUNT,
    moves=s.described(s.array(_MOVE), "units that run on another target"),
    refusals=s.array(_REFUSAL),
    facts=s.described(s.array(_FACT), "conditions, versions and device facts that differ"),
)
def of_comparison(compared: Compared) -> Document:
    from nnapi_prof.reports.comparison_files import sentences

    return properties(
        "compare",
        compared,
        fail_if_slower=compared.limit,
        confidence=CONFIDENCE,
        ok=not compared.failed,
        changed=list(sentences(compared)),
        same_rows=compared.latencies.same_row,
        only_base=compared.latencies.only_first,
        only_new=compared.latencies.only_second,
        units_in_common=len(compared.matched),
        moves=[
            properties(
                _MOVE,
                move,
                base_target=move.base.target,
                new_target=move.new.target,
                base_cause=move.base.cause,
                new_cause=move.new.cause,
            )
            for move in compared.moves
        ],
    )
