"""Sizes left open on the command line: converted for stock PyTorch, and filled in by `run`."""

from pathlib import Path

import pytest
from torch import nn

from nnapi_prof.execution.report import RunReport
from tests.cli.common import SIM, Cli, Result, TinyNet, call, trace

OPEN = "1x3x?=16x?=16"


def test_a_model_that_fixes_its_sizes(cli: Cli, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(2 * 14 * 14, 4))
    path = trace(model, tmp_path / "flat.pt")
    error = cli.error("convert", "--input", OPEN, path)
    assert error.startswith(
        "flat.pt: --input 1x3x?=16x?=16: these sizes cannot be left open: with 1x3x976x16 it does "
        "not run: "
    )
    assert "aten.linear.default" in error


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with open sizes, of TinyNet on sim:npu-phone."""
    folder = tmp_path_factory.mktemp("open")
    model, path = trace(TinyNet(), folder / "tiny.pt"), folder / "tiny.nnprof"
    named = (*SIM, "--input", OPEN, "--costs", folder / "costs.sqlite")
    call("profile", *named, "--preference", "fast", "--runs", 5, model)
    call("partition", *named, "--no-verify", "--output", path, model)
    return path


def run(cli: Cli, bundle: Path, *inputs: str) -> Result:
    named = [word for text in inputs for word in ("--input", text)]
    return cli("run", *SIM, "--runs", "3", *named, bundle)


def test_a_bundle_at_its_examples(cli: Cli, bundle: Path) -> None:
    done = run(cli, bundle)
    assert done.code == 0
    assert "note: sizes left open are those of 1x3x16x16 here\n" in done.err


def test_a_bundle_at_other_sizes(cli: Cli, bundle: Path) -> None:
    assert run(cli, bundle, "1x3x20x12").code == 0
    report = RunReport.from_json((bundle / "run.json").read_text())
    assert [(check.shape, check.ok) for check in report.checks] == [((1, 8, 20, 12), True)]
    assert all(run.error is None for run in report.runs)
    assert report.notes[0] == (
        "the plan and its predicted latencies are for the bundle's own sizes, not 1x3x20x12"
    )


@pytest.mark.parametrize("stated", ["1x4x16x16", "1x3x16", "1x3x16x16:int32", "1x3x?x16"])
def test_sizes_that_the_bundle_does_not_leave_open(cli: Cli, bundle: Path, stated: str) -> None:
    done = run(cli, bundle, stated)
    assert done.code == 2
    assert done.error.startswith("the bundle is for the input 1x3x?=16x?=16, 1x")
