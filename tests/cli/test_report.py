"""``report``: formats, several bundles, runs and dates side by side, and what may be wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nnapi_prof.bundle.doors import steps
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.cli import main
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.execution.report import RunReport, every
from nnapi_prof.graph.plan import CPU
from nnapi_prof.reports.files import ENDINGS, format_of
from tests.cli.common import INPUT, Result
from tests.documents.common import check

Cli = Callable[..., Result]

LONG_AGO = "2026-01-31T12:00:00+00:00"


@dataclass(frozen=True)
class Bundles:
    """One model on two simulated phones, both run, with one cost table. ``npu`` has its
    convolutions on the NPU and ran twice: on 31 January 2026 and now. Files may be changed freely.
    """

    costs: Path
    npu: Path
    gpu: Path


def call(*arguments: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def made(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    folder = tmp_path_factory.mktemp("bundles")
    result = Bundles(folder / "costs.sqlite", folder / "npu.nnprof", folder / "gpu.nnprof")
    for phone, bundle in (("npu", result.npu), ("gpu", result.gpu)):
        device = ("--device", f"sim:{phone}-phone")
        named = (*device, "--input", INPUT, "--costs", result.costs)
        call("profile", *named, "--preference", "fast", tiny)
        pinned = ("--pin", "conv2d*=nnapi:sim-npu/fast") if phone == "npu" else ("--no-verify",)
        call("partition", *named, *pinned, "--output", bundle, tiny)
        call("run", *device, "--runs", 7, bundle)
    backdate(result.npu)
    call("run", "--device", "sim:npu-phone", "--runs", 7, result.npu)
    return result


def backdate(bundle: Path) -> None:
    """The bundle's last run was long ago, and took twice as long."""
    file = bundle / "run.json"
    report = RunReport.from_json(file.read_text())
    runs = tuple(replace(r, total_ns=tuple(2 * ns for ns in r.total_ns)) for r in report.runs)
    file.write_text(replace(report, created_at=LONG_AGO, runs=runs).to_json())


@pytest.fixture
def bundles(made: Bundles, tmp_path: Path) -> Bundles:
    folder = tmp_path / "bundles"
    shutil.copytree(made.costs.parent, folder)
    return Bundles(*(folder / path.name for path in (made.costs, made.npu, made.gpu)))


# ---- one bundle --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_ending_says_which_format(cli: Cli, bundles: Bundles, tmp_path: Path) -> None:
    begins = {".html": "<!DOCTYPE html>", ".htm": "<!DOCTYPE html>", ".json": "{", ".MD": "# ",
              ".md": "# ", ".trace.json": "{", "": "<!DOCTYPE html>"}  # fmt: skip
    for ending, begin in begins.items():
        path = tmp_path / "out" / f"report{ending}"
        result = cli("report", "--costs", bundles.costs, "-o", path, bundles.npu)
        assert (result.code, result.out.strip()) == (0, str(path)), result.err
        assert path.read_text().startswith(begin), ending
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    check(document, "report")
    assert "traceEvents" in json.loads((tmp_path / "out" / "report.trace.json").read_text())
    assert [p.name for p in (tmp_path / "out").iterdir() if "part" in p.name] == []


def test_a_format_beats_the_ending_and_names_the_default(cli: Cli, bundles: Bundles) -> None:
    odd = bundles.npu.with_name("report.txt")
    result = cli("report", "--costs", bundles.costs, "--format", "md", "-o", odd, bundles.npu)
    assert result.code == 0 and odd.read_text().startswith("# ")
    for form, ending in (("html", ".html"), ("md", ".md"), ("trace", ".trace.json")):
        result = cli("report", "--costs", bundles.costs, "--format", form, bundles.npu)
        assert result.out.strip() == str(bundles.npu.with_suffix(ending))
        assert format_of(Path(result.out.strip())) == form
    assert set(ENDINGS) == {"html", "md", "trace", "json"}


def test_standard_output(cli: Cli, bundles: Bundles) -> None:
    result = cli("report", "--costs", bundles.costs, "--format", "md", "-o", "-", bundles.npu)
    assert result.code == 0 and result.out.startswith("# ")
    for step in steps(read_bundle(bundles.npu), bundles.npu):  # the end is what to type next
        assert (step.refusal or step.command) in result.out.partition("## Ship it")[2]
    assert not Path("-").exists()


