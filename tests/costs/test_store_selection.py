"""Rows selected and deleted on both databases, and the devices of a table."""

import pytest

from nnapi_prof.costs import Conditions, Mode
from nnapi_prof.costs.measurement import Kind, Status
from nnapi_prof.costs.store import CostStore, Pruned, find, find_one, measured, named, prune
from nnapi_prof.costs.store.selection import Selection, instant
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import CPU, Preference, Target
from tests.costs.test_store import measurement

GPU = Target.nnapi("gpu_1", Preference.LOW_POWER)
DAY = "2026-01-0{}T12:00:00{}+00:00"


def fill(store: CostStore) -> CostStore:
    store.add(
        measurement("old", measured_at=DAY.format(1, "")),
        measurement("old", measured_at=DAY.format(3, ".5"), samples_ns=(1,)),
        measurement("cpu", CPU, label="Conv2d 3x3", measured_at=DAY.format(2, ".123456")),
        measurement("gpu", GPU, label="100% of_it", kind=Kind.UNIT),
        measurement("bad", status=Status.REFUSED, samples_ns=(), measured_at=DAY.format(2, "")),
        measurement("tab", fingerprint="tablet", conditions=Conditions(mode=Mode.BURST)),
    )
    return store


SELECTIONS = [
    (Selection(), "old old cpu gpu bad tab"),
    (Selection(newest=True), "old cpu gpu bad tab"),
    (Selection(fingerprints=["tablet"]), "tab"),
    (Selection(fingerprints=[]), ""),
    (Selection(signatures=[]), ""),
    (Selection(signatures=["tab", "cpu", "no"]), "cpu tab"),
    (Selection(targets=("cpu",)), "cpu"),
    (Selection(targets=("CP?", "nnapi:gpu*")), "cpu gpu"),
    (Selection(targets=("nnapi:gpu-1*",)), ""),
    (Selection(labels=("conv2d*",)), "cpu"),
    (Selection(labels=("*of_it",)), "gpu"),
    (Selection(labels=("100%*",)), "gpu"),
    (Selection(labels=("%",)), ""),
    (Selection(labels=("100? of_it",)), "gpu"),
    (Selection(labels=("*'; DROP TABLE devices",)), ""),
    (Selection(kinds=(Kind.UNIT, Kind.PLAN)), "gpu"),
    (Selection(statuses=(Status.REFUSED,)), "bad"),
    (Selection(conditions=Conditions(mode=Mode.BURST)), "cpu tab"),
    (Selection(since=instant("2026-01-02")), "old cpu bad"),
    (Selection(since=instant("2026-01-02"), until=instant("2026-01-02", end=True)), "cpu bad"),
    (Selection(until=instant("2026-01-02T12:00:00.123456")), "old gpu bad tab"),
    (Selection(since=instant("2026-01-02T13:00:00.123456+01:00")), "old cpu"),
    (Selection(since=instant("2026-01-03T12:00:00.5")), "old"),
    (Selection(since=instant("2026-01-03T12:00:00.500001")), ""),
    (Selection(until=instant("2026-01-02T12:00")), "old gpu tab"),
]


@pytest.fixture
def filled(store):
    return fill(store)


def test_selections(filled):
    for selection, expected in SELECTIONS:
        assert " ".join([row["signature"] for row in filled.rows(selection)]) == expected, selection


def test_the_newest_of_those_that_fit(filled):
    """A table as it was on a day."""
    ever = Selection(signatures=["old"], newest=True)
    on_day = ever.with_(until=instant("2026-01-02", end=True))
    assert [m.samples_ns for m in filled.select(on_day)] == [(30, 10, 20)]
    assert [m.samples_ns for m in filled.select(ever)] == [(1,)]


@pytest.mark.parametrize(
    ("text", "end", "wanted"),
    [
        ("2026-01-31", False, "2026-01-31T00:00:00"),
        ("2026-01-31", True, "2026-02-01T00:00:00"),
        ("20261231", True, "2027-01-01T00:00:00"),
        ("2026-01-31T10:30", True, "2026-01-31T10:30:00"),
        ("2026-01-31T10:30:00.250", False, "2026-01-31T10:30:00.25"),
        ("2026-01-31T00:30+01:00", False, "2026-01-30T23:30:00"),
    ],
)
def test_instants(text, end, wanted):
    assert instant(text, end) == wanted


