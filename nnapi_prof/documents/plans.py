"""Plans in documents, and what ``partition``, ``run`` and ``go`` print with ``--json``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.documents.advice import ADVICE, of_advice
from nnapi_prof.documents.proofs import PROOF
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
    registered,
)
from nnapi_prof.documents.throughput import (
    FRAME_RUN,
    FRAMES,
    THROUGHPUT,
    of_frame_runs,
    of_frames,
    of_throughput,
)
from nnapi_prof.graph.plan import TARGET_SPELLINGS

if TYPE_CHECKING:
    from nnapi_prof.api.end_to_end import PipelineResult
    from nnapi_prof.api.throughput import Throughput
    from nnapi_prof.bundle.bundle import Bundle
    from nnapi_prof.execution.report import OutputCheck, RunReport
    from nnapi_prof.graph.plan import Plan
    from nnapi_prof.graph.unit import Unit, UnitGraph
    from nnapi_prof.partition import CurvePoint, ParallelPlan


CONDITIONS = obj(
    precision=TEXT,
    mode=TEXT,
    threads=COUNT,
    cpus=TEXT,
    sustained_s=described(COUNT, "for how long the device had been kept busy before"),
)
NOTES = described(array(TEXT), "what a reader should know, in sentences")
TARGET = described(TEXT, f"{', '.join(TARGET_SPELLINGS[:-1])} or {TARGET_SPELLINGS[-1]}")
UNIT = obj(
    index=COUNT,
    name=described(TEXT, "the unit's node: unique in the model"),
    label=described(TEXT, "for people"),
    signature=described(TEXT, "key of its costs in the cost table"),
)
INTERVAL = described(
    nullable({"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2}),
    "95 % of what predicted_ns may really be: least and most",
)
PLAN = obj(
    name=described(TEXT, "dp or the name of a baseline"),
    predicted_ns=NUMBER,
    simulated=TRUTH,
    estimated=described(TRUTH, "whether a segment's latency rests on the static model"),
    proof=PROOF,
    notes=NOTES,
    segments=array(
        obj(
            units=described(array(COUNT), "indices"),
            target=TARGET,
            predicted_ns=NUMBER,
            interval_ns=INTERVAL,
            measured=described(TRUTH, "this very region was measured whole"),
            estimated=TRUTH,
            cause=described(TEXT, "why it stands where it does, in a sentence"),
        )
    ),
)


def of_plan(plan: Plan) -> Document:
    proof = plan.proof
    return properties(
        PLAN,
        plan,
        estimated=any(segment.estimated for segment in plan.segments),
        proof=proof and properties(PROOF["anyOf"][0], proof, objective=proof.objective or None),
    )


def of_plans(plans: Iterable[Plan]) -> list[Document]:
    return [of_plan(plan) for plan in plans]


def of_units(graph: UnitGraph, more: Callable[[Unit], Document] = lambda _: {}) -> list[Document]:
    """``more`` gives what a document says of a unit besides."""
    return [{**properties(UNIT, unit), **more(unit)} for unit in graph.units]


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


PARALLEL = obj(
    tried=described(TRUTH, "the bound promised 15 % or more: a schedule was looked for"),
    promise=described(NUMBER_OR_NULL, "no schedule is as many times as fast as the serial plan"),
    serial_ns=described(NUMBER, "predicted, of the serial plan"),
    latency_ns=described(NUMBER, "predicted, of the schedule; serial_ns where there is none"),
    lanes=described(array(TEXT), "cpu or an accelerator"),
    spans=described(
        array(obj(lane=COUNT, start_ns=NUMBER, end_ns=NUMBER)), "when each segment runs, predicted"
    ),
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
    frames=described(nullable(FRAMES), "many frames at once; null where it is for one"),
    throughput=described(
        nullable(THROUGHPUT), "what was predicted of frames at once, measured one at a time"
    ),
    parallel=described(nullable(PARALLEL), "one frame's branches at once, where asked for"),
    notes=NOTES,
)
def of_partition(
    path: Path,
    bundle: Bundle,
    curve: Iterable[CurvePoint] = (),
    throughput: Throughput | None = None,
    parallel: ParallelPlan | None = None,
) -> Document:
    return properties(
        "partition",
        bundle,
        bundle=str(path),
        estimated=any(segment.estimated for segment in bundle.plan.segments),
        units=of_units(bundle.graph),
        plan=of_plan(bundle.plan),
        baselines=of_plans(bundle.plans[1:]),
        curve=[properties(CURVE_POINT, point, segments=point.n_segments) for point in curve],
        frames=bundle.frames and of_frames(bundle.frames),
        throughput=throughput and of_throughput(throughput),
        parallel=parallel and properties(PARALLEL, parallel),
    )


RUN = obj(
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
    plans=described(array(RUN), "the plan first, then the baselines that were timed"),
    frames=described(
        array(FRAME_RUN), "many frames at once, where --frames asked for them: the plan first"
    ),
    outputs=array(OUTPUT),
    notes=NOTES,
)
def of_run(bundle: Path, result: Path, report: RunReport) -> Document:
    return properties(
        "run",
        report,
        bundle=str(bundle),
        result=str(result),
        agrees=all(check.ok for check in report.checks),
        plans=[properties(RUN, run, plan=of_plan(run.plan)) for run in report.runs],
        frames=of_frame_runs(report.frames),
        outputs=of_checks(report.checks),
    )


def of_checks(checks: Iterable[OutputCheck]) -> list[Document]:
    return [properties(OUTPUT, check) for check in checks]


MEASURED = obj(
    n_measured=described(COUNT, "measurements of the last profile"),
    n_reused=described(COUNT, "that the table had"),
    rounds=described(COUNT, "of refinement; 0 where the plan stood already"),
)
_RUN_SCHEMA = {name: part for name, part in registered()["run"].items() if not name.startswith("$")}


@document(
    "go",
    1,
    "A model profiled, planned, run and reported, as far as it came",
    model=TEXT,
    device=described(TEXT_OR_NULL, "for people; null where the profile failed"),
    simulated=described(TRUTH, "of the device"),
    conditions=nullable(CONDITIONS),
    costs=described(TEXT_OR_NULL, "the cost table: a file or a URL, without a password"),
    measured=nullable(MEASURED),
    bundle=described(TEXT_OR_NULL, "its folder; null where there is no plan"),
    report=described(TEXT_OR_NULL, "its file; null where it was not written"),
    plan=nullable(PLAN),
    baselines=array(PLAN),
    run=described(
        nullable(_RUN_SCHEMA), "as `nnapi-prof run --json` has it; null where it was not run"
    ),
    advice=described(ADVICE, "what would make the plan faster; empty where it was not run"),
    fault=described(TEXT_OR_NULL, "what stood in the way, in a sentence; the exit code is not 0"),
    spent_s=described(mapping(NUMBER), "step -> seconds"),
    notes=NOTES,
)
def of_go(result: PipelineResult) -> Document:
    costs, planned, ran = result.costs, result.planned, result.result
    outcome = costs.outcome if costs is not None else None
    return {
        "model": result.model.name,
        "device": None if costs is None else costs.device,
        "simulated": costs is not None and costs.simulated,
        "conditions": None if costs is None else costs.conditions.to_json(),
        "costs": None if costs is None else costs.location,
        "measured": outcome and properties(MEASURED, outcome),
        "bundle": None if result.bundle is None else str(result.bundle),
        "report": None if result.report is None else str(result.report),
        "plan": None if planned is None else of_plan(planned.plan),
        "baselines": [] if planned is None else of_plans(planned.baselines),
        "run": None
        if ran is None or result.bundle is None or result.run_file is None
        else of_run(result.bundle, result.run_file, ran.run),
        "advice": [] if planned is None else of_advice(planned.advice),
        "fault": None if result.fault is None else str(result.fault),
        "spent_s": dict(result.spent_s),
        "notes": list(result.model.notes),
    }
