"""``nnapi-prof compare``: a build fails where something became slower, and for no other reason."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import nnapi_prof as np_
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.errors import SlowerError
from nnapi_prof.execution.report import keep, last
from nnapi_prof.graph.plan import CPU
from tests.cli.common import Cli, Profiled
from tests.run.gate_trial import count


@pytest.fixture
def ran(cli: Cli, profiled: Profiled, tmp_path: Path) -> Path:
    """The document of a run of the bundle, which keeps it, too."""
    done = cli("run", "--device", "sim:npu-phone", "--json", profiled.bundle)
    path = tmp_path / "base.json"
    path.write_text(done.out)
    return path


def slowed(base: Path, factor: float, **changes: Any) -> Path:
    """The same run, so many times as long, on a phone with noise of its own."""
    document = json.loads(base.read_text()) | changes
    for plan in document["plans"]:
        plan["total_ns"] = [int(ns * factor) for ns in reversed(plan["total_ns"])]
    path = base.with_name(f"new{factor}.json")
    path.write_text(json.dumps(document))
    return path


def test_a_slow_down_fails_and_no_change_does_not(cli, ran, tmp_path):
    limit = ("--fail-if-slower", "5%")
    same = cli("compare", *limit, "--json", ran, slowed(ran, 1.0))
    document = same.document("compare")
    assert same.code == 0 and document["ok"] and document["simulated"]
    assert document["fail_if_slower"] == 0.05
    junit = tmp_path / "speed.xml"
    error = cli.error("compare", *limit, "--junit", junit, ran, slowed(ran, 1.05), code=1)
    assert "the plan is 5.0% slower" in error
    suite = ElementTree.fromstring(junit.read_text()).find("testsuite")
    assert suite is not None and suite.get("failures") == "1"
    assert "1.050 × as long" in str(suite.find("testcase/failure").get("message"))  # type: ignore[union-attr]
    assert cli("compare", ran, slowed(ran, 1.05)).code == 0  # no limit was asked for
    cli.ok("compare", *limit, ran, slowed(ran, 0.8))
    cli.ok("compare", "--fail-if-slower", "0.2", ran, slowed(ran, 1.05))
    with pytest.raises(SlowerError):
        np_.compare(ran, slowed(ran, 1.3), 0.05).raise_for_slower()


def test_bundles_by_their_last_runs(cli, profiled, ran):
    other = profiled.bundle.with_name("other.nnprof")
    shutil.copytree(profiled.bundle, other)
    done = cli.ok("compare", "--fail-if-slower", "5%", profiled.bundle, other)
    assert "ms, simulated" in done.out
    assert cli("compare", profiled.bundle, ran).code == 0  # of a bundle and a document


def test_runs_of_one_bundle(cli, profiled, tmp_path):
    """The runs of two dates, the earlier one twice as slow; then without the cost table."""
    cli.ok("run", "--device", "sim:npu-phone", "--runs", 7, profiled.bundle)
    now = last(profiled.bundle)
    assert now is not None
    slow = tuple(replace(run, total_ns=tuple(2 * ns for ns in run.total_ns)) for run in now.runs)
    keep(profiled.bundle, replace(now, created_at="2026-01-31T12:00:00+00:00", runs=slow))
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
    with CostStore(profiled.costs) as store:
        for m in store.select(Selection(newest=True)):
            samples = tuple(ns * (1 if m.target == CPU else 3) for ns in m.samples_ns)
            store.add(replace(m, samples_ns=samples, measured_at="2026-01-31T12:00:00+00:00"))
    name = f"{profiled.costs}#simulated npu-phone"
    done = cli.document("compare", f"{profiled.costs}#2026-01-31", name)
    ratios = {row["target"]: row["ratio"] for row in done["rows"] if row["ratio"]}
    assert ratios["cpu"] == 1.0
    on_npu = [ratio for target, ratio in ratios.items() if target != "cpu"]
    assert on_npu and all(ratio == pytest.approx(1 / 3, rel=1e-3) for ratio in on_npu)
    assert done["base"]["fingerprint"] == done["new"]["fingerprint"]
    then, now = f"{profiled.costs}#2026-01-31", profiled.costs
    limit = ("compare", "--fail-if-slower", "5%")
    assert "0 became slower" in cli.ok(*limit, then, now).out
    assert "slower" in cli.error(*limit, now, then, code=1)


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


def test_mistakes(cli, ran, profiled, tmp_path):
    for arguments, words in (
        ((ran, tmp_path / "none.json"), "none.json does not exist: name a bundle"),
        (("-o", tmp_path / "x.pdf", ran, ran), "x.pdf names no format"),
        ((f"{profiled.bundle}#Pixel", ran), "no run of the bundle fits 'Pixel'"),
        ((ran, profiled.costs), "not of one kind"),
    ):
        assert words in cli.error("compare", *arguments)


def test_recorded_noise_fails_no_build_and_five_percent_does():
    """tests/run/gate_trial.py has 1,000 pairs of each."""
    assert count(12, 1.0) == 0
    assert count(12, 1.05) == 12
