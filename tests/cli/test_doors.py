"""NNAPI through other doors: the emulator as a support library and as NeuronAdapter, by the command
line, with the outputs of libneuralnetworks.so."""

from pathlib import Path

import pytest
from torch import nn

from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.build import build_host
from nnapi_prof.execution.report import RunReport
from tests.cli.common import trace

PHONE = "sim:npu-phone"
INPUT = "1x3x32x32"


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is too much for the CPU: 40 million multiplications."""
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3))
    return trace(model, tmp_path_factory.mktemp("models") / "wide.pt", (1, 3, 32, 32))


@pytest.fixture(scope="module")
def libraries() -> dict[str, Path]:
    """Door -> the emulator behind it."""
    built = build_host()
    return {
        "nnapi": built.library,
        "support library": built.support_library,
        "neuron adapter": built.neuron_adapter,
    }


def test_a_model_goes_all_the_way_through_each_door(cli, wide, tmp_path, libraries):
    costs = tmp_path / "costs.sqlite"
    errors = {}
    for door, library in libraries.items():
        through = ("--device", PHONE, "--nnapi-library", library)
        named = (*through, "--input", INPUT, "--costs", costs, "--threads", 1)
        bundle = tmp_path / f"{door}.nnprof"
        info = cli.ok("devices", *through, "--json").document("agent-info")
        at = "" if door == "nnapi" else f"@{library.name}"
        assert info["nnapi"]["door"] == door
        names = [each["name"] for each in info["nnapi"]["accelerators"]]
        assert names == [f"{name}{at}" for name in ("sim-npu", "sim-gpu", "nnapi-reference")]
        cli.ok("profile", *named, "--preference", "fast", "--runs", 3, wide)
        cli.ok("partition", *named, "--output", bundle, wide)
        cli.ok("run", *through, "--runs", 3, bundle)
        report = RunReport.from_json((bundle / "run.json").read_text())
        plan = report.runs[0].plan
        accelerators = {segment.target.accelerator for segment in plan.segments}
        assert accelerators - {None} == {f"sim-npu{at}"}
        assert all(check.ok for check in report.checks)
        errors[door] = [check.max_abs for check in report.checks]
    assert errors["support library"] == errors["neuron adapter"] == errors["nnapi"]
    with CostStore(costs) as store:
        assert len(store.devices()) == 3  # no rows of one door are another's


def test_a_plan_of_one_door_is_not_run_through_another(cli, wide, tmp_path, libraries):
    through = ("--device", f"{PHONE},library={libraries['support library']}")
    costs = tmp_path / "costs.sqlite"
    named = ("--input", INPUT, "--costs", costs, "--threads", 1, "--runs", 3)
    bundle = tmp_path / "wide.nnprof"
    cli.ok("profile", *through, *named, "--preference", "fast", wide)
    cli.ok("partition", *through, *named[:-2], "--output", bundle, wide)
    result = cli("run", "--device", PHONE, bundle)
    assert (result.code, "sim-npu@libnnapi_support.so" in result.error) == (2, True)


@pytest.mark.parametrize("command", ["profile", "agent info", "devices"])
def test_a_library_that_cannot_be_used(cli, wide, tmp_path, command):
    model = (wide,) if command == "profile" else ()
    through = ("--device", PHONE, "--nnapi-library", tmp_path / "none.so")
    error = cli.error(*command.split(), *through, *model, code=1)
    assert "no accelerator is reached through" in error and "none.so" in error


def test_the_loaders_choice_is_no_accelerator_of_a_door(cli, wide, libraries):
    named = ("--device", PHONE, "--nnapi-library", libraries["neuron adapter"])
    error = cli.error("profile", *named, "--accelerator", "auto", "--input", INPUT, wide)
    assert "no accelerator 'auto' on this device" in error
