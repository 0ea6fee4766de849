"""Builds the document of ``bisect --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.bisection.diagnosis import FaultKind
from nnapi_prof.documents import schema as s
from nnapi_prof.documents.plans import NOTES
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.bisection.diagnosis import Bisection

_VALUE = s.obj(
    value=s.described(s.TEXT, "its name in the graph"),
    shape=s.array(s.COUNT),
    range=s.described(s.array(s.NUMBER_OR_NULL), "smallest and largest finite value"),
    reference_range=s.array(s.NUMBER_OR_NULL),
    share_off=s.described(s.NUMBER, "of elements, off by more than a tenth of the largest error"),
    n_nan=s.COUNT,
    n_infinite=s.COUNT,
    limit=s.described(s.NUMBER_OR_NULL, "where values end that should be larger"),
    factor=s.described(s.NUMBER_OR_NULL, "that explains the error"),
    offset=s.described(s.NUMBER_OR_NULL, "that explains the error"),
    channels_off=s.described(s.array(s.COUNT), "channels with errors, where others have none"),
    borders_only=s.TRUTH,
    shift=s.described(
        s.nullable(s.array({"type": "integer"})), "rows and columns that images moved by"
    ),
    permuted=s.described(s.nullable(s.array(s.COUNT)), "axes as the device read them"),
)
_CURE = s.obj(
    name=s.TEXT,
    target=s.described(s.TEXT_OR_NULL, "that runs the units then"),
    code=s.described(s.TEXT, "of a rewrite: PyTorch; else empty"),
    before_ns=s.described(s.NUMBER_OR_NULL, "the plan with the fault, predicted"),
    after_ns=s.described(s.NUMBER_OR_NULL, "the plan without, predicted"),
    costs_ns=s.described(s.NUMBER_OR_NULL, "the difference; null where nothing was measured"),
)
_CULPRIT = s.obj(
    units=s.described(s.array(s.COUNT), "by their numbers; several differ together only"),
    names=s.array(s.TEXT),
    label=s.TEXT,
    target=s.TEXT,
    driver_version=s.TEXT,
    module=s.described(s.TEXT, "path in the user's model, empty where unknown"),
    line=s.described(s.TEXT, "FILE:LINE of the user's Python, empty where unknown"),
    kind=s.choice(*(kind.value for kind in FaultKind)),
    value=s.described(s.TEXT, "that is furthest off"),
    max_abs=s.NUMBER_OR_NULL,
    relative=s.described(s.NUMBER_OR_NULL, "to the reference's largest value; null is infinite"),
    ratio=s.described(s.NUMBER_OR_NULL, "the error as a multiple of what is allowed"),
    final_error=s.described(s.NUMBER_OR_NULL, "of the model's outputs, were all else right"),
    final_share=s.described(s.NUMBER_OR_NULL, "of the model's error on the device"),
    values=s.array(_VALUE),
    ways=s.array(s.obj(way=s.TEXT, differs=s.TRUTH)),
    message=s.described(s.TEXT_OR_NULL, "of the device, where it does not run"),
    cures=s.array(_CURE),
)


@document(
    "bisect",
    1,
    "The units whose results on a device differ from PyTorch's",
    model=s.TEXT,
    device=s.TEXT,
    fingerprint=s.TEXT,
    simulated=s.TRUTH,
    targets=s.described(s.array(s.TEXT), "that were searched"),
    n_units=s.COUNT,
    n_samples=s.COUNT,
    budget=s.described(s.NUMBER_OR_NULL, "null: the usual one of each precision"),
    runs=s.described(s.COUNT, "requests to the device until the search ended"),
    executions=s.described(s.COUNT, "on the device, every sample and repeat counted"),
    clean=s.TRUTH,
    culprits=s.array(_CULPRIT),
    unchecked=s.described(
        s.array(s.obj(unit=s.COUNT, label=s.TEXT, target=s.TEXT, reason=s.TEXT)),
        "units that a target does not execute",
    ),
    notes=NOTES,
)
def of_bisection(outcome: Bisection) -> Document:
    culprits = [
        properties(
            _CULPRIT,
            culprit,
            target=culprit.target.key,
            module=culprit.source.module,
            line=culprit.source.line,
            value=culprit.worst.value,
            max_abs=s.finite(culprit.worst.max_abs),
            relative=s.finite(culprit.worst.relative),
            ratio=s.finite(culprit.worst.ratio),
            values=[properties(_VALUE, facts, value=name) for name, facts in culprit.facts],
            ways=[{"way": each.way.name, "differs": each.differs} for each in culprit.ways],
        )
        for culprit in outcome.culprits
    ]
    return properties("bisect", outcome, culprits=culprits)