def test_json_prints_the_data_and_writes_what_is_asked(
    cli: Cli, bundles: Bundles, tmp_path: Path
) -> None:
    before = sorted(bundles.npu.parent.iterdir())
    named = ("report", "--json", "--costs", bundles.costs)
    document = cli(*named, bundles.npu).document("report")
    assert sorted(bundles.npu.parent.iterdir()) == before
    assert document["simulated"] and document["run"]["simulated"]
    last = RunReport.from_json((bundles.npu / "run.json").read_text())
    assert document["run"]["plans"][0]["total_ns"] == list(last.runs[0].total_ns)
    with CostStore(bundles.costs) as store:
        rows = store.select(Selection(newest=True))
    measured = {(m.signature, m.target.key): m.summary.median_ns for m in rows if m.usable
                and m.fingerprint == last.fingerprint}  # fmt: skip
    for unit in document["units"]:
        for cost in unit["costs"]:
            measurement = measured.get((unit["signature"], cost["target"]))
            assert cost["alone_ns"] == (None if measurement is None else pytest.approx(measurement))
    path = tmp_path / "report.html"
    again = cli(*named, "-o", path, bundles.npu)
    again.document("report")
    assert path.read_text().startswith("<!DOCTYPE html>")


def test_before_a_run_the_report_says_so(cli: Cli, bundles: Bundles) -> None:
    (bundles.gpu / "run.json").unlink()
    result = cli("report", "--costs", bundles.costs, bundles.gpu)
    assert result.code == 0 and "gpu was not run yet: the report shows predictions" in result.err
    document = cli("report", "--json", "--costs", bundles.costs, bundles.gpu).document("report")
    assert document["run"] is None


def test_a_bundle_of_estimated_costs(
    cli: Cli, bundles: Bundles, tiny: Path, tmp_path: Path
) -> None:
    """What `partition --estimate` planned can be reported: it is estimated again."""
    import torch

    from tests.cli.common import TinyNet, trace

    other = trace(TinyNet(torch.tanh), tmp_path / "other.pt")
    device = ("--device", "sim:npu-phone")
    named = (*device, "--input", INPUT, "--costs", bundles.costs)
    bundle = tmp_path / "other.nnprof"
    result = cli("partition", *named, "--estimate", "--no-verify", "--output", bundle, other)
    assert result.code == 0, result.err
    actual = cli("report", "--json", "--costs", bundles.costs, bundle)
    assert actual.code == 0, actual.err
    assert actual.document("report")["estimated"]


# ---- several -----------------------------------------------------------------------------------


def test_two_bundles(cli: Cli, bundles: Bundles) -> None:
    result = cli("report", "--costs", bundles.costs, bundles.npu, bundles.gpu)
    page = bundles.npu.with_name("npu.compare.html")
    assert (result.code, result.out.strip()) == (0, str(page)), result.err
    text = page.read_text()
    assert "npu against gpu" in text and 'id="changed"' in text
    assert text.count('<span class="badge">simulated</span>') == 3  # the title and both sides


def test_two_bundles_as_data(cli: Cli, bundles: Bundles, tmp_path: Path) -> None:
    named = ("report", "--costs", bundles.costs)
    document = cli(*named, "--json", bundles.npu, bundles.gpu).document("compare")
    assert [side["name"] for side in document["sides"]] == ["npu", "gpu"]
    assert [side["simulated"] for side in (s["measured"] for s in document["sides"])] == [True] * 2
    runs = [RunReport.from_json((b / "run.json").read_text()) for b in (bundles.npu, bundles.gpu)]
    medians = [run.runs[0].median_ns for run in runs]
    assert [side["measured"]["ns"] for side in document["sides"]] == medians
    (ratio,) = document["ratios"]
    assert medians[0] and medians[1] and ratio["ratio"] == medians[1] / medians[0]
    assert ratio["measured"] and ratio["low"] <= ratio["ratio"] <= ratio["high"]
    path = tmp_path / "c.json"
    assert cli(*named, "-o", path, bundles.npu, bundles.gpu).code == 0
    assert json.loads(path.read_text()) == document
    markdown = cli(*named, "--format", "md", "-o", "-", bundles.npu, bundles.gpu)
    assert markdown.out.startswith("# npu (A) against gpu (B)")
    for sentence in document["changed"]:
        assert sentence.split(":")[0].replace("_", "\\_") in markdown.out


def test_bundles_of_one_name_are_called_by_their_paths(cli: Cli, bundles: Bundles) -> None:
    other = bundles.npu.parent / "other" / "npu.nnprof"
    shutil.copytree(bundles.gpu, other)
    result = cli("report", "--json", "--costs", bundles.costs, bundles.npu, other)
    names = [side["name"] for side in result.document("compare")["sides"]]
    assert names == [str(bundles.npu), str(other)]


def test_a_bundle_keeps_its_runs(cli: Cli, bundles: Bundles) -> None:
    runs = every(bundles.npu)
    assert [run.created_at == LONG_AGO for run in runs] == [True, False]
    named = ("report", "--json", "--costs", bundles.costs)
    then = cli(*named, "--run", "2026-01-31", bundles.npu).document("report")
    assert then["run"]["created_at"] == LONG_AGO
    now = cli(*named, bundles.npu).document("report")
    assert now["run"]["created_at"] == runs[1].created_at


