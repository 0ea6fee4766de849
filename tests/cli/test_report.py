"""``report``: formats, runs and dates; ``compare``: a build fails where something became slower."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from rich.console import Console

import nnapi_prof as np_
from nnapi_prof.bundle.deployment import AppRuntime, DeployStep, deploy_steps
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.cli.ship import show_steps
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.errors import SlowerError
from nnapi_prof.execution.report import every, keep, last
from nnapi_prof.graph.plan import CPU
from nnapi_prof.reports import ENDINGS, format_of
from tests.cli.common import SIM, Cli, Profiled, call, two_phones
from tests.documents.common import check
from tests.run.gate_trial import count

LONG_AGO = "2026-01-31T12:00:00+00:00"


@pytest.fixture(scope="module")
def made(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One model on two simulated phones, both run, with one cost table. ``npu`` has its
    convolutions on the NPU and ran twice: on 31 January 2026 and now."""
    costs, npu, gpu = two_phones(tiny, tmp_path_factory.mktemp("bundles"), runs=7)
    backdate(npu)
    call("run", *SIM, "--runs", 7, npu)
    return SimpleNamespace(costs=costs, npu=npu, gpu=gpu)


def backdate(bundle: Path) -> None:
    """The bundle's last run was long ago, and took twice as long."""
    report = last(bundle)
    runs = tuple(replace(r, total_ns=tuple(2 * ns for ns in r.total_ns)) for r in report.runs)
    (bundle / "run.json").write_text(replace(report, created_at=LONG_AGO, runs=runs).to_json())


def add_slow_rows(costs: Path, **device: tuple[str, ...]) -> None:
    """Everything was three times as slow on NNAPI long ago."""
    with CostStore(costs) as store:
        for m in store.select(Selection(newest=True, **device)):
            samples = tuple(ns * (1 if m.target == CPU else 3) for ns in m.samples_ns)
            assert store.add(replace(m, samples_ns=samples, measured_at=LONG_AGO)) == 1


@pytest.fixture
def bundles(made: SimpleNamespace, tmp_path: Path) -> SimpleNamespace:
    """The same; files may be changed freely."""
    folder = shutil.copytree(made.costs.parent, tmp_path / "bundles")
    return SimpleNamespace(**{name: folder / path.name for name, path in vars(made).items()})


@pytest.mark.slow
def test_the_ending_says_which_format(cli, bundles, tmp_path):
    begins = {".htm": "<!DOCTYPE html>", ".json": "{", ".MD": "# ",
              ".md": "# ", ".trace.json": "{", "": "<!DOCTYPE html>"}  # fmt: skip
    for ending, begin in begins.items():
        path = tmp_path / "out" / f"report{ending}"
        result = cli.ok("report", "--costs", bundles.costs, "-o", path, bundles.npu)
        assert result.out.strip() == str(path)
        assert path.read_text().startswith(begin), ending
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    check(document, "report")
    assert "traceEvents" in json.loads((tmp_path / "out" / "report.trace.json").read_text())
    assert [p.name for p in (tmp_path / "out").iterdir() if "part" in p.name] == []


def test_a_format_beats_the_ending_and_names_the_default(cli, bundles):
    odd = bundles.npu.with_name("report.txt")
    named = ("report", "--costs", bundles.costs, bundles.npu, "--format")
    cli.ok(*named, "md", "-o", odd)
    assert odd.read_text().startswith("# ")
    for form, ending in (("html", ".html"), ("md", ".md"), ("trace", ".trace.json")):
        path = bundles.npu.with_suffix(ending)
        assert cli(*named, form).out.strip() == str(path) and format_of(path) == form
    assert set(ENDINGS) == {"html", "md", "trace", "json"}
    out = cli.ok(*named, "md", "-o", "-").out
    assert out.startswith("# ") and not Path("-").exists()
    for step in deploy_steps(read_bundle(bundles.npu), bundles.npu):  # the end is what to type next
        assert (step.refusal or step.command) in out.partition("## Ship it")[2]


def test_json_prints_the_data_and_writes_what_is_asked(cli, bundles, tmp_path):
    before = sorted(bundles.npu.parent.iterdir())
    named = ("--costs", bundles.costs, bundles.npu)
    document = cli.document("report", *named)
    assert sorted(bundles.npu.parent.iterdir()) == before
    assert document["simulated"] and document["run"]["simulated"]
    shown = last(bundles.npu)
    assert document["run"]["plans"][0]["total_ns"] == list(shown.runs[0].total_ns)
    with CostStore(bundles.costs) as store:
        rows = store.select(Selection((shown.fingerprint,), newest=True))
    measured = {(m.signature, m.target.key): m.summary.median_ns for m in rows if m.usable}
    for unit in document["units"]:
        for cost in unit["costs"]:
            measurement = measured.get((unit["signature"], cost["target"]))
            assert cost["alone_ns"] == (None if measurement is None else pytest.approx(measurement))
    path = tmp_path / "report.html"
    cli.document("report", "-o", path, *named)
    assert path.read_text().startswith("<!DOCTYPE html>")


