"""The store on real databases: what goes in comes out, goes into another table, and into files."""

import csv
import io
import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_type_hints

import hypothesis.strategies as st
import pandas
import pytest
from hypothesis import HealthCheck, given, settings

from nnapi_prof.costs import CONDITIONAL, Conditions, Mode, Precision, default_location
from nnapi_prof.costs.measurement import FAILURES, Key, Kind, Measurement, Round, Status
from nnapi_prof.costs.store import CostStore, prune, rows
from nnapi_prof.costs.store.files import COLUMNS, Merged, encode, frame, merge
from nnapi_prof.costs.store.rows import SCHEMA_VERSION, escape_texts, from_row, utc_now
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, HOST, Preference, Target

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
    url = anywhere if "://" in anywhere else f"sqlite:///{anywhere}"
    with CostStore(url) as store:
        assert store.measurements("phone") == [measurement()]
        assert store.measurements("another phone") == []


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
    newest = {(m.burst, m.samples_ns) for m in store.measurements("phone")}
    assert newest == {(True, (5,)), (False, (2,))} and len(store.rows()) == 3


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
    store.add(*map(measurement, signatures))
    assert len(store.measurements("phone", signatures[:1200])) == 1200
    assert len(store.have("phone", signatures)) == 1300


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


INT32 = st.integers(-(2**31), 2**31 - 1)
NS = st.integers(0, 10**16)
COUNT = st.integers(0, 2**31 - 1)
# As databases keep it: no NUL, no half surrogate pairs.
TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12)
HARD = st.sampled_from(["", '"', '""', '"x', "\r", "a\nb", "None", "nan", "NULL", ",;\t'", "1.0"])
TEXTS = TEXT | HARD
NAMES = st.text("abc-_ü/", min_size=1, max_size=8)
TARGETS = st.sampled_from([CPU, HOST]) | st.builds(Target.nnapi, NAMES, st.sampled_from(Preference))


def several(values: st.SearchStrategy[Any], max_size: int = 5) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=max_size).map(tuple)


NONE, FLAGS, MODES = st.none(), st.booleans(), st.sampled_from(Mode)
PAIRS = st.tuples(NONE | INT32, NONE | INT32)
ROUNDS = st.builds(Round, COUNT, PAIRS, PAIRS, NONE | FLAGS, NONE | COUNT)
PRECISIONS, CPUS = st.sampled_from(CONDITIONAL), st.sampled_from(["big", "all", "0xf0"])
CONDITIONS = st.builds(
    Conditions, PRECISIONS, MODES, st.integers(1, 64), CPUS, st.integers(0, 3600)
)
BY_TYPE = {
    int: COUNT,
    int | None: NONE | INT32,
    bool: FLAGS,
    bool | None: NONE | FLAGS,
    str: TEXTS,
    str | None: NONE | TEXTS,
    tuple[int, ...]: several(NS, max_size=9),
    tuple[str, ...]: several(TEXTS),
    tuple[Round, ...]: several(ROUNDS),
    Kind: st.sampled_from(Kind),
    Status: st.sampled_from(Status),
    Conditions: CONDITIONS,
    Target: TARGETS,
    Target | None: NONE | TARGETS,
}
BY_NAME = {
    "signature": NAMES,
    "offsets": several(st.integers(-(2**63), 2**63 - 1)),
    "fingerprint": st.sampled_from(["phone", "other"]),
    "cpu_mask": NONE | st.sampled_from(["", "f0"]),
    **dict.fromkeys(("compile_ns", "first_ns"), NONE | NS),
    **dict.fromkeys(("macs", "weight_bytes", "pixels"), NONE | COUNT),
    "measured_at": st.datetimes().map(lambda moment: f"{moment.isoformat()}+00:00"),
}
MEASURED = st.builds(
    Measurement, **{n: BY_TYPE[kind] for n, kind in get_type_hints(Measurement).items()} | BY_NAME
)


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.lists(MEASURED, max_size=4))
def test_all_that_a_table_can_hold_comes_back(rows):
    """As measurements, and in another table after a merge."""
    with CostStore("sqlite://") as a, CostStore("sqlite://") as b:  # in memory
        n = a.add(*rows)
        assert [escape_texts(from_row(row)) for row in a.rows()] == a.select(Selection())
        assert n == len(set(rows)) and {from_row(row) for row in a.rows()} == set(rows)
        assert merge(b, a).added == n
        assert without_id(a) == without_id(b)
        assert merge(b, a).added == 0


