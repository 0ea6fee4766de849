"""Builds the document of ``pareto --json``: plans by latency and error, baselines beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.plans import CONDITIONS, NOTES, PLAN, UNIT, of_plan, of_units
from nnapi_prof.documents.schema import Document, document, finite, properties

if TYPE_CHECKING:
    from nnapi_prof.api.front import FrontPoint, Pareto

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
