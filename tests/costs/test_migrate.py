"""A database that an nnapi-prof with version 1 of the schema made becomes one of this version.

On SQLite and on PostgreSQL, with the tables as SQLAlchemy made them then.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from sqlalchemy import Connection, create_engine, inspect, text

from nnapi_prof.costs.conditions import Conditions, Mode, Precision
from nnapi_prof.costs.measurement import Key, Kind, Measurement, Status, work_columns
from nnapi_prof.costs.store import CostStore, migrate
from nnapi_prof.costs.store.files import frame as table_frame
from nnapi_prof.costs.store.migrate import unit_work
from nnapi_prof.costs.store.schema import MEASUREMENTS, SCHEMA_VERSION
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, Preference, Target

# What SQLAlchemy made of version 1's tables.
VERSION_1 = """
CREATE TABLE devices (
    fingerprint VARCHAR(96) NOT NULL, description JSON NOT NULL, simulated BOOLEAN NOT NULL,
    first_seen VARCHAR(32) NOT NULL, PRIMARY KEY (fingerprint));
CREATE TABLE measurements (
    id {serial} NOT NULL, signature VARCHAR(96) NOT NULL, kind VARCHAR(8) NOT NULL,
    label TEXT NOT NULL, members JSON NOT NULL, offsets JSON NOT NULL, n_units INTEGER NOT NULL,
    n_operations INTEGER NOT NULL, target VARCHAR(128) NOT NULL, relaxed BOOLEAN NOT NULL,
    threads INTEGER NOT NULL, burst BOOLEAN NOT NULL, fingerprint VARCHAR(96) NOT NULL,
    driver_version TEXT NOT NULL, agent_version VARCHAR(64) NOT NULL, status VARCHAR(8) NOT NULL,
    message TEXT, samples_ns JSON NOT NULL, hardware_ns JSON NOT NULL, driver_ns JSON NOT NULL,
    compile_ns BIGINT, first_ns BIGINT, input_bytes BIGINT NOT NULL, output_bytes BIGINT NOT NULL,
    simulated BOOLEAN NOT NULL, clock VARCHAR(16) NOT NULL, cpu_khz_before INTEGER,
    cpu_khz_after INTEGER, thermal_mc_before INTEGER, thermal_mc_after INTEGER,
    rss_peak_kb INTEGER, measured_at VARCHAR(32) NOT NULL, PRIMARY KEY (id));
CREATE INDEX measurements_by_device ON measurements (fingerprint, signature);
CREATE TABLE nnapi_prof_schema (
    id INTEGER NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (id));
INSERT INTO nnapi_prof_schema VALUES (1, 1);
INSERT INTO devices VALUES (
    'phone', '{{"os": "android"}}', {false}, '2025-01-01T00:00:00.000+00:00');
"""
ROW = (
    "INSERT INTO measurements VALUES ({id}, 'sig', 'unit', 'relu', '[\"sig\"]', '[0]', 1, 1,"
    " '{target}', {relaxed}, {threads}, {burst}, 'phone', '7', '0.1', 'ok', NULL, '[3, 1, 2]',"
    " '[1, 1, 1]', '[]', 5, 9, 4, 8, {false}, 'monotonic', 1800000, NULL, NULL, 41000, 100, 'then')"
)
NPU = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)
OLD = Measurement(
    signature="sig",
    kind=Kind.UNIT,
    label="relu",
    members=("sig",),
    offsets=(0,),
    target=NPU,
    fingerprint="phone",
    agent_version="0.1",
    driver_version="7",
    status=Status.OK,
    conditions=Conditions(cpus="all"),
    samples_ns=(3, 1, 2),
    hardware_ns=(1, 1, 1),
    compile_ns=5,
    first_ns=9,
    n_operations=1,
    input_bytes=4,
    output_bytes=8,
    cpu_khz_before=1_800_000,
    thermal_mc_after=41_000,
    rss_peak_kb=100,
    measured_at="then",
    **work_columns([unit_work("relu", 4, 8)]),
)
DOUBLE = """
INSERT INTO measurements SELECT 7, signature, kind, label, members, offsets, n_units, n_operations,
 target, relaxed, threads, burst, fingerprint, driver_version, agent_version, status, message,
 samples_ns, hardware_ns, driver_ns, compile_ns, first_ns, input_bytes, output_bytes, simulated,
 clock, cpu_khz_before, cpu_khz_after, thermal_mc_before, thermal_mc_after, rss_peak_kb, measured_at
