"""Filters on both databases, and the devices of a table."""

import pytest

from nnapi_prof.costs import Conditions, Mode
from nnapi_prof.costs.measurement import Kind, Status
from nnapi_prof.costs.store import CostStore, find, find_one, measured, named
from nnapi_prof.costs.store.selection import Selection, instant
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import CPU, Preference, Target
from tests.costs.test_store import measurement

GPU = Target.nnapi("gpu_1", Preference.LOW_POWER)
DAY = "2026-01-0{}T12:00:00{}+00:00"


@pytest.fixture
def filled(store):
    return fill(store)


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


def test_selections(filled):
    for selection, expected in SELECTIONS:
        actual = [row["signature"] for row in filled.rows(selection)]
        assert " ".join(actual) == expected, selection


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
    assert [(each.fingerprint, each.name) for each in devices] == [
        ("tablet", "unknown"),
        ("phone", "Acme One"),
    ]
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


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        Selection(newest=True),
        Selection(newest=True, statuses=(Status.OK,)),
        Selection(newest=True, until=instant("2026-01-03")),
    ],
)
def test_the_first_are_those_measured_first(filled, selection):
    every = sorted(filled.rows(selection), key=lambda row: (row["measured_at"], row["id"]))
    for most in range(1, len(every) + 2):
        first = filled.rows(selection.with_(first=most))
        assert first == sorted(every[:most], key=lambda row: row["id"])


def test_what_is_there_without_reading_all_rows(store):
    assert (store.most_rows(), store.fingerprints(), store.members()) == (0, [], {})
    fill(store)
    for device, phone in (("phone", "a"), ("unused", "b")):
        store.add_device(device, {"phone": phone}, True)
    assert store.most_rows() == 6
    assert store.fingerprints() == ["phone", "tablet"]
    assert store.members() == dict.fromkeys("old cpu gpu bad tab".split(), ("a", "b"))
    names = {each.fingerprint: each.name for each in named(store)}
    assert list(names) == ["phone", "tablet"]
    assert {each.fingerprint: each.name for each in measured(store)} == names
