"""What ``fleet --report`` prints with ``--json``: many phones and models in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.plans import NOTES, TARGET
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.reports.fleet_data import FleetReport

MODEL_ON_PHONE = s.obj(
    model=s.TEXT,
    phone=s.described(s.TEXT, "for people; unlike all others"),
    weight=s.described(s.NUMBER, "the phone's share of the fleet; 1 in all"),
    best_ns=s.described(s.NUMBER, "with the best plan known for this phone alone"),
    places=s.described(s.array(TARGET), "of this plan, the one with most units first"),
    rule=s.described(s.TEXT, "the fastest simple strategy, a baseline's name"),
    rule_ns=s.NUMBER,
    all_cpu_ns=s.NUMBER,
    worth=s.described(s.NUMBER, "all_cpu_ns over best_ns"),
    plan=s.described(s.TEXT, "the one of the few plans that the phone uses"),
    plan_ns=s.described(s.NUMBER_OR_NULL, "null where none runs there, its weight being 0"),
    regret=s.described(s.NUMBER_OR_NULL, "plan_ns over best_ns, less 1"),
    simulated=s.TRUTH,
    estimated=s.TRUTH,
)
GROUP = s.obj(
    model=s.TEXT,
    plan=s.TEXT,
    phones=s.described(s.array(s.TEXT), "those with the largest regret first"),
    share=s.described(s.NUMBER, "of the fleet, by weight"),
    n_segments=s.COUNT,
    places=s.array(TARGET),
    mean_regret=s.NUMBER_OR_NULL,
    worst_regret=s.NUMBER_OR_NULL,
)
CHOICE = s.obj(
    model=s.TEXT,
    k=s.described(s.COUNT, "plans at most"),
    mean_regret=s.described(s.NUMBER, "of a phone drawn by the weights"),
    worst_regret=s.NUMBER,
)
SLOW = s.obj(
    phone=s.TEXT,
    target=TARGET,
    model=s.TEXT,
    target_ns=s.described(s.NUMBER, "all that it supports there, the rest on the CPU"),
    all_cpu_ns=s.NUMBER,
    slower=s.described(s.NUMBER, "target_ns over all_cpu_ns"),
)
FAULTS = s.obj(
    phone=s.TEXT,
    accelerator=s.TEXT,
    driver=s.described(s.TEXT, "its version"),
    crashed=s.COUNT,
    late=s.described(s.COUNT, "measurements that were not done in time"),
    failed=s.COUNT,
    measured=s.described(s.COUNT, "in all, refusals left out"),
    example=s.TEXT,
)
DAY = s.obj(
    phone=s.TEXT,
    date=s.described(s.TEXT, "UTC"),
    measurements=s.COUNT,
    again=s.described(s.COUNT, "of these: measured before under the same conditions"),
    ratio=s.described(s.NUMBER_OR_NULL, "median latency then over that before"),
    drivers=s.TEXT,
)


@document(
    "fleet-report",
    1,
    "Models on many phones: latencies, few plans, what drivers do, history",
    models=s.array(s.TEXT),
    phones=s.array(s.TEXT),
    simulated=s.described(s.TRUTH, "whether some phone is simulated"),
    estimated=s.described(s.TRUTH, "whether some latencies are estimated"),
    objective=s.choice("mean", "worst"),
    worth=s.described(s.NUMBER, "median over phones and models of the speed over the CPU's"),
    cells=s.described(s.array(MODEL_ON_PHONE), "one for each model on each phone"),
    groups=s.described(s.array(GROUP), "phones that share a plan"),
    choices=s.described(s.array(CHOICE), "regret by the number of plans"),
    slow=s.described(s.array(SLOW), "accelerators that are slower than the CPU, the slowest first"),
    faults=s.described(s.array(FAULTS), "drivers that crashed, were late or failed"),
    days=s.described(s.array(DAY), "what was measured on each phone, by date"),
    notes=NOTES,
)
def of_fleet_report(report: FleetReport) -> Document:
    return properties("fleet-report", report)
