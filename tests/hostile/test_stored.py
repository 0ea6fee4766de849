"""Bundles, reports of runs and cost tables that a stranger wrote."""

import hashlib
import json
import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nnapi_prof.bundle.storage import FORMAT, VERSION, _checksum, read_bundle, region_from_bytes
from nnapi_prof.convert import NnapiModel
from nnapi_prof.convert.region import Region, serialize
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.files import frame as table_frame
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.errors import CostError, SerializationError
from nnapi_prof.execution.report import RunReport, every, keep, last
from nnapi_prof.graph.plan import CPU
from nnapi_prof.nnapi.container import ContainerKind, write_container
from tests.costs.test_store import measurement


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A folder with a manifest that is read up to its files."""
    folder = tmp_path / "x.nnprof"
    (folder / "regions").mkdir(parents=True)
    (folder / "blobs").mkdir()
    write(folder)
    return folder


def write(folder: Path, **changes: Any) -> None:
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "model": "m",
        "model_file": "model.pt",
        "model_sha256": "",
        "regions": [{"id": "u000", "units": [0], "level": 1, "float16": False}],
        **changes,
    }
    manifest["sha256"] = _checksum(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def refuse(folder: Path) -> str:
    with pytest.raises(SerializationError) as caught:
        read_bundle(folder)
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "a\x1b[2J", "", 7, None])
def test_names_that_lead_out(bundle: Path, name: Any) -> None:
    write(bundle, model_file=name)
    assert "does not name a file in the bundle" in refuse(bundle)
    write(bundle, regions=[{"id": name, "units": [0], "level": 1, "float16": False}])
    assert "does not name a file in the bundle" in refuse(bundle)


def test_links_and_pipes(bundle: Path, tmp_path: Path) -> None:
    region = bundle / "regions" / "u000.nnpf"
    os.mkfifo(region)
    assert "u000.nnpf is not a file of its own" in refuse(bundle)
    region.unlink()
    region.symlink_to("/dev/zero")
    assert "u000.nnpf is not a file of its own" in refuse(bundle)
    (bundle / "model.pt").symlink_to("/etc/passwd")
    assert "model.pt is not a file of its own" in refuse(bundle)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "NaN", "", "\x00", "{}"])
def test_manifests_that_are_none(bundle: Path, text: str) -> None:
    (bundle / "manifest.json").write_text(text)
    assert "the bundle is damaged" in refuse(bundle)


@pytest.mark.parametrize(
    "changes", [{"regions": [7]}, {"regions": 7}, {"regions": [{}]}, {"model_file": []}]
)
def test_fields_of_other_kinds(bundle: Path, changes: dict[str, Any]) -> None:
    write(bundle, **changes)
    refuse(bundle)


# ---- sizes ---------------------------------------------------------------------------------------

HUGE = 1 << 40
"""Of a sparse file, which takes no room on a disk, and would take all memory."""


def grow(path: Path, n_bytes: int = HUGE) -> None:
    with path.open("ab") as file:
        file.truncate(n_bytes)


def test_files_that_are_too_large_are_not_read(bundle: Path, refused: Callable[..., str]) -> None:
    for name, most in (
        ("regions/u000.nnpf", ", 67,108,864 at most are read"),
        ("model.pt", ""),
        ("manifest.json", ""),
    ):
        grow(bundle / name)
        words = f"{Path(name).name} has 1,099,511,627,776 bytes{most}"
        assert words in refuse(bundle)
    assert "the bundle is damaged" in refuse(bundle) and words in refused("run", bundle)


def test_a_constant_has_the_bytes_that_its_region_says(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"1234").digest()
    info = {"inputs": [], "outputs": [], "input_types": [], "output_types": [], "operations": [],
            "level": 27}  # fmt: skip
    sections = {
        "INFO": json.dumps(info).encode(),
        "MODL": serialize(NnapiModel((), (), (), (), ())),
        "BUFS": b"",
    }
    blob = tmp_path / digest.hex()

    def read(length: int) -> Region:
        buffers = struct.pack("<Q32s", length, digest)
        data = write_container(ContainerKind.MODEL, {**sections, "BUFS": buffers})
        return region_from_bytes(data, tmp_path)

    blob.write_bytes(b"1234")
    assert read(4).buffers == (b"1234",)
    with pytest.raises(SerializationError, match="has 4 bytes, 3 at most are read"):
        read(3)
    grow(blob)
    for length in (4, HUGE, 2**64 - 1):
        with pytest.raises(SerializationError, match="has 1,099,511,627,776 bytes"):
            read(length)


# ---- reports of runs -----------------------------------------------------------------------------

RUN: dict[str, Any] = {
    "model": "m", "device": "d", "fingerprint": "f", "simulated": True, "created_at": "2026-01-01",
    "runs": [], "checks": [], "notes": [], "conditions": "",
}  # fmt: skip
PLAN = {"name": "dp", "segments": [], "simulated": True, "notes": []}


def timed(ns: Any) -> dict[str, Any]:
    row = {"plan": PLAN, "total_ns": ns, "segments": [], "error": None, "flags": []}
    return {"runs": [row]}


DAMAGED = [
    *({"checks": [7]}, {"checks": [{"shape": [], "evidence": "all of it"}]}),
    *({"notes": 7}, {"more": 7}, *map(timed, (["1"], [-1], [10**30], [float("nan")]))),
]
TEXTS = ["[" * 200_000, '{"runs":' * 200_000, "[]", "7", '{"runs": 7}', "{" + '"a": 1, ' * 10]
TEXTS += [json.dumps({**RUN, **change}) for change in DAMAGED]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_runs_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(SerializationError, match="this is not a run report") as caught:
        last(tmp_path)
    assert "`nnapi-prof run` makes it again" in str(caught.value)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1000
    folder = tmp_path / "runs"
    folder.mkdir()
    (tmp_path / "run.json").rename(folder / "a.json")
    with pytest.raises(SerializationError, match="remove the file to do without it"):
        every(tmp_path)


def test_runs_that_are_too_large_or_elsewhere(tmp_path: Path) -> None:
    run_file = tmp_path / "run.json"
    grow(run_file)
    with pytest.raises(SerializationError, match=r"run.json has 1,099,511,627,776 bytes"):
        last(tmp_path)
    run_file.unlink()
    run_file.symlink_to("/dev/zero")
    assert last(tmp_path) is None
    run_file.unlink()
    run_file.symlink_to("/etc/passwd")
    with pytest.raises(SerializationError, match=r"run.json is not a file of its own"):
        last(tmp_path)


def test_no_run_is_written_through_a_link(tmp_path: Path) -> None:
    """To a file of the user's, or a new one in a folder of theirs."""
    precious, folder = tmp_path / "precious", tmp_path / "folder"
    precious.write_text("precious")
    folder.mkdir()
    report = RunReport("m", "d", "f", True, "2026-01-01T00:00:00+00:00", (), ())
    for target in (precious, folder / "new"):
        bundle = tmp_path / f"{target.name}.nnprof"
        bundle.mkdir()
        (bundle / "run.json").symlink_to(target)
        (bundle / "runs").symlink_to(folder)
        keep(bundle, report)
        keep(bundle, replace(report, model="another"))
        assert len(every(bundle)) == 2
    assert precious.read_text() == "precious" and list(folder.iterdir()) == []


