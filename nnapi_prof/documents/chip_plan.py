"""``profile``, ``partition`` and ``go`` with ``--device qnn:CHIP``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.chips import CALIBRATION, DOUBT
from nnapi_prof.documents.plans import PLAN, UNIT, of_plan, of_units
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.api.chip_costs import ChipResult
    from nnapi_prof.graph.unit import Unit

_LABELLED = s.mapping(s.array(DOUBT))


@document(
    "chip-plan",
    1,
    "Costs and plan on a Snapdragon that is not there, by Qualcomm's simulator",
    model=s.TEXT,
    chip=s.TEXT,
    precision=s.choice("fp16", "int8"),
    estimated_by=s.described(s.TEXT, "never a measurement"),
    estimated={"const": True},
    calibration=CALIBRATION,
    notes=s.array(s.TEXT),
    units=s.array(
        s.extended(
            UNIT,
            costs=s.described(s.mapping(s.NUMBER), "target -> ns of its own within a region"),
            refusals=s.described(s.mapping(s.TEXT), "target -> why it cannot run there"),
        )
    ),
    invocations=s.described(s.mapping(s.NUMBER), "target -> ns of each invocation"),
    plan=PLAN,
    baselines=s.array(PLAN),
    ties=s.described(s.array(s.TEXT), "baselines that the plan beats by less than the error"),
    stable=s.described(s.TRUTH, "every region of the plan was compiled whole"),
    region_errors=s.described(s.array(s.NUMBER), "relative, of sums against regions compiled"),
    doubts=s.described(_LABELLED, "label of a unit or region -> what is odd"),
    failures=s.described(s.mapping(s.TEXT), "label -> why there is no estimate"),
)
def of_chip_plan(result: ChipResult) -> Document:
    """All of it in the order of the units: the same bytes each time."""
    costs = result.profile.costs

    def of_unit(unit: Unit) -> Document:
        own = {
            target.key: ns
            for target in costs.targets
            if (ns := costs.unit_cost(unit.index, target)) is not None
        }
        refusals = {
            target.key: costs.refusals[unit.index, target]
            for target in costs.targets
            if (unit.index, target) in costs.refusals
        }
        return {"costs": own, "refusals": refusals}

    best, *rivals = map(of_plan, result.planned.plans)
    return {
        "model": result.costs.model.name,
        "chip": result.chip.name,
        "precision": result.precision.value,
        "estimated_by": "qualcomm simulator",
        "estimated": True,
        "calibration": properties(CALIBRATION, result.calibration),
        "notes": list(result.costs.notes),
        "units": of_units(costs.graph, of_unit),
        "invocations": {target.key: costs.overhead(target) for target in costs.targets},
        "plan": best,
        "baselines": rivals,
        "ties": list(result.ties),
        "stable": result.profile.stable,
        "region_errors": list(result.profile.errors),
        "doubts": {
            label: [{"kind": d.kind.value, "words": d.words()} for d in doubts]
            for label, doubts in result.profile.doubts.items()
        },
        "failures": dict(result.profile.failures),
    }