def test_devices_and_their_names(store):
    assert measured(store) == []
    fill(store)
    properties = {"ro.product.manufacturer": "Acme", "ro.product.model": "One"}
    store.add_device("phone", {"properties": properties}, False)
    store.add_device("idle", {"phone": "npu-phone"}, True)
    devices = measured(store)
    names = [(each.fingerprint, each.name) for each in devices]
    assert names == [("tablet", "unknown"), ("phone", "Acme One")]
    phone = devices[1]
    assert (phone.rows, phone.kinds) == (5, {"chain": 4, "unit": 1})
    assert phone.statuses == {"ok": 4, "refused": 1}
    assert phone.targets == ("cpu", "nnapi:gpu_1/low_power", "nnapi:npu/fast")
    assert (phone.first, phone.last) == ("2026-01-01T00:00:00+00:00", DAY.format(3, ".5"))
    assert find_one(devices, "ph") == find_one(devices, "acme*") == phone
    assert find(devices, "*") == devices
    with pytest.raises(UsageError, match=r"called 'x'; there are: tablet \(unknown\), phone"):
        find(devices, "x")
    with pytest.raises(UsageError, match=r"may be any of tablet .unknown., phone .*fingerprint"):
        find_one(devices, "*")


def test_the_first_are_those_measured_first(filled):
    newest = Selection(newest=True)
    until = newest.with_(until=instant("2026-01-03"))
    for selection in (Selection(), newest, newest.with_(statuses=(Status.OK,)), until):
        every = sorted(filled.rows(selection), key=lambda row: (row["measured_at"], row["id"]))
        for most in range(1, len(every) + 2):
            first = filled.rows(selection.with_(first=most))
            assert first == sorted(every[:most], key=lambda row: row["id"])


def test_what_is_there_without_reading_all_rows(store):
    assert (store.most_rows(), store.fingerprints(), store.members()) == (0, [], {})
    fill(store)
    for device, phone in (("phone", "a"), ("unused", "b")):
        store.add_device(device, {"phone": phone}, True)
    assert store.most_rows() == 6 and store.fingerprints() == ["phone", "tablet"]
    assert store.members() == dict.fromkeys("old cpu gpu bad tab".split(), ("a", "b"))
    names = {each.fingerprint: each.name for each in named(store)}
    assert list(names) == ["phone", "tablet"]
    assert {each.fingerprint: each.name for each in measured(store)} == names


NOON = "2026-01-0{}T12:00:00+00:00"
EVERY = "a1 a2 a3 b burst cpu old tab"


@pytest.fixture
def layered(store):
    """``a`` is measured three times (the second arrives last), everything else once."""
    for phone in ("phone", "tablet"):
        store.add_device(phone, {"phone": phone}, simulated=True)
    burst = Conditions(mode=Mode.BURST)
    store.add(
        measurement("a", label="a1", measured_at=NOON.format(1)),
        measurement("a", label="a3", measured_at=NOON.format(5)),
        measurement("a", label="a2", measured_at=NOON.format(3)),
        measurement("a", CPU, label="cpu", measured_at=NOON.format(2)),
        measurement("a", label="burst", conditions=burst, measured_at=NOON.format(2)),
        measurement("b", label="b", status=Status.REFUSED, samples_ns=(), kind=Kind.UNIT),
        measurement("old", label="old", measured_at=NOON.format(1)),
        measurement("a", label="tab", fingerprint="tablet", measured_at=NOON.format(1)),
    )
    return store


def labels(store: CostStore) -> list[str]:
    return sorted(row["label"] for row in store.rows())


@pytest.mark.parametrize(
    ("selection", "superseded", "goes"),
    [
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
    ],
)
def test_what_goes(layered, selection, superseded, goes):
    assert labels(layered) == EVERY.split()
    text = prune(layered, selection, superseded=superseded)
    assert (text.rows, text.kept, text.deleted) == (len(goes.split()), 8 - text.rows, False)
    assert labels(layered) == EVERY.split() and len(layered.devices()) == 2
    done = prune(layered, selection, superseded=superseded, deleting=True)
    assert done == Pruned(True, text.devices, text.forgotten, text.kept)
    assert labels(layered) == sorted(set(EVERY.split()) - set(goes.split()))
    assert prune(layered, selection, superseded=superseded, deleting=True).rows == 0


def test_a_device_without_rows_is_forgotten(layered):
    before = layered.measurements("phone")
    prune(layered, Selection(), superseded=True, deleting=True)
    assert layered.measurements("phone") == before, "plans read the same"
    done = prune(layered, Selection(fingerprints=["tablet"]), deleting=True)
    assert done.forgotten == ("tablet",) and done.devices == {"tablet": 1}
    part = prune(layered, Selection(kinds=(Kind.UNIT,)), deleting=True)
    assert part.rows > 0 and part.forgotten == ()
    assert [device.fingerprint for device in layered.devices()] == ["phone"]


def test_many_rows_go_at_once(store):
    store.add(*(measurement(f"s{n}") for n in range(1203)), measurement("kept", CPU))
    done = prune(store, Selection(targets=("nnapi:*",)), deleting=True)
    assert (done.rows, done.kept) == (1203, 1)
    assert [row["signature"] for row in store.rows()] == ["kept"]


def test_every_row_is_not_deleted_by_saying_nothing(layered):
    for selection in (Selection(), Selection(newest=True)):
        with pytest.raises(UsageError, match="nothing says what to delete"):
            prune(layered, selection, deleting=True)
    assert labels(layered) == EVERY.split()