def test_a_bundle_keeps_its_runs_and_before_one_the_report_says_so(cli, bundles):
    runs = every(bundles.npu)
    assert [run.created_at == LONG_AGO for run in runs] == [True, False]
    for options, created_at in (("--run", "2026-01-31"), LONG_AGO), ((), runs[1].created_at):
        document = cli.document("report", "--costs", bundles.costs, *options, bundles.npu)
        assert document["run"]["created_at"] == created_at
    (bundles.gpu / "run.json").unlink()
    result = cli.ok("report", "--json", "--costs", bundles.costs, bundles.gpu)
    assert "gpu was not run yet: the report shows predictions" in result.err
    assert result.document("report")["run"] is None


def test_one_plan_under_the_costs_of_two_dates(cli, bundles):
    """The same plan, priced anew."""
    run = last(bundles.npu)
    add_slow_rows(bundles.costs, fingerprints=(run.fingerprint,))
    then, now = (
        cli.document("report", "--costs", bundles.costs, "--at", date, bundles.npu)
        for date in ("2026-01-31", "2999-12-31")
    )
    assert (then["run"]["created_at"], now["run"]["created_at"]) == (LONG_AGO, run.created_at)
    plan = run.runs[0].plan
    on_nnapi = sum(s.predicted_ns for s in plan.segments if s.target != CPU)
    assert on_nnapi > 0.9 * plan.predicted_ns
    assert now["plan"]["predicted_ns"] == pytest.approx(plan.predicted_ns, rel=1e-3)
    assert then["plan"]["predicted_ns"] == pytest.approx(plan.predicted_ns + 2 * on_nnapi, rel=0.02)
    ran = {row["name"]: row["predicted_ns"] for row in then["run"]["plans"]}
    assert ran[then["plan"]["name"]] == pytest.approx(then["plan"]["predicted_ns"])


def test_dates_and_runs_that_are_not_there(cli, bundles):
    named = ("report", "--costs", bundles.costs, bundles.npu)
    error = cli.error(*named, "--at", "2020-01-01", code=1)
    assert "nothing was measured on simulated npu-phone until 2020-01-02" in error
    assert "(the first is of 20" in error and error.endswith("choose a later --at")
    assert "leave -o - out" in cli.error(*named, "--json", "-o", "-")
    error = cli.error(*named, "--run", "Pixel")
    assert "no run of the bundle fits 'Pixel': there are 2026-01-31T12:00:00 on" in error


def test_a_plan_that_was_not_to_be_had_at_the_time(cli, bundles):
    """The NPU is newer than the date: nothing says what the plan took there."""
    run = last(bundles.npu)
    with CostStore(bundles.costs) as store:
        rows = store.select(Selection((run.fingerprint,), newest=True))
        store.add(*(replace(m, measured_at=LONG_AGO) for m in rows if m.target == CPU))
    assert any(s.target != CPU for s in run.runs[0].plan.segments)
    error = cli.error("report", "--costs", bundles.costs, "--at", "2026-01-31", bundles.npu, code=1)
    assert "until 2026-02-01T00:00:00 nothing says what" in error
    assert "where the plan runs it: choose a later --at" in error


def test_a_damaged_earlier_run(cli, bundles):
    (earlier,) = (bundles.npu / "runs").iterdir()
    earlier.write_text("{")
    cli.ok("report", "--costs", bundles.costs, bundles.npu)
    error = cli.error("report", "--costs", bundles.costs, "--run", "npu", bundles.npu, code=1)
    assert f"{earlier}: this is not a run report" in error
    assert "remove the file to do without it" in error


def test_a_bundle_knows_the_table_that_it_was_planned_with(cli, bundles, made, tmp_path):
    """The report opens no other table than the one that is asked, and says which is missing."""
    other = tmp_path / "other.sqlite"
    error = cli.error("report", "--costs", other, bundles.npu)
    assert not other.exists()
    assert error.endswith(f"; the bundle was planned with another table: add --costs {made.costs}")
    with CostStore(str(bundles.costs)) as known, CostStore(str(other)) as store:
        rows = [row for row in known.select(Selection()) if row.n_units == 1]
        store.add(*(replace(row, signature="another", members=("another",)) for row in rows))
    error = cli.error("report", "--costs", other, bundles.npu, code=1)
    assert "were never measured on this device" in error
    assert error.endswith(f"another table: add --costs {made.costs}")


@pytest.mark.parametrize("columns", [40, 80, 120, 160])
def test_a_command_is_not_broken_over_lines(columns):
    net = "/somewhere/nets/net"
    command = f"nnapi-prof convert --format runtime -o {net}.nnprt {net}.nnprof"
    refused = DeployStep(AppRuntime.AAR, "nnapi-prof ship --aar x", "no: " * 40)
    out = io.StringIO()
    console = Console(file=out, width=columns, force_terminal=True, color_system=None)
    show_steps(console, (DeployStep(AppRuntime.LIBRARY, command, None), refused))
    assert sum(command in each for each in out.getvalue().splitlines()) == 1
    assert "ship --aar x" not in out.getvalue()


