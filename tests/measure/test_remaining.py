"""What a profile expects to measure after a phase."""

from dataclasses import dataclass

from nnapi_prof.execution.profile.unit_session import REFINING, expected_later
from nnapi_prof.graph.plan import CPU, Preference, Target

NPU = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)
SLOW = Target.nnapi("npu", Preference.LOW_POWER)


@dataclass(frozen=True)
class Spec:
    target: Target


@dataclass(frozen=True)
class Job:
    key: str
    spec: Spec


def jobs(name: str, n: int) -> list[Job]:
    return [Job(f"{name}{i}{t}", Spec(t)) for i in range(n) for t in (CPU, NPU, SLOW)]


def test_chains_on_leading_targets_and_a_share_for_refining():
    units, chains = jobs("u", 20), jobs("c", 5)
    later = expected_later(units, chains, {CPU, NPU}, set(), refine=True)
    last = round(REFINING * (40 + 10))
    assert later == {
        "trial": 40 + 10 + last,
        "units": 10 + last,
        "preferences": 10 + last,
        "chains": last,
    }
    later = expected_later(units, chains, {CPU, NPU}, set(), refine=False)
    assert later == {"trial": 50, "units": 10, "preferences": 10, "chains": 0}


def test_nothing_after_what_is_known():
    units, chains = jobs("u", 20), jobs("c", 5)
    have = {job.key for job in units + chains}
    later = expected_later(units, chains, {CPU, NPU}, have, refine=True)
    assert set(later.values()) == {0}
