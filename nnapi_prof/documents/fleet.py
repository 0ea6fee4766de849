"""What ``fleet`` prints with ``--json``: few plans, who uses which, and what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.documents.plans import CONDITIONS, NOTES, PLAN, UNIT, of_plans, of_units
from nnapi_prof.documents.schema import (
    COUNT,
    NUMBER,
    NUMBER_OR_NULL,
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
    from nnapi_prof.api.fleet_result import Fleet

FLEET_PHONE = obj(
    name=described(TEXT, "for people; unlike all others"),
    device=described(TEXT, "for people, with its system and drivers"),
    fingerprint=described(TEXT, "the device in the cost table; empty where it is in none"),
    weight=described(NUMBER, "its share of the fleet; 1 in all"),
    plan=described(COUNT, "index of its plan among plans"),
    predicted_ns=described(NUMBER_OR_NULL, "null where no plan runs there, its weight being 0"),
    half_ns=described(
        NUMBER_OR_NULL, "95 % of what predicted_ns may really be is within so much; null: unknown"
    ),
    least_ns=described(NUMBER, "of the best plan known for this phone alone"),
    all_cpu_ns=NUMBER,
    regret=described(NUMBER_OR_NULL, "predicted_ns over least_ns, less 1"),
    simulated=TRUTH,
    estimated=TRUTH,
)
FLEET_CURVE = obj(
    k=described(COUNT, "plans at most"),
    plans=described(COUNT, "of them in use"),
    mean=described(NUMBER, "regret of a phone drawn by the weights"),
    worst=described(NUMBER, "regret of the phone that fares worst"),
    bound=described(NUMBER, "no k of the candidates have less of the objective"),
)


@document(
    "fleet",
    1,
    "Few plans of a model for many phones, chosen by regret",
    bundle=described(TEXT, "the bundle's folder"),
    model=TEXT,
    simulated=described(TRUTH, "whether some phone is simulated"),
    estimated=described(TRUTH, "whether some phone's latencies are estimated"),
    conditions=CONDITIONS,
    objective=choice("mean", "worst"),
    mean_regret=NUMBER,
    mean_half=described(NUMBER_OR_NULL, "mean_regret's 95 % interval is within so much"),
    worst_regret=NUMBER,
    least_mean_of_one=described(NUMBER, "no single plan at all has a smaller mean regret"),
    candidates=described(COUNT, "plans that were to choose from"),
    units=array(UNIT),
    plans=described(array(PLAN), "those of the most weight first"),
    phones=array(FLEET_PHONE),
    curve=array(FLEET_CURVE),
    notes=NOTES,
)
def of_fleet(path: Path, fleet: Fleet) -> Document:
    return properties(
        "fleet",
        fleet,
        bundle=str(path),
        model=fleet.model.name,
        conditions=fleet.costs[0].conditions.to_json(),
        mean_half=finite(fleet.mean_half),
        least_mean_of_one=fleet.search.least_mean_of_one,
        candidates=len(fleet.search.plans),
        units=of_units(fleet.model.graph),
        plans=of_plans(fleet.plans),
        phones=[
            properties(
                FLEET_PHONE,
                phone,
                predicted_ns=finite(phone.predicted_ns),
                half_ns=finite(phone.half_ns),
                regret=finite(phone.regret),
            )
            for phone in fleet.phones
        ],
        curve=[
            properties(FLEET_CURVE, choice, k=number, plans=len(choice.plans))
            for number, choice in enumerate(fleet.search.choices, 1)
        ],
    )
