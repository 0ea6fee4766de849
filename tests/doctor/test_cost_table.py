"""Cost tables of all kinds; none is changed by looking at it."""

import sqlite3
from pathlib import Path

import pytest

from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.rows import SCHEMA_VERSION
from nnapi_prof.doctor import Host, run
from nnapi_prof.doctor.host import COSTS, cost_table
from tests.costs.conftest import postgres as postgres
from tests.doctor.common import problem, warning, well, without_rights


@pytest.fixture
def table(open_folder, monkeypatch):
    """A cost table of ours, the one that the environment names."""
    path = open_folder / "costs.sqlite"
    CostStore(path).close()
    monkeypatch.setenv("NNAPI_PROF_COSTS", str(path))
    return path


def change(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as link:
        link.execute(statement)
    link.close()


def test_ours(table):
    assert well(cost_table(Host())) == f"{table}: writable"


def test_none_yet(tmp_path, monkeypatch):
    path = tmp_path / "some" / "folder" / "costs.sqlite"
    monkeypatch.setenv("NNAPI_PROF_COSTS", str(path))
    assert well(cost_table(Host())).startswith(f"{path} is not there yet")
    assert not path.parent.exists()


def test_no_database(table):
    table.write_text("hello " * 200)
    words, fix = problem(cost_table(Host()))
    assert words == f"{table}: file is not a database" and "--costs FILE" in fix
    assert table.read_text() == "hello " * 200


def test_somebody_elses(table):
    table.unlink()
    change(table, "create table songs (title)")
    words, _ = problem(cost_table(Host()))
    assert words == f"{table} belongs to something else: it has the table songs"


def test_newer_and_older(table):
    change(table, f"update nnapi_prof_schema set version = {SCHEMA_VERSION + 1}")
    words, fix = problem(cost_table(Host()))
    newer = f"schema {SCHEMA_VERSION + 1}, this one reads {SCHEMA_VERSION}"
    assert words == f"{table} was written by a newer nnapi-prof: {newer}"
    assert fix == "python -m pip install --upgrade nnapi-prof"
    change(table, "update nnapi_prof_schema set version = 2")
    words, _ = problem(cost_table(Host()))
    assert words.endswith(f"schema 2, this nnapi-prof reads {SCHEMA_VERSION}")


def test_of_another_user(table):
    change(table, "pragma journal_mode = delete")
    table.chmod(0o444)
    words, fix = problem(without_rights(cost_table, Host()))
    assert words.startswith(f"{table}: ") and "this user may not write it" in words
    assert fix == f"sudo chown $USER '{table}'"


def test_in_use(table):
    link = sqlite3.connect(table, isolation_level=None)
    link.execute("BEGIN IMMEDIATE")
    words, _ = warning(cost_table(Host()))
    link.close()
    assert words == f"{table}: database is locked: another process writes to it"


def test_a_server(postgres, monkeypatch):
    where = postgres.empty()
    monkeypatch.setenv("NNAPI_PROF_COSTS", where)
    assert well(cost_table(Host())).endswith("is empty: the first `nnapi-prof profile` fills it")
    CostStore(where).close()
    assert well(cost_table(Host())).endswith(": reached")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("postgresql://me:secret@127.0.0.1:1/costs", "cannot be reached"),
        ("mysql://me@host/costs", "mysql is neither sqlite nor postgresql"),
        ("://", "URL cannot be read"),
    ],
)
def test_out_of_reach(where, words, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_COSTS", where)
    told = " ".join(problem(run([COSTS], Host())))
    assert words in told and "secret" not in told