def without_id(store: CostStore) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "id"} for row in store.rows()]


def test_between_databases_with_devices(anywhere, tmp_path):
    with CostStore(tmp_path / "a.sqlite") as source, CostStore(anywhere) as store:
        source.add(*(measurement(str(i)) for i in range(3)), measurement("x", fingerprint="tab"))
        source.add_device("phone", {"phone": "ü", "properties": {"a": None}}, True)
        store.add(measurement("1"), measurement("own"))
        assert merge(store, source) == Merged(rows=4, added=3, left_out=0, devices=2)
        assert store.devices() == source.devices()
        rows = {row["digest"]: row for row in without_id(store)}
        first = without_id(source)
        assert [rows[row["digest"]] for row in first] == first and len(rows) == 5


def test_what_is_older_does_not_win_by_arriving_later(anywhere, tmp_path):
    with CostStore(tmp_path / "a.sqlite") as source, CostStore(anywhere) as store:
        source.add(measurement(samples_ns=(1,), measured_at="2025-01-01T00:00:00.123+00:00"))
        store.add(measurement(samples_ns=(2,), measured_at="2025-01-01T00:00:00.123456+00:00"))
        merge(store, source)
        assert [m.samples_ns for m in store.measurements("phone")] == [(2,)]


@pytest.fixture
def table(tmp_path):
    with CostStore(tmp_path / "made.sqlite") as store:
        refusal = 'no\x1b[31m\r, "never"'
        store.add(measurement("a"), measurement("b", message=refusal, status=Status.REFUSED))
        yield frame(store)


def test_csv_as_a_spreadsheet_sees_it(table):
    first, second = csv.DictReader(io.StringIO(encode(table, "csv").decode(), newline=""))
    assert tuple(first) == COLUMNS
    assert json.loads(first["samples_ns"]) == [30, 10, 20]
    assert json.loads(first["rounds"])[1]["repeats"] == 0
    assert (first["median_ns"], first["n_samples"], first["warm"]) == ("15.0", "2", "True")
    assert first["message"] == "" and second["message"] == r'no\x1b[31m\r, "never"'


def test_parquet_has_types(table):
    back = pandas.read_parquet(io.BytesIO(encode(table, "parquet")))
    assert tuple(back.columns) == COLUMNS and back.warm.tolist() == [True, True]
    assert [list(samples) for samples in back.samples_ns] == table.samples_ns.tolist()
    assert back.p95_ns.tolist() == table.p95_ns.tolist() and back.p95_ns[0] > back.median_ns[0]


def test_a_frame_has_its_columns_and_types_whatever_is_in_it(store):
    empty = frame(store)
    store.add(measurement(), measurement("t", status=Status.TIMEOUT, samples_ns=(), rounds=()))
    full = frame(store, Selection(targets=("nnapi:*",)))
    assert tuple(empty.columns) == tuple(full.columns) == COLUMNS and len(empty) == 0
    assert empty.dtypes.tolist() == full.dtypes.tolist()
    assert full.cpu_khz_after.isna().all() and full.compile_ns.tolist() == [2**40] * 2
    assert full.n_samples.tolist() == [2, 0] and full.minimum_ns.isna().tolist() == [False, True]
    assert full.samples_ns.tolist() == [[30, 10, 20], []]


def test_without_a_package_the_extra_is_named(table, monkeypatch):
    for module in ("pyarrow", "psycopg"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CostError, match=r"pip install nnapi-prof\[parquet\]"):
        encode(table, "parquet")
    with pytest.raises(CostError, match=r"pip install nnapi-prof\[postgres\]"):
        CostStore("postgresql://someone:secret@host/costs")


def test_a_server_that_is_not_there_is_told_of_at_once_without_the_password():
    with pytest.raises(CostError, match=r"cannot open it: .*within reach") as caught:
        CostStore("postgresql://someone:secret@localhost:1/costs")
    assert "secret" not in str(caught.value)
