"""Build the documents of plans and runs: ``partition``, ``run``, ``go`` and ``bisect``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof import documents as s
from nnapi_prof.bisection import FaultKind
from nnapi_prof.documents import Document, document, finite, properties
from nnapi_prof.documents.throughput import (
    FRAME_RUN,
    FRAMES,
    PROOF,
    THROUGHPUT,
    of_frame_runs,
    of_frames,
    of_throughput,
)
from nnapi_prof.graph.plan import TARGET_SPELLINGS

if TYPE_CHECKING:
    from nnapi_prof.api.pareto import Pareto
    from nnapi_prof.api.plan import PredictedThroughput
    from nnapi_prof.bisection.diagnosis import Bisection
    from nnapi_prof.bundle import Bundle
    from nnapi_prof.execution.front import FrontPoint
    from nnapi_prof.execution.report import OutputCheck, RunReport
    from nnapi_prof.graph.plan import Plan
    from nnapi_prof.graph.unit import Unit, UnitGraph
    from nnapi_prof.partition import CurvePoint, ParallelPlan


CONDITIONS = s.obj(
    precision=s.TEXT,
    mode=s.TEXT,
    threads=s.COUNT,
    cpus=s.TEXT,
    sustained_s=s.described(s.COUNT, "for how long the device had been kept busy before"),
)
NOTES = s.described(s.array(s.TEXT), "what a reader should know, in sentences")
TARGET = s.described(s.TEXT, f"{', '.join(TARGET_SPELLINGS[:-1])} or {TARGET_SPELLINGS[-1]}")
UNIT = s.obj(
    index=s.COUNT,
    name=s.described(s.TEXT, "the unit's node: unique in the model"),
    label=s.described(s.TEXT, "for people"),
    signature=s.described(s.TEXT, "key of its costs in the cost table"),
)
INTERVAL = s.described(
    s.nullable({"type": "array", "items": s.NUMBER, "minItems": 2, "maxItems": 2}),
    "95 % of what predicted_ns may really be: least and most",
)
PLAN = s.obj(
    name=s.described(s.TEXT, "dp or the name of a baseline"),
    predicted_ns=s.NUMBER,
    copies_ns=s.described(s.NUMBER, "of predicted_ns: to copy the model's inputs and outputs"),
    simulated=s.TRUTH,
    estimated=s.described(s.TRUTH, "whether a segment's latency rests on the static model"),
    proof=PROOF,
    notes=NOTES,
    segments=s.array(
        s.obj(
            units=s.described(s.array(s.COUNT), "indices"),
            target=TARGET,
            predicted_ns=s.NUMBER,
            interval_ns=INTERVAL,
            measured=s.described(s.TRUTH, "this very region was measured whole"),
            estimated=s.TRUTH,
            cause=s.described(s.TEXT, "the reason for its target, in a sentence"),
        )
    ),
)


def of_plan(plan: Plan) -> Document:
    proof = plan.proof
    return properties(
        PLAN,
        plan,
        proof=proof and properties(PROOF["anyOf"][0], proof, objective=proof.objective or None),
    )


def of_plans(plans: Iterable[Plan]) -> list[Document]:
    return [of_plan(plan) for plan in plans]


def of_units(graph: UnitGraph, more: Callable[[Unit], Document] = lambda _: {}) -> list[Document]:
    """Return the documents of units, each with the further properties that ``more`` returns."""
    return [{**properties(UNIT, unit), **more(unit)} for unit in graph.units]


_BUNDLE = s.described(s.TEXT, "the bundle's folder")
OUTPUT = s.obj(
    name=s.TEXT,
    shape=s.array(s.COUNT),
    max_abs=s.described(
        s.NUMBER_OR_NULL,
        "largest difference from eager PyTorch; null where only one of both is finite",
    ),
    relative=s.described(s.NUMBER_OR_NULL, "the same by the largest value; null where infinite"),
    tolerance=s.described(s.NUMBER, "largest relative difference allowed"),
    ok=s.TRUTH,
    evidence=s.described(
        s.choice("values", "zeros", "constant", "denormal", "not finite", "empty"),
        "what the output is made of in eager PyTorch: all but values leaves little to compare",
    ),
)

CURVE_POINT = s.obj(
    segments=s.COUNT,
    ns=s.described(s.NUMBER, "the least latency found with at most so many"),
    bound_ns=s.described(s.NUMBER, "no plan of at most so many takes less"),
    exact=s.described(s.TRUTH, "no plan of at most so many is faster"),
)


PARALLEL = s.obj(
    tried=s.described(s.TRUTH, "the bound promised 15 % or more: a schedule was looked for"),
    promise=s.described(
        s.NUMBER_OR_NULL, "no schedule is as many times as fast as the serial plan"
    ),
    serial_ns=s.described(s.NUMBER, "predicted, of the serial plan"),
    latency_ns=s.described(
        s.NUMBER, "predicted, of the schedule; serial_ns if there is no schedule"
    ),
    lanes=s.described(s.array(s.TEXT), "cpu or an accelerator"),
    spans=s.described(
        s.array(s.obj(lane=s.COUNT, start_ns=s.NUMBER, end_ns=s.NUMBER)),
        "when each segment runs, predicted",
    ),
)


@document(
    "partition",
    2,
    "A plan: what runs where, and why",
    bundle=_BUNDLE,
    model=s.TEXT,
    inputs=s.array(s.TEXT),
    device=s.described(s.TEXT, "for people"),
    fingerprint=s.described(s.TEXT, "the device in the cost table"),
    simulated=s.TRUTH,
    estimated=s.described(s.TRUTH, "whether the plan rests on estimated costs"),
    conditions=CONDITIONS,
    units=s.array(UNIT),
    plan=PLAN,
    baselines=s.array(PLAN),
    curve=s.described(s.array(CURVE_POINT), "up to the fastest plan's number"),
    frames=s.described(s.nullable(FRAMES), "many frames at once; null where it is for one"),
    throughput=s.described(
        s.nullable(THROUGHPUT), "what was predicted of frames at once, measured one at a time"
    ),
    parallel=s.described(s.nullable(PARALLEL), "one frame's branches at once, where asked for"),
    notes=NOTES,
)
def partition_document(
    path: Path,
    bundle: Bundle,
    curve: Iterable[CurvePoint] = (),
    throughput: PredictedThroughput | None = None,
    parallel: ParallelPlan | None = None,
) -> Document:
    return properties(
        "partition",
        bundle,
        bundle=path,
        estimated=bundle.plan.estimated,
        units=of_units(bundle.graph),
        plan=of_plan(bundle.plan),
        baselines=of_plans(bundle.plans[1:]),
        curve=[properties(CURVE_POINT, point, segments=point.n_segments) for point in curve],
        frames=bundle.frames and of_frames(bundle.frames),
        throughput=throughput and of_throughput(throughput),
        parallel=parallel,
    )


RUN = s.obj(
    plan=PLAN,
    predicted_ns=s.described(s.NUMBER, "of what was timed: without segments on the host"),
    median_ns=s.described(s.NUMBER_OR_NULL, "null where it did not run to its end"),
    p95_ns=s.described(s.NUMBER_OR_NULL, "what 95 % of the runs keep to"),
    first_ns=s.described(s.COUNT_OR_NULL, "of the first, cold run"),
    total_ns=s.described(s.array(s.COUNT), "every recorded run, in the order they ran"),
    copies_ns=s.described(
        s.array(s.COUNT), "of total_ns: copies of inputs and outputs; empty: left out"
    ),
    error=s.described(s.TEXT_OR_NULL, "why it did not run to its end"),
    flags=s.described(s.array(s.TEXT), "reasons to doubt the times"),
    segments=s.array(
        s.obj(
            segment=s.COUNT,
            target=TARGET,
            label=s.TEXT,
            predicted_ns=s.NUMBER,
            median_ns=s.NUMBER_OR_NULL,
            p95_ns=s.NUMBER_OR_NULL,
            first_ns=s.COUNT_OR_NULL,
            compile_ns=s.COUNT_OR_NULL,
            samples_ns=s.array(s.COUNT),
        )
    ),
)


@document(
    "run",
    1,
    "A bundle's plan and baselines as they ran, and their outputs beside eager PyTorch's",
    bundle=_BUNDLE,
    result=s.described(s.TEXT, "the file in the bundle that keeps this run"),
    model=s.TEXT,
    device=s.described(s.TEXT, "for people"),
    fingerprint=s.TEXT,
    simulated=s.described(s.TRUTH, "of what was measured; each plan says it of its prediction"),
    created_at=s.TEXT,
    conditions=s.described(s.TEXT, "the options that asked for other than the usual conditions"),
    agrees=s.described(s.TRUTH, "every output does; else the exit code is 1"),
    plans=s.described(s.array(RUN), "the plan first, then the baselines that were timed"),
    frames=s.described(
        s.array(FRAME_RUN), "many frames at once, where --frames asked for them: the plan first"
    ),
    outputs=s.array(OUTPUT),
    notes=NOTES,
)
def run_document(bundle: Path, result: Path, report: RunReport) -> Document:
    return properties(
        "run",
        report,
        bundle=bundle,
        result=result,
        agrees=all(check.ok for check in report.checks),
        plans=[properties(RUN, run, plan=of_plan(run.plan)) for run in report.runs],
        frames=of_frame_runs(report.frames),
        outputs=of_checks(report.checks),
    )


def of_checks(checks: Iterable[OutputCheck]) -> list[Document]:
    return [properties(OUTPUT, check) for check in checks]


# Builds the document of ``pareto --json``: plans by latency and error, with baselines.

POINT = s.obj(
    name=s.TEXT,
    latency_ns=s.described(s.NUMBER, "as predicted, conversions between precisions included"),
    error=s.described(s.NUMBER, "of the whole plan on the calibration data: 0.02 is 2 %"),
    predicted_error=s.described(s.NUMBER, "what its units' own errors add up to"),
    held_out_error=s.described(s.NUMBER, "of the whole plan, on data that chose nothing"),
    held_out_interval=s.described(
        {"type": "array", "items": s.NUMBER_OR_NULL, "minItems": 2, "maxItems": 2},
        "on other data of the same kind the error lies between these, nineteen times out of twenty;"
        " null where nothing is known",
    ),
    conversions_ns=s.described(s.NUMBER, "of latency_ns: what converting values takes"),
    proof=PLAN["properties"]["proof"],
    segments=s.described(
        PLAN["properties"]["segments"],
        "of the float model's units, in order; targets say their precisions",
    ),
)


@document(
    "pareto",
    1,
    "Latency against accuracy: plans; none is both faster and more accurate than another",
    model=s.TEXT,
    device=s.described(s.TEXT, "for people"),
    simulated=s.TRUTH,
    conditions=CONDITIONS,
    precisions=s.described(s.array(s.TEXT), "that plans chose from"),
    metric=s.described(s.TEXT, "what the errors are, for people"),
    units=s.array(UNIT),
    sensitivity=s.described(
        s.array(s.mapping(s.NUMBER_OR_NULL)),
        "of each unit: precision -> the error that it alone causes; null where it cannot run so",
    ),
    points=s.described(s.array(POINT), "the fastest first"),
    baselines=s.described(
        s.array(POINT), "one precision for all, and the orders that lower unit after unit"
    ),
    notes=NOTES,
)
def of_pareto(front: Pareto) -> Document:
    return {
        "model": front.costs.model.name,
        "device": front.costs.device,
        "simulated": front.simulated,
        "conditions": front.costs.conditions.to_json(),
        "precisions": [precision.value for precision in front.precisions],
        "metric": front.metric,
        "units": of_units(front.costs.model.graph),
        "sensitivity": [
            {
                precision.value: finite(error)
                for precision, error in zip(front.precisions, errors, strict=True)
            }
            for errors in front.sensitivity
        ],
        "points": [_point(point) for point in front.points],
        "baselines": [_point(point) for point in front.baselines],
        "notes": list(front.notes),
    }


def _point(point: FrontPoint) -> Document:
    plan = of_plan(point.plan)
    return properties(
        POINT,
        point,
        held_out_error=point.held_out.error,
        held_out_interval=[finite(point.held_out.low), finite(point.held_out.high)],
        conversions_ns=point.plan.conversions_ns,
        proof=plan["proof"],
        segments=plan["segments"],
    )


_VALUE = s.obj(
    value=s.described(s.TEXT, "its name in the graph"),
    shape=s.array(s.COUNT),
    range=s.described(s.array(s.NUMBER_OR_NULL), "smallest and largest finite value"),
    reference_range=s.array(s.NUMBER_OR_NULL),
    share_off=s.described(s.NUMBER, "of elements, off by more than a tenth of the largest error"),
    n_nan=s.COUNT,
    n_infinite=s.COUNT,
    limit=s.described(s.NUMBER_OR_NULL, "where values end that should be larger"),
    factor=s.described(s.NUMBER_OR_NULL, "that explains the error"),
    offset=s.described(s.NUMBER_OR_NULL, "that explains the error"),
    channels_off=s.described(s.array(s.COUNT), "channels with errors, where others have none"),
    borders_only=s.TRUTH,
    shift=s.described(
        s.nullable(s.array({"type": "integer"})), "rows and columns that images moved by"
    ),
    permuted=s.described(
        s.nullable(s.array(s.COUNT)),
        "axes as the device read them; one alone is reversed, all in order: an unknown order",
    ),
)
_CURE = s.obj(
    name=s.TEXT,
    target=s.described(s.TEXT_OR_NULL, "that runs the units then"),
    code=s.described(s.TEXT, "of a rewrite: PyTorch; else empty"),
    before_ns=s.described(s.NUMBER_OR_NULL, "the plan with the fault, predicted"),
    after_ns=s.described(s.NUMBER_OR_NULL, "the plan without, predicted"),
    costs_ns=s.described(s.NUMBER_OR_NULL, "the difference; null where nothing was measured"),
)
_CULPRIT = s.obj(
    units=s.described(s.array(s.COUNT), "by their numbers; several differ together only"),
    names=s.array(s.TEXT),
    label=s.TEXT,
    target=s.TEXT,
    driver_version=s.TEXT,
    module=s.described(s.TEXT, "path in the user's model, empty where unknown"),
    line=s.described(s.TEXT, "FILE:LINE of the user's Python, empty where unknown"),
    kind=s.choice(*(kind.value for kind in FaultKind)),
    value=s.described(s.TEXT, "that is furthest off"),
    max_abs=s.NUMBER_OR_NULL,
    relative=s.described(s.NUMBER_OR_NULL, "to the reference's largest value; null is infinite"),
    ratio=s.described(s.NUMBER_OR_NULL, "the error as a multiple of what is allowed"),
    final_error=s.described(s.NUMBER_OR_NULL, "of the model's outputs, were all else right"),
    final_share=s.described(s.NUMBER_OR_NULL, "of the model's error on the device"),
    values=s.array(_VALUE),
    ways=s.array(s.obj(way=s.TEXT, differs=s.TRUTH)),
    message=s.described(s.TEXT_OR_NULL, "of the device, where it does not run"),
    cures=s.array(_CURE),
)


@document(
    "bisect",
    1,
    "The units whose results on a device differ from PyTorch's",
    model=s.TEXT,
    device=s.TEXT,
    fingerprint=s.TEXT,
    simulated=s.TRUTH,
    targets=s.described(s.array(s.TEXT), "that were searched"),
    n_units=s.COUNT,
    n_samples=s.COUNT,
    budget=s.described(s.NUMBER_OR_NULL, "null: the usual one of each precision"),
    runs=s.described(s.COUNT, "requests to the device until the search ended"),
    executions=s.described(s.COUNT, "on the device, every sample and repeat counted"),
    clean=s.TRUTH,
    culprits=s.array(_CULPRIT),
    unchecked=s.described(
        s.array(s.obj(unit=s.COUNT, label=s.TEXT, target=s.TEXT, reason=s.TEXT)),
        "units that a target does not execute",
    ),
    notes=NOTES,
)
def of_bisection(outcome: Bisection) -> Document:
    culprits = [
        properties(
            _CULPRIT,
            culprit,
            target=culprit.target.key,
            module=culprit.source.module,
            line=culprit.source.line,
            value=culprit.worst.value,
            max_abs=s.finite(culprit.worst.max_abs),
            relative=s.finite(culprit.worst.relative),
            ratio=s.finite(culprit.worst.ratio),
            values=[properties(_VALUE, facts, value=name) for name, facts in culprit.facts],
            ways=[{"way": each.way.name, "differs": each.differs} for each in culprit.ways],
        )
        for culprit in outcome.culprits
    ]
    return properties("bisect", outcome, culprits=culprits)
