"""``--json``: one document on standard output, whatever happens."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from nnapi_prof import errors
from nnapi_prof.documents import schemas
from nnapi_prof.graph.plan import Engine, Target
from tests.cli.common import INPUT, SIM, TinyNet, python, shift_reference, trace
from tests.documents.common import check


def covers(plan: dict[str, Any], n_units: int) -> bool:
    return sorted(u for s in plan["segments"] for u in s["units"]) == list(range(n_units))


def test_profile(cli, profiled):
    asked = (*profiled.named, "--preference", "fast", profiled.model)
    document = cli.document("profile", *asked)
    assert document["simulated"] and document["costs"] == str(profiled.costs)
    assert not document["interrupted"] and document["effort"]["stable"]
    assert document["n_measured"] == 0 and document["n_reused"] > 0
    assert covers(document["plan"], len(document["units"]))
    assert all(unit["costs_ns"]["cpu"] > 0 for unit in document["units"])
    best = document["plan"]["predicted_ns"]
    assert document["baselines"] and all(p["predicted_ns"] >= best for p in document["baselines"])
    shown = cli("profile", *asked)
    assert f"{best / 1e6:.3f}" in shown.out and document["units"][0]["label"] in shown.out


def test_partition_and_run(cli, profiled, tmp_path):
    bundle = tmp_path / "made.nnprof"
    result = cli.ok("partition", *profiled.named, "-o", bundle, profiled.model, "--json")
    assert f"bundle in {bundle}" in result.err
    planned = result.document("partition")
    assert planned["bundle"] == str(bundle) and planned["simulated"] and not planned["estimated"]
    assert planned["conditions"]["threads"] == 4 and planned["inputs"] == [INPUT]
    assert covers(planned["plan"], len(planned["units"]))
    for segment in planned["plan"]["segments"]:
        assert segment["cause"] and Target(segment["target"]).engine in Engine
    assert "all-cpu" in {plan["name"] for plan in planned["baselines"]}

    ran = cli.document("run", *SIM, bundle, "--runs", 7)
    assert ran["agrees"] and ran["outputs"][0]["ok"] and ran["simulated"]
    assert Path(ran["result"]).parent == bundle and json.loads(Path(ran["result"]).read_text())
    first = ran["plans"][0]
    assert first["plan"] == planned["plan"]
    assert len(first["total_ns"]) == 7 and first["median_ns"] == sorted(first["total_ns"])[3]
    targets = [s["target"] for s in planned["plan"]["segments"]]
    assert [s["target"] for s in first["segments"]] == targets


def test_outputs_that_differ_are_a_result_and_a_failure(cli, profiled, monkeypatch):
    """The one document is the run's, not that of the error; the exit code and stderr tell it."""
    shift_reference(monkeypatch)
    result = cli("run", *SIM, profiled.bundle, "--json", "--no-baselines")
    assert result.code == 1 and "differs from eager PyTorch" in result.error
    document = result.document("run")
    assert not document["agrees"] and [each["ok"] for each in document["outputs"]] == [False]
    assert len(document["plans"]) == 1


def test_convert(cli, profiled, tmp_path):
    asked = ("--input", INPUT, "-o", tmp_path / "net", "--format", "json", "--format", "cpp")
    result = cli.document("convert", *asked, profiled.model)
    actual = {Path(each["file"]).name: each for each in result["files"]}
    assert set(actual) == {"net.json", "net.h", "net.cpp", "net.weights"}
    assert all(each["n_bytes"] == (tmp_path / name).stat().st_size for name, each in actual.items())
    assert actual["net.weights"]["format"] == "weights" and actual["net.h"]["format"] == "cpp"
    described = json.loads((tmp_path / "net.json").read_text())
    assert result["regions"] == [{"n_operations": len(described["operations"])}]
    assert (result["cpu_units"], result["kept"], result["precision"]) == (0, [], [])

    asked = ("--format", "runtime", "-o", tmp_path / "b")
    result = cli.document("convert", profiled.bundle, *asked)
    assert result["source"] == str(profiled.bundle) and result["formats"] == ["runtime"]
    assert [Path(each["file"]).name for each in result["files"]] == ["b.nnprt"]


def test_convert_in_parts_and_less_precision(cli, tmp_path):
    odd = trace(TinyNet(lambda x: torch.special.gammaln(x + 2)), tmp_path / "odd.pt")
    result = cli.document("convert", "--input", INPUT, odd)
    (on_host,) = result["kept"]
    assert on_host["label"].startswith("lgamma") and "cannot run" in on_host["reason"]
    assert result["cpu_units"] >= 1 and len(result["regions"]) == 2
    refused = cli("convert", "--input", INPUT, "--whole", odd, "--json")
    assert refused.code == 1 and refused.document("error")["kind"] == "NnapiProfError"
    assert "Stays on the CPU" in refused.err

    whole = trace(TinyNet(), tmp_path / "whole.pt")
    result = cli.document("convert", "--input", INPUT, whole, "--float16")
    assert 0 < result["precision"][0]["relative"] < 2e-2
    result = cli.document("convert", "--input", "1x3x?x16", whole)
    (size,) = result["open_sizes"]
    assert (size["input"], size["dim"]) == (0, 2) and size["least"] < 16 < size["most"]


FAILURES = [
    ("frobnicate", 2, "UsageError"),
    ("run --frobnicate", 2, "UsageError"),
    ("run absent.nnprof", 2, "UsageError"),
    ("profile absent.pt --device sim:npu-phone", 2, "ModelFileError"),
    ("agent info --device sim:no-such-phone", 1, "DeviceNotFound"),
    ("costs list --costs absent.sqlite", 2, "UsageError"),
    ("", 2, "UsageError"),
    ("costs", 2, "UsageError"),
    ("devices -q -v", 2, "UsageError"),
]


@pytest.mark.parametrize(("line", "code", "kind"), FAILURES)
def test_a_failure_is_a_document_too(cli, line, code, kind):
    arguments = line.split()
    result = cli("--json", *arguments)
    document = result.document("error")
    assert (result.code, document["exit_code"], document["kind"]) == (code, code, kind)
    assert issubclass(getattr(errors, kind), errors.NnapiProfError)
    if line not in ("", "costs"):  # these show the help instead of a line
        assert document["message"] == result.error
    assert cli(*arguments).out == ""  # without --json standard output stays empty


def test_an_interrupt_and_a_mistake_of_ours_are_documents(cli, monkeypatch, capsys):
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nnapi_prof.device.find.list_devices", interrupt)
    result = cli("devices", "--json")
    assert (result.code, result.document("error")["kind"]) == (130, "Interrupted")
    monkeypatch.setattr("nnapi_prof.device.find.list_devices", lambda: [None])
    with pytest.raises(TypeError):
        cli("devices", "--json")
    document = json.loads(capsys.readouterr().out)
    check(document, "error")
    assert document["kind"] == "InternalError" and document["message"].startswith("TypeError: ")


def test_quiet_and_verbose(cli, profiled):
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


@pytest.mark.parametrize("name", schemas())
def test_a_damaged_document_is_refused(name):
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


def test_nothing_else_is_on_standard_output():
    """In a process of its own, where C libraries could write there, too."""
    done = python("-W", "error", "-m", "nnapi_prof", "devices", "--json", check=True)
    assert json.loads(done.stdout)["schema"] == "nnapi-prof/devices/1"
    assert done.stderr == ""
