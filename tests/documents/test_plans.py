"""Plans and runs as documents: what is proven of them is a value, and JSON has no word for outputs
that are not finite."""

import json
import math
from dataclasses import replace

import jsonschema
import pytest

from nnapi_prof.documents.plans import PLAN, of_checks, of_plan
from nnapi_prof.documents.report import of_comparison
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.graph.plan import CPU, Plan, Proof, ProofKind, Segment
from nnapi_prof.reports.comparison import Compared, Side
from tests.documents.common import closed
from tests.reports.sample import sample

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
