"""``--json``: one document on standard output, whatever happens."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nnapi_prof.documents import schemas
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.graph.plan import Engine, Target
from tests.cli.common import INPUT, Profiled, Result, TinyNet, trace
from tests.documents.common import check

Cli = Callable[..., Result]
SIM = ("--device", "sim:npu-phone")


def covers(plan: dict[str, Any], n_units: int) -> bool:
    return sorted(u for s in plan["segments"] for u in s["units"]) == list(range(n_units))


def test_profile(cli: Cli, profiled: Profiled) -> None:
    known = ("--costs", profiled.costs, "--input", INPUT, "--preference", "fast")
    asked = ("profile", *SIM, *known, profiled.model)
    found = cli(*asked, "--json")
    assert found.code == 0
    said = found.document("profile")
    assert said["simulated"] and said["costs"] == str(profiled.costs)
    assert not said["interrupted"] and said["effort"]["stable"]
    assert said["n_measured"] == 0 and said["n_reused"] > 0
    assert covers(said["plan"], len(said["units"]))
    for unit in said["units"]:
        assert unit["costs_ns"]["cpu"] > 0
    best = said["plan"]["predicted_ns"]
    assert said["baselines"] and all(p["predicted_ns"] >= best for p in said["baselines"])
    shown = cli(*asked)
    assert f"{best / 1e6:.3f}" in shown.out and said["units"][0]["label"] in shown.out


def test_partition_and_run(cli: Cli, profiled: Profiled, tmp_path: Path) -> None:
    bundle = tmp_path / "made.nnprof"
    asked = ("--costs", profiled.costs, "--input", INPUT, "-o", bundle, profiled.model)
    found = cli("partition", *SIM, *asked, "--json")
    assert found.code == 0 and f"bundle in {bundle}" in found.err
    planned = found.document("partition")
    assert planned["bundle"] == str(bundle) and planned["simulated"] and not planned["estimated"]
    assert planned["conditions"]["threads"] == 1 and planned["inputs"] == [INPUT]
    assert covers(planned["plan"], len(planned["units"]))
    for segment in planned["plan"]["segments"]:
        assert segment["cause"] and Target(segment["target"]).engine in Engine
    assert "all-cpu" in {plan["name"] for plan in planned["baselines"]}

    found = cli("run", *SIM, bundle, "--json", "--runs", 7)
    assert found.code == 0
    ran = found.document("run")
    assert ran["agrees"] and ran["outputs"][0]["ok"] and ran["simulated"]
    assert Path(ran["result"]).parent == bundle and json.loads(Path(ran["result"]).read_text())
    first = ran["plans"][0]
    assert first["plan"] == planned["plan"]
    assert len(first["total_ns"]) == 7 and first["median_ns"] == sorted(first["total_ns"])[3]
    assert [s["target"] for s in first["segments"]] == [
        s["target"] for s in planned["plan"]["segments"]
    ]


def test_outputs_that_differ_are_a_result_and_a_failure(cli: Cli, profiled: Profiled) -> None:
    """The one document is the run's, not that of the error; the exit code and stderr tell it."""
    found = cli("run", *SIM, profiled.bundle, "--json", "--no-baselines", "--tolerance", "0")
    assert found.code == 1 and "differs from eager PyTorch" in found.error
    said = found.document("run")
    assert not said["agrees"] and [each["ok"] for each in said["outputs"]] == [False]
    assert len(said["plans"]) == 1


def test_convert(cli: Cli, profiled: Profiled, tmp_path: Path) -> None:
    asked = ("convert", "--input", INPUT, profiled.model, "--json", "-o", tmp_path / "net")
    formats = ("--format", "json", "--format", "cpp")
    said = cli(*asked, *formats).document("convert")
    found = {Path(each["file"]).name: each for each in said["files"]}
    assert set(found) == {"net.json", "net.h", "net.cpp", "net.weights"}
    assert all(each["n_bytes"] == (tmp_path / name).stat().st_size for name, each in found.items())
    assert found["net.weights"]["format"] == "weights" and found["net.h"]["format"] == "cpp"
    described = json.loads((tmp_path / "net.json").read_text())
    assert said["regions"] == [{"n_operations": len(described["operations"])}]
    assert (said["cpu_units"], said["kept"], said["precision"]) == (0, [], [])

    found = cli("convert", profiled.bundle, "--format", "runtime", "-o", tmp_path / "b", "--json")
    said = found.document("convert")
    assert said["source"] == str(profiled.bundle) and said["formats"] == ["runtime"]
    assert [Path(each["file"]).name for each in said["files"]] == ["b.nnprt"]


