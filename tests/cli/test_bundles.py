"""Bundles that are damaged, another phone's or in the way, and profiles and costs that plans lack.

The words of other errors are provoked by tests/cli/messages."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from nnapi_prof.bundle.storage import VERSION
from nnapi_prof.execution import RunOptions
from tests.cli.common import INPUT, Profiled, Result, trace

SIM = ("--device", "sim:npu-phone")
Cli = Callable[..., Result]


def test_a_guessed_input_is_said(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    result = cli("convert", "--output", tmp_path / "out.pt", tiny)
    assert result.code == 0
    note = "note: input shape guessed as 1x3x224x224 from the first convolution"
    assert result.err.count(note) == 1
    asked = ("--accelerator", "sim-npu", "--preference", "fast", "--runs", 1)
    for _ in range(2):  # the second time the model is remembered, and not loaded
        result = cli("profile", *SIM, *asked, "--costs", tmp_path / "costs.sqlite", tiny)
        assert result.code == 0
        assert result.err.count(note) == 1


def test_partition_wants_a_profile(cli: Cli, tiny: Path, profiled: Profiled) -> None:
    """Also for another input, and with more threads than were measured."""
    named = ("--input", INPUT, "--costs")
    result = cli("partition", *SIM, "--input", "1x3x8x8", "--costs", profiled.costs, tiny)
    assert result.code == 1 and "of the model's 5 units were never measured" in result.error
    result = cli("partition", *SIM, *named, profiled.costs, "--threads", 2, tiny)
    assert result.code == 1
    assert "were never measured on this device's CPU with 2 threads" in result.error
    assert "run `nnapi-prof profile --threads 2` with the same model" in result.error


def edit(**changes: object) -> Callable[[Path], None]:
    """Changes members of the manifest."""

    def change(bundle: Path) -> None:
        manifest = bundle / "manifest.json"
        data = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**data, **changes}))

    return change


DAMAGES = [  # those of regions and weights are in tests/bundle/test_storage.py
    (lambda bundle: (bundle / "manifest.json").write_text("{"), "Expecting property name"),
    (lambda bundle: (bundle / "manifest.json").write_text("[]"), "is not a nnapi-prof-bundle"),
    (lambda bundle: (bundle / "manifest.json").write_bytes(b"\xff\xfe"), "Expecting value"),
    (edit(format="tarball"), "manifest.json is not a nnapi-prof-bundle"),
    (edit(version="2"), f"manifest.json has version '2', {VERSION} is read"),
    (edit(threads=7), "manifest.json was changed after it was written"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_a_damaged_bundle(
    cli: Cli, profiled: Profiled, damage: Callable[[Path], None], words: str
) -> None:
    damage(profiled.bundle)
    for command in (["run", *SIM], ["report", "--costs", profiled.costs]):
        result = cli(*command, profiled.bundle)
        assert result.code == 1 and result.out == ""
        assert result.error.startswith(f"{profiled.bundle}: the bundle is damaged (")
        assert words in result.error
        assert result.error.endswith("make it again with `nnapi-prof partition`")
    # And so it is done: partition writes over it.
    named = (*SIM, "--input", INPUT, "--costs", profiled.costs, "--output", profiled.bundle)
    if (profiled.bundle / "manifest.json").is_file():
        assert cli("partition", *named, profiled.model).code == 0
        assert cli("run", *SIM, "--runs", 2, profiled.bundle).code == 0


def test_a_bundle_of_another_phone(cli: Cli, tmp_path: Path) -> None:
    costs, bundle = tmp_path / "costs.sqlite", tmp_path / "large.nnprof"
    # So much work that the plan goes to the NPU, which the other phone lacks.
    heavy = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), nn.Conv2d(64, 64, 3))
    model = trace(heavy, tmp_path / "heavy.pt", (1, 3, 56, 56))
    named = (*SIM, "--input", "1x3x56x56", "--costs", costs)
    only = ("--accelerator", "sim-npu", "--preference", "fast")
    assert cli("profile", *named, *only, model).code == 0
    assert cli("partition", *named, "--output", bundle, model).code == 0
    result = cli("run", "--device", "sim:gpu-phone", bundle)
    assert result.code == 2
    assert result.error.startswith(f"{bundle} was made for simulated npu-phone")
    assert "runs on its sim-npu: simulated gpu-phone" in result.error
    assert "has sim-gpu, nnapi-reference; choose the right device with --device" in result.error
    # Before the model is loaded, which would tell that it takes no such input.
    again = cli("run", "--device", "sim:gpu-phone", "--input", "7x7", bundle)
    assert again.code == 2 and again.error == result.error


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs wait a second for an accelerator that is not there."""
    timing = RunOptions._timing
    monkeypatch.setattr(
        RunOptions, "_timing", lambda *given: replace(timing(*given), timeout_ms=1000)
    )


@pytest.mark.usefixtures("impatient")
def test_a_bundle_for_another_phone_that_runs_nevertheless(cli: Cli, profiled: Profiled) -> None:
    result = cli("run", "--device", "sim:gpu-phone", "--runs", 2, profiled.bundle)
    assert result.code == 0
    assert f"note: {profiled.bundle} was made for simulated npu-phone" in result.err
    assert "predictions are for that device, not this" in result.out
    assert "Plan, latency in ms, simulated" in result.out
    assert "predicted (simulated)" not in result.out


@pytest.mark.usefixtures("impatient")
def test_only_what_is_simulated_is_labelled_so(cli: Cli, profiled: Profiled) -> None:
    result = cli("run", "--device", "local", "--runs", 2, profiled.bundle)
    assert result.code == 0
    assert "latency in ms, simulated" not in result.out
    assert result.out.count("predicted (simulated)") == 2  # the plan's table, and its baselines'
    assert "measured (simulated)" not in result.out and "compile (simulated)" not in result.out


# ---- where results go --------------------------------------------------------------------------


def test_a_result_that_cannot_be_kept(cli: Cli, profiled: Profiled) -> None:
    """What was measured is shown even where it cannot be written down."""
    (profiled.bundle / "run.json").mkdir()
    result = cli("run", *SIM, "--runs", 2, profiled.bundle)
    assert result.code == 1
    assert result.error == f"{profiled.bundle / 'run.json'}: Is a directory"
    assert "agrees with eager PyTorch" in result.out


def test_commands_inside_the_bundle(
    cli: Cli, profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(profiled.bundle)
    assert cli("run", *SIM, "--runs", 2, ".").code == 0
    result = cli("report", "--costs", profiled.costs, ".")
    assert (result.code, result.out.strip()) == (0, str(profiled.bundle.with_suffix(".html")))
