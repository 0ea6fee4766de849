"""``estimate --device qnn:CHIPS``: a model on Snapdragons that are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.api.chips import ChipEstimates
    from nnapi_prof.qnn.ship import ChipFiles

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
    """One entry for each chip, in the order of the request."""
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
    """Paths as they were asked for."""
    return properties("chip-files", files)
