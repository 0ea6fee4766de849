"""What ``nnapi-prof partition --json`` and ``run --json`` print."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.documents.plans import (
    CONDITIONS,
    NOTES,
    PLAN,
    TARGET,
    UNIT,
    of_plan,
    of_plans,
    of_units,
)
from nnapi_prof.documents.registry import (
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
    finite,
    obj,
)

if TYPE_CHECKING:
    from nnapi_prof.bundle.bundle import Bundle
    from nnapi_prof.execution.report import OutputCheck, PlanRun, RunReport, SegmentTiming
    from nnapi_prof.partition import CurvePoint

_BUNDLE = described(TEXT, "the bundle's folder")
OUTPUT = obj(
    name=TEXT,
    shape=array(COUNT),
    max_abs=described(
        NUMBER_OR_NULL,
        "largest difference from eager PyTorch; null where only one of both is finite",
    ),
    relative=described(NUMBER_OR_NULL, "the same by the largest value; null where infinite"),
    tolerance=described(NUMBER, "largest relative difference allowed"),
    ok=TRUTH,
    evidence=described(
        choice("values", "zeros", "constant", "denormal", "not finite", "empty"),
        "what the output is made of in eager PyTorch: all but values leaves little to compare",
    ),
)

CURVE_POINT = obj(
    segments=COUNT,
    ns=described(NUMBER, "the least latency found with at most so many"),
    bound_ns=described(NUMBER, "no plan of at most so many takes less"),
    exact=described(TRUTH, "no plan of at most so many is faster"),
)


@document(
    "partition",
    1,
    "A plan: what runs where, and why",
    bundle=_BUNDLE,
    model=TEXT,
    inputs=array(TEXT),
    device=described(TEXT, "for people"),
    fingerprint=described(TEXT, "the device in the cost table"),
    simulated=TRUTH,
    estimated=described(TRUTH, "whether the plan rests on estimated costs"),
    conditions=CONDITIONS,
    units=array(UNIT),
    plan=PLAN,
    baselines=array(PLAN),
    curve=described(array(CURVE_POINT), "up to the fastest plan's number; empty from HiGHS"),
    notes=NOTES,
)
def of_partition(path: Path, bundle: Bundle, curve: Iterable[CurvePoint] = ()) -> Document:
    return {
        "bundle": str(path),
        "model": bundle.model,
        "inputs": list(bundle.inputs),
        "device": bundle.device,
        "fingerprint": bundle.fingerprint,
        "simulated": bundle.simulated,
        "estimated": any(segment.estimated for segment in bundle.plan.segments),
        "conditions": bundle.conditions.to_json(),
        "units": of_units(bundle.graph),
        "plan": of_plan(bundle.plan),
        "baselines": of_plans(bundle.plans[1:]),
        "curve": [
            {"segments": p.n_segments, "ns": p.ns, "bound_ns": p.bound_ns, "exact": p.exact}
            for p in curve
        ],
        "notes": list(bundle.notes),
    }


@document(
    "run",
    1,
    "A bundle's plan and baselines as they ran, and their outputs beside eager PyTorch's",
    bundle=_BUNDLE,
    result=described(TEXT, "the file in the bundle that keeps this run"),
    model=TEXT,
    device=described(TEXT, "for people"),
    fingerprint=TEXT,
    simulated=described(TRUTH, "of what was measured; each plan says it of its prediction"),
    created_at=TEXT,
    conditions=described(TEXT, "the options that asked for other than the usual conditions"),
    agrees=described(TRUTH, "every output does; else the exit code is 1"),
    plans=described(
        array(
            obj(
                plan=PLAN,
                predicted_ns=described(NUMBER, "of what was timed: without segments on the host"),
                median_ns=described(NUMBER_OR_NULL, "null where it did not run to its end"),
                first_ns=described(COUNT_OR_NULL, "of the first, cold run"),
                total_ns=described(array(COUNT), "every recorded run, in the order they ran"),
                error=described(TEXT_OR_NULL, "why it did not run to its end"),
                flags=described(array(TEXT), "reasons to doubt the times"),
                segments=array(
                    obj(
                        segment=COUNT,
                        target=TARGET,
                        label=TEXT,
                        predicted_ns=NUMBER,
                        median_ns=NUMBER_OR_NULL,
                        first_ns=COUNT_OR_NULL,
                        compile_ns=COUNT_OR_NULL,
                        samples_ns=array(COUNT),
                    )
                ),
            )
        ),
        "the plan first, then the baselines that were timed",
    ),
    outputs=array(OUTPUT),
    notes=NOTES,
)
def of_run(bundle: Path, result: Path, report: RunReport) -> Document:
    return {
        "bundle": str(bundle),
        "result": str(result),
        "model": report.model,
        "device": report.device,
        "fingerprint": report.fingerprint,
        "simulated": report.simulated,
        "created_at": report.created_at,
        "conditions": report.conditions,
        "agrees": all(check.ok for check in report.checks),
        "plans": [_run(run) for run in report.runs],
        "outputs": [of_check(check) for check in report.checks],
        "notes": list(report.notes),
    }


def _run(run: PlanRun) -> Document:
    return {
        "plan": of_plan(run.plan),
        "predicted_ns": run.predicted_ns,
        "median_ns": run.median_ns,
        "first_ns": run.first_ns,
        "total_ns": list(run.total_ns),
        "error": run.error,
        "flags": list(run.flags),
        "segments": [_segment(segment) for segment in run.segments],
    }


def _segment(segment: SegmentTiming) -> Document:
    return {
        "segment": segment.segment,
        "target": segment.target,
        "label": segment.label,
        "predicted_ns": segment.predicted_ns,
        "median_ns": segment.median_ns,
        "first_ns": segment.first_ns,
        "compile_ns": segment.compile_ns,
        "samples_ns": list(segment.samples_ns),
    }


def of_check(check: OutputCheck) -> Document:
    return {
        "name": check.name,
        "shape": list(check.shape),
        "max_abs": finite(check.max_abs),
        "relative": finite(check.relative),
        "tolerance": check.tolerance,
        "ok": check.ok,
        "evidence": check.evidence.value,
    }
