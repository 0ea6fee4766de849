"""``costs``: list, show, merge, prune; ``estimate`` and ``calibrate``."""

import io
import itertools
import socket
import sqlite3
import time
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from torch import nn

from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.costs.estimate.phones import shipped
from nnapi_prof.costs.measurement import Kind, Measurement, Round, Status
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.find import list_phones
from nnapi_prof.execution.estimation import estimated_costs, filled_costs, read_phone
from nnapi_prof.execution.profile.threads import N_CALLS
from nnapi_prof.execution.profile.unit_graph_cache import load_program
from nnapi_prof.graph.plan import CPU, Preference, Target
from nnapi_prof.partition import baselines, make_problem, plan_problem
from tests.cli.common import INPUT, Cli, TinyNet, trace
from tests.models import Function

NPU = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)


def row(signature: str, level_ns: int, day: int, **more: Any) -> Measurement:
    fields = {
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
    return Measurement(signature, **fields | more)


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    """A phone on two days, and another one that is simulated."""
    path = tmp_path / "costs.sqlite"
    crashed = {"status": Status.CRASHED, "samples_ns": (), "message": "signal 11", "attempts": 2}
    other = {"fingerprint": "bbbb2222", "simulated": True, "clock": "simulated"}
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
            row("lost", 0, 9, **crashed),
            row("slow", 3_000_000, 5, **other),
        )
        store.add_device("aaaa1111", {"properties": {"ro.product.model": "One"}}, False)
        store.add_device("bbbb2222", {"phone": "npu-phone"}, True)
    return path


def document(cli: Cli, name: str, *arguments: object) -> dict[str, Any]:
    result = cli.ok("costs", name, "--json", "--costs", *arguments)
    assert result.err == ""
    return result.document(f"costs-{name}")


def test_list(cli, costs):
    result = cli.ok("costs", "list", "--costs", costs)
    lines = [line.split() for line in result.out.splitlines()]
    assert lines[1][:5] == ["bbbb2222", "npu-phone", "(simulated)", "1", "1"]
    assert lines[2][:4] == ["aaaa1111", "One", "9", "8"]
    assert lines[2][-5:] == ["2", "2026-01-01", "10:00", "2026-01-09", "10:00"]
    devices = document(cli, "list", costs)["devices"]
    assert [each["statuses"] for each in devices] == [{"ok": 1}, {"ok": 8, "crashed": 1}]


def shown(cli: Cli, costs: Path, *arguments: object) -> list[str]:
    rows = document(cli, "show", costs, *arguments)["measurements"]
    return [each["signature"] for each in rows]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("--sort label", "fast lost once slow slow steady"),
        ("--device One --sort median", "once steady slow fast lost"),
        ("--device One --sort median --limit 2", "once steady"),
        ("--device bbbb", "slow"),
        ("--target cpu", "once"),
        ("--op OP_S* --device One --sort label", "slow steady"),
        ("--status crashed", "lost"),
        ("--failures", "lost"),
        ("--kind region", ""),
        ("--since 2026-01-02 --until 2026-01-05", "slow"),
        ("--until 2026-01-01 --sort label", "fast lost once slow steady"),
    ],
)
def test_show_takes_filters(cli, costs, options, wanted):
    assert shown(cli, costs, *options.split()) == wanted.split()


def test_show_as_a_table(cli, costs):
    show = ("costs", "show", "--costs", costs)
    result = cli.ok(*show, "--device", "aaaa", "--limit", 2)
    assert result.err == "note: 2 of 5 rows: --limit 0 shows all\n"
    assert "median (ms)" in result.out and "simulated" not in result.out
    # Rows of several devices say whose they are.
    out = cli.ok(*show, "--limit", "1", "--sort", "median").out
    assert " device" in out.splitlines()[0] and " device" not in result.out.splitlines()[0]
    assert cli(*show).out.count("some simulated") == 1
    out = cli(*show, "--device", "npu-phone").out
    assert "median (ms, simulated)" in out and "3.001" in out
    out = " ".join(cli(*show, "--failures").out.split())
    assert "crashed: signal 11; tried 2 times" in out
    error = cli.error(*show, "--device", "Two")
    assert "table is called 'Two'; there are: aaaa1111 (One), bbbb2222 (npu-phone" in error
    (failure,) = document(cli, "show", costs, "--failures")["measurements"]
    assert (failure["status"], failure["attempts"]) == ("crashed", 2)


