"""Builds the document of ``advise --json``, and its parts in other documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.schema import Document, document, properties
from nnapi_prof.graph.advice import Hindrance

if TYPE_CHECKING:
    from nnapi_prof.api.advise import Advised
    from nnapi_prof.graph.advice import Advice

_REWRITE = s.obj(
    name=s.TEXT,
    code=s.described(s.TEXT, "PyTorch"),
    accuracy=s.described(s.TEXT, "what it does to the outputs, as a sentence"),
    exact=s.described(s.TRUTH, "it computes the same except for rounding"),
)
_VERIFIED = s.obj(
    before_ns=s.described(s.NUMBER, "median of the plan as it is, end to end"),
    after_ns=s.described(s.NUMBER, "of the plan of the rewritten model"),
    saves_ns=s.NUMBER,
    margin_ns=s.described(s.NUMBER, "half of its 95 % interval"),
    moved=s.described(
        s.NUMBER_OR_NULL, "largest change of an output, relative to its largest value"
    ),
    failure=s.described(s.TEXT, "why it could not be measured; empty where it was"),
)
ADVICE = s.array(
    s.obj(
        cause=s.described(s.TEXT, "the hindrance, as a sentence"),
        kind=s.choice(*(kind.value for kind in Hindrance)),
        units=s.described(s.array(s.COUNT), "that it is about, by their numbers"),
        labels=s.array(s.TEXT),
        targets=s.described(s.array(s.TEXT), "accelerators that do not run them, or do slowly"),
        rewrite=s.described(s.nullable(_REWRITE), "null where none is known"),
        before_ns=s.described(s.NUMBER, "the plan as it is, predicted"),
        after_ns=s.described(s.NUMBER, "the plan that there would be, predicted"),
        saves_ns=s.described(s.NUMBER, "predicted"),
        margin_ns=s.described(s.NUMBER, "half of its 95 % interval, as far as costs tell theirs"),
        sure=s.described(
            s.TRUTH, "all that the rewrite is made of ran on this device, or every driver has it"
        ),
        simulated=s.TRUTH,
        estimated=s.described(s.TRUTH, "by a vendor's compiler and simulator, for a chip"),
        verified=s.described(s.nullable(_VERIFIED), "null where it was not tried"),
    )
)


@document(
    "advise",
    1,
    "What would make a plan faster, the most first",
    model=s.TEXT,
    device=s.described(s.TEXT, "for people"),
    simulated=s.TRUTH,
    predicted_ns=s.described(s.NUMBER, "of the plan as it is"),
    advice=ADVICE,
    notes=s.array(s.TEXT),
)
def of_advised(advised: Advised) -> Document:
    planned = advised.planned
    return properties(
        "advise",
        planned,
        model=planned.model.name,
        predicted_ns=planned.plan.predicted_ns,
        advice=of_advice(advised.advice),
        notes=list(advised.notes),
    )


def of_advice(advice: Sequence[Advice]) -> list[Document]:
    return [properties(ADVICE["items"], one) for one in advice]