@pytest.fixture
def ran(cli: Cli, profiled: Profiled, tmp_path: Path) -> Path:
    """The document of a run of the bundle, which keeps it, too."""
    path = tmp_path / "base.json"
    path.write_text(cli("run", *SIM, "--json", profiled.bundle).out)
    return path


def slowed(base: Path, factor: float) -> Path:
    """The same run, so many times as long, on a phone with noise of its own."""
    document = json.loads(base.read_text())
    for plan in document["plans"]:
        plan["total_ns"] = [int(ns * factor) for ns in reversed(plan["total_ns"])]
    path = base.with_name(f"new{factor}.json")
    path.write_text(json.dumps(document))
    return path


def test_a_slow_down_fails_and_no_change_does_not(cli, profiled, ran, tmp_path):
    limit = ("--fail-if-slower", "5%")
    document = cli.document("compare", *limit, ran, slowed(ran, 1.0))
    assert document["ok"] and document["simulated"] and document["fail_if_slower"] == 0.05
    junit = tmp_path / "speed.xml"
    error = cli.error("compare", *limit, "--junit", junit, ran, slowed(ran, 1.05), code=1)
    assert "the plan is 5.0% slower" in error
    suite = ElementTree.fromstring(junit.read_text()).find("testsuite")
    assert suite.get("failures") == "1"
    assert "1.050 × as long" in suite.find("testcase/failure").get("message")
    cli.ok("compare", ran, slowed(ran, 1.05))  # no limit was asked for
    cli.ok("compare", *limit, ran, slowed(ran, 0.8))
    assert "ms, simulated" in cli.ok("compare", *limit, profiled.bundle, ran).out
    cli.ok("compare", "--fail-if-slower", "0.2", ran, slowed(ran, 1.05))
    with pytest.raises(SlowerError):
        np_.compare(ran, slowed(ran, 1.3), 0.05).raise_for_slower()


def test_runs_of_one_bundle(cli, profiled, tmp_path):
    """The runs of two dates, the earlier one twice as slow; then without the cost table."""
    cli.ok("run", *SIM, "--runs", 7, profiled.bundle)
    now = last(profiled.bundle)
    backdate(profiled.bundle)
    keep(profiled.bundle, now)
    both = (f"{profiled.bundle}#2026-01-31", profiled.bundle)
    done = cli.document("compare", "--costs", profiled.costs, *both)
    assert done["rows"][0]["ratio"] == pytest.approx(0.5, rel=1e-3)
    n_units = len(read_bundle(profiled.bundle).graph.units)
    assert done["moves"] == [] and done["units_in_common"] == n_units
    assert done["same_rows"] > 0 and "run at" in {fact["name"] for fact in done["facts"]}
    page = tmp_path / "both.md"
    alone = cli.ok("compare", "-o", page, *both)
    assert "latencies of units are left out" in alone.out
    assert page.read_text().startswith("# ")


def test_dates_and_devices_of_one_table(cli, profiled):
    add_slow_rows(profiled.costs)
    then, now = f"{profiled.costs}#2026-01-31", f"{profiled.costs}#simulated npu-phone"
    done = cli.document("compare", then, now)
    ratios = {row["target"]: row["ratio"] for row in done["rows"] if row["ratio"]}
    assert ratios.pop("cpu") == 1.0
    assert ratios and all(each == pytest.approx(1 / 3, rel=1e-3) for each in ratios.values())
    assert done["base"]["fingerprint"] == done["new"]["fingerprint"]
    limit = ("compare", "--fail-if-slower", "5%")
    assert "0 became slower" in cli.ok(*limit, then, profiled.costs).out
    assert "slower" in cli.error(*limit, profiled.costs, then, code=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fingerprint": "other"}, "run both on one device"),
        ({"conditions": "--threads 2"}, "run both on one device"),
        ({"plans": []}, "is not a document of `nnapi-prof run --json`"),
        ({"plans": [{"plan": {"name": "x"}, "total_ns": ["1"]}]}, "not a latency in ns"),
        ({"schema": "nnapi-prof/other/1"}, "is not a document"),
    ],
)
def test_sides_that_are_not_alike(cli, ran, change, words):
    document = json.loads(ran.read_text()) | change
    other = ran.with_name("other.json")
    other.write_text(json.dumps(document))
    assert words in cli("compare", "--fail-if-slower", "5%", ran, other).error


def test_recorded_noise_fails_no_build_and_five_percent_does():
    """tests/run/gate_trial.py has 1,000 pairs of each."""
    assert count(12, 1.0) == 0
    assert count(12, 1.05) == 12
