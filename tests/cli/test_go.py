"""``nnapi-prof go``: everything in one, twice, and what is left when something fails."""

import contextlib
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from torch import nn

from nnapi_prof.errors import AgentError, UsageError
from nnapi_prof.execution.profile import measurer
from tests.cli.common import (
    INPUT,
    SIM,
    Cli,
    Result,
    call,
    count_rows,
    on_a_terminal,
    raises,
    shift_reference,
    trace,
)

_fail = raises(AgentError("the phone went away"))
_must_not_be_called = raises(AssertionError("it was called"))


@pytest.fixture(scope="session")
def _went(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what ``go`` wrote once, and the document that it printed."""
    folder = tmp_path_factory.mktemp("go")
    where = (*SIM, "--input", INPUT, "--costs", folder / "c.sqlite", "-o", folder / "out.html")
    with (folder / "out.json").open("w") as out, contextlib.redirect_stdout(out):
        call("go", *where, "--json", tiny)
    return folder


@pytest.fixture
def known(_went: Path, tmp_path: Path) -> None:
    """What the tiny model costs is measured already."""
    shutil.copyfile(_went / "c.sqlite", tmp_path / "c.sqlite")


@pytest.fixture
def gone(_went: Path, known: None, tmp_path: Path) -> dict[str, Any]:
    """``go`` was called before; what it printed."""
    shutil.copytree(_went / "out.nnprof", tmp_path / "out.nnprof")
    shutil.copyfile(_went / "out.html", tmp_path / "out.html")
    return dict(json.loads((_went / "out.json").read_text()))


@pytest.fixture
def where(tmp_path: Path) -> tuple[object, ...]:
    return (*SIM, "--input", INPUT, "--costs", tmp_path / "c.sqlite", "-o", tmp_path / "out.html")


@pytest.fixture
def go(cli: Cli, tiny: Path, where: tuple[object, ...]) -> Callable[..., Result]:
    """``go(...)`` on the tiny model, whose report is tmp_path/out.html."""
    return lambda *more: cli("go", *where, *more, tiny)


def test_a_terminal_shows_the_device_once(tiny, known, where):
    """What the profile says on standard error need not stand again above the result."""
    text = on_a_terminal("-m", "nnapi_prof", "go", *where, tiny)
    assert "the model takes" in text and text.count("tiny on simulated npu-phone") == 1


def test_everything_in_one(go, tmp_path):
    result = go()
    lines = result.out.splitlines()
    assert result.code == 0 and lines[0].startswith("tiny on simulated npu-phone")
    assert "the model takes" in lines[1] and "(simulated)" in lines[1]
    for about in (
        "against the fastest rule that needs no partitioner: ",
        "predicted against measured: ",
        "outputs against eager PyTorch: agree",
        f"bundle: {tmp_path / 'out.nnprof'}\n",
        "\nstock PyTorch",
    ):
        assert about in result.out
    assert lines[-1] == f"report: {tmp_path / 'out.html'}" and len(lines) < 22
    page = (tmp_path / "out.html").read_text()
    assert len(page) > 10_000 and "nnapi-prof convert --to executorch" in page
    assert (tmp_path / "out.nnprof" / "run.json").exists()


@pytest.mark.slow
def test_the_same_as_the_commands_one_by_one(gone, cli, tiny, tmp_path):
    costs = ("--costs", tmp_path / "c.sqlite")
    rows = count_rows(tmp_path / "c.sqlite")
    named = (*SIM, *costs, "--input", INPUT)
    cli.ok("profile", *named, tiny)
    assert count_rows(tmp_path / "c.sqlite") == rows, "nothing was missing"
    cli.ok("partition", *named, "-o", tmp_path / "other.nnprof", tiny)
    one, other = (
        json.loads((tmp_path / f"{name}.nnprof" / "manifest.json").read_text())
        for name in ("out", "other")
    )
    for plan in (*one["plans"], *other["plans"]):
        if plan["proof"] is not None:
            plan["proof"].pop("found_by")  # a profile's last round begins with the one before
    assert one["plans"] == other["plans"] and one["regions"] == other["regions"]
    cli.ok("run", *SIM, tmp_path / "out.nnprof")
    cli.ok("report", *costs, tmp_path / "out.nnprof")


@pytest.mark.slow
def test_what_was_measured_is_not_measured_again(go, gone, tmp_path, monkeypatch):
    rows = count_rows(tmp_path / "c.sqlite")
    monkeypatch.setattr("nnapi_prof.api.planning.choose_measured", _must_not_be_called)
    again = go("--json").document("go")
    assert again["measured"]["n_measured"] == 0 and again["measured"]["rounds"] == 0
    assert count_rows(tmp_path / "c.sqlite") == rows
    assert again["plan"] == gone["plan"] and again["baselines"] == gone["baselines"]
    assert again["run"]["created_at"] >= gone["run"]["created_at"]
    assert again["simulated"] and again["run"]["agrees"]


def test_markdown_opens_no_browser(go, known, tmp_path, monkeypatch):
    monkeypatch.setattr(click, "launch", _must_not_be_called)
    assert go("-o", tmp_path / "out.md").code == 0
    assert "simulated" in (tmp_path / "out.md").read_text()


@pytest.mark.slow
def test_the_browser(go, gone, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(click, "launch", lambda url: opened.append(url) or True)
    assert go("--open").code == 0 and [Path(path).name for path in opened] == ["out.html"]
    monkeypatch.setattr(click, "launch", lambda url: False)
    assert "no browser was opened" in go("--open").err


@pytest.mark.slow
def test_a_device_that_goes_away_while_it_measures(go, tmp_path, monkeypatch):
    """What was measured is kept; the next call goes on from there."""
    calls, original = itertools.count(), measurer.Measurer.keep

    def keep(*arguments: Any) -> None:
        if next(calls) == 20:
            raise AgentError("the cable was pulled")
        original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(measurer.Measurer, "keep", keep)
        result = go("--threads", "1")
    assert result.code == 1 and "the cable was pulled" in result.error
    assert "20 measurements" in result.error and count_rows(tmp_path / "c.sqlite") == 20
    assert not (tmp_path / "out.html").exists() and not (tmp_path / "out.nnprof").exists()
    assert go().code == 0


@pytest.mark.slow
def test_a_run_that_fails_leaves_plan_and_predictions(go, known, tmp_path, monkeypatch):
    monkeypatch.setattr("nnapi_prof.api.end_to_end.run_bundle_on", _fail)
    result = go("--json")
    told = result.document("go")
    assert (result.code, result.error, told["fault"]) == (1, *["the phone went away"] * 2)
    assert told["run"] is None
    assert told["report"] == str(tmp_path / "out.html") and told["plan"]["segments"]
    assert (tmp_path / "out.html").exists()
    assert not (tmp_path / "out.nnprof" / "run.json").exists()
    assert "predictions only" in go().out


@pytest.mark.slow
def test_a_verification_that_fails_leaves_the_plan(go, tmp_path, monkeypatch):
    monkeypatch.setattr("nnapi_prof.api.planning.choose_measured", _fail)
    result = go()
    assert result.code == 1 and result.error == "the phone went away"
    assert (tmp_path / "out.html").exists()
    assert (tmp_path / "out.nnprof" / "manifest.json").exists()


def test_a_report_that_cannot_be_written_leaves_the_run(go, known, tmp_path, monkeypatch):
    full = raises(UsageError("cannot write the report: No space left on device"))
    monkeypatch.setattr("nnapi_prof.reports.bundle_data.write_report", full)
    result = go()
    assert result.code == 2 and "No space left" in result.error
    assert (tmp_path / "out.nnprof" / "run.json").exists()
    assert "outputs against eager PyTorch: agree" in result.out


def test_advice_that_fails_leaves_the_result(go, known, monkeypatch):
    monkeypatch.setattr("nnapi_prof.api.advise.advise", raises(KeyError("tensor")))
    result = go()
    assert result.code == 0 and "outputs against eager PyTorch: agree" in result.out
    assert "no advice: it ended with KeyError" in result.err


@pytest.mark.slow
def test_a_recurrence_in_both_directions(cli, tmp_path):
    """A unit of several outputs is no reason to leave out what it reads."""
    model = trace(nn.GRU(8, 8, bidirectional=True), tmp_path / "gru.pt", (5, 1, 8))
    costs = tmp_path / "c.sqlite"
    assert "no advice" not in cli.ok("go", *SIM, "--costs", costs, "--input", "5x1x8", model).err


@pytest.mark.slow
def test_outputs_that_differ(go, known, tmp_path, monkeypatch):
    shift_reference(monkeypatch, "nnapi_prof.api.end_to_end.eager_reference")
    result = go()
    assert result.code == 1 and "differs from eager PyTorch" in result.error
    assert (tmp_path / "out.html").exists()
    assert go("--tolerance", "1e-2").code == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("out.docx", "no format"),
        ("out.trace", "go writes html or md"),
        ("dir.html", "is a folder"),
        ("mine.html", "not a bundle"),
    ],
)
def test_what_cannot_be_written_is_told_before_the_work(go, tmp_path, name, words):
    (tmp_path / "dir.html").mkdir()
    (tmp_path / "mine.nnprof").mkdir()
    result = go("-o", tmp_path / name)
    assert result.code == 2 and words in result.error
    assert count_rows(tmp_path / "c.sqlite") == 0
