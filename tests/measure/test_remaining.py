"""What a profile expects to measure after a phase."""

from types import SimpleNamespace

import pytest

from nnapi_prof.execution.profile.unit_session import REFINING, expected_later
from nnapi_prof.graph.plan import CPU, Preference, Target

NPU = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)
SLOW = Target.nnapi("npu", Preference.LOW_POWER)


def jobs(name: str, n: int) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(key=f"{name}{i}{target}", spec=SimpleNamespace(target=target))
        for i in range(n)
        for target in (CPU, NPU, SLOW)
    ]


UNITS, CHAINS = jobs("u", 20), jobs("c", 5)


@pytest.mark.parametrize(("refine", "last"), [(True, round(REFINING * (40 + 10))), (False, 0)])
def test_chains_on_leading_targets_and_a_share_for_refining(refine, last):
    later = expected_later(UNITS, CHAINS, {CPU, NPU}, set(), refine=refine)
    after_units = {"units": 10 + last, "preferences": 10 + last, "chains": last}
    assert later == {"trial": 40 + 10 + last, **after_units}


def test_nothing_after_what_is_known():
    have = {job.key for job in UNITS + CHAINS}
    later = expected_later(UNITS, CHAINS, {CPU, NPU}, have, refine=True)
    assert set(later.values()) == {0}