def test_runs_of_one_bundle_on_two_dates(cli: Cli, bundles: Bundles) -> None:
    named = ("report", "--json", "--costs", bundles.costs)
    both = ("--run", "2026-01-31", "--run", "npu-phone")
    document = cli(*named, *both, bundles.npu).document("compare")
    assert document["sides"][0]["name"] == "simulated npu-phone, 2026-01-31 12:00:00"
    assert 0.3 < document["ratios"][0]["ratio"] < 0.7
    assert document["placement"]["units_elsewhere"] == 0
    assert document["latencies"][0]["compared"] == 0
    assert document["latencies"][0]["not_measured_again"] > 0
    assert any(each["name"] == "run at" for each in document["conditions"])


def test_runs_of_one_bundle_on_two_devices(cli: Cli, bundles: Bundles) -> None:
    """What was planned for the phone with a GPU runs on the one that has an NPU besides."""
    assert cli("run", "--device", "sim:npu-phone", "--runs", 7, bundles.gpu).code == 0
    both = ("--run", "gpu-phone", "--run", "npu-phone")
    result = cli("report", "--json", "--costs", bundles.costs, *both, bundles.gpu)
    document = result.document("compare")
    devices = [side["device"] for side in document["sides"]]
    assert [device.split(" (")[0] for device in devices] == [
        "simulated gpu-phone",
        "simulated npu-phone",
    ]
    assert document["ratios"][0]["measured"]
    (elsewhere,) = (d for d in document["conditions"] if d["name"] == "run on another device")
    assert elsewhere["values"] == [None, "simulated npu-phone"]


def test_one_plan_under_the_costs_of_two_dates(cli: Cli, bundles: Bundles) -> None:
    """Everything was three times as slow on NNAPI in January: the same plan, priced anew."""
    run = RunReport.from_json((bundles.npu / "run.json").read_text())
    with CostStore(bundles.costs) as store:
        rows = store.select(Selection((run.fingerprint,), newest=True))
        old = [
            replace(
                m,
                samples_ns=tuple(ns * (1 if m.target == CPU else 3) for ns in m.samples_ns),
                measured_at=LONG_AGO,
            )
            for m in rows
        ]
        assert store.add(*old) == len(old)
    named = ("report", "--json", "--costs", bundles.costs)
    both = ("--at", "2026-01-31", "--at", "2999-12-31")
    document = cli(*named, *both, bundles.npu).document("compare")
    then, now = document["sides"]
    assert then["name"] == "npu as known on 2026-01-31"
    assert then["run_at"] == LONG_AGO and now["run_at"] == run.created_at
    plan = run.runs[0].plan
    on_nnapi = sum(s.predicted_ns for s in plan.segments if s.target != CPU)
    assert on_nnapi > 0.9 * plan.predicted_ns
    assert now["predicted"]["ns"] == pytest.approx(plan.predicted_ns, rel=1e-3)
    expected = plan.predicted_ns + 2 * on_nnapi
    assert then["predicted"]["ns"] == pytest.approx(expected, rel=0.02)
    by_target = {row["target"]: row for row in document["latencies"][0]["by_target"]}
    npu = by_target["nnapi:sim-npu/fast"]
    assert npu["median_ratio"] == pytest.approx(1 / 3, rel=1e-3)
    assert npu["faster"] == npu["compared"] > 0
    assert by_target["cpu"]["faster"] == by_target["cpu"]["slower"] == 0
    single = cli(*named, "--at", "2026-01-31", bundles.npu).document("report")
    assert single["plan"]["predicted_ns"] == pytest.approx(then["predicted"]["ns"])
    ran = {row["name"]: row["predicted_ns"] for row in single["run"]["plans"]}
    assert ran[single["plan"]["name"]] == pytest.approx(then["predicted"]["ns"])


# ---- what is wrong -----------------------------------------------------------------------------


def test_unknown_endings_and_formats(cli: Cli, bundles: Bundles) -> None:
    result = cli("report", "--costs", bundles.costs, "-o", "report.pdf", bundles.npu)
    assert result.code == 2
    assert result.error == (
        "the ending of report.pdf names no format: there are .html, .md, .trace.json, .json,"
        " or say --format html|md|trace|json"
    )
    result = cli("report", "--format", "pdf", bundles.npu)
    assert result.code == 2 and "'html', 'md', 'trace', 'json'" in result.error


def test_formats_that_hold_one_bundle(cli: Cli, bundles: Bundles) -> None:
    sides = (bundles.npu, bundles.gpu)
    result = cli("report", "--costs", bundles.costs, "--format", "trace", *sides)
    assert result.code == 2
    assert result.error == "--format trace is of one bundle: a comparison is html, md or json"


