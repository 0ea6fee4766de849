"""(f) Shared memory of some kinds is refused to a driver, as SELinux does it: its runs fail, and
nothing says why."""

import pytest

from nnapi_prof.execution.profile import measurer
from nnapi_prof.execution.profile.state import Waits
from tests.phones.conftest import CLEAN, check_like, service

pytestmark = pytest.mark.slow


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
    ("kinds", "memory"), [(["file"], "file"), (["memfd"], "memfd"), ([], "pointers")]
)
def test_the_next_kind_of_memory_is_tried(profiled, kinds, memory):
    clean = profiled(CLEAN, "twin")
    refused = profiled(service(CLEAN, memory=kinds))
    check_like(refused, clean)
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
