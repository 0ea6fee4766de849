"""(f) Shared memory of some kinds is refused to a driver, as SELinux does it: its runs fail, and
nothing says why."""

import pytest

from nnapi_prof.device.protocol.request import Patience
from nnapi_prof.execution.profile import measurer
from nnapi_prof.execution.profile.state import Waits
from tests.phones.conftest import CLEAN, service

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("kinds", "memory"), [(["file"], "file"), (["memfd"], "memfd"), ([], "pointers")]
)
def test_the_next_kind_of_memory_is_tried(profiled, kinds, memory):
    clean = profiled(CLEAN, "twin")
    refused = profiled(service(CLEAN, memory=kinds))
    assert (refused.failures, refused.segments) == ({}, clean.segments)
    assert refused.unlike(clean) == []
    by_target = {row.target.accelerator: set() for row in refused.rows if row.usable}
    for row in refused.rows:
        if row.usable:
            by_target[row.target.accelerator].add(row.memory)
    assert by_target["sim-npu"] == {memory}
    assert by_target["sim-gpu"] == {"file"}, "each accelerator has its own"
    assert refused.seconds <= 1.5 * clean.seconds


def test_what_a_request_learns_of_drivers_the_next_one_is_told(profiled, monkeypatch):
    """Otherwise NNAPI's choice alone in a request falls back to the CPU, and tells nobody."""
    requests = _noted(monkeypatch)
    monkeypatch.setattr(measurer, "MAX_ACTIONS", 1)
    monkeypatch.setattr(measurer, "WATCHED_ACTIONS", 1)
    profiled(service(CLEAN, memory=["memfd"], compilations=1))
    assert requests[0].drivers == ()
    last = {each.accelerator: (each.room, each.memory) for each in requests[-1].drivers}
    assert (last["sim-npu"], last["sim-gpu"], last[None]) == (
        (1, "memfd"),
        (4, "file"),
        (4, "pointers"),
    )


def test_the_next_profiles_know_memory_and_room_unless_the_driver_is_another(profiled, monkeypatch):
    refused = service(CLEAN, memory=["memfd"], compilations=1)
    first = profiled(refused)
    for _ in range(2):  # the second knows it by the first one's rows, the third by the second's
        requests = _noted(monkeypatch)
        profiled(refused, fresh=True)
        known = {each.accelerator: (each.room, each.memory) for each in requests[0].drivers}
        assert known == {"sim-npu": (1, "memfd"), "sim-gpu": (4, "file")}
    waits = Waits({}, bounded=True)
    waits.remember(first.rows, {"sim-npu": "another version"})
    assert waits.patience(True).drivers == ()


def _noted(monkeypatch: pytest.MonkeyPatch) -> list[Patience]:
    """What each request is told, as they are made."""
    requests: list[Patience] = []
    patience = Waits.patience

    def note(waits: Waits, simulated: bool) -> Patience:
        requests.append(patience(waits, simulated))
        return requests[-1]

    monkeypatch.setattr(Waits, "patience", note)
    return requests
