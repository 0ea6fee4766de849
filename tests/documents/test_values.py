"""Documents: a schema asks for what the result has; what is proven of plans is a value; JSON has no
word for outputs that are not finite."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
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
from nnapi_prof.documents.plans import CONDITIONS, PLAN, TARGET, of_checks, of_plan
from nnapi_prof.documents.report import of_comparison
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.graph.plan import CPU, Plan, Proof, ProofKind, Segment
from nnapi_prof.reports.comparison import Compared, Side
from tests.documents.common import closed
from tests.reports.sample import sample

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
    part = SimpleNamespace(ns=math.inf, folder=Path("a/b"), secret="not asked for")
    of_part = {"ns": None, "folder": "a/b"}
    whole = SimpleNamespace(target=CPU, conditions=Conditions(), parts=(part,), simulated=True)
    whole.first, whole.by_name = None, {"x": part}
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
    whole.first = part
    assert properties(WHOLE, whole, n_parts=0)["first"] == of_part
    with pytest.raises(AttributeError, match="n_parts"):
        properties(WHOLE, whole)


GAP = Proof(ProofKind.GAP, 2.2e6, 2e6, "local", "relaxation", True, "energy in mJ")


@pytest.mark.parametrize(
    ("proof", "gap"),
    [
        (None, None),
        (GAP, 0.1),
        (replace(GAP, bound_ns=0.0), None),
        (replace(GAP, kind=ProofKind.EXACT, objective=""), 0),
    ],
)
def test_the_proof_of_a_plan(proof: Proof | None, gap: float | None) -> None:
    plan = Plan("dp", (Segment((0,), CPU, 2.2e6, "fastest"),), False, (), proof)
    result = of_plan(plan)
    jsonschema.Draft202012Validator(closed(PLAN)).validate(result)
    json.dumps(result, allow_nan=False)
    assert Plan.from_json(plan.to_json()) == plan
    row = result["proof"]
    if proof is None:
        assert row is None
        return
    assert row["kind"] == proof.kind.value
    assert row["gap"] == (None if gap is None else pytest.approx(gap))
    assert row["objective"] == (proof.objective or None)
    assert row["least_ns"] == 2.2e6 and row["found_by"] == "local"


INFINITE = OutputCheck("y", (1,), math.inf, math.inf, 1e-4)


def test_an_output_that_is_not_finite_is_null_and_not_ok() -> None:
    document, finite = of_checks([INFINITE, replace(INFINITE, max_abs=0.5, relative=0.25)])
    assert document["max_abs"] is None and document["relative"] is None and not document["ok"]
    assert finite["relative"] == 0.25


def test_a_comparison_of_such_outputs_is_json() -> None:
    data = sample(8)
    assert data.run is not None
    broken = replace(data, run=replace(data.run, checks=(INFINITE,)))
    compared = Compared(Side.of("good", data), Side.of("broken", broken))
    json.dumps(of_comparison(compared), allow_nan=False)