def test_show_as_csv_and_parquet(cli, costs, tmp_path):
    show, file = ("costs", "show", "--costs", costs, "--format"), tmp_path / "all.parquet"
    result = cli.ok(*show, "csv", "--op", "*slow")
    rows = pandas.read_csv(io.StringIO(result.out))
    assert result.err == "" and list(rows.label) == ["op_slow"] * 3
    assert cli.ok(*show, "parquet", "-o", file).out == ""
    assert len(pandas.read_parquet(file)) == 10


def test_merge(cli, costs, tmp_path):
    new = tmp_path / "new.sqlite"
    with CostStore(new) as store:
        store.add(row("steady", 2_000_000, 1), row("mine", 1, 1))
    with sqlite3.connect(costs) as link:
        link.execute("update measurements set samples_ns = '[-1]' where signature = 'once'")
    link.close()
    result = cli.ok("costs", "merge", "--costs", new, costs)
    assert result.out == f"{costs}: 8 new of 10 rows of 2 devices\n"
    assert "1 row cannot be and stayed behind" in result.err
    words = {"table": str(costs), "rows": 10, "added": 0, "left_out": 1, "devices": 2}
    assert document(cli, "merge", new, costs)["tables"] == [words]
    with CostStore(new) as store, CostStore(costs) as old:
        own = {r["digest"] for r in store.rows()}
        assert own > {r["digest"] for r in old.rows()} and len(own) == 10
        assert store.devices() == old.devices()


def test_a_large_table_is_not_counted(cli, costs, monkeypatch):
    monkeypatch.setattr("nnapi_prof.cli.costs._MANY_ROWS", 9)
    shown = document(cli, "show", costs, "--limit", "2")
    assert shown["n_fitting"] is None
    assert [each["label"] for each in shown["measurements"]] == ["op_once", "op_slow"]
    few = cli("costs", "show", "--costs", costs, "--limit", "2")
    assert "the first 2 rows of many" in few.err
    assert document(cli, "show", costs, "--limit", "6")["n_fitting"] == 6


def test_the_rows_of_a_model(cli, profiled):
    with CostStore(profiled.costs) as store:
        store.add(row("other", 5, 1))
    result = shown(cli, profiled.costs, "--model", profiled.model, "--input", INPUT)
    assert result and "other" not in result
    of_trial = shown(cli, profiled.costs, "--kind", "threads")
    assert len(of_trial) == 4 + N_CALLS
    assert len(shown(cli, profiled.costs)) == len(result) + 1 + len(of_trial)


def test_a_table_that_is_not_there_is_not_made(cli, tmp_path):
    absent = tmp_path / "typo.sqlite"
    for command in ("list", "show"):
        error = cli.error("costs", command, "--costs", absent)
        assert "typo.sqlite does not exist: `nnapi-prof prof" in error
    assert not absent.exists()
    assert cli("costs", "list").code == 2  # nor in the user's folder