def test_three_comparisons_at_once(cli: Cli, bundles: Bundles) -> None:
    for wrong in (
        ("--run", "npu", "--at", "2026-01-31", bundles.npu),
        ("--run", "npu", bundles.npu, bundles.gpu),
        ("--at", "2026-01-31", bundles.npu, bundles.gpu),
    ):
        result = cli("report", "--costs", bundles.costs, *wrong)
        assert result.code == 2 and "ask for one at a time" in result.error
    result = cli("report", "--costs", bundles.costs, *[bundles.npu] * 7)
    assert result.code == 2 and "a comparison has 2 to 6 sides, not 7" in result.error


def test_standard_output_holds_one_thing(cli: Cli, bundles: Bundles) -> None:
    result = cli("report", "--json", "-o", "-", bundles.npu)
    assert result.code == 2 and "leave -o - out" in result.err


def test_dates_and_runs_that_are_not_there(cli: Cli, bundles: Bundles) -> None:
    named = ("report", "--costs", bundles.costs)
    result = cli(*named, "--at", "yesterday", bundles.npu)
    assert result.code == 2
    assert result.error == "--at 'yesterday' is not a date: write 2026-01-31 or 2026-01-31T12:30"
    result = cli(*named, "--at", "2020-01-01", bundles.npu)
    assert result.code == 1
    assert "nothing was measured on simulated npu-phone until 2020-01-02" in result.error
    assert "(the first is of 20" in result.error and result.error.endswith("choose a later --at")
    result = cli(*named, "--run", "Pixel", bundles.npu)
    assert result.code == 2
    assert "no run of the bundle fits 'Pixel': there are 2026-01-31T12:00:00 on" in result.error
    (bundles.gpu / "run.json").unlink()
    result = cli(*named, "--run", "npu", bundles.gpu)
    assert result.code == 2 and result.error.endswith("never run: `nnapi-prof run` does it")


def test_a_plan_that_was_not_to_be_had_at_the_time(cli: Cli, bundles: Bundles) -> None:
    """The NPU is newer than the date: nothing says what the plan took there."""
    run = RunReport.from_json((bundles.npu / "run.json").read_text())
    with CostStore(bundles.costs) as store:
        rows = store.select(Selection((run.fingerprint,), newest=True))
        store.add(*(replace(m, measured_at=LONG_AGO) for m in rows if m.target == CPU))
    assert any(s.target != CPU for s in run.runs[0].plan.segments)
    result = cli("report", "--costs", bundles.costs, "--at", "2026-01-31", bundles.npu)
    assert result.code == 1
    assert "until 2026-02-01T00:00:00 nothing says what" in result.error
    assert "where the plan runs it: choose a later --at" in result.error


def test_a_damaged_earlier_run(cli: Cli, bundles: Bundles) -> None:
    (earlier,) = (bundles.npu / "runs").iterdir()
    earlier.write_text("{")
    assert cli("report", "--costs", bundles.costs, bundles.npu).code == 0
    result = cli("report", "--costs", bundles.costs, "--run", "npu", bundles.npu)
    assert result.code == 1
    assert f"{earlier}: this is not a run report" in result.error
    assert "remove the file to do without it" in result.error


def test_messages_are_short(cli: Cli, bundles: Bundles, tmp_path: Path) -> None:
    wrong: list[tuple[object, ...]] = [
        (tmp_path / "absent.nnprof",),
        (bundles.npu.parent,),
        ("--costs", tmp_path / "absent.sqlite", bundles.npu),
        ("--costs", bundles.costs, "--at", "2020-01-01", bundles.npu),
        ("--costs", bundles.costs, "--run", "Pixel", bundles.npu),
        ("--costs", bundles.costs, "-o", tmp_path / "x.docx", bundles.npu),
    ]
    for arguments in wrong:
        result = cli("report", *arguments)
        assert result.code in (1, 2) and result.out == ""
        assert result.err.count("\n") <= 3, result.err


def test_a_bundle_knows_the_table_that_it_was_planned_with(
    cli: Callable[..., Result], bundles: Bundles, made: Bundles, tmp_path: Path
) -> None:
    """The report opens no other table than the one that is asked, and says which is missing."""
    other = tmp_path / "other.sqlite"
    missing = cli("report", "--costs", other, bundles.npu)
    assert missing.code == 2 and not other.exists()
    assert missing.error.endswith(
        f"; the bundle was planned with another table: add --costs {made.costs}"
    )
    with CostStore(str(bundles.costs)) as known, CostStore(str(other)) as store:
        rows = [row for row in known.select(Selection()) if row.n_units == 1]
        store.add(*(replace(row, signature="another", members=("another",)) for row in rows))
    lacking = cli("report", "--costs", other, bundles.npu)
    assert lacking.code == 1 and "were never measured on this device" in lacking.error
    assert lacking.error.endswith(f"another table: add --costs {made.costs}")