FROM measurements WHERE id = 2
"""


def url(where: str) -> str:
    return (
        where.replace("postgresql:", "postgresql+psycopg:")
        if "://" in where
        else f"sqlite:///{where}"
    )


def run(where: str, *statements: str) -> None:
    engine = create_engine(url(where))
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement.replace(":", "\\:")))
    engine.dispose()


@pytest.fixture
def old(anywhere: str) -> str:
    """A database of version 1 with four measurements."""
    is_sqlite = "://" not in anywhere
    text = {
        "serial": "INTEGER" if is_sqlite else "BIGSERIAL",
        "false": "0" if is_sqlite else "false",
    }
    true = "1" if is_sqlite else "true"

    def row(id: int, target: Target, threads: int = 1, **flags: str) -> str:
        words = text | {"relaxed": text["false"], "burst": text["false"]} | flags
        return ROW.format(id=id, target=target.key, threads=threads, **words)

    rows = [row(1, NPU), row(2, NPU, relaxed=true), row(3, NPU, burst=true), row(4, CPU, 4)]
    run(anywhere, *filter(str.strip, VERSION_1.format(**text).split(";")), *rows)
    if not is_sqlite:
        run(anywhere, "SELECT setval('measurements_id_seq', 4)")
    return anywhere


def test_rows_keep_what_they_said(old: str) -> None:
    with CostStore(old) as store:
        assert store.measurements("phone") == [
            OLD,
            replace(OLD, conditions=Conditions(Precision.RELAXED, cpus="all")),
            replace(OLD, conditions=Conditions(mode=Mode.BURST, cpus="all")),
            replace(OLD, target=CPU, conditions=Conditions(threads=4, cpus="all")),
        ]
        key = Key("sig", CPU.key, "float32", "sync", 4, "all", 0, "7", "0.1")
        assert key in store.have("phone")
        assert [device.fingerprint for device in store.devices()] == ["phone"]
        assert table_frame(store)["median_ns"].tolist() == [2.0] * 4


def test_it_is_done_once_and_new_rows_go_beside(old: str) -> None:
    CostStore(old).close()
    with CostStore(old) as store:
        new = replace(OLD, conditions=Conditions(Precision.FLOAT16), warm=True)
        assert store.add(new, OLD) == 1  # what was there is there
        assert len(store.measurements("phone")) == 5
    engine = create_engine(url(old))
    with engine.connect() as connection:
        versions = connection.execute(text("SELECT version FROM nnapi_prof_schema")).all()
        result = inspect(connection)
        columns = {column["name"] for column in result.get_columns("measurements")}
        indices = {(i["name"], bool(i["unique"])) for i in result.get_indexes("measurements")}
    engine.dispose()
    assert versions == [(SCHEMA_VERSION,)]
    assert columns == {column.name for column in MEASUREMENTS.columns}
    assert indices == {(index.name, index.unique) for index in MEASUREMENTS.indexes}


def test_units_of_old_tables_get_their_work_in_columns(old: str) -> None:
    """Of the label, and of a matrix product what the bytes tell: 256 x k x 256."""
    inner, size = 4096, 4
    read, written = 2 * 256 * inner * size, 256 * 256 * size
    run(
        old,
        "UPDATE measurements SET label = 'matmul 1x256x256', signature = 'product', "
        f"input_bytes = {read}, output_bytes = {written} WHERE id = 2",
        "UPDATE measurements SET kind = 'chain' WHERE id = 3",
    )
    with CostStore(old) as store:
        works = {row["id"]: row for row in store.rows()}
    assert works[1]["operation"] == works[1]["kernel_class"] == "RELU"
    assert (works[2]["operation"], works[2]["macs"]) == ("BATCH_MATMUL", 256 * 256 * inner)
    assert works[2]["in_channels"] == inner
    assert works[3]["operation"] is None and works[3]["macs"] is None
    (product,) = [m for m in _measurements(old) if m.signature == "product"]
    assert product.work == unit_work("matmul 1x256x256", read, written)


def _measurements(where: str) -> list[Measurement]:
    with CostStore(where) as store:
        return store.measurements("phone")


def test_rows_that_say_the_same_become_one(old: str) -> None:
    run(old, DOUBLE)
    with CostStore(old) as store:
        assert [row["id"] for row in store.rows()] == [1, 2, 3, 4]


def test_a_migration_that_fails_changes_nothing(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(connection: Connection) -> None:
        raise KeyboardInterrupt

    before = dump(old)
    with monkeypatch.context() as patch:
        *first, last = migrate.MIGRATIONS
        patch.setattr(migrate, "MIGRATIONS", (*first, last._replace(run=broken)))
        with pytest.raises(KeyboardInterrupt):
            CostStore(old)
    assert dump(old) == before
    with CostStore(old) as opened:
        assert len(opened.measurements("phone")) == 4


OPENER = """
import sys
from nnapi_prof.costs.store import CostStore
sys.stdin.read()
with CostStore(sys.argv[1]) as store:
    print(len(store.measurements("phone")))
"""


@pytest.mark.slow
def test_processes_that_open_it_at_once_migrate_it_once(old: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-c", OPENER, old]
    started = [
        subprocess.Popen(command, env=environment, text=True, **pipes)  # type: ignore[call-overload]
        for _ in range(4)
    ]
    for process in started:
        process.stdin.close()
    text = [(process.stdout.read(), process.stderr.read()) for process in started]
    for process in started:
        process.stdout.close()
        process.stderr.close()
    assert [process.wait() for process in started] == [0] * 4, text
    assert [out for out, _ in text] == ["4\n"] * 4


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (99, "written by a newer nnapi-prof .schema 99, this one reads .*; update nnapi-prof"),
        (0, "schema 0 is unknown; this nnapi-prof reads"),
    ],
)
def test_versions_without_a_way_are_refused(anywhere: str, version: int, words: str) -> None:
    CostStore(anywhere).close()
    run(anywhere, f"UPDATE nnapi_prof_schema SET version = {version}")
    before = dump(anywhere)
    with pytest.raises(CostError, match=words):
        CostStore(anywhere)
    assert dump(anywhere) == before


def test_migrations_are_in_order_and_lead_here() -> None:
    assert [step.to for step in migrate.MIGRATIONS] == list(range(2, SCHEMA_VERSION + 1))


def dump(where: str) -> list[object]:
    """Columns and rows of every table."""
    engine = create_engine(url(where))
    with engine.connect() as connection:
        result = inspect(connection)
        tables = sorted(result.get_table_names())
        columns = [(t, c["name"], str(c["type"])) for t in tables for c in result.get_columns(t)]
        rows = [
            tuple(map(str, row))
            for t in tables
            for row in connection.execute(text(f"SELECT * FROM {t}"))
        ]
    engine.dispose()
    return [*columns, *rows]
