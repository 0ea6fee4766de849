"""What ``nnapi-prof costs ... --json`` prints.

Times are whole ns where they were measured and numbers of ns where they are statistics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from nnapi_prof.costs.diff import CONFIDENCE, Verdict
from nnapi_prof.costs.measurement import Kind, Status
from nnapi_prof.documents.plans import CONDITIONS, TARGET
from nnapi_prof.documents.schema import (
    COUNT,
    COUNT_OR_NULL,
    NUMBER,
    NUMBER_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    Document,
    array,
    choice,
    described,
    document,
    mapping,
    nullable,
    obj,
    properties,
)

if TYPE_CHECKING:
    from nnapi_prof.costs.diff import Comparison, Difference
    from nnapi_prof.costs.measurement import Measurement
    from nnapi_prof.costs.store import Pruned
    from nnapi_prof.costs.store.devices import Measured

_KIND = choice(*(kind.value for kind in Kind))
_STATUS = choice(*(status.value for status in Status))
_COSTS = described(TEXT, "the cost table: a file or a URL, without a password")


@document(
    "costs-list",
    1,
    "The devices in a cost table",
    costs=_COSTS,
    devices=array(
        obj(
            fingerprint=TEXT,
            name=TEXT,
            simulated=TRUTH,
            rows=COUNT,
            kinds=described(mapping(COUNT), "rows of each kind"),
            statuses=described(mapping(COUNT), "rows of each status"),
            targets=array(TEXT),
            first=described(TEXT, "date of the oldest measurement"),
            last=described(TEXT, "date of the newest measurement"),
        )
    ),
)
def of_devices(costs: str, devices: Iterable[Measured]) -> Document:
    return {"costs": costs, "devices": [dataclasses.asdict(each) for each in devices]}


_MEASUREMENT = obj(
    fingerprint=TEXT,
    device=described(TEXT, "its name"),
    signature=TEXT,
    label=TEXT,
    kind=_KIND,
    members=described(array(TEXT), "signatures of the units that it consists of"),
    target=TARGET,
    conditions=CONDITIONS,
    status=_STATUS,
    message=described(TEXT_OR_NULL, "why it is not ok"),
    flags=described(array(TEXT), "reasons to doubt it"),
    simulated=TRUTH,
    clock=TEXT,
    median_ns=described(
        NUMBER_OR_NULL,
        "like spread_ns, minimum_ns and n_samples without rounds that were throttled, where there"
        " are others",
    ),
    spread_ns=NUMBER_OR_NULL,
    minimum_ns=NUMBER_OR_NULL,
    n_samples=COUNT,
    samples_ns=described(array(COUNT), "every run, in the order they ran"),
    beside=described(nullable(TARGET), "who was busy meanwhile, of kind beside"),
    alone_ns=described(array(COUNT), "of kind beside: every run while nothing else ran"),
    cpu_ns=described(array(COUNT), "of kind beside: CPU time of the agent in each of alone_ns"),
    compile_ns=COUNT_OR_NULL,
    input_bytes=COUNT,
    output_bytes=COUNT,
    driver_version=TEXT,
    agent_version=TEXT,
    measured_at=TEXT,
)


@document(
    "costs-show",
    1,
    "Measurements of a cost table",
    costs=_COSTS,
    n_fitting=described(
        COUNT_OR_NULL,
        "measurements that fit; --limit may show fewer; null where a large table has more than"
        " those shown, which are not counted",
    ),
    measurements=array(_MEASUREMENT),
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
        spread_ns=summary and summary.spread_ns,
        minimum_ns=summary and summary.minimum_ns,
        n_samples=summary.n if summary else 0,
    )


_DIFFERENCE = obj(
    signature=TEXT,
    label=TEXT,
    kind=_KIND,
    target=TARGET,
    conditions=CONDITIONS,
    verdict=choice(*(verdict.value for verdict in Verdict)),
    ratio=described(NUMBER_OR_NULL, "second by first"),
    low=described(NUMBER_OR_NULL, "of the interval of the ratio"),
    high=NUMBER_OR_NULL,
    first_ns=NUMBER_OR_NULL,
    second_ns=NUMBER_OR_NULL,
    first_status=_STATUS,
    second_status=_STATUS,
    simulated=TRUTH,
)


@document(
    "costs-diff",
    1,
    "What changed between two devices or dates",
    costs=_COSTS,
    first=described(TEXT, "as it was asked for: DEVICE, DATE or DEVICE@DATE"),
    second=TEXT,
    simulated=described(TRUTH, "whether any of it is of a simulated phone"),
    confidence=described(NUMBER, "of the intervals of ratios"),
    changed=described(COUNT, "differences beyond noise"),
    median_ratio=NUMBER_OR_NULL,
    only_first=COUNT,
    only_second=COUNT,
    same_row=described(COUNT, "not measured again in between"),
    differences=array(_DIFFERENCE),
)
def of_comparison(costs: str, comparison: Comparison, first: str, second: str) -> Document:
    differences = [_difference(each) for each in comparison.differences]
    return properties(
        "costs-diff",
        comparison,
        costs=costs,
        first=first,
        second=second,
        simulated=any(each["simulated"] for each in differences),
        confidence=CONFIDENCE,
        changed=len(comparison.changed),
        differences=differences,
    )


def _difference(each: Difference) -> Document:
    one, two = each.first, each.second
    return properties(
        _DIFFERENCE,
        one,
        verdict=each.verdict.value,
        ratio=each.ratio,
        low=each.low,
        high=each.high,
        first_ns=one.summary.median_ns if one.usable else None,
        second_ns=two.summary.median_ns if two.usable else None,
        first_status=one.status.value,
        second_status=two.status.value,
        simulated=one.simulated or two.simulated,
    )


@document(
    "costs-export",
    1,
    "A cost table was written to a file",
    costs=_COSTS,
    file=TEXT,
    rows=COUNT,
)
def of_export(costs: str, file: str, rows: int) -> Document:
    return {"costs": costs, "file": file, "rows": rows}


@document(
    "costs-import",
    1,
    "Files were added to a cost table",
    costs=_COSTS,
    files=array(
        obj(
            file=TEXT,
            rows=COUNT,
            added=described(COUNT, "rows that the table had not"),
            devices=COUNT,
        )
    ),
)
def of_import(costs: str, files: Sequence[Document]) -> Document:
    return {"costs": costs, "files": list(files)}


@document(
    "costs-merge",
    1,
    "Other cost tables were added to a cost table",
    costs=_COSTS,
    tables=array(
        obj(
            table=_COSTS,
            rows=COUNT,
            added=described(COUNT, "rows that the table had not"),
            left_out=described(COUNT, "rows that cannot be, which were not added"),
            devices=COUNT,
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
    deleted=described(TRUTH, "false: nothing was touched, --yes was not given"),
    rows=described(COUNT, "that go"),
    kept=COUNT,
    devices=described(mapping(COUNT), "fingerprint -> its rows that go"),
    forgotten=described(array(TEXT), "fingerprints of devices that no row is left of"),
)
def of_prune(costs: str, pruned: Pruned) -> Document:
    return properties("costs-prune", pruned, costs=costs)
