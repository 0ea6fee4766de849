"""Cost tables that somebody else wrote into: they open, or are refused in one sentence."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nnapi_prof.costs import Conditions
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.files import frame as table_frame
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU

FINGERPRINT = "phone-1"


def measurement(signature: str, at: str, samples: tuple[int, ...] = (10, 11, 12)) -> Measurement:
    return Measurement(
        signature=signature,
        kind=Kind.UNIT,
        label=f"relu of {signature}",
        members=(signature,),
        offsets=(),
        target=CPU,
        fingerprint=FINGERPRINT,
        agent_version="1",
        status=Status.OK,
        conditions=Conditions(),
        samples_ns=samples,
        measured_at=f"2026-11-22T{at}:00+00:00",
    )


@pytest.fixture
def table(tmp_path):
    """Rows 1 (a, old), 2 (a, new) and 3 (b)."""
    path = tmp_path / "costs.sqlite"
    with CostStore(path) as store:
        store.add_device(FINGERPRINT, {"phone": "x"}, False)
        for row in (("a", "10:00"), ("a", "11:00"), ("b", "12:00")):
            store.add(measurement(*row))
    return path


def poison(table: Path, column: str, value: Any, row: int = 2) -> None:
    with closing(sqlite3.connect(table)) as link, link:
        link.execute(f"UPDATE measurements SET {column} = ? WHERE id = ?", (value, row))


POISON = {
    "negative": ("samples_ns", "[-5, 3]", "samples_ns has -5"),
    "endless": ("samples_ns", f"[{10**30}]", f"samples_ns has {10**30}"),
    "no number": ("samples_ns", "[NaN]", "samples_ns has nan"),
    "infinite": ("samples_ns", "[1, Infinity]", "samples_ns has inf"),
    "words": ("samples_ns", '["long"]', "samples_ns has 'long'"),
    "no JSON": ("samples_ns", "[1, 2", "samples_ns is 'no JSON'"),
    "nested": ("samples_ns", "[" * 100_000, "samples_ns is 'no JSON'"),
    "no list": ("rounds", "7", "rounds is 'no JSON'"),
    "first": ("first_ns", -7, "first_ns is -7"),
    "a blob": ("label", b"\xff\x00", "label is b'"),
    "a target": ("target", "../../etc", "etc"),
    "a corunner": ("corunner", "../../etc", "corunner is '../../etc'"),
    "a status": ("status", "great", "great"),
    "threads": ("threads", "many", "threads is 'many'"),
    "a time": ("measured_at", "yesterday", "measured_at is 'yesterday'"),
}


@pytest.mark.parametrize("kind", POISON)
def test_a_poisoned_row_is_left_out_and_named(table, kind, caplog):
    column, value, words = POISON[kind]
    poison(table, column, value)
    with CostStore(table) as store:
        assert [m.signature for m in store.select(Selection())] == ["a", "b"]
        newest = store.measurements(FINGERPRINT)
        assert [(m.signature, m.measured_at[11:16]) for m in newest] == [
            ("a", "10:00"),  # the one before it holds
            ("b", "12:00"),
        ]
        assert len(table_frame(store)) == 2
        assert len(store.have(FINGERPRINT)) == 2
    (text,) = [r.getMessage() for r in caplog.records if "left out" in r.getMessage()]
    assert "left out as impossible: row 2 (" in text and words in text
    assert text.isprintable()


def test_many_poisoned_rows_are_counted(table, caplog):
    with CostStore(table) as store:
        store.add(*(measurement(f"s{i}", "13:00") for i in range(1200)))
    with closing(sqlite3.connect(table)) as link, link:
        link.execute("UPDATE measurements SET first_ns = -1 WHERE id > 3")
    with CostStore(table) as store:
        assert len(store.measurements(FINGERPRINT)) == 2
    assert "and 1195 more" in caplog.text


def test_control_characters_of_older_tables(table):
    poison(table, "message", "\x1b[31mred")
    poison(table, "label", "relu\x1b]0;title\x07")
    with CostStore(table) as store:
        row = store.measurements(FINGERPRINT)[0]
    assert row.message == "\\x1b[31mred"
    assert row.label == "relu\\x1b]0;title\\x07"


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON measurements BEGIN DELETE FROM measurements; END",
         "it has the trigger t"),
        ("CREATE VIEW v AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
         "SELECT i FROM n", "it has the view v"),
    ],
)  # fmt: skip
def test_programs_in_a_table(table, sql, words):
    with closing(sqlite3.connect(table)) as link, link:
        link.execute(sql)
    with pytest.raises(CostError, match=words):
        CostStore(table)


@pytest.mark.parametrize("damage", ["cut", "noise", "text"])
def test_files_that_are_damaged(table, damage, refused):
    data = table.read_bytes()
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "noise":
        data = data[:100] + bytes(b ^ 0x5A for b in data[100:])
    else:
        data = b"\x1b[2J" * 100
    table.write_bytes(data)
    for suffix in ("-wal", "-shm"):
        table.with_name(table.name + suffix).unlink(missing_ok=True)
    assert f"cost table {table.name}" in refused("costs", "show", "--costs", table.name)


def test_every_command_goes_on(table, command):
    poison(table, "samples_ns", "[-5]", 3)
    for words in (("list",), ("show",), ("show", "--json")):
        done = command("costs", *words, "--costs", table)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        if words != ("list",):
            assert "left out as impossible: row 3 (samples_ns has -5)" in " ".join(
                done.stderr.split()
            )
    assert json.loads(done.stdout)
