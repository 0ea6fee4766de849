"""What ``nnapi-prof go --batch`` prints with ``--json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnapi_prof.documents.plans import of_go
from nnapi_prof.documents.schema import (
    COUNT,
    NUMBER,
    TRUTH,
    Document,
    array,
    described,
    document,
    obj,
    registered,
)

if TYPE_CHECKING:
    from nnapi_prof.api.batches import Batch

_GO = {name: part for name, part in registered()["go"].items() if not name.startswith("$")}


@document(
    "go-batches",
    1,
    "A model at several batch sizes, each measured, planned and run by itself",
    simulated=TRUTH,
    batches=array(
        obj(
            size=COUNT,
            latency_ns=described(NUMBER, "of the whole batch, end to end"),
            each_ns=described(NUMBER, "of one image"),
            measured=described(TRUTH, "it ran; else latencies are predicted"),
            go=described(_GO, "as `nnapi-prof go --json` has it"),
        )
    ),
)
def of_batches(batches: Sequence[Batch]) -> Document:
    costs = batches[0].result.costs
    return {
        "simulated": costs is not None and costs.simulated,
        "batches": [
            {
                "size": each.size,
                "latency_ns": each.latency_ns,
                "each_ns": each.each_ns,
                "measured": each.is_measured,
                "go": of_go(each.result),
            }
            for each in batches
        ],
    }
