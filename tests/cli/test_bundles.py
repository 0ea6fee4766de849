"""Bundles that are damaged, another phone's or in the way, or of sizes left open."""

from pathlib import Path

import pytest
from torch import nn

from nnapi_prof.execution.report import RunReport
from tests.cli.common import SIM, Cli, Result, TinyNet, call, hurry, trace


def test_a_guessed_input_is_said(cli, tiny, tmp_path):
    result = cli.ok("convert", "--output", tmp_path / "out.pt", tiny)
    note = "note: input shape guessed as 1x3x224x224 from the first convolution"
    assert result.err.count(note) == 1
    asked = ("--accelerator", "sim-npu", "--preference", "fast", "--runs", 1, "--no-refine")
    for _ in range(2):  # the second time the model is remembered, and not loaded
        result = cli.ok("profile", *SIM, *asked, "--costs", tmp_path / "costs.sqlite", tiny)
        assert result.err.count(note) == 1


def test_a_damaged_bundle(cli, profiled):
    """Kinds of damage are in tests/bundle/test_storage.py."""
    (profiled.bundle / "manifest.json").write_text("{")
    for command in (["run", *SIM], ["report", "--costs", profiled.costs]):
        result = cli(*command, profiled.bundle)
        assert result.code == 1 and result.out == ""
        assert result.error.startswith(
            f"{profiled.bundle}: the bundle is damaged (Expecting property name"
        )
        assert result.error.endswith("make it again with `nnapi-prof partition`")
    # And so it is done: partition writes over it.
    cli.ok("partition", *profiled.named, "--output", profiled.bundle, profiled.model)
    cli.ok("run", *SIM, "--runs", 2, profiled.bundle)


def test_a_bundle_of_another_phone(cli, tmp_path):
    bundle = tmp_path / "large.nnprof"
    # So much work that the plan goes to the NPU, which the other phone lacks.
    heavy = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), nn.Conv2d(64, 64, 3))
    model = trace(heavy, tmp_path / "heavy.pt", (1, 3, 56, 56))
    named = (*SIM, "--input", "1x3x56x56", "--costs", tmp_path / "costs.sqlite")
    cli.ok("profile", *named, "--accelerator", "sim-npu", "--preference", "fast", model)
    cli.ok("partition", *named, "--output", bundle, model)
    error = cli.error("run", "--device", "sim:gpu-phone", bundle)
    assert error.startswith(f"{bundle} was made for simulated npu-phone")
    assert "runs on its sim-npu: simulated gpu-phone" in error
    assert "has sim-gpu, nnapi-reference; choose the right device with --device" in error
    # Before the model is loaded, which would tell that it takes no such input.
    assert error == cli.error("run", "--device", "sim:gpu-phone", "--input", "7x7", bundle)


def test_only_what_is_simulated_is_labelled_so_where_a_bundle_of_another_phone_runs(
    cli, profiled, monkeypatch
):
    hurry(monkeypatch)  # a second for an accelerator that is not there
    result = cli.ok("run", "--device", "sim:gpu-phone", "--runs", 2, profiled.bundle)
    assert f"note: {profiled.bundle} was made for simulated npu-phone" in result.err
    for words in ("predictions are for that device, not this", "Plan, latency in ms, simulated"):
        assert words in result.out
    assert "predicted (simulated)" not in result.out
    result = cli.ok("run", "--device", "local", "--runs", 2, profiled.bundle)
    assert "latency in ms, simulated" not in result.out
    assert result.out.count("predicted (simulated)") == 2  # the plan's table, and its baselines'
    assert "measured (simulated)" not in result.out and "compile (simulated)" not in result.out


def test_a_result_that_cannot_be_kept(cli, profiled):
    """What was measured is shown even where it cannot be written down."""
    (profiled.bundle / "run.json").mkdir()
    result = cli("run", *SIM, "--runs", 2, profiled.bundle)
    assert result.code == 1
    assert result.error == f"{profiled.bundle / 'run.json'}: Is a directory"
    assert "agrees with eager PyTorch" in result.out


def test_commands_inside_the_bundle(cli, profiled, monkeypatch):
    monkeypatch.chdir(profiled.bundle)
    cli.ok("run", *SIM, "--runs", 2, ".")
    page = cli.ok("report", "--format", "md", "--costs", profiled.costs, ".").out.strip()
    assert page == str(profiled.bundle.with_suffix(".md"))


OPEN = "1x3x?=16x?=16"


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
    return cli("run", *SIM, "--runs", "3", *inputs, bundle)


def test_a_bundle_at_its_examples_and_at_other_sizes(cli, bundle):
    done = run(cli, bundle)
    assert done.code == 0
    assert "note: sizes left open are those of 1x3x16x16 here\n" in done.err
    assert run(cli, bundle, "--input", "1x3x20x12").code == 0
    report = RunReport.from_json((bundle / "run.json").read_text())
    assert [(check.shape, check.ok) for check in report.checks] == [((1, 8, 20, 12), True)]
    assert all(run.error is None for run in report.runs)
    assert report.notes[0] == (
        "the plan and its predicted latencies are for the bundle's own sizes, not 1x3x20x12"
    )


@pytest.mark.parametrize("stated", ["1x4x16x16", "1x3x16", "1x3x16x16:int32", "1x3x?x16"])
def test_sizes_that_the_bundle_does_not_leave_open(cli, bundle, stated):
    done = run(cli, bundle, "--input", stated)
    assert done.code == 2
    assert done.error.startswith("the bundle is for the input 1x3x?=16x?=16, 1x")
