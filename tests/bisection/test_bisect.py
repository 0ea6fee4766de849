"""The whole way: faults planted in simulated drivers are named, reproduced and avoided."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

import nnapi_prof as nnp
from nnapi_prof.bisection import FaultKind
from nnapi_prof.cli.bisect import show_bisection
from nnapi_prof.device.find import PHONES_DIR
from tests.cli.conftest import cli as cli
from tests.convert.quantised_models import ExportedNet
from tests.parts import again_but

INCLUDE = Path(nnp.__file__).resolve().parents[1] / "device_agent" / "include"
NPU = "nnapi:sim-npu/fast"


class Block(nn.Module):
    """[1, c, 16, 16] -> [1, c, 16, 16]"""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x)) + x


class Net(nn.Module):
    """[1, 3, 16, 16] -> [1, 5]"""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.first = Block(8)
        self.wide = nn.Conv2d(8, 12, 1)
        self.second = Block(12)
        self.head = nn.Linear(12, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.second(self.wide(self.first(self.stem(image))))
        return self.head(x.mean((2, 3)))


WIDE = {"operation": "CONV_2D", "output": [1, 16, 16, 12]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("bisect") / "net.pt2"
    torch.export.save(torch.export.export(Net().eval(), (torch.randn(1, 3, 16, 16),)), path)
    return nnp.load(path)


def changed_phone(folder: Path, accelerator: str, **changes: Any) -> Path:
    """The npu-phone with another accelerator."""
    described = json.loads((PHONES_DIR / "npu-phone.json").read_text())
    next(a for a in described["accelerators"] if a["name"] == accelerator).update(changes)
    path = folder / "phone.json"
    path.write_text(json.dumps(described))
    return path


def error_of(amount: float | None = None, **error: Any) -> dict[str, Any]:
    """A driver's error as a phone's description has it."""
    if amount is not None:
        error["amount"] = {"value": amount, "unit": "none", "origin": "planted"}
    return {**error, "origin": "planted"}


def phone(folder: Path, **error: Any) -> Path:
    """The npu-phone whose driver computes something else."""
    return changed_phone(folder, "sim-npu", errors=[error_of(**error)])


def ways(how: dict[str, Any]) -> nnp.ConditionOptions:
    """The conditions in which an error shows."""
    return nnp.ConditionOptions(relaxed=how.get("when") == "relaxed")


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ({"how": "scale", "amount": 1.05}, FaultKind.SCALE),
        ({"how": "transpose"}, FaultKind.LAYOUT),
        ({"how": "border", "amount": 0.5}, FaultKind.PADDING),
        ({"how": "saturate", "amount": 0.5}, FaultKind.SATURATION),
        ({"how": "nan"}, FaultKind.NOT_FINITE),
        ({"how": "race", "amount": 1.1}, FaultKind.RACE),
        ({"how": "scale", "amount": 1.1, "when": "later"}, FaultKind.STATE),
        ({"how": "shift"}, FaultKind.PADDING),
        ({"how": "nan", "channel": 3}, FaultKind.NOT_FINITE),
        ({"how": "offset", "amount": 0.01, "channel": 11}, FaultKind.CHANNELS),
        ({"how": "truncate"}, FaultKind.KERNEL),
        ({"how": "absolute"}, FaultKind.KERNEL),
        ({"how": "wrap", "amount": 0.7}, FaultKind.KERNEL),
        ({"how": "tile"}, FaultKind.KERNEL),
        ({"how": "scale", "amount": 1.1, "from": 1500}, FaultKind.KERNEL),
        ({"how": "scale", "amount": 1.1, "when": "negative"}, FaultKind.KERNEL),
        ({"how": "drift", "amount": 2e-5}, FaultKind.STATE),
        ({"how": "scale", "amount": 1.002}, FaultKind.SCALE),
        ({"how": "scale", "amount": 1.01, "when": "relaxed"}, FaultKind.SCALE),
    ],
)
def test_a_planted_fault_is_named(model, tmp_path, how, kind):
    bad = f"sim:{phone(tmp_path, **WIDE, **how)}"
    outcome = nnp.bisect(model, bad, target=NPU, conditions=ways(how))
    (culprit,) = outcome.culprits
    assert culprit.kind is kind
    assert culprit.source.module in ("wide", "second.conv", "second")
    assert culprit.source.line.startswith(f"{__file__}:")
    assert outcome.runs <= 10


def test_faults_in_some_ways_of_running_only(model, tmp_path, capsys):
    bad = f"sim:{phone(tmp_path, **WIDE, how='scale', amount=1.2, when='shared')}"
    (culprit,) = nnp.bisect(model, bad, target=NPU).culprits
    assert {way.pointers for way in culprit.only_in} == {False}
    bad = f"sim:{phone(tmp_path, **WIDE, how='scale', amount=1.2, when='burst')}"
    for mode in ("sync", "burst"):  # what agrees in the way asked for is tried in the others
        conditions = nnp.ConditionOptions(mode=mode)
        outcome = nnp.bisect(model, bad, target=NPU, conditions=conditions)
        (culprit,) = outcome.culprits
        assert {way.mode.value for way in culprit.only_in} == {"burst"}
    cure = replace(culprit.cures[0], before_ns=1e6, after_ns=3.5e6)
    planned = replace(outcome, culprits=(replace(culprit, cures=(cure,)),))
    show_bisection(Console(width=100), planned)
    words = (
        "   only   burst, addresses\n   cure   another target (cpu): 2.500 ms longer, simulated\n"
    )
    assert capsys.readouterr().out.endswith(words)


def test_what_a_target_refuses_is_told(model, tmp_path, cli):
    only = {"only": ["CONV_2D"], "origin": "narrow"}
    device = f"sim:{changed_phone(tmp_path, 'sim-npu', operations=only)}"
    outcome = nnp.bisect(model, device, target=NPU)
    assert outcome.clean
    names = [model.graph.units[each.unit].name for each in outcome.unchecked]
    assert names and not any(name.startswith("conv") for name in names)
    assert {each.target for each in outcome.unchecked} == {NPU}
    command = ("bisect", "--device", device, "--target", NPU, model.path)
    out = cli(*command, "--json")
    assert len(out.document("bisect")["unchecked"]) == len(outcome.unchecked)
    first = f"{outcome.unchecked[0].label}, ... ({outcome.unchecked[0].reason})"
    assert cli.ok(*command).out.splitlines()[1:] == [
        "Nothing differs from PyTorch beyond rounding.",
        f"{NPU} refuses {len(names)} of 9 units, which were not checked: {first}.",
    ]


@pytest.mark.parametrize("runs", [True, False])
def test_a_fault_in_words(model, tmp_path, monkeypatch, cli, runs):
    device = f"sim:{phone(tmp_path, **WIDE, how='scale', amount=1.05)}" if runs else "sim:npu-phone"
    if not runs:
        monkeypatch.setenv("NNAPI_EMULATOR_FAULTS", "fail:execute:ADD@sim-npu")
    case = tmp_path / "case"
    out = cli("bisect", "--device", device, "--target", NPU, "--reproducer", case, model.path)
    lines = iter(re.sub(r"-?\b\d\.\d{3}\b|\d\d\.\d\d(?=%)", "N", out.out).splitlines())
    name, source = ("conv2d 1x1 8->12 16x16", Net) if runs else ("add 1x8x16x16", Block)
    assert next(lines) == f"net: 9 units on {NPU}, 2 inputs, 6 runs."
    mean = "mean 1x12 (sim-npu does not support MEAN)"
    assert next(lines) == f"{NPU} refuses 1 of 9 units, which was not checked: {mean}."
    assert next(lines) == f"1. {name} on {NPU}"
    failure = "does not run: compute returned OP_FAILED (5): the driver failed, died, or may not"
    assert next(lines).startswith("   kind   " + ("scale" if runs else failure))
    line = source.forward.__code__.co_firstlineno + 1
    assert next(lines) == f"   from   {'wide' if runs else 'first'} {__file__}:{line}"
    values = [
        "   error  0.05 of the largest value of convolution_2, 500 times what is allowed",
        "   output N off by this alone, 100% of all error",
        "   value  convolution_2: N to N, expected N to N; N% of its elements are off; 1.05 times"
        " the right values",
    ]
    assert list(lines) == [*(values if runs else ()), "   cure   another target (cpu)"]
    assert out.code == 1
    assert out.error == f"{name} on {NPU} differs from PyTorch: see its cures above"
    assert {path.name for path in case.iterdir()} >= {"main.cpp", "region.cpp", "region.pt2"}


def test_a_model_of_8_bits(tmp_path):
    inputs = (torch.randn(2, 3, 16, 16),)
    model = nnp.load(torch.export.export(ExportedNet(False).eval(), inputs))
    assert nnp.bisect(model, "sim:npu-phone", target=NPU).clean
    bad, case = phone(tmp_path, operation="CONV_2D", how="scale", amount=1.5), tmp_path / "case"
    (culprit,) = nnp.bisect(model, f"sim:{bad}", target=NPU, reproducer=case).culprits
    assert culprit.label == "quantised conv2d+relu 3x3/2 3->8 8x8" and culprit.worst.ratio > 50
    assert [(cure.name, cure.target) for cure in culprit.cures] == [("another target", "cpu")]
    assert "quantized" in (case / "main.cpp").read_text()


def test_all_faults_and_masked_ones(model, tmp_path):
    bad = f"sim:{phone(tmp_path, operation='CONV_2D', how='scale', amount=1.05)}"
    every = [c.label.split()[0] for c in nnp.bisect(model, bad, target=NPU, find_all=True).culprits]
    assert len(every) == 4 and set(every) <= {"conv2d", "conv2d+relu"}
    # A mean over the image does not tell that its rows are columns.
    add = {"operation": "ADD", "output": [1, 16, 16, 12]}
    for error in ({"how": "transpose"}, {"how": "transpose", "when": "burst"}):
        masked = f"sim:{phone(tmp_path, **add, **error)}"
        (culprit,) = nnp.bisect(model, masked, target=NPU).culprits
        assert culprit.final_error == pytest.approx(0, abs=1e-5)


def test_healthy_drivers_are_not_blamed(model):
    for relaxed in (False, True):
        conditions = nnp.ConditionOptions(relaxed=relaxed)
        outcome = nnp.bisect(model, "sim:npu-phone", conditions=conditions)
        assert outcome.clean and len(outcome.targets) == 2
    assert nnp.bisect(model, "sim:npu-phone", target="cpu").clean


BURST = {"how": "nan", "channel": 2, "when": "burst"}
RELAXED = {"how": "scale", "amount": 1.01, "when": "relaxed"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    again_but(
        [
            {"how": "scale", "amount": 1.05},
            {"how": "scale", "amount": 1.2, "when": "shared"},
            BURST,
            {"how": "scale", "amount": 1.1, "when": "later"},
            {"how": "race", "amount": 1.1},
            RELAXED,
        ],
        *(BURST, RELAXED),
        why="another fault",
    ),
)
def test_the_reproducer_shows_it_alone(model, tmp_path, built_host, how):
    description = phone(tmp_path, **WIDE, **how)
    case, options = tmp_path / "case", {"target": NPU, "conditions": ways(how)}
    nnp.bisect(model, f"sim:{description}", reproducer=case, **options)
    (tmp_path / "ndk" / "android").mkdir(parents=True)
    (tmp_path / "ndk/android/NeuralNetworks.h").write_text('#include "np_nnapi.h"\n')
    subprocess.run(
        ["g++", "-std=c++14", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path / 'ndk'}",
         f"-I{INCLUDE}", "main.cpp", "region.cpp", "-ldl", "-o", "reproduce"],
        cwd=case, check=True,
    )  # fmt: skip

    def code(**variables: str) -> int:
        environment = {"LD_LIBRARY_PATH": str(built_host.library.parent), **variables}
        return subprocess.run(
            ["./reproduce"], cwd=case, env={**os.environ, **environment}, check=False
        ).returncode

    assert code(NNAPI_EMULATOR_PHONE=str(description)) == 1
    assert code(NNAPI_EMULATOR_PHONE=str(PHONES_DIR / "npu-phone.json")) == 0
    assert not nnp.bisect(case / "region.pt2", f"sim:{description}", **options).clean


def test_the_cure_is_planned_and_later_profiles_avoid_the_pair(model, tmp_path, cli):
    description = phone(tmp_path, **WIDE, how="scale", amount=1.05)
    device, table = f"sim:{description}", tmp_path / "costs.sqlite"
    costs = nnp.profile(model, device=device, costs=table, options=nnp.MeasureOptions(runs=2))
    plan = nnp.partition(model, costs, nnp.Latency(pin={"conv2d 1x1*": NPU}), verify=False)
    result = nnp.run(plan, device=device, runs=2)
    assert not result.agrees
    bundle, fixed = tmp_path / "net.nnprof", tmp_path / "fixed.nnprof"
    plan.save(bundle)
    options = ("--json", "--device", device, "--costs", table, "--fix", fixed)
    out = cli("bisect", *options, bundle)
    assert out.code == 1
    (culprit, *_) = out.document("bisect")["culprits"]
    assert culprit["kind"] == "scale" and culprit["cures"][0]["costs_ns"] is not None
    report = cli("report", "--costs", table, "-o", tmp_path / "report.md", bundle)
    assert report.code == 0, report.err
    assert culprit["label"] in (tmp_path / "report.md").read_text().partition("## Where")[2]
    healed = nnp.read_plan(fixed)
    later = nnp.partition(model, nnp.profile(model, device=device, costs=table), verify=False)
    bad = set(culprit["units"])
    for segment in (*healed.plan.segments, *later.plan.segments):
        assert segment.target.accelerator != "sim-npu" or not bad & set(segment.units)


@pytest.mark.slow
def test_a_rewrite_is_a_cure_where_the_driver_computes_it_rightly(model, tmp_path):
    errors = [error_of(1.2, operation="MEAN", how="scale")]
    device = f"sim:{changed_phone(tmp_path, 'sim-gpu', errors=errors)}"
    costs = tmp_path / "costs.sqlite"
    nnp.profile(model, device=device, costs=costs, options=nnp.MeasureOptions(runs=2))
    (culprit,) = nnp.bisect(model, device, target="nnapi:sim-gpu/fast", costs=costs).culprits
    (rewrite,) = [cure for cure in culprit.cures if cure.code]
    assert "avg_pool" in rewrite.code.lower() and rewrite.costs_ns is not None
    errors.append({**errors[0], "operation": "AVERAGE_POOL_2D"})
    changed_phone(tmp_path, "sim-gpu", errors=errors)
    (culprit,) = nnp.bisect(model, device, target="nnapi:sim-gpu/fast", costs=costs).culprits
    assert not [cure for cure in culprit.cures if cure.code]


def test_bad_arguments(model, cli, tmp_path):
    result = cli("bisect", "--device", "sim:npu-phone", "--target", "gpu", model.path)
    assert result.code == 2 and "nnapi:sim-gpu/fast" in result.error
    assert cli("bisect", "--device", "sim:npu-phone", tmp_path / "none.pt2").code == 2
    with pytest.raises(nnp.errors.UsageError):
        nnp.bisect(model, "sim:npu-phone", budget=-1.0)
