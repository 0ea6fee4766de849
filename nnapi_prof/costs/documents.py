"""What ``nnapi-prof costs ... --json`` prints: documents, and the JSON Schema of each.

Times are whole ns where they were measured and numbers of ns where they are statistics; dates are
ISO 8601 in UTC. Later versions may add properties, and take none away.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from nnapi_prof.costs.devices import Measured
from nnapi_prof.costs.diff import CONFIDENCE, Comparison, Difference, Verdict
from nnapi_prof.costs.measurement import Kind, Measurement, Status

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_TRUTH = {"type": "boolean"}
_NUMBER_OR_NULL = {"type": ["number", "null"]}
_TALLY = {"type": "object", "additionalProperties": _COUNT}


def _object(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _array(items: object) -> dict[str, object]:
    return {"type": "array", "items": items}


_MEASUREMENT = _object(
    fingerprint=_TEXT,
    device=_TEXT,
    signature=_TEXT,
    label=_TEXT,
    kind={"enum": [kind.value for kind in Kind]},
    members=_array(_TEXT),
    target=_TEXT,
    conditions=_object(precision=_TEXT, mode=_TEXT, threads=_COUNT, cpus=_TEXT),
    status={"enum": [status.value for status in Status]},
    message={"type": ["string", "null"]},
    flags=_array(_TEXT),
    simulated=_TRUTH,
    clock=_TEXT,
    median_ns=_NUMBER_OR_NULL,
    spread_ns=_NUMBER_OR_NULL,
    minimum_ns=_NUMBER_OR_NULL,
    n_samples=_COUNT,
    samples_ns=_array(_COUNT),
    compile_ns={"type": ["integer", "null"]},
    input_bytes=_COUNT,
    output_bytes=_COUNT,
    driver_version=_TEXT,
    agent_version=_TEXT,
    measured_at=_TEXT,
)
SCHEMAS: Mapping[str, dict[str, object]] = {
    "list": _array(
        _object(
            fingerprint=_TEXT,
            name=_TEXT,
            simulated=_TRUTH,
            rows=_COUNT,
            kinds=_TALLY,
            statuses=_TALLY,
            targets=_array(_TEXT),
            first=_TEXT,
            last=_TEXT,
        )
    ),
    "show": _array(_MEASUREMENT),
    "diff": _object(
        first=_TEXT,
        second=_TEXT,
        confidence={"type": "number"},
        changed=_COUNT,
        median_ratio=_NUMBER_OR_NULL,
        only_first=_COUNT,
        only_second=_COUNT,
        same_row=_COUNT,
        differences=_array(
            _object(
                signature=_TEXT,
                label=_TEXT,
                kind={"enum": [kind.value for kind in Kind]},
                target=_TEXT,
                conditions=_object(precision=_TEXT, mode=_TEXT, threads=_COUNT, cpus=_TEXT),
                verdict={"enum": [verdict.value for verdict in Verdict]},
                ratio=_NUMBER_OR_NULL,
                low=_NUMBER_OR_NULL,
                high=_NUMBER_OR_NULL,
                first_ns=_NUMBER_OR_NULL,
                second_ns=_NUMBER_OR_NULL,
                first_status={"enum": [status.value for status in Status]},
                second_status={"enum": [status.value for status in Status]},
                simulated=_TRUTH,
            )
        ),
    ),
    "export": _object(file=_TEXT, rows=_COUNT),
    "import": _array(_object(file=_TEXT, rows=_COUNT, added=_COUNT, devices=_COUNT)),
}
"""Command -> JSON Schema of its document. ``low`` and ``high`` are the interval of ``ratio`` at
``confidence``; ``median_ns``, ``spread_ns``, ``minimum_ns`` and ``n_samples`` leave out rounds that
were throttled where there are others."""


def of_devices(devices: Iterable[Measured]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(each) for each in devices]


def of_measurements(rows: Iterable[Measurement], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """``names``: fingerprint -> the device's name."""
    return [_measurement(m, names.get(m.fingerprint, "unknown")) for m in rows]


def _measurement(m: Measurement, name: str) -> dict[str, Any]:
    summary = m.summary if m.samples_ns else None
    return {
        "fingerprint": m.fingerprint,
        "device": name,
        "signature": m.signature,
        "label": m.label,
        "kind": m.kind.value,
        "members": m.members,
        "target": m.target.key,
        "conditions": m.conditions.to_json(),
        "status": m.status.value,
        "message": m.message,
        "flags": m.flags,
        "simulated": m.simulated,
        "clock": m.clock,
        "median_ns": summary and summary.median_ns,
        "spread_ns": summary and summary.spread_ns,
        "minimum_ns": summary and summary.minimum_ns,
        "n_samples": summary.n if summary else 0,
        "samples_ns": m.samples_ns,
        "compile_ns": m.compile_ns,
        "input_bytes": m.input_bytes,
        "output_bytes": m.output_bytes,
        "driver_version": m.driver_version,
        "agent_version": m.agent_version,
        "measured_at": m.measured_at,
    }


def of_comparison(found: Comparison, first: str, second: str) -> dict[str, Any]:
    return {
        "first": first,
        "second": second,
        "confidence": CONFIDENCE,
        "changed": len(found.changed),
        "median_ratio": found.median_ratio,
        "only_first": found.only_first,
        "only_second": found.only_second,
        "same_row": found.same_row,
        "differences": [_difference(each) for each in found.differences],
    }


def _difference(each: Difference) -> dict[str, Any]:
    one, two = each.first, each.second
    return {
        "signature": one.signature,
        "label": one.label,
        "kind": one.kind.value,
        "target": one.target.key,
        "conditions": one.conditions.to_json(),
        "verdict": each.verdict.value,
        "ratio": each.ratio,
        "low": each.low,
        "high": each.high,
        "first_ns": one.summary.median_ns if one.usable else None,
        "second_ns": two.summary.median_ns if two.usable else None,
        "first_status": one.status.value,
        "second_status": two.status.value,
        "simulated": one.simulated or two.simulated,
    }