def test_prune(cli, costs):
    old = (costs, "--device", "aaaa", "--until", "2026-01-05")
    result = cli.ok("costs", "prune", "--costs", *old)
    assert result.err == "note: nothing was deleted: --yes does it\n"
    assert result.out == "5 of 10 rows would go, of 1 device\n"
    printed = document(cli, "prune", *old)
    assert (printed["deleted"], printed["rows"], printed["kept"]) == (False, 5, 5)
    result = cli.ok("costs", "prune", "--costs", costs, "--superseded", "--yes")
    assert " rows deleted, of 1 device\n" in result.out and "does not shrink" in result.err
    assert document(cli, "prune", costs, "--superseded")["rows"] == 0
    assert document(cli, "prune", costs, "--failures", "--yes")["rows"] == 1
    assert shown(cli, costs, "--failures") == []
    printed = document(cli, "prune", costs, "--device", "bbbb2222", "--yes")
    assert (printed["deleted"], printed["rows"], printed["forgotten"]) == (True, 1, ["bbbb2222"])
    assert [d["name"] for d in document(cli, "list", costs)["devices"]] == ["One"]


def estimate(cli: Cli, model: Path, phone: object) -> dict[str, Any]:
    return cli.document("estimate", model, "--input", INPUT, "--phone", phone)


@pytest.mark.parametrize("phone", [*list_phones(), *shipped()])
def test_every_phone_that_comes_along_gives_a_plan(cli, tiny, phone):
    result = estimate(cli, tiny, phone)
    assert result["estimated"] is True and result["simulated"] is (phone in list_phones())
    plan = result["plan"]
    assert plan["name"] == "dp"
    covered = sorted(u for s in plan["segments"] for u in s["units"])
    assert covered == list(range(len(result["units"])))
    assert all(s["estimated"] and not s["measured"] for s in plan["segments"])
    rivals = {p["name"]: p["predicted_ns"] for p in result["baselines"]}
    assert plan["predicted_ns"] <= min(rivals.values()) * 1.0001 and "all-cpu" in rivals
    if phone in shipped():  # which measured networks in NHWC: no layout was ever changed there
        assert plan["error"] is None and "TRANSPOSE" in plan["never_measured"]


