"""Frames per second in documents: what ``partition`` predicts, and what ``run`` measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nnapi_prof.device.protocol.results import Outcome
from nnapi_prof.documents.contention import CONTENTION
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
    finite,
    mapping,
    obj,
    properties,
)

if TYPE_CHECKING:
    from nnapi_prof.api.throughput import Throughput
    from nnapi_prof.bundle.frames import FramePlan, FrameWay
    from nnapi_prof.execution.frame_runs import WayRun

_RATE = described(NUMBER, "frames a second, predicted")
_HOW = choice(
    "best single device",
    "one frame at a time",
    "frames in turn",
    "pipeline of one plan",
    "mixture of plans",
)


THROUGHPUT = obj(
    contention=CONTENTION,
    how=described(_HOW, "what was predicted to be best"),
    frames_per_second=_RATE,
    most_per_second=described(NUMBER, "no plans and no order of frames do more"),
    proof=described(PROOF, "of the least time of a frame, with any number in flight"),
    lanes=array(
        obj(
            name=described(TEXT, "cpu or an accelerator"),
            load_ns=described(NUMBER, "of a frame on average, the others idle"),
        )
    ),
    baselines=described(
        array(obj(how=_HOW, frames_per_second=_RATE)), "with any number of frames in flight"
    ),
    curve=array(
        obj(
            frames_in_flight=COUNT,
            frames_per_second=_RATE,
            how=_HOW,
            latency_ns=described(NUMBER, "of a frame: the median, predicted"),
            latency_95_ns=described(NUMBER, "what 95 % of frames keep to"),
            memory_bytes=described(COUNT, "of weights, and of what frames in flight hand over"),
        )
    ),
)
SHARES = array(
    obj(
        plan=described(COUNT, "of the bundle's plans: 0 is `plan`, the others are `baselines`"),
        share=described(NUMBER, "of frames; 1 in all"),
    )
)
WAY = obj(
    how=described(TEXT, "a way of running many frames at once"),
    in_flight=described(COUNT, "frames on their way at most"),
    frames_per_second=described(NUMBER_OR_NULL, "predicted; null where nothing predicts it"),
    threads=described(COUNT_OR_NULL, "of the CPU engine; null: those of the conditions"),
    overlaps=described(TRUTH, "a frame's own segments may run at once"),
    plans=SHARES,
)
FRAMES = obj(
    ways=described(array(WAY), "the one that is meant first, then its rivals"),
)
RATES = obj(
    predicted=described(NUMBER_OR_NULL, "null where nothing predicts it"),
    measured=described(NUMBER_OR_NULL, "null where it did not run"),
)
FRAME_RUN = obj(
    how=described(TEXT, "a way of running many frames at once"),
    in_flight=described(COUNT, "frames on their way at most"),
    plans=SHARES,
    frames_per_second=RATES,
    latency_ns=described(NUMBER_OR_NULL, "of a frame: the median, measured"),
    latency_95_ns=described(NUMBER_OR_NULL, "what 95 % of frames kept to"),
    frames=described(COUNT, "that were measured"),
    same=described(COUNT, "that gave, bit by bit, what their plan gives alone"),
    differing=described(COUNT, "that gave anything else"),
    failed=described(COUNT, "that came to no end"),
    lanes=described(mapping(NUMBER), "processor -> how long it was busy, in ns, over all frames"),
    error=described(TEXT_OR_NULL, "why it did not run to its end, or the first frame did not"),
)


def of_frames(frames: FramePlan) -> Document:
    return {
        "ways": [
            properties(
                WAY,
                way,
                how=way.name,
                frames_per_second=way.predicted_per_second,
                plans=_shares(way),
            )
            for way in frames.ways
        ],
    }


def _shares(way: FrameWay) -> list[Document]:
    return [properties(SHARES["items"], choice) for choice in way.choices]


def of_frame_runs(runs: Iterable[WayRun]) -> list[Document]:
    return [
        {
            "how": run.way.name,
            "in_flight": run.way.in_flight,
            "plans": _shares(run.way),
            "frames_per_second": {
                "predicted": run.predicted_per_second,
                "measured": run.frames_per_second,
            },
            "latency_ns": run.latency_ns(0.5),
            "latency_95_ns": run.latency_ns(0.95),
            "frames": len(run.frames),
            "same": run.outcomes[Outcome.SAME],
            "differing": run.outcomes[Outcome.DIFFERS],
            "failed": run.outcomes[Outcome.FAILED],
            "lanes": run.busy_ns,
            "error": run.error,
        }
        for run in runs
    ]


def of_throughput(predicted: Throughput) -> Document:
    plan = predicted.plan
    return {
        "contention": properties(CONTENTION, predicted.contention),
        "how": plan.rule.value,
        "frames_per_second": finite(predicted.frames_per_second),
        "most_per_second": finite(predicted.most_per_second),
        "proof": properties(PROOF["anyOf"][0], plan.proof, objective=plan.proof.objective),
        "lanes": [
            {"name": name, "load_ns": load}
            for name, load in zip(plan.lanes, plan.loads_ns, strict=True)
        ],
        "baselines": [
            {"how": rate.rule.value, "frames_per_second": finite(rate.frames_per_second)}
            for rate in plan.baselines
        ],
        "curve": [
            {
                "frames_in_flight": point.frames_in_flight,
                "frames_per_second": finite(point.frames_per_second),
                "how": point.rate.rule.value,
                "latency_ns": point.latency_ns[0],
                "latency_95_ns": point.latency_ns[1],
                "memory_bytes": point.memory_bytes,
            }
            for point in plan.curve
        ],
    }
