"""What ``throughput`` prints with ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.documents.contention import CONTENTION
from nnapi_prof.documents.plans import PLAN, PROOF, of_plan
from nnapi_prof.documents.schema import (
    COUNT,
    COUNT_OR_NULL,
    NUMBER,
    TEXT,
    TRUTH,
    Document,
    array,
    choice,
    described,
    document,
    finite,
    obj,
    properties,
)

if TYPE_CHECKING:
    from nnapi_prof.api.throughput import Throughput

_RATE = described(NUMBER, "frames a second, predicted")
_HOW = choice(
    "best single device",
    "one frame at a time",
    "frames in turn",
    "pipeline of one plan",
    "mixture of plans",
)


@document(
    "throughput",
    1,
    "Frames per second that processors at once are predicted to do",
    model=TEXT,
    device=described(TEXT, "for people"),
    simulated=TRUTH,
    estimated=described(TRUTH, "whether it rests on estimated costs alone"),
    contention=CONTENTION,
    how=_HOW,
    frames_per_second=_RATE,
    frames_in_flight=described(COUNT_OR_NULL, "null where their number is not limited"),
    most_per_second=described(NUMBER, "no plans and no order of frames do more"),
    proof=described(PROOF, "of the least time of a frame, with any number in flight"),
    plans=array(obj(share=described(NUMBER, "of frames; 1 in all"), plan=PLAN)),
    lanes=array(
        obj(
            name=described(TEXT, "cpu or an accelerator"),
            load_ns=described(NUMBER, "of a frame on average, the others idle"),
        )
    ),
    baselines=array(obj(how=_HOW, frames_per_second=_RATE)),
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
def of_throughput(found: Throughput) -> Document:
    plan = found.plan
    return properties(
        "throughput",
        found,
        model=found.model.name,
        how=plan.rule.value,
        frames_per_second=finite(found.frames_per_second),
        most_per_second=finite(found.most_per_second),
        frames_in_flight=plan.chosen and plan.chosen.frames_in_flight,
        proof=properties(PROOF["anyOf"][0], plan.proof, objective=plan.proof.objective),
        plans=[
            {"share": share, "plan": of_plan(each)}
            for share, each in zip(plan.shares, plan.plans, strict=True)
        ],
        lanes=[
            {"name": name, "load_ns": load}
            for name, load in zip(plan.lanes, plan.loads_ns, strict=True)
        ],
        baselines=[
            {"how": rate.rule.value, "frames_per_second": finite(rate.frames_per_second)}
            for rate in plan.baselines
        ],
        curve=[
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
    )