# ---- cost tables: they open, or are refused in one sentence --------------------------------------


def row(signature: str, at: str) -> Measurement:
    return measurement(signature, CPU, measured_at=f"2026-11-22T{at}:00+00:00")


@pytest.fixture
def table(tmp_path):
    """Rows 1 (a, old), 2 (a, new) and 3 (b)."""
    path = tmp_path / "costs.sqlite"
    with CostStore(path) as store:
        store.add_device("phone", {"phone": "x"}, False)
        store.add(row("a", "10:00"), row("a", "11:00"), row("b", "12:00"))
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
        newest = store.measurements("phone")
        assert [(m.signature, m.measured_at[11:16]) for m in newest] == [
            ("a", "10:00"),  # the one before it holds
            ("b", "12:00"),
        ]
        assert len(table_frame(store)) == 2
        assert len(store.have("phone")) == 2
    (text,) = [r.getMessage() for r in caplog.records if "left out" in r.getMessage()]
    assert "left out as impossible: row 2 (" in text and words in text
    assert text.isprintable()


def test_many_poisoned_rows_are_counted(table, caplog):
    with CostStore(table) as store:
        store.add(*(row(f"s{i}", "13:00") for i in range(1200)))
    with closing(sqlite3.connect(table)) as link, link:
        link.execute("UPDATE measurements SET first_ns = -1 WHERE id > 3")
    with CostStore(table) as store:
        assert len(store.measurements("phone")) == 2
    assert "and 1195 more" in caplog.text


def test_control_characters_of_older_tables(table):
    poison(table, "message", "\x1b[31mred")
    poison(table, "label", "relu\x1b]0;title\x07")
    with CostStore(table) as store:
        escaped = store.measurements("phone")[0]
    assert escaped.message == "\\x1b[31mred"
    assert escaped.label == "relu\\x1b]0;title\\x07"


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
    command.ok("costs", "list", "--costs", table)
    for words in ((), ("--json",)):
        done = command.ok("costs", "show", "--costs", table, *words)
        assert "left out as impossible: row 3 (samples_ns has -5)" in " ".join(done.err.split())
    assert json.loads(done.out)
