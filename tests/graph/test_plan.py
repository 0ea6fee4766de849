"""Plans as JSON, with what is proven about them."""

from __future__ import annotations

import json
import math

import pytest

from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import CPU, Plan, Proof, ProofKind, Segment

SEGMENTS = (Segment((0, 1), CPU, 2e6, "fastest", interval_ns=(1.9e6, 2.1e6)),)


@pytest.mark.parametrize("kind", ProofKind)
def test_a_proof_survives_json(kind: ProofKind) -> None:
    proof = Proof(kind, 2e6, 1.5e6, "windows", "relaxation", constrained=True)
    plan = Plan("dp", SEGMENTS, True, ("a note",), proof)
    assert Plan.from_json(plan.to_json()) == plan


def test_a_plan_of_an_earlier_version_has_no_proof() -> None:
    fields = json.loads(Plan("dp", SEGMENTS, False).to_json())
    assert fields["proof"] is None
    del fields["proof"]
    assert Plan.from_json(json.dumps(fields)).proof is None


@pytest.mark.parametrize("proof", [{"kind": "hearsay"}, {"kind": "exact"}, {"kind": "gap", "x": 1}])
def test_a_proof_that_is_none_is_refused(proof: dict[str, object]) -> None:
    fields = json.loads(Plan("dp", SEGMENTS, False).to_json())
    with pytest.raises(SerializationError, match="this is no plan"):
        Plan.from_json(json.dumps({**fields, "proof": proof}))


@pytest.mark.parametrize(
    ("proof", "gap"),
    [
        (Proof(ProofKind.EXACT, 2.0, 2.0), 0.0),
        (Proof(ProofKind.BOUND_MET, 2.000001, 2.0), 0.0),
        (Proof(ProofKind.GAP, 2.5, 2.0), 0.25),
        (Proof(ProofKind.GAP, 2.5, 0.0), math.inf),
    ],
)
def test_the_gap_is_relative_to_the_bound(proof: Proof, gap: float) -> None:
    assert proof.gap == pytest.approx(gap)
    assert proof.is_optimal == (gap == 0.0)
