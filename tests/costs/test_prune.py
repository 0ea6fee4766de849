"""Deleting rows on both databases: what goes, what stays, and that nothing goes by chance."""

import pytest

from nnapi_prof.costs import Conditions, Mode
from nnapi_prof.costs.measurement import Kind, Status
from nnapi_prof.costs.store import CostStore, Pruned, prune
from nnapi_prof.costs.store.selection import Selection, instant
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import CPU
from tests.costs.test_store import measurement

DAY = "2026-01-0{}T12:00:00+00:00"
EVERY = "a1 a2 a3 b burst cpu old tab"


@pytest.fixture
def filled(store):
    """``a`` is measured three times (the second arrives last), everything else once."""
    for phone in ("phone", "tablet"):
        store.add_device(phone, {"phone": phone}, simulated=True)
    burst = Conditions(mode=Mode.BURST)
    store.add(
        measurement("a", label="a1", measured_at=DAY.format(1)),
        measurement("a", label="a3", measured_at=DAY.format(5)),
        measurement("a", label="a2", measured_at=DAY.format(3)),
        measurement("a", CPU, label="cpu", measured_at=DAY.format(2)),
        measurement("a", label="burst", conditions=burst, measured_at=DAY.format(2)),
        measurement("b", label="b", status=Status.REFUSED, samples_ns=(), kind=Kind.UNIT),
        measurement("old", label="old", measured_at=DAY.format(1)),
        measurement("a", label="tab", fingerprint="tablet", measured_at=DAY.format(1)),
    )
    return store


CASES = [
    (Selection(), True, "a1 a2"),
    (Selection(until=instant("2026-01-02")), False, "a1 b old tab"),
    (Selection(until=instant("2026-01-02")), True, "a1"),
    # The newer row that supersedes need not fit itself.
    (Selection(since=instant("2026-01-03"), until=instant("2026-01-04")), True, "a2"),
    (Selection(fingerprints=["tablet"]), False, "tab"),
    (Selection(fingerprints=["tablet"]), True, ""),
    (Selection(statuses=(Status.REFUSED,)), False, "b"),
    (Selection(signatures=["a", "none"], targets=("cpu",)), False, "cpu"),
    (Selection(signatures=["a"]), True, "a1 a2"),
    (Selection(fingerprints=["tablet"], newest=True), False, "tab"),
]


def labels(store: CostStore) -> list[str]:
    return sorted(row["label"] for row in store.rows())


@pytest.mark.parametrize(("selection", "superseded", "goes"), CASES)
def test_what_goes(filled, selection, superseded, goes):
    assert labels(filled) == EVERY.split()
    text = prune(filled, selection, superseded=superseded)
    assert (text.rows, text.kept, text.deleted) == (len(goes.split()), 8 - text.rows, False)
    assert labels(filled) == EVERY.split() and len(filled.devices()) == 2
    done = prune(filled, selection, superseded=superseded, deleting=True)
    assert done == Pruned(True, text.devices, text.forgotten, text.kept)
    assert labels(filled) == sorted(set(EVERY.split()) - set(goes.split()))
    assert prune(filled, selection, superseded=superseded, deleting=True).rows == 0


def test_plans_read_the_same_when_what_was_superseded_is_gone(filled):
    before = filled.measurements("phone")
    prune(filled, Selection(), superseded=True, deleting=True)
    assert filled.measurements("phone") == before


def test_a_device_without_rows_is_forgotten(filled):
    done = prune(filled, Selection(fingerprints=["tablet"]), deleting=True)
    assert done.forgotten == ("tablet",) and done.devices == {"tablet": 1}
    part = prune(filled, Selection(kinds=(Kind.UNIT,)), deleting=True)
    assert part.rows > 0 and part.forgotten == ()
    assert [device.fingerprint for device in filled.devices()] == ["phone"]


def test_many_rows_go_at_once(store):
    store.add(*(measurement(f"s{n}") for n in range(1203)), measurement("kept", CPU))
    done = prune(store, Selection(targets=("nnapi:*",)), deleting=True)
    assert (done.rows, done.kept) == (1203, 1)
    assert [row["signature"] for row in store.rows()] == ["kept"]


@pytest.mark.parametrize("selection", [Selection(), Selection(newest=True)])
def test_every_row_is_not_deleted_by_saying_nothing(filled, selection):
    with pytest.raises(UsageError, match="nothing says what to delete"):
        prune(filled, selection, deleting=True)
    assert labels(filled) == EVERY.split()