def test_it_is_the_same_every_time_and_asks_nobody(cli, tiny, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("estimate opened a connection or a process")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr("subprocess.Popen", refuse)
    assert estimate(cli, tiny, "pixel4") == estimate(cli, tiny, "pixel4")


def test_output_says_what_it_is(cli, tiny):
    simulated = cli("estimate", tiny, "--input", INPUT, "--phone", "npu-phone").out
    assert "estimated, simulated phone" in simulated
    assert "nothing was measured for this model" in simulated


@pytest.mark.slow
def test_two_seconds_after_the_model_is_loaded(tmp_path):
    deep = convolutions(3, *[8] * 100)
    program = load_program(trace(deep, tmp_path / "deep.pt"), [INPUT])
    for phone in ("npu-phone", "pixel4"):
        begin = time.process_time()
        costs = estimated_costs(program, read_phone(phone))
        plan_problem(make_problem(program.units, costs.table), with_curve=False)
        baselines(make_problem(program.units, costs.table))
        assert time.process_time() - begin < 2


def convolutions(*channels: int) -> nn.Sequential:
    """Returns convolutions of 3 x 3 in a row, which the shipped phones know."""
    layers = ((nn.Conv2d(a, b, 3, padding=1), nn.ReLU()) for a, b in itertools.pairwise(channels))
    return nn.Sequential(*itertools.chain.from_iterable(layers))


def attend(x, patches, norm, grow, shrink):
    """What they do not. [1, 3, 224, 224] -> [1, 196, 64]"""
    x = norm(patches(x).flatten(2).transpose(1, 2))
    x = torch.softmax(x @ x.transpose(1, 2), -1) @ x
    return shrink(nn.functional.gelu(grow(x)))


@pytest.mark.slow
def test_a_network_of_known_types_has_a_band_and_a_strange_one_says_unknown(cli, tmp_path):
    image = (1, 3, 224, 224)
    asked = ("--input", "1x3x224x224", "--phone", "pixel4")
    pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    network = nn.Sequential(convolutions(3, 32, 64, 64, 128, 128), *pool)
    plain = trace(network, tmp_path / "plain.pt", image)
    assert 0.02 < cli.document("estimate", *asked, plain)["plan"]["error"] < 0.4
    linear = {"grow": nn.Linear(64, 256), "shrink": nn.Linear(256, 64)}
    strange = Function(attend, patches=nn.Conv2d(3, 64, 16, 16), norm=nn.LayerNorm(64), **linear)
    asked = (*asked, trace(strange, tmp_path / "strange.pt", image))
    result = cli.document("estimate", *asked)
    assert result["plan"]["error"] is None
    never = result["plan"]["never_measured"]
    assert {"BATCH_MATMUL", "SOFTMAX"} <= set(never) and 0 < sum(never.values()) <= 1
    assert any(u["costs"]["cpu"]["never_measured"] == "SOFTMAX" for u in result["units"])
    out = cli.ok("estimate", *asked).out
    facts = "estimated", "MIT", "no SOFTMAX was ever measured there", "TFLite's GPU delegate"
    assert all(words in out for words in (*facts, "unknown")) and "simulated" not in out


def test_what_runs_nowhere_goes_to_the_host_without_known_error(cli, tmp_path):
    odd = trace(TinyNet(lambda x: torch.special.gammaln(x + 1)), tmp_path / "odd.pt")
    plan = estimate(cli, odd, "pixel4")["plan"]
    assert "host" in {s["target"] for s in plan["segments"]} and plan["error"] is None


def test_calibrate_writes_what_estimate_reads(cli, profiled, tmp_path):
    out = tmp_path / "phone.json"
    asked = ("--costs", profiled.costs, "--output", out)
    done = cli.ok("calibrate", *asked)
    assert "Cross-validated errors, 5 folds, seed 0, simulated" in done.out
    first, text = out.read_text(), cli.document("calibrate", *asked)
    assert out.read_text() == first
    assert (text["simulated"], text["folds"], text["file"]) == (True, 5, str(out))
    assert {"cpu", "nnapi:sim-npu/fast"} <= {each["target"] for each in text["targets"]}
    assert all(each["median_error"] <= each["error"] for each in text["targets"])
    error = cli.error("calibrate", "--costs", profiled.costs, "--threads", 7, code=1)
    assert "no unit was measured" in error
    with CostStore(profiled.costs) as store:
        rows = store.measurements(store.devices()[0].fingerprint)
    measured = {(r.signature, r.target.key): r.summary.median_ns for r in rows if r.usable}
    units = estimate(cli, profiled.model, out)["units"]
    (conv,) = [unit for unit in units if unit["label"].startswith("conv2d 3x3 8->8")]
    alone = measured[conv["signature"], "cpu"]
    assert conv["costs"]["cpu"]["ns"] == pytest.approx(alone, rel=0.5)
    assert "nnapi:sim-npu/fast" in conv["costs"]


def test_partition_fills_what_was_not_measured(cli, profiled, tmp_path):
    """A model of which the profile knows the convolutions, but not what stands between them."""
    other, folder = trace(TinyNet(torch.tanh), tmp_path / "other.pt"), tmp_path / "other.nnprof"
    assert "never measured" in cli.error("partition", *profiled.named, other, code=1)
    done = cli.ok("partition", *profiled.named, "--estimate", "--output", folder, other)
    assert "est." in done.out
    bundle = read_bundle(folder)
    assert any("estimated from what else was measured" in note for note in bundle.notes)
    assert any(segment.estimated for plan in bundle.plans for segment in plan.segments)
    assert cli.document("report", "--costs", profiled.costs, folder)["estimated"]


def test_what_was_measured_stays_as_measured(profiled):
    program = load_program(profiled.model, [INPUT])
    with CostStore(profiled.costs) as store:
        fingerprint = store.devices()[0].fingerprint
        rows = store.measurements(fingerprint)
    filled, note = filled_costs(program, rows, fingerprint)
    plain = fit(program.units, rows)
    assert note is None and not filled.filled and filled.targets == plain.targets
    for target, unit in itertools.product(plain.targets, program.units.units):
        assert plain.region_cost([unit.index], target) == filled.region_cost([unit.index], target)
