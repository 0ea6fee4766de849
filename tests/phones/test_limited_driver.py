"""Drivers that stand, hold or map only so much: one that fails or refuses everything after so many
compilations, until its service begins another life; one that goes on with the run of a client that
was killed, keeps the parameters of one model, or holds few compilations; and one to which shared
memory of some kinds is refused, as SELinux does it: its runs fail, and nothing says why."""

import pytest

import nnapi_prof as np_
from nnapi_prof.costs.measurement import UNWATCHED, Status
from nnapi_prof.execution.profile import measurer, state
from nnapi_prof.execution.profile.state import Waits
from tests.emulator.phones.descriptions import load
from tests.parts import again_but
from tests.phones.conftest import CLEAN, Profile, check_like, fault, refuse, service

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
    check_like(tired, clean)
    assert tired.costs.outcome.doubts == {}


@pytest.mark.parametrize("worn", ["fails", "refuses"])
@pytest.mark.parametrize("wears", again_but(WEARS, 24, why="another number"))
def test_one_that_does_not_come_back_is_named(profiled, tmp_path, worn, wears):
    """Its rows stay open: the next profile stores nothing of it, nor what NNAPI chose without it;
    once the phone was restarted, what is open is measured."""
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
    integers = load("dsp-phone")
    first = profiled(integers)
    refused = {row.status for row in first.rows if row.target.accelerator == "sim-dsp"}
    assert refused == {Status.REFUSED}
    assert first.costs.outcome.doubts == {}
    assert profiled(integers).costs.outcome.n_measured == 0


def test_an_accelerator_that_refuses_the_reference_is_not_watched(profiled):
    once = profiled(refuse(CLEAN, "CONV_2D"), gates=np_.Gates(anchor_s=3600))
    rows = [row for row in once.rows if row.usable and row.target.accelerator == "sim-npu"]
    assert rows and once.costs.outcome.doubts == {f"{UNWATCHED} sim-npu": len(rows)}


def test_waiting_for_a_driver_ends(profiled, monkeypatch):
    """What is left is measured by the next profile, which does not try again what hangs."""
    hangs = service(CLEAN, lingers=0.1)
    hangs = fault(hangs, kind="hang", stage="execute", operation="DEPTHWISE_CONV_2D", nth=1)
    clean = profiled(refuse(CLEAN, "DEPTHWISE_CONV_2D"), "twin", timeout_s=2)
    with monkeypatch.context() as patched:
        patched.setattr(state, "LEAST_LOST_S", 0.5)
        patched.setattr(state, "LOST_SHARE", 0.0)
        patched.setattr(measurer, "MAX_ACTIONS", 12)
        first = profiled(hangs, timeout_s=2)
    outcome = first.costs.outcome
    assert 0.5 < outcome.lost_s < 15
    assert [doubt.rpartition(": ")[2] for doubt in outcome.doubts] == ["sim-npu"]
    keys = {(row.signature, row.target) for row in first.rows}
    missing = {row.target for row in clean.rows if (row.signature, row.target) not in keys}
    assert {target.accelerator for target in missing} <= {"sim-npu", "auto"} != set()
    then = profiled(hangs, timeout_s=2)
    outcome = then.costs.outcome
    assert (outcome.doubts, then.segments) == ({}, clean.segments)
    assert outcome.n_measured > 0 and {name for _, name in then.failures} == {"sim-npu"}


@pytest.mark.parametrize("load_runs", again_but([1, 2], 2, why="as with 2"))
def test_models_that_push_each_other_out_are_timed_loaded(profiled, load_runs):
    pushing = service(CLEAN, loaded=1, load=5000, load_runs=load_runs)
    check_like(profiled(pushing), profiled(CLEAN, "twin"))


@pytest.mark.parametrize("room", again_but([1, 2, 3], 1, why="as a driver of one"))
def test_as_many_models_are_compiled_at_once_as_the_driver_holds(profiled, room):
    check_like(profiled(service(CLEAN, compilations=room)), profiled(CLEAN, "twin"))


@pytest.fixture
def requests(monkeypatch):
    """Yields the answer to each request, as they are made."""
    patiences, patience = [], Waits.patience

    def note(waits, simulated):
        patiences.append(patience(waits, simulated))
        return patiences[-1]

    monkeypatch.setattr(Waits, "patience", note)
    return patiences


@pytest.mark.parametrize(
    "kinds, memory", [(["file"], "file"), (["memfd"], "memfd"), ([], "pointers")]
)
def test_the_next_kind_of_memory_is_tried(profiled, kinds, memory):
    refused = profiled(service(CLEAN, memory=kinds))
    check_like(refused, profiled(CLEAN, "twin"))
    used = {(row.target.accelerator, row.memory) for row in refused.rows if row.usable}
    # Each accelerator has its own.
    assert {kind for name, kind in used if name == "sim-npu"} == {memory}
    assert {kind for name, kind in used if name == "sim-gpu"} == {"file"}


def test_what_a_request_learns_of_drivers_the_next_one_is_told(profiled, monkeypatch, requests):
    """Otherwise NNAPI's choice alone in a request falls back to the CPU, and tells nobody."""
    monkeypatch.setattr(measurer, "MAX_ACTIONS", 1)
    monkeypatch.setattr(measurer, "WATCHED_ACTIONS", 1)
    profiled(service(CLEAN, memory=["memfd"], compilations=1))
    assert requests[0].drivers == ()
    last = {each.accelerator: (each.room, each.memory) for each in requests[-1].drivers}
    expected = {"sim-npu": (1, "memfd"), "sim-gpu": (4, "file"), None: (4, "pointers")}
    assert expected.items() <= last.items()


def test_the_next_profiles_know_memory_and_room_unless_the_driver_is_another(profiled, requests):
    refused = service(CLEAN, memory=["memfd"], compilations=1)
    first = profiled(refused)
    for _ in range(2):  # the second knows it by the first one's rows, the third by the second's
        requests.clear()
        profiled(refused, fresh=True)
        known = {each.accelerator: (each.room, each.memory) for each in requests[0].drivers}
        assert known == {"sim-npu": (1, "memfd"), "sim-gpu": (4, "file")}
    waits = Waits({}, bounded=True)
    waits.remember(first.rows, {"sim-npu": "another version"})
    assert waits.patience(True).drivers == ()
