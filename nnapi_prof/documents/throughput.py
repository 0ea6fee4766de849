"""Frames per second in documents: predictions of ``partition``, and measurements of ``run``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nnapi_prof import documents as s
from nnapi_prof.device.protocol import Outcome
from nnapi_prof.documents import Document, finite, properties

if TYPE_CHECKING:
    from nnapi_prof.api.plan import PredictedThroughput
    from nnapi_prof.bundle.plan_set import FramePlan, FrameSchedule
    from nnapi_prof.execution.report import FrameScheduleRun

# Builds the proof of a plan in documents.

PROOF = s.described(
    s.nullable(
        s.obj(
            kind=s.described(
                s.choice("exact", "bound_met", "gap"),
                "every plan was looked at or ruled out, a lower bound is met, or lies below",
            ),
            least_ns=s.described(
                s.NUMBER, "of the best plan found; this one may have fewer segments"
            ),
            bound_ns=s.described(s.NUMBER, "no plan takes less"),
            gap=s.described(
                s.NUMBER_OR_NULL,
                "how far the best plan can be above the optimum, relative; 0 if proven, null where"
                " nothing is known",
            ),
            found_by=s.described(s.TEXT, "the step of the search that found the best plan"),
            bounded_by=s.described(s.TEXT, "the step that proved the bound"),
            constrained=s.described(s.TRUTH, "it covers plans that meet the constraints"),
            objective=s.described(
                s.TEXT_OR_NULL,
                "what least_ns and bound_ns are millionths of, as `energy in mJ`; null for latency",
            ),
        )
    ),
    "what is proven about the least latency; null for baselines",
)


_INTERVAL = s.obj(value=s.NUMBER, low=s.NUMBER, high=s.NUMBER)
_BASIS = s.choice("measured", "partly measured", "assumed", "given")
_PAIR = s.obj(
    lane=s.described(s.TEXT, "cpu or an accelerator"),
    corunner=s.described(s.TEXT, "the one that is busy meanwhile"),
    basis=_BASIS,
    factor=s.described(_INTERVAL, "how many times as long the lane takes; low and high hold 95 %"),
    n_units=s.described(s.COUNT, "different units that it was measured with"),
    cpu_share=s.described(
        s.nullable(_INTERVAL), "CPU time of the agent by the time of a run alone"
    ),
    wait_ns=s.described(
        s.nullable(_INTERVAL), "what starting and waiting takes more than one call"
    ),
    later=s.described(
        s.nullable(_INTERVAL), "a run's time at the end of a long measurement by before"
    ),
    cpu_khz=s.described(
        s.nullable(s.array(s.COUNT_OR_NULL)), "the CPU's clock before and after a long measurement"
    ),
)
CONTENTION = s.described(
    s.obj(basis=_BASIS, pairs=s.array(_PAIR)),
    "how many times as long a processor takes while another one is busy",
)

_RATE = s.described(s.NUMBER, "frames a second, predicted")
_HOW = s.choice(
    "best single device",
    "one frame at a time",
    "frames in turn",
    "pipeline of one plan",
    "mixture of plans",
)


THROUGHPUT = s.obj(
    contention=CONTENTION,
    how=s.described(_HOW, "what was predicted to be best"),
    frames_per_second=_RATE,
    most_per_second=s.described(s.NUMBER, "no plans and no order of frames do more"),
    proof=s.described(PROOF, "of the least time of a frame, with any number in flight"),
    lanes=s.array(
        s.obj(
            name=s.described(s.TEXT, "cpu or an accelerator"),
            load_ns=s.described(s.NUMBER, "of a frame on average, the others idle"),
        )
    ),
    baselines=s.described(
        s.array(s.obj(how=_HOW, frames_per_second=_RATE)), "with any number of frames in flight"
    ),
    curve=s.array(
        s.obj(
            frames_in_flight=s.COUNT,
            frames_per_second=_RATE,
            how=_HOW,
            latency_ns=s.described(s.NUMBER, "of a frame: the median, predicted"),
            latency_95_ns=s.described(s.NUMBER, "what 95 % of frames keep to"),
            memory_bytes=s.described(s.COUNT, "of weights, and of what frames in flight hand over"),
        )
    ),
)
SHARES = s.array(
    s.obj(
        plan=s.described(s.COUNT, "of the bundle's plans: 0 is `plan`, the others are `baselines`"),
        share=s.described(s.NUMBER, "of frames; 1 in all"),
    )
)
WAY = s.obj(
    how=s.described(s.TEXT, "a way of running many frames at once"),
    in_flight=s.described(s.COUNT, "frames on their way at most"),
    frames_per_second=s.described(s.NUMBER_OR_NULL, "predicted; null where nothing predicts it"),
    threads=s.described(s.COUNT_OR_NULL, "of the CPU engine; null: those of the conditions"),
    overlaps=s.described(s.TRUTH, "a frame's own segments may run at once"),
    plans=SHARES,
)
FRAMES = s.obj(
    ways=s.described(s.array(WAY), "the one that is meant first, then its rivals"),
)
RATES = s.obj(
    predicted=s.described(s.NUMBER_OR_NULL, "null where nothing predicts it"),
    measured=s.described(s.NUMBER_OR_NULL, "null where it did not run"),
)
FRAME_RUN = s.obj(
    how=s.described(s.TEXT, "a way of running many frames at once"),
    in_flight=s.described(s.COUNT, "frames on their way at most"),
    plans=SHARES,
    frames_per_second=RATES,
    latency_ns=s.described(s.NUMBER_OR_NULL, "of a frame: the median, measured"),
    latency_95_ns=s.described(s.NUMBER_OR_NULL, "what 95 % of frames kept to"),
    frames=s.described(s.COUNT, "that were measured"),
    same=s.described(s.COUNT, "that gave, bit by bit, what their plan gives alone"),
    differing=s.described(s.COUNT, "that gave anything else"),
    failed=s.described(s.COUNT, "that came to no end"),
    lanes=s.described(
        s.mapping(s.NUMBER), "processor -> how long it was busy, in ns, over all frames"
    ),
    error=s.described(s.TEXT_OR_NULL, "why it did not run to its end, or the first frame did not"),
)


def of_frames(frames: FramePlan) -> Document:
    return {
        "ways": [
            properties(
                WAY,
                way,
                how=way.name,
                frames_per_second=way.predicted_per_second,
                plans=_plan_shares(way),
            )
            for way in frames.ways
        ],
    }


def _plan_shares(way: FrameSchedule) -> list[Document]:
    return [properties(SHARES["items"], choice) for choice in way.choices]


def of_frame_runs(runs: Iterable[FrameScheduleRun]) -> list[Document]:
    return [
        {
            "how": run.way.name,
            "in_flight": run.way.in_flight,
            "plans": _plan_shares(run.way),
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


def of_throughput(predicted: PredictedThroughput) -> Document:
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
