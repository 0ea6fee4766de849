"""``nnapi-prof costs``: list, show, merge, prune."""

import io
import sqlite3
from pathlib import Path
from typing import Any

import pandas
import pytest

from nnapi_prof.costs.measurement import Kind, Measurement, Round, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.execution.profile.threads import N_CALLS
from nnapi_prof.graph.plan import CPU, Preference, Target
from tests.cli.common import INPUT, Cli

NPU = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)


def row(signature: str, level_ns: int, day: int, **more: object) -> Measurement:
    fields: dict[str, object] = {
        "signature": signature,
        "kind": Kind.UNIT,
        "label": f"op_{signature}",
        "members": (signature,),
        "offsets": (0,),
        "target": NPU,
        "fingerprint": "aaaa1111",
        "agent_version": "1",
        "status": Status.OK,
        "samples_ns": tuple(level_ns + 1000 * (i % 3) for i in range(10)),
        "rounds": (Round(10),),
        "measured_at": f"2026-01-{day:02}T10:00:00.000001+00:00",
    }
    return Measurement(**{**fields, **more})  # type: ignore[arg-type]


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    """A phone on two days, and another one that is simulated."""
    path = tmp_path / "costs.sqlite"
    with CostStore(path) as store:
        store.add(
            row("steady", 2_000_000, 1),
            row("slow", 1_000_000, 1),
            row("fast", 4_000_000, 1),
            row("once", 7_000_000, 1, target=CPU),
            row("lost", 1_000_000, 1),
            row("steady", 2_000_500, 9),
            row("slow", 1_500_000, 9),
            row("fast", 1_000_000, 9),
            row(
                "lost", 0, 9, status=Status.CRASHED, samples_ns=(), message="signal 11", attempts=2
            ),
            row("slow", 3_000_000, 5, fingerprint="bbbb2222", simulated=True, clock="simulated"),
        )
        store.add_device("aaaa1111", {"properties": {"ro.product.model": "One"}}, False)
        store.add_device("bbbb2222", {"phone": "npu-phone"}, True)
    return path


def document(cli: Cli, name: str, *arguments: object) -> dict[str, Any]:
    result = cli("costs", name, "--json", *arguments)
    assert (result.code, result.err) == (0, "")
    return result.document(f"costs-{name}")


def test_list(cli, costs):
    result = cli.ok("costs", "list", "--costs", costs)
    lines = [line.split() for line in result.out.splitlines()]
    assert lines[1][:5] == ["bbbb2222", "npu-phone", "(simulated)", "1", "1"]
    assert lines[2][:4] == ["aaaa1111", "One", "9", "8"]
    assert lines[2][-5:] == ["2", "2026-01-01", "10:00", "2026-01-09", "10:00"]
    printed = document(cli, "list", "--costs", costs)
    assert [each["statuses"] for each in printed["devices"]] == [{"ok": 1}, {"ok": 8, "crashed": 1}]


def shown(cli: Cli, costs: Path, *arguments: object) -> list[str]:
    printed = document(cli, "show", "--costs", costs, *arguments)
    return [each["signature"] for each in printed["measurements"]]


def test_show_takes_filters(cli, costs):
    one = ("--device", "One")
    by_label = shown(cli, costs, "--sort", "label")
    assert by_label == ["fast", "lost", "once", "slow", "slow", "steady"]
    assert shown(cli, costs, *one, "--sort", "median") == ["once", "steady", "slow", "fast", "lost"]
    assert shown(cli, costs, *one, "--sort", "median", "--limit", 2) == ["once", "steady"]
    assert shown(cli, costs, "--device", "bbbb") == ["slow"]
    error = cli.error("costs", "show", "--costs", costs, "--device", "Two")
    assert "table is called 'Two'; there are: aaaa1111 (One), bbbb2222 (npu-phone" in error
    assert shown(cli, costs, "--target", "cpu") == ["once"]
    assert shown(cli, costs, "--op", "OP_S*", *one, "--sort", "label") == ["slow", "steady"]
    assert shown(cli, costs, "--status", "crashed") == ["lost"]
    assert shown(cli, costs, "--failures") == ["lost"]
    assert shown(cli, costs, "--kind", "region") == []
    assert shown(cli, costs, "--since", "2026-01-02", "--until", "2026-01-05") == ["slow"]
    assert len(shown(cli, costs, "--until", "2026-01-01")) == 5


def test_show_as_a_table(cli, costs):
    result = cli.ok("costs", "show", "--costs", costs, "--device", "aaaa", "--limit", 2)
    assert result.err == "note: 2 of 5 rows: --limit 0 shows all\n"
    assert "median (ms)" in result.out and "simulated" not in result.out
    assert cli("costs", "show", "--costs", costs).out.count("some simulated") == 1
    result = cli("costs", "show", "--costs", costs, "--device", "npu-phone")
    assert "median (ms, simulated)" in result.out and "3.001" in result.out
    result = cli("costs", "show", "--costs", costs, "--failures")
    assert "crashed: signal 11; tried 2 times" in " ".join(result.out.split())
    (failure,) = document(cli, "show", "--costs", costs, "--failures")["measurements"]
    assert (failure["status"], failure["attempts"]) == ("crashed", 2)


