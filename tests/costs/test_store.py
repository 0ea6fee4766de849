"""The store on real SQLite files: what goes in comes out, from several processes at once."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nnapi_prof.costs import Conditions, Mode, Precision, default_location
from nnapi_prof.costs.measurement import FAILURES, Key, Kind, Measurement, Round, Status
from nnapi_prof.costs.store import CostStore, prune, rows
from nnapi_prof.costs.store.rows import SCHEMA_VERSION, utc_now
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, Preference, Target

BURST = Conditions(mode=Mode.BURST)
NPU = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)


def measurement(signature: str = "s", target: Target = NPU, **fields: object) -> Measurement:
    rounds = (Round(1, (1, None), (2, 3), True), Round(2, throttled=None, repeats=0))
    row = Measurement(
        signature, Kind.CHAIN, "conv + add", ("a", "b"), (0, 2), target, "phone", "0.1", Status.OK,
        driver_version="7", samples_ns=(30, 10, 20), hardware_ns=(5, 5, 5), rounds=rounds,
        warmup_runs=7, warm=True, cpu_mask="f0", kernels_xnnpack=2, kernels_portable=1,
        memory="shared", compile_ns=2**40, first_ns=99, n_operations=3, input_bytes=100,
        output_bytes=50, simulated=True, clock="simulated", cpu_khz_before=1_800_000,
        thermal_mc_after=41_000, measured_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    return replace(row, **fields)


def sql(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as link, link:
        return link.execute(statement).fetchall()


def test_a_row_comes_back_as_it_went_in(anywhere):
    with CostStore(anywhere) as store:
        assert store.add(measurement()) == 1
    with CostStore(anywhere) as store:
        assert store.measurements("phone") == [measurement()]
        assert store.measurements("another phone") == []


def test_the_time_is_filled_in(store):
    store.add(measurement(measured_at=""))
    (back,) = store.measurements("phone")
    assert back.measured_at.endswith("+00:00")


def test_the_last_measurement_counts_after_the_clock_stepped_back(store, monkeypatch):
    """Also by several hosts, whose clocks differ, and after an import of rows of a wrong one."""
    days = iter(["2031-05-02", "2031-05-01", "1970-01-01"])
    monkeypatch.setattr(rows, "utc_now", lambda: f"{next(days)}T12:00:00.000000+00:00")
    for sample in (1, 2):
        store.add(measurement(samples_ns=(sample,), measured_at=""))
    store.add(measurement(samples_ns=(3,), measured_at="2031-06-01T00:00:00+00:00"))
    stamped = store.stamp(measurement(samples_ns=(4,)))
    assert stamped.measured_at == "2031-06-01T00:00:00.000001+00:00"
    store.add(stamped)
    assert [m.samples_ns for m in store.measurements("phone")] == [(4,)]
    pruned = prune(store, Selection(), superseded=True, deleting=True)
    assert pruned.rows == 3 and store.measurements("phone") == [stamped]


def test_the_latest_row_of_a_key_wins_and_nothing_is_lost(store):
    store.add(measurement(samples_ns=(1,)), measurement(samples_ns=(5,), conditions=BURST))
    store.add(measurement(samples_ns=(2,), driver_version="8"))
    result = {(m.burst, m.samples_ns) for m in store.measurements("phone")}
    assert result == {(True, (5,)), (False, (2,))}
    assert len(store.rows()) == 3


@pytest.mark.parametrize("status", list(Status))
def test_every_status_counts_as_measured_unless_another_model_may_have_failed(store, status):
    unknown = measurement(status=status, samples_ns=(), attempts=None)
    store.add(unknown)
    assert unknown.conclusive(utc_now()) == (status in (Status.OK, Status.REFUSED))
    assert bool(store.have("phone")) == unknown.conclusive(utc_now())
    store.add(measurement(status=status, samples_ns=(), attempts=1, driver_version="8"))
    key = Key("s", "nnapi:npu/fast", "float32", "sync", 1, "big", 0, "8", "0.1")
    assert key in store.have("phone")
    assert store.have("phone", ["other"]) == store.have("other phone") == set()


@pytest.mark.parametrize(
    "lacking", [("attempts", "room", "copies_ns"), ("room", "copies_ns"), ("copies_ns",), ()]
)
def test_a_table_of_a_former_release_becomes_one_of_this(tmp_path, lacking):
    path = tmp_path / "costs.sqlite"
    with CostStore(path) as store:
        store.add(measurement(), measurement(kind=Kind.CORUN, corunner=CPU, fingerprint="two"))
    for statement in (
        "alter table measurements rename column corunner to beside",
        "update measurements set kind = 'beside' where kind = 'corun'",
        *(f"alter table measurements drop column {column}" for column in lacking),
        f"update nnapi_prof_schema set version = {SCHEMA_VERSION - 1 - len(lacking)}",
    ):
        sql(path, statement)
    with CostStore(path) as store:
        (row,) = store.select(Selection(("two",), kinds=(Kind.CORUN,)))
        assert row.corunner == CPU and store.add(row) == 0
        (row,) = store.measurements("phone")
        assert row.copies_ns == () and row.samples_ns == measurement().samples_ns
        assert row.attempts == (None if "attempts" in lacking else measurement().attempts)
        assert store.add(row) == 0, "it is the same row still"
        store.add(measurement(attempts=2, samples_ns=(7,), copies_ns=(3,)))
        (row,) = store.measurements("phone")
        assert row.attempts == 2 and row.copies_ns == (3,)
    assert sql(path, "select version from nnapi_prof_schema") == [(SCHEMA_VERSION,)]


@pytest.mark.parametrize("status", FAILURES)
@pytest.mark.parametrize(
    ("attempts", "hours", "is_known"),
    [(2, 11, True), (2, 13, False), (2, -11, True), (2, -1300, False), (4, 1300, True)],
)
def test_a_failure_is_tried_again_on_another_day_and_then_final(
    store, status, attempts, hours, is_known
):
    then = (datetime.now(UTC) - timedelta(hours=hours)).isoformat(timespec="microseconds")
    row = measurement(status=status, samples_ns=(), attempts=attempts, measured_at=then)
    store.add(row)
    assert bool(store.have("phone")) == row.conclusive(utc_now()) == is_known
    again = measurement(status=status, samples_ns=(), attempts=2)
    assert again.after(row).attempts == 2 + attempts
    assert again.after(measurement()).attempts == again.after(None).attempts == 2
    assert measurement(attempts=1).after(row).attempts == 1, "it ran"


def test_conditions_select_rows(store):
    store.add(
        measurement("cpu1", CPU),
        measurement("cpu4", CPU, conditions=Conditions(threads=4)),
        measurement("cpu-all", CPU, conditions=Conditions(cpus="all")),
        measurement("cpu-relaxed", CPU, conditions=Conditions(Precision.RELAXED, threads=4)),
        measurement("npu"),
        measurement("npu-relaxed", conditions=Conditions(Precision.RELAXED)),
        measurement("npu-float16", conditions=Conditions(Precision.FLOAT16)),
        measurement("npu-burst", conditions=BURST),
        measurement("npu-all", conditions=Conditions(cpus="all")),
    )

    def names(conditions):
        return {m.signature for m in store.measurements("phone", conditions=conditions)}

    assert names(Conditions()) == {"cpu1", "npu"}
    assert names(Conditions(threads=4)) == {"cpu4", "npu"}
    assert names(Conditions(mode=Mode.BURST)) == {"cpu1", "npu-burst"}
    assert names(Conditions(Precision.RELAXED, threads=4)) == {"npu-relaxed", "cpu-relaxed"}
    assert names(Conditions(Precision.FLOAT16)) == {"npu-float16"}
    assert names(Conditions(cpus="all")) == {"cpu-all", "npu-all"}
    assert names(Conditions(cpus="0x3")) == set()
    assert len(names(None)) == 9


def test_more_signatures_than_one_query_takes(store):
    signatures = [f"s{i}" for i in range(1300)]
    store.add(*(measurement(s) for s in signatures))
    assert len(store.measurements("phone", signatures[:1200])) == 1200
    assert len(store.have("phone", signatures)) == 1300


def test_a_device_is_remembered_once(store):
    store.add_device("phone", {"model": "A"}, False)
    store.add_device("phone", {"model": "B"}, False)
    (device,) = store.devices()
    assert device.description == {"model": "A"} and not device.simulated


@pytest.mark.parametrize(
    ("version", "words"),
    [(SCHEMA_VERSION + 1, "update nnapi-prof"), (6, "profile again"), (0, "again")],
)
def test_a_table_of_another_schema_is_refused_and_left_alone(tmp_path, version, words):
    path = tmp_path / "c.sqlite"
    CostStore(path).close()
    sql(path, f"UPDATE nnapi_prof_schema SET version = {version}")
    with pytest.raises(CostError, match=words) as caught:
        CostStore(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert sql(path, "SELECT version FROM nnapi_prof_schema") == [(version,)]


def test_a_foreign_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "photos.sqlite"
    sql(path, "CREATE TABLE photos (id INTEGER)")
    with pytest.raises(CostError, match=r"belongs to something else.*photos"):
        CostStore(path)
    assert sql(path, "SELECT name FROM sqlite_master") == [("photos",)]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("{}", "is a folder: name a file"),
        ("{}/text", "not a database.*name another with costs"),
        ("{}/text/c.sqlite", "folder"),
        ("no-such-database://host/name", "database URL"),
    ],
)
def test_what_is_no_database_is_refused(tmp_path, where, words):
    (tmp_path / "text").write_text("not a database" * 100)
    with pytest.raises(CostError, match=words):
        CostStore(where.format(tmp_path))


def test_any_sqlalchemy_url(tmp_path):
    with CostStore(f"sqlite:///{tmp_path}/url.sqlite") as store:
        store.add(measurement())
    with CostStore(tmp_path / "url.sqlite") as store:
        assert len(store.measurements("phone")) == 1


def test_default_location(monkeypatch, tmp_path):
    for name in ("NNAPI_PROF_COSTS", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value, where in (
        ("HOME", tmp_path, f"{tmp_path}/.local/share/nnapi-prof/costs.sqlite"),
        ("XDG_DATA_HOME", tmp_path, f"{tmp_path}/nnapi-prof/costs.sqlite"),
        ("NNAPI_PROF_COSTS", "postgresql://team/costs", "postgresql://team/costs"),
    ):
        monkeypatch.setenv(name, str(value))
        assert default_location() == where
