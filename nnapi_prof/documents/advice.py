"""What ``advise`` prints with ``--json``, and what other documents have of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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
    nullable,
    obj,
    properties,
)
from nnapi_prof.graph.advice import Hindrance

if TYPE_CHECKING:
    from nnapi_prof.api.advise import Advised
    from nnapi_prof.graph.advice import Advice

_REWRITE = obj(
    name=TEXT,
    code=described(TEXT, "PyTorch"),
    accuracy=described(TEXT, "what it does to the outputs, as a sentence"),
    exact=described(TRUTH, "it computes the same but for rounding"),
)
_VERIFIED = obj(
    before_ns=described(NUMBER, "median of the plan as it is, end to end"),
    after_ns=described(NUMBER, "of the plan of the rewritten model"),
    saves_ns=NUMBER,
    margin_ns=described(NUMBER, "half of its 95 % interval"),
    moved=described(NUMBER_OR_NULL, "largest change of an output, relative to its largest value"),
    failure=described(TEXT, "why it could not be measured; empty where it was"),
)
ADVICE = array(
    obj(
        cause=described(TEXT, "what stands in the way, as a sentence"),
        kind=choice(*(kind.value for kind in Hindrance)),
        units=described(array(COUNT), "that it is about, by their numbers"),
        labels=array(TEXT),
        targets=described(array(TEXT), "accelerators that do not run them, or do slowly"),
        rewrite=described(nullable(_REWRITE), "null where none is known"),
        before_ns=described(NUMBER, "the plan as it is, predicted"),
        after_ns=described(NUMBER, "the plan that there would be, predicted"),
        saves_ns=described(NUMBER, "predicted"),
        margin_ns=described(NUMBER, "half of its 95 % interval, as far as costs tell theirs"),
        sure=described(
            TRUTH, "all that the rewrite is made of ran on this device, or every driver has it"
        ),
        simulated=TRUTH,
        verified=described(nullable(_VERIFIED), "null where it was not tried"),
    )
)


@document(
    "advise",
    1,
    "What would make a plan faster, the most first",
    model=TEXT,
    device=described(TEXT, "for people"),
    simulated=TRUTH,
    predicted_ns=described(NUMBER, "of the plan as it is"),
    advice=ADVICE,
    notes=array(TEXT),
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
