"""What a schema asks for, read from the result that has it."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from nnapi_prof.costs import Conditions
from nnapi_prof.documents import (
    COUNT,
    NUMBER_OR_NULL,
    TEXT,
    TRUTH,
    array,
    mapping,
    nullable,
    obj,
    properties,
)
from nnapi_prof.documents.plans import CONDITIONS, TARGET
from nnapi_prof.graph.plan import CPU, Target


@dataclass(frozen=True)
class Part:
    ns: float
    folder: Path
    secret: str = "not asked for"


@dataclass(frozen=True)
class Whole:
    target: Target
    conditions: Conditions
    parts: tuple[Part, ...]
    first: Part | None
    by_name: dict[str, Part]

    @property
    def simulated(self) -> bool:
        return True


PART = obj(ns=NUMBER_OR_NULL, folder=TEXT)
WHOLE = obj(
    simulated=TRUTH,
    target=TARGET,
    conditions=CONDITIONS,
    parts=array(PART),
    first=nullable(PART),
    by_name=mapping(PART),
    n_parts=COUNT,
)


def test_attributes_in_the_order_of_the_schema() -> None:
    part = Part(math.inf, Path("a/b"))
    of_part = {"ns": None, "folder": "a/b"}
    whole = Whole(CPU, Conditions(), (part,), None, {"x": part})
    document = properties(WHOLE, whole, n_parts=1)
    assert list(document) == list(WHOLE["properties"])
    assert document == {
        "simulated": True,
        "target": "cpu",
        "conditions": Conditions().to_json(),
        "parts": [of_part],
        "first": None,
        "by_name": {"x": of_part},
        "n_parts": 1,
    }
    assert properties(WHOLE, Whole(CPU, Conditions(), (), part, {}), n_parts=0)["first"] == of_part


def test_what_neither_is_there_nor_computed_is_a_mistake_of_ours() -> None:
    with pytest.raises(AttributeError, match="n_parts"):
        properties(WHOLE, Whole(CPU, Conditions(), (), None, {}))
