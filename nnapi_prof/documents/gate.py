"""What ``compare`` prints with ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.costs.diff import CONFIDENCE, Verdict
from nnapi_prof.costs.measurement import Statistic
from nnapi_prof.documents.plans import NOTES
from nnapi_prof.documents.schema import (
    NUMBER,
    NUMBER_OR_NULL,
    TEXT,
    TRUTH,
    Document,
    array,
    choice,
    described,
    document,
    obj,
    properties,
)

if TYPE_CHECKING:
    from nnapi_prof.api.gate import Gate

GATE_ROW = obj(
    name=described(TEXT, "a plan that ran whole, or a region on a target"),
    base_ns=described(NUMBER_OR_NULL, "the median; null where it did not run"),
    new_ns=NUMBER_OR_NULL,
    verdict=choice(*(verdict.value for verdict in Verdict)),
    ratio=described(NUMBER_OR_NULL, "new by base"),
    low=described(NUMBER_OR_NULL, "of the interval of the ratio"),
    high=NUMBER_OR_NULL,
    failed=described(TRUTH, "it became slower, or does not run any more"),
)


@document(
    "speed",
    1,
    "Whether something became slower",
    base=described(TEXT, "as it was named"),
    new=TEXT,
    fail_if_slower=described(NUMBER_OR_NULL, "the slow-down that fails: 0.05 is 5 %"),
    statistic=choice(*(statistic.value for statistic in Statistic)),
    confidence=described(NUMBER, "of the intervals; of a table's, that all hold"),
    simulated=described(TRUTH, "whether any of it is of a simulated phone"),
    ok=described(TRUTH, "nothing fails; else the exit code is 1"),
    rows=described(array(GATE_ROW), "those that fail first"),
    notes=NOTES,
)
def of_gate(base: str, new: str, gate: Gate) -> Document:
    return properties(
        "speed",
        gate,
        base=base,
        new=new,
        fail_if_slower=gate.slower,
        statistic=gate.statistic.value,
        confidence=CONFIDENCE,
        ok=not gate.failed,
        rows=[properties(GATE_ROW, row, verdict=row.verdict.value) for row in gate.rows],
    )