def test_convert_in_parts_and_less_precision(cli: Cli, tmp_path: Path) -> None:
    odd = trace(TinyNet(lambda x: torch.special.gammaln(x + 2)), tmp_path / "odd.pt")
    said = cli("convert", "--input", INPUT, odd, "--json").document("convert")
    (kept,) = said["kept"]
    assert kept["label"].startswith("lgamma") and "cannot run" in kept["reason"]
    assert said["cpu_units"] >= 1 and len(said["regions"]) == 2
    refused = cli("convert", "--input", INPUT, "--whole", odd, "--json")
    assert refused.code == 1 and refused.document("error")["kind"] == "NnapiProfError"
    assert "Stays on the CPU" in refused.err

    whole = trace(TinyNet(), tmp_path / "whole.pt")
    said = cli("convert", "--input", INPUT, whole, "--float16", "--json").document("convert")
    assert 0 < said["precision"][0]["relative"] < 2e-2
    said = cli("convert", "--input", "1x3x?x16", whole, "--json").document("convert")
    (size,) = said["open_sizes"]
    assert (size["input"], size["dim"]) == (0, 2) and size["least"] < 16 < size["most"]


FAILURES = [
    (["frobnicate"], 2, "UsageError"),
    (["run", "--frobnicate"], 2, "UsageError"),
    (["profile"], 2, "UsageError"),
    (["run", "absent.nnprof"], 2, "UsageError"),
    (["profile", "absent.pt", "--device", "sim:npu-phone"], 2, "ModelFileError"),
    (["agent", "info", "--device", "sim:no-such-phone"], 1, "DeviceNotFound"),
    (["costs", "list", "--costs", "absent.sqlite"], 2, "UsageError"),
    ([], 2, "UsageError"),
    (["costs"], 2, "UsageError"),
    (["devices", "-q", "-v"], 2, "UsageError"),
]


@pytest.mark.parametrize(("arguments", "code", "kind"), FAILURES)
def test_a_failure_is_a_document_too(cli: Cli, arguments: list[str], code: int, kind: str) -> None:
    found = cli("--json", *arguments)
    said = found.document("error")
    assert (found.code, said["exit_code"], said["kind"]) == (code, code, kind)
    if arguments not in ([], ["costs"]):  # these show the help instead of a line
        assert said["message"] == found.error
    assert cli(*arguments).out == ""  # without --json standard output stays empty


def test_an_interrupt_and_a_mistake_of_ours_are_documents(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nnapi_prof.device.find.list_devices", interrupt)
    found = cli("devices", "--json")
    assert (found.code, found.document("error")["kind"]) == (130, "Interrupted")
    monkeypatch.setattr("nnapi_prof.device.find.list_devices", lambda: [None])
    with pytest.raises(TypeError):
        cli("devices", "--json")
    said = json.loads(capsys.readouterr().out)
    check(said, "error")
    assert said["kind"] == "InternalError" and said["message"].startswith("TypeError: ")


def test_kinds_of_errors_are_the_classes() -> None:
    """A program that reads ``kind`` finds it in nnapi_prof.errors."""

    def below(cls: type) -> set[str]:
        return {cls.__name__}.union(*(below(each) for each in cls.__subclasses__()))

    kinds = below(NnapiProfError)
    assert {kind for _, _, kind in FAILURES} <= kinds


def test_quiet_and_verbose(cli: Cli, profiled: Profiled) -> None:
    usual = cli("run", *SIM, profiled.bundle, "--no-baselines")
    quiet = cli("run", *SIM, profiled.bundle, "--no-baselines", "--quiet")
    assert usual.code == quiet.code == 0
    assert "result in" in usual.err and quiet.err == "" and quiet.out.startswith("tiny")
    failed = cli("-q", "run", "absent.nnprof")
    assert failed.code == 2 and failed.err == f"nnapi-prof: error: {failed.error}\n"
    verbose = cli("run", *SIM, profiled.bundle, "--no-baselines", "-v")
    assert verbose.out.splitlines()[0] == usual.out.splitlines()[0]
    lines = [line for line in verbose.err.splitlines() if line.startswith("debug: ")]
    assert len(lines) >= 3
    assert all(re.match(r"debug: +\d+\.\d{3} s [a-z_.]+: \S", line) for line in lines)
    assert "debug: " not in usual.err
    both = cli("devices", "-q", "-v")
    assert both.code == 2 and "exclude each other" in both.error


@pytest.mark.parametrize("name", schemas())
def test_a_damaged_document_is_refused(name: str) -> None:
    """Every schema requires all it names: taking one away or giving it a wrong type is seen."""
    import jsonschema

    schema = schemas()[name]
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    assert schema["required"] == list(schema["properties"])
    stamp = {"schema": schema["$id"]}
    missing = {error.message for error in validator.iter_errors(stamp)}
    assert len(missing) == len(schema["required"]) - 1
    wrong = {key: object() for key in schema["required"]}
    broken = {error.path[0] for error in validator.iter_errors(wrong)}
    assert broken == set(schema["required"])


def test_nothing_else_is_on_standard_output() -> None:
    """In a process of its own, where C libraries could write there, too."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "nnapi_prof", "devices", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["schema"] == "nnapi-prof/devices/1"
    assert done.stderr == ""
