"""A database that an nnapi-prof with version 1 of the schema made becomes one of this version."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from nnapi_prof.costs.conditions import Conditions, Mode, Precision
from nnapi_prof.costs.measurement import Key, Kind, Measurement, Status
from nnapi_prof.costs.schema import MEASUREMENTS, SCHEMA_VERSION
from nnapi_prof.costs.store import CostStore
from nnapi_prof.graph.plan import CPU, Preference, Target

# What SQLAlchemy made of version 1's tables.
VERSION_1 = """
CREATE TABLE devices (
    fingerprint VARCHAR(96) NOT NULL, description JSON NOT NULL, simulated BOOLEAN NOT NULL,
    first_seen VARCHAR(32) NOT NULL, PRIMARY KEY (fingerprint));
CREATE TABLE measurements (
    id INTEGER NOT NULL, signature VARCHAR(96) NOT NULL, kind VARCHAR(8) NOT NULL,
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
INSERT INTO devices VALUES ('phone', '{"os": "android"}', 0, '2025-01-01T00:00:00.000+00:00');
"""
ROW = (
    "INSERT INTO measurements VALUES ({id}, 'sig', 'unit', 'relu', '[\"sig\"]', '[0]', 1, 1,"
    " '{target}', {relaxed}, {threads}, {burst}, 'phone', '7', '0.1', 'ok', NULL, '[3, 1, 2]',"
    " '[1, 1, 1]', '[]', 5, 9, 4, 8, 0, 'monotonic', 1800000, NULL, NULL, 41000, 100, 'then')"
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
)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "costs.sqlite"
    link = sqlite3.connect(path)
    link.executescript(VERSION_1)
    link.execute(ROW.format(id=1, target=NPU.key, relaxed=0, threads=1, burst=0))
    link.execute(ROW.format(id=2, target=NPU.key, relaxed=1, threads=1, burst=0))
    link.execute(ROW.format(id=3, target=NPU.key, relaxed=0, threads=1, burst=1))
    link.execute(ROW.format(id=4, target=CPU.key, relaxed=0, threads=4, burst=0))
    link.commit()
    link.close()
    return path


def test_rows_keep_what_they_said(old: Path) -> None:
    with CostStore(old) as store:
        assert store.measurements("phone") == [
            OLD,
            replace(OLD, conditions=Conditions(Precision.RELAXED, cpus="all")),
            replace(OLD, conditions=Conditions(mode=Mode.BURST, cpus="all")),
            replace(OLD, target=CPU, conditions=Conditions(threads=4, cpus="all")),
        ]
        assert Key("sig", CPU.key, "float32", "sync", 4, "all", "7", "0.1") in store.have("phone")
        assert [device.fingerprint for device in store.devices()] == ["phone"]
        assert store.frame()["median_ns"].tolist() == [2.0] * 4


def test_it_is_done_once_and_new_rows_go_beside(old: Path) -> None:
    CostStore(old).close()
    with CostStore(old) as store:
        store.add(replace(OLD, conditions=Conditions(Precision.FLOAT16), warm=True))
        assert len(store.measurements("phone")) == 5
    link = sqlite3.connect(old)
    assert link.execute("SELECT version FROM nnapi_prof_schema").fetchall() == [(SCHEMA_VERSION,)]
    columns = {row[1] for row in link.execute("PRAGMA table_info(measurements)")}
    link.close()
    assert columns == {column.name for column in MEASUREMENTS.columns}


def test_a_migration_that_fails_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dump(old)
    with monkeypatch.context() as patch:
        from nnapi_prof.costs import migrate, store

        def half(connection):  # type: ignore[no-untyped-def]
            migrate.STEPS[1](connection)
            raise KeyboardInterrupt

        patch.setattr(store, "STEPS", {1: half})
        with pytest.raises(KeyboardInterrupt):
            CostStore(old)
    assert dump(old) == before
    with CostStore(old) as opened:
        assert len(opened.measurements("phone")) == 4


def dump(path: Path) -> list[str]:
    link = sqlite3.connect(path)
    found = list(link.iterdump())
    link.close()
    return found
