"""Words that several documents share: units, plans, conditions, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from nnapi_prof.documents.registry import (
    COUNT,
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
    nullable,
    obj,
)
from nnapi_prof.graph.plan import TARGET_SPELLINGS

if TYPE_CHECKING:
    from nnapi_prof.graph.plan import Plan, Proof
    from nnapi_prof.graph.unit import Unit, UnitGraph

CONDITIONS = obj(precision=TEXT, mode=TEXT, threads=COUNT, cpus=TEXT)
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
PROOF = described(
    nullable(
        obj(
            kind=described(
                choice("exact", "bound_met", "gap"),
                "every plan was looked at or ruled out, a lower bound is met, or lies below",
            ),
            least_ns=described(NUMBER, "of the best plan found; this one may have fewer segments"),
            bound_ns=described(NUMBER, "no plan takes less"),
            gap=described(
                NUMBER_OR_NULL,
                "how far the best plan can be above the optimum, relative; 0 if proven, null where"
                " nothing is known",
            ),
            found_by=described(TEXT, "the step of the search that found the best plan"),
            bounded_by=described(TEXT, "the step that proved the bound"),
            constrained=described(TRUTH, "it is about plans that keep to what was asked"),
            objective=described(
                TEXT_OR_NULL,
                "what least_ns and bound_ns are millionths of, as `energy in mJ`; null for latency",
            ),
        )
    ),
    "what is proven about the least latency; null for baselines",
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
    return {
        "name": plan.name,
        "predicted_ns": plan.predicted_ns,
        "simulated": plan.simulated,
        "estimated": any(segment.estimated for segment in plan.segments),
        "proof": None if plan.proof is None else _proof(plan.proof),
        "notes": list(plan.notes),
        "segments": [
            {
                "units": list(segment.units),
                "target": segment.target.key,
                "predicted_ns": segment.predicted_ns,
                "interval_ns": segment.interval_ns and list(segment.interval_ns),
                "measured": segment.measured,
                "estimated": segment.estimated,
                "cause": segment.cause,
            }
            for segment in plan.segments
        ],
    }


def _proof(proof: Proof) -> Document:
    return {
        "kind": proof.kind.value,
        "least_ns": proof.least_ns,
        "bound_ns": proof.bound_ns,
        "gap": finite(proof.gap),
        "found_by": proof.found_by,
        "bounded_by": proof.bounded_by,
        "constrained": proof.constrained,
        "objective": proof.objective or None,
    }


def of_plans(plans: Iterable[Plan]) -> list[Document]:
    return [of_plan(plan) for plan in plans]


def of_units(graph: UnitGraph, more: Callable[[Unit], Document] = lambda _: {}) -> list[Document]:
    """``more`` gives what a document says of a unit besides."""
    return [
        {
            "index": unit.index,
            "name": unit.name,
            "label": unit.label,
            "signature": unit.signature,
            **more(unit),
        }
        for unit in graph.units
    ]
