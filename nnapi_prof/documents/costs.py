"""Builds the documents of ``nnapi-prof costs ... --json``.

Times are whole ns where they were measured and numbers of ns where they are statistics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from nnapi_prof.costs.measurement import Kind, Status
from nnapi_prof.documents import schema as s
from nnapi_prof.documents.plans import CONDITIONS, TARGET
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.costs.measurement import Measurement
    from nnapi_prof.costs.store import Pruned
    from nnapi_prof.costs.store.devices import Measured

_KIND = s.choice(*(kind.value for kind in Kind))
_STATUS = s.choice(*(status.value for status in Status))
_COSTS = s.described(s.TEXT, "the cost table: a file or a URL, without a password")


@document(
    "costs-list",
    1,
    "The devices in a cost table",
    costs=_COSTS,
    devices=s.array(
        s.obj(
            fingerprint=s.TEXT,
            name=s.TEXT,
            simulated=s.TRUTH,
            rows=s.COUNT,
            kinds=s.described(s.mapping(s.COUNT), "rows of each kind"),
            statuses=s.described(s.mapping(s.COUNT), "rows of each status"),
            targets=s.array(s.TEXT),
            first=s.described(s.TEXT, "date of the oldest measurement"),
            last=s.described(s.TEXT, "date of the newest measurement"),
        )
    ),
)
def of_devices(costs: str, devices: Iterable[Measured]) -> Document:
    return {"costs": costs, "devices": [dataclasses.asdict(each) for each in devices]}


_MEASUREMENT = s.obj(
    fingerprint=s.TEXT,
    device=s.described(s.TEXT, "its name"),
    signature=s.TEXT,
    label=s.TEXT,
    kind=_KIND,
    members=s.described(s.array(s.TEXT), "signatures of the units that it consists of"),
    target=TARGET,
    conditions=CONDITIONS,
    status=_STATUS,
    message=s.described(s.TEXT_OR_NULL, "why it is not ok"),
    attempts=s.described(
        s.COUNT_OR_NULL, "how often it was tried: 2 alone, too; more on another day, too"
    ),
    flags=s.described(s.array(s.TEXT), "reasons to doubt it"),
    simulated=s.TRUTH,
    clock=s.TEXT,
    median_ns=s.described(
        s.NUMBER_OR_NULL,
        "like p95_ns, spread_ns, minimum_ns and n_samples without rounds that were throttled, where"
        " there are others",
    ),
    p95_ns=s.described(s.NUMBER_OR_NULL, "what 95 % of these keep to"),
    spread_ns=s.NUMBER_OR_NULL,
    minimum_ns=s.NUMBER_OR_NULL,
    n_samples=s.COUNT,
    samples_ns=s.described(s.array(s.COUNT), "every run, in the order they ran"),
    beside=s.described(s.nullable(TARGET), "who was busy meanwhile, of kind beside"),
    alone_ns=s.described(s.array(s.COUNT), "of kind beside: every run while nothing else ran"),
    cpu_ns=s.described(
        s.array(s.COUNT), "of kind beside: CPU time of the agent in each of alone_ns"
    ),
    compile_ns=s.COUNT_OR_NULL,
    input_bytes=s.COUNT,
    output_bytes=s.COUNT,
    driver_version=s.TEXT,
    agent_version=s.TEXT,
    measured_at=s.TEXT,
)


@document(
    "costs-show",
    1,
    "Measurements of a cost table",
    costs=_COSTS,
    n_fitting=s.described(
        s.COUNT_OR_NULL,
        "measurements that fit; --limit may show fewer; null where a large table has more than"
        " those shown, which are not counted",
    ),
    measurements=s.array(_MEASUREMENT),
)
def of_measurements(
    costs: str, rows: Iterable[Measurement], names: Mapping[str, str], n_fitting: int | None
) -> Document:
    """``names``: fingerprint -> the device's name."""
    shown = [_measurement(m, names.get(m.fingerprint, "unknown")) for m in rows]
    return {"costs": costs, "n_fitting": n_fitting, "measurements": shown}


def _measurement(m: Measurement, name: str) -> Document:
    summary = m.summary if m.samples_ns else None
    return properties(
        _MEASUREMENT,
        m,
        device=name,
        median_ns=summary and summary.median_ns,
        p95_ns=summary and summary.p95_ns,
        spread_ns=summary and summary.spread_ns,
        minimum_ns=summary and summary.minimum_ns,
        n_samples=summary.n if summary else 0,
    )


@document(
    "costs-merge",
    1,
    "Other cost tables were added to a cost table",
    costs=_COSTS,
    tables=s.array(
        s.obj(
            table=_COSTS,
            rows=s.COUNT,
            added=s.described(s.COUNT, "rows that the table had not"),
            left_out=s.described(s.COUNT, "rows that cannot be, which were not added"),
            devices=s.COUNT,
        )
    ),
)
def of_merge(costs: str, tables: Sequence[Document]) -> Document:
    return {"costs": costs, "tables": list(tables)}


@document(
    "costs-prune",
    1,
    "Rows that were deleted from a cost table, or would be",
    costs=_COSTS,
    deleted=s.described(s.TRUTH, "false: nothing was touched, --yes was not given"),
    rows=s.described(s.COUNT, "that go"),
    kept=s.COUNT,
    devices=s.described(s.mapping(s.COUNT), "fingerprint -> its rows that go"),
    forgotten=s.described(s.array(s.TEXT), "fingerprints of devices that no row is left of"),
)
def of_prune(costs: str, pruned: Pruned) -> Document:
    return properties("costs-prune", pruned, costs=costs)
