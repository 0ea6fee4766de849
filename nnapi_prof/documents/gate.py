"""What ``compare`` prints with ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.costs.diff import CONFIDENCE, Verdict
from nnapi_prof.documents import schema as s
from nnapi_prof.documents.plans import NOTES
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.api.gate import Gate

GATE_ROW = s.obj(
    name=s.described(s.TEXT, "a plan that ran whole, or a region on a target"),
    base_ns=s.described(s.NUMBER_OR_NULL, "the median; null where it did not run"),
    new_ns=s.NUMBER_OR_NULL,
    verdict=s.choice(*(verdict.value for verdict in Verdict)),
    ratio=s.described(s.NUMBER_OR_NULL, "new by base"),
    low=s.described(s.NUMBER_OR_NULL, "of the interval of the ratio"),
    high=s.NUMBER_OR_NULL,
    failed=s.described(s.TRUTH, "it became slower, or does not run any more"),
)


@document(
    "speed",
    1,
    "Whether something became slower",
    base=s.described(s.TEXT, "as it was named"),
    new=s.TEXT,
    fail_if_slower=s.described(s.NUMBER_OR_NULL, "the slow-down that fails: 0.05 is 5 %"),
    confidence=s.described(s.NUMBER, "of the intervals; of a table's, that all hold"),
    simulated=s.described(s.TRUTH, "whether any of it is of a simulated phone"),
    ok=s.described(s.TRUTH, "nothing fails; else the exit code is 1"),
    rows=s.described(s.array(GATE_ROW), "those that fail first"),
    notes=NOTES,
)
def of_gate(base: str, new: str, gate: Gate) -> Document:
    return properties(
        "speed",
        gate,
        base=base,
        new=new,
        fail_if_slower=gate.slower,
        confidence=CONFIDENCE,
        ok=not gate.failed,
    )
