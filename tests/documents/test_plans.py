"""Plans as documents: what is proven of them is a value."""

import json
from dataclasses import replace

import jsonschema
import pytest

from nnapi_prof.documents.plans import PLAN, of_plan
from nnapi_prof.graph.plan import CPU, Plan, Proof, ProofKind, Segment
from tests.documents.common import closed

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
    if proof is None:
        assert result["proof"] is None
        return
    assert result["proof"]["kind"] == proof.kind.value
    assert result["proof"]["gap"] == (None if gap is None else pytest.approx(gap))
    assert result["proof"]["objective"] == (proof.objective or None)
    assert result["proof"]["least_ns"] == 2.2e6 and result["proof"]["found_by"] == "local"
