"""A driver that fails or refuses everything after so many compilations, until its service begins
another life."""

import json

import pytest

import nnapi_prof as np_
from nnapi_prof.costs.measurement import UNWATCHED, Status
from nnapi_prof.device.find import PHONES_DIR
from tests.parts import again_but
from tests.phones.conftest import CLEAN, Profile, refuse, service

pytestmark = pytest.mark.slow  # the agent waits 6 s for a driver that does not come back


def statuses(profile: Profile) -> dict[tuple[str, str], str]:
    return {(row.signature, row.target.key): row.status.value for row in profile.rows}


WEARS = [6, 9, 15, 24]


@pytest.mark.parametrize("worn", ["fails", "refuses"])
@pytest.mark.parametrize("wears", again_but(WEARS, 9, why="another number"))
def test_a_driver_that_comes_back_when_it_rests_leaves_no_trace(profiled, worn, wears):
    clean = profiled(CLEAN, "twin")
    tired = profiled(service(CLEAN, worn=worn, wears=wears, rests=0.1))
    assert statuses(tired) == statuses(clean)
    assert (tired.segments, tired.unlike(clean)) == (clean.segments, [])
    assert tired.costs.outcome.doubts == {}


@pytest.mark.parametrize("worn", ["fails", "refuses"])
@pytest.mark.parametrize("wears", again_but(WEARS, 24, why="another number"))
def test_one_that_does_not_come_back_is_named_and_its_rows_stay_open(
    profiled, tmp_path, worn, wears
):
    """Nor does the next profile store anything of it, nor what NNAPI chose without it; once the
    phone was restarted, what is open is measured."""
    clean = profiled(CLEAN, "twin")
    description = service(CLEAN, worn=worn, wears=wears)
    for _ in range(2):
        tired = profiled(description)
        assert statuses(tired).items() < statuses(clean).items()
        (doubt,) = tired.costs.outcome.doubts
        assert doubt.endswith(": sim-npu")
    (state,) = tmp_path.glob("nnapi-emulator-*")
    lives = 0
    while statuses(tired) != statuses(clean) and lives < 100 / wears:
        state.unlink()
        lives += 1
        tired = profiled(description)
    assert statuses(tired) == statuses(clean)
    assert (tired.segments, tired.unlike(clean)) == (clean.segments, [])


@pytest.mark.parametrize("worn", ["fails", "refuses"])
def test_one_that_never_ran_anything_is_named_and_its_rows_stay_open(profiled, tmp_path, worn):
    """It was worn out before; in another table nothing says what it can run."""
    clean = profiled(CLEAN, "twin")
    description = service(CLEAN, worn=worn, wears=9)
    profiled(description, "before")
    tired = profiled(description)
    assert {target for _, target in statuses(tired) if "sim-npu" in target} == set()
    assert statuses(tired).items() < statuses(clean).items()
    (doubt,) = tired.costs.outcome.doubts
    assert "no small model" in doubt and doubt.endswith(": sim-npu")


def test_one_that_supports_nothing_of_the_model_is_not_blamed(profiled):
    """It takes 8-bit integers alone; what it refuses is final, and asked once."""
    integers = json.loads((PHONES_DIR / "dsp-phone.json").read_text())
    first = profiled(integers)
    refused = {row.status for row in first.rows if row.target.accelerator == "sim-dsp"}
    assert refused == {Status.REFUSED}
    assert first.costs.outcome.doubts == {}
    assert profiled(integers).costs.outcome.n_measured == 0


def test_an_accelerator_that_refuses_the_reference_is_not_watched(profiled):
    once = profiled(refuse(CLEAN, "CONV_2D"), gates=np_.Gates(anchor_s=3600))
    rows = [row for row in once.rows if row.usable and row.target.accelerator == "sim-npu"]
    assert rows and once.costs.outcome.doubts == {f"{UNWATCHED} sim-npu": len(rows)}
