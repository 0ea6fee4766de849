"""Builds the document of ``fleet --json``: few plans, the phones that use each, and their cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.plans import CONDITIONS, NOTES, PLAN, UNIT, of_plans, of_units
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.api.fleet_result import Fleet

FLEET_PHONE = s.obj(
    name=s.described(s.TEXT, "for people; unlike all others"),
    device=s.described(s.TEXT, "for people, with its system and drivers"),
    fingerprint=s.described(s.TEXT, "the device in the cost table; empty where it is in none"),
    weight=s.described(s.NUMBER, "its share of the fleet; 1 in all"),
    plan=s.described(s.COUNT, "index of its plan among plans"),
    predicted_ns=s.described(s.NUMBER_OR_NULL, "null where no plan runs there, its weight being 0"),
    half_ns=s.described(
        s.NUMBER_OR_NULL, "95 % of what predicted_ns may really be is within so much; null: unknown"
    ),
    least_ns=s.described(s.NUMBER, "of the best plan known for this phone alone"),
    all_cpu_ns=s.NUMBER,
    regret=s.described(s.NUMBER_OR_NULL, "predicted_ns over least_ns, less 1"),
    simulated=s.TRUTH,
    estimated=s.TRUTH,
)
FLEET_CURVE = s.obj(
    k=s.described(s.COUNT, "plans at most"),
    plans=s.described(s.COUNT, "of them in use"),
    mean=s.described(s.NUMBER, "regret of a phone drawn by the weights"),
    worst=s.described(s.NUMBER, "regret of the phone that fares worst"),
    bound=s.described(s.NUMBER, "no k of the candidates have less of the objective"),
)


@document(
    "fleet",
    1,
    "Few plans of a model for many phones, chosen by regret",
    bundle=s.described(s.TEXT, "the bundle's folder"),
    model=s.TEXT,
    simulated=s.described(s.TRUTH, "whether some phone is simulated"),
    estimated=s.described(s.TRUTH, "whether some phone's latencies are estimated"),
    conditions=CONDITIONS,
    objective=s.choice("mean", "worst"),
    mean_regret=s.NUMBER,
    mean_half=s.described(s.NUMBER_OR_NULL, "mean_regret's 95 % interval is within so much"),
    worst_regret=s.NUMBER,
    least_mean_of_one=s.described(s.NUMBER, "no single plan at all has a smaller mean regret"),
    candidates=s.described(s.COUNT, "plans that were to choose from"),
    units=s.array(UNIT),
    plans=s.described(s.array(PLAN), "plans with the highest weight first"),
    phones=s.array(FLEET_PHONE),
    curve=s.array(FLEET_CURVE),
    notes=NOTES,
)
def of_fleet(path: Path, fleet: Fleet) -> Document:
    return properties(
        "fleet",
        fleet,
        bundle=str(path),
        model=fleet.model.name,
        conditions=fleet.costs[0].conditions.to_json(),
        least_mean_of_one=fleet.search.least_mean_of_one,
        candidates=len(fleet.search.plans),
        units=of_units(fleet.model.graph),
        plans=of_plans(fleet.plans),
        curve=[
            properties(FLEET_CURVE, choice, k=number, plans=len(choice.plans))
            for number, choice in enumerate(fleet.search.choices, 1)
        ],
    )
