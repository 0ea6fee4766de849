"""Plans as JSON, with what is proven about them."""

import json
import math

import pytest

from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import (
    CPU,
    Plan,
    Precision,
    Preference,
    Proof,
    ProofKind,
    Segment,
    Target,
    is_target,
)

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
    with pytest.raises(SerializationError, match="this is not a plan"):
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


@pytest.mark.parametrize("base", [CPU, Target.nnapi("an@int8/odd name", Preference.LOW_POWER)])
@pytest.mark.parametrize("precision", Precision)
def test_a_target_in_a_precision_is_the_same_target(base: Target, precision: Precision) -> None:
    target = base.at(precision)
    assert target.precision is precision
    assert target.base == base and target.at(Precision.FLOAT32) == base
    assert Target.parse(target.key) == target
    assert is_target(target.key) == (precision is Precision.FLOAT32)


@pytest.mark.parametrize("key", ["cpu@int4", "cpu@", "@int8", "nnapi:npu@int8", "cpu@int8@int8"])
def test_a_suffix_that_is_no_precision_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="is not one of cpu, host"):
        Target.parse(key)
