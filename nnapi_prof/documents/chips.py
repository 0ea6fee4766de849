"""Build the documents of commands with ``--device qnn:CHIP``: estimates, costs and plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof import documents as s
from nnapi_prof.documents import Document, document, properties
from nnapi_prof.documents.plans import PLAN, UNIT, of_plan, of_units

if TYPE_CHECKING:
    from nnapi_prof.api.chips import ChipEstimates, ChipResult
    from nnapi_prof.graph.unit import Unit
    from nnapi_prof.qnn.network import ChipFiles

_NS = s.described(s.NUMBER_OR_NULL, "ns, estimated by the simulator; null if it has no value")
CALIBRATION = s.obj(
    chip=s.TEXT,
    overhead_ns=s.described(s.NUMBER, "of each invocation"),
    slope=s.described(s.NUMBER, "ns on the chip for each simulated ns"),
    networks=s.described(s.COUNT, "published networks that both were fitted to"),
    median_error=s.described(s.NUMBER, "relative, half of networks left out are below"),
    worst_error=s.NUMBER,
    within_quarter=s.described(
        s.NUMBER, "share of networks left out that were off by 25 % at most"
    ),
    spread=s.described(s.NUMBER, "half the width of the band, in natural logarithms"),
    device=s.described(s.TEXT, "the published device"),
    borrowed=s.described(s.TRUTH, "fitted to another chip, or for another version of the compiler"),
    qairt=s.described(s.TEXT, "version of the simulator that the rows were simulated with"),
    measured_qairt=s.described(s.TEXT, "version of the compiler on the devices"),
)
REFUSED = s.obj(
    operation=s.described(s.TEXT, "ONNX's name"),
    count=s.COUNT,
    reason=s.described(s.TEXT, "in the compiler's words; empty where it gives none"),
    nodes=s.array(s.TEXT),
)
DOUBT = s.obj(kind=s.TEXT, words=s.TEXT)
_CHIP = s.obj(
    chip=s.TEXT,
    whole_ns=_NS,
    low_ns=_NS,
    high_ns=s.described(s.NUMBER_OR_NULL, "nine of ten published networks lie between the two"),
    npu_ns=s.described(s.NUMBER_OR_NULL, "the part on the NPU, where that is not all"),
    calibration=s.nullable(CALIBRATION),
    taken=s.described(s.mapping(s.COUNT), "operation -> how many the NPU takes"),
    refused=s.array(REFUSED),
    doubts=s.array(DOUBT),
    error=s.TEXT_OR_NULL,
)


@document(
    "chips",
    1,
    "A model on Snapdragons' NPUs, estimated by Qualcomm's simulator",
    model=s.TEXT,
    precision=s.choice("fp16", "int8"),
    estimated_by=s.described(s.TEXT, "never a measurement"),
    qairt=s.described(s.TEXT, "version of compiler and simulator"),
    licence=s.TEXT,
    chips=s.array(_CHIP),
)
def of_chips(estimates: ChipEstimates) -> Document:
    """Return a document with one entry for each chip, in the order of the request."""
    return {
        "model": estimates.model,
        "precision": estimates.precision.value,
        "estimated_by": "qualcomm simulator",
        "qairt": estimates.qairt,
        "licence": estimates.licence,
        "chips": [
            properties(
                _CHIP,
                one,
                doubts=[{"kind": d.kind.value, "words": d.words()} for d in one.doubts],
            )
            for one in estimates.chips
        ],
    }


@document(
    "chip-files",
    1,
    "A model compiled for a Snapdragon's NPU",
    chip=s.TEXT,
    precision=s.choice("fp16", "int8"),
    path=s.described(s.TEXT, "ONNX with nodes EPContext"),
    binaries=s.array(s.TEXT),
    on_npu=s.described(s.COUNT, "operations in the binaries"),
    refused=s.array(REFUSED),
    channels_last=s.described(s.array(s.TEXT), "inputs that are images, now [N, H, W, C]"),
)
def of_chip_files(files: ChipFiles) -> Document:
    """Return a document with the paths as the user gave them."""
    return properties("chip-files", files)


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
    """Return a document in the order of the units, which is the same every time."""
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