def test_rows_of_several_devices_say_whose_they_are(cli, costs):
    result = cli.ok("costs", "show", "--costs", costs, "--limit", "1", "--sort", "median")
    assert " device" in result.out.splitlines()[0]
    one = cli.ok("costs", "show", "--costs", costs, "--limit", "1", "--device", "One")
    assert " device" not in one.out.splitlines()[0]


def test_show_as_csv_and_parquet(cli, costs, tmp_path):
    result = cli.ok("costs", "show", "--costs", costs, "--op", "*slow", "--format", "csv")
    assert result.err == ""
    rows = pandas.read_csv(io.StringIO(result.out))
    assert len(rows) == 3 and set(rows.label) == {"op_slow"}
    file = tmp_path / "all.parquet"
    result = cli("costs", "show", "--costs", costs, "--format", "parquet", "-o", file)
    assert (result.code, result.out) == (0, "")
    assert len(pandas.read_parquet(file)) == 10


def test_merge(cli, costs, tmp_path):
    new = tmp_path / "new.sqlite"
    with CostStore(new) as store:
        store.add(row("steady", 2_000_000, 1), row("mine", 1, 1))
    with sqlite3.connect(costs) as link:
        link.execute("update measurements set samples_ns = '[-1]' where signature = 'once'")
    link.close()
    result = cli("costs", "merge", "--costs", new, costs)
    assert (result.code, result.out) == (0, f"{costs}: 8 new of 10 rows of 2 devices\n")
    assert "1 row cannot be and stayed behind" in result.err
    again = document(cli, "merge", "--costs", new, costs)
    words = {"table": str(costs), "rows": 10, "added": 0, "left_out": 1, "devices": 2}
    assert again["tables"] == [words]
    with CostStore(new) as store, CostStore(costs) as old:
        own = {r["digest"] for r in store.rows()}
        assert own > {r["digest"] for r in old.rows()} and len(own) == 10
        assert store.devices() == old.devices()


def test_a_large_table_is_not_counted(cli, costs, monkeypatch):
    monkeypatch.setattr("nnapi_prof.cli.costs._MANY_ROWS", 9)
    shown = document(cli, "show", "--costs", costs, "--limit", "2")
    assert shown["n_fitting"] is None
    assert [each["label"] for each in shown["measurements"]] == ["op_once", "op_slow"]
    result = cli("costs", "show", "--costs", costs, "--limit", "2")
    assert "the first 2 rows of many" in result.err
    assert document(cli, "show", "--costs", costs, "--limit", "6")["n_fitting"] == 6


def test_the_rows_of_a_model(cli, profiled):
    with CostStore(profiled.costs) as store:
        store.add(row("other", 5, 1))
    of_model = ("--model", profiled.model, "--input", INPUT)
    result = shown(cli, profiled.costs, *of_model)
    assert result and "other" not in result
    of_trial = shown(cli, profiled.costs, "--kind", "threads")
    assert len(of_trial) == 4 + N_CALLS
    assert len(shown(cli, profiled.costs)) == len(result) + 1 + len(of_trial)


def test_a_table_that_is_not_there_is_not_made(cli, tmp_path):
    absent = tmp_path / "typo.sqlite"
    for arguments in (["list"], ["show"]):
        error = cli.error("costs", arguments[0], "--costs", absent, *arguments[1:])
        assert "typo.sqlite does not exist: `nnapi-prof prof" in error
    assert not absent.exists()
    assert cli("costs", "list").code == 2  # nor in the user's folder


def test_prune(cli, costs):
    old = ("--costs", costs, "--device", "aaaa", "--until", "2026-01-05")
    result = cli("costs", "prune", *old)
    assert (result.code, result.err) == (0, "note: nothing was deleted: --yes does it\n")
    assert result.out == "5 of 10 rows would go, of 1 device\n"
    printed = document(cli, "prune", *old)
    assert (printed["deleted"], printed["rows"], printed["kept"]) == (False, 5, 5)
    result = cli.ok("costs", "prune", "--costs", costs, "--superseded", "--yes")
    assert " rows deleted, of 1 device\n" in result.out
    assert "does not shrink" in result.err
    assert document(cli, "prune", "--costs", costs, "--superseded")["rows"] == 0
    assert document(cli, "prune", "--costs", costs, "--failures", "--yes")["rows"] == 1
    assert shown(cli, costs, "--failures") == []
    printed = document(cli, "prune", "--costs", costs, "--device", "bbbb2222", "--yes")
    assert (printed["deleted"], printed["rows"], printed["forgotten"]) == (True, 1, ["bbbb2222"])
    assert [d["name"] for d in document(cli, "list", "--costs", costs)["devices"]] == ["One"]
