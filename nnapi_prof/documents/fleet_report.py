"""What ``fleet --report`` prints with ``--json``: many phones and models in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.documents.plans import NOTES, TARGET
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
    obj,
    properties,
)

if TYPE_CHECKING:
    from nnapi_prof.reports.fleet_data import FleetReport

MODEL_ON_PHONE = obj(
    model=TEXT,
    phone=described(TEXT, "for people; unlike all others"),
    weight=described(NUMBER, "the phone's share of the fleet; 1 in all"),
    best_ns=described(NUMBER, "with the best plan known for this phone alone"),
    places=described(array(TARGET), "of this plan, the one with most units first"),
    rule=described(TEXT, "the fastest simple strategy, a baseline's name"),
    rule_ns=NUMBER,
    all_cpu_ns=NUMBER,
    worth=described(NUMBER, "all_cpu_ns over best_ns"),
    plan=described(TEXT, "the one of the few plans that the phone uses"),
    plan_ns=described(NUMBER_OR_NULL, "null where none runs there, its weight being 0"),
    regret=described(NUMBER_OR_NULL, "plan_ns over best_ns, less 1"),
    simulated=TRUTH,
    estimated=TRUTH,
)
GROUP = obj(
    model=TEXT,
    plan=TEXT,
    phones=described(array(TEXT), "those with the largest regret first"),
    share=described(NUMBER, "of the fleet, by weight"),
    n_segments=COUNT,
    places=array(TARGET),
    mean_regret=NUMBER_OR_NULL,
    worst_regret=NUMBER_OR_NULL,
)
CHOICE = obj(
    model=TEXT,
    k=described(COUNT, "plans at most"),
    mean_regret=described(NUMBER, "of a phone drawn by the weights"),
    worst_regret=NUMBER,
)
SLOW = obj(
    phone=TEXT,
    target=TARGET,
    model=TEXT,
    target_ns=described(NUMBER, "all that it supports there, the rest on the CPU"),
    all_cpu_ns=NUMBER,
    slower=described(NUMBER, "target_ns over all_cpu_ns"),
)
FAULTS = obj(
    phone=TEXT,
    accelerator=TEXT,
    driver=described(TEXT, "its version"),
    crashed=COUNT,
    late=described(COUNT, "measurements that were not done in time"),
    failed=COUNT,
    measured=described(COUNT, "in all, refusals left out"),
    example=TEXT,
)
DAY = obj(
    phone=TEXT,
    date=described(TEXT, "UTC"),
    measurements=COUNT,
    again=described(COUNT, "of these: measured before under the same conditions"),
    ratio=described(NUMBER_OR_NULL, "median latency then over that before"),
    drivers=TEXT,
)


@document(
    "fleet-report",
    1,
    "Models on many phones: latencies, few plans, what drivers do, history",
    models=array(TEXT),
    phones=array(TEXT),
    simulated=described(TRUTH, "whether some phone is simulated"),
    estimated=described(TRUTH, "whether some latencies are estimated"),
    objective=choice("mean", "worst"),
    worth=described(NUMBER, "median over phones and models of the speed over the CPU's"),
    cells=described(array(MODEL_ON_PHONE), "one for each model on each phone"),
    groups=described(array(GROUP), "phones that share a plan"),
    choices=described(array(CHOICE), "regret by the number of plans"),
    slow=described(array(SLOW), "accelerators that are slower than the CPU, the slowest first"),
    faults=described(array(FAULTS), "drivers that crashed, were late or failed"),
    days=described(array(DAY), "what was measured on each phone, by date"),
    notes=NOTES,
)
def of_fleet_report(report: FleetReport) -> Document:
    return properties("fleet-report", report)
