"""``nnapi-prof pareto``, and plans within an accuracy budget."""

from pathlib import Path

import numpy as np
import pytest

from tests.cli.common import INPUT, Cli, TinyNet, trace

SIM = ("--device", "sim:dsp-phone", "--input", INPUT, "--precisions", "float32,int8")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "samples.npz"
    np.savez(path, np.random.default_rng(0).normal(size=(8, 3, 16, 16)).astype(np.float32))
    return path


def test_the_front_then_a_plan_of_it(cli: Cli, data: Path, tmp_path: Path) -> None:
    model = trace(TinyNet(), tmp_path / "tiny.pt")
    asked = (*SIM, "--costs", tmp_path / "costs.sqlite", "--calibration", data)
    result = cli.ok("pareto", *asked, "--budget", "34dB", "--json", model)
    document = result.document("pareto")
    assert document["precisions"] == ["int8"] and document["metric"] == "relative"
    assert document["points"][-1]["error"] == 0
    names = [rule["name"] for rule in document["baselines"]]
    assert names[:2] == ["uniform float32", "uniform int8"]
    bundle = tmp_path / "tiny.nnprof"
    result = cli.ok("partition", *asked, "--accuracy-budget", "5%", "-o", bundle, "--json", model)
    planned = result.document("partition")
    cli.ok("run", "--runs", "2", "--no-baselines", bundle)
    shown = cli("report", "--costs", tmp_path / "costs.sqlite", "--format", "md", "-o", "-", bundle)
    assert "Latency against accuracy" in shown.out and planned["plan"]["segments"]


def test_a_single_sample_judges_nothing(cli: Cli, tmp_path: Path) -> None:
    model = trace(TinyNet(), tmp_path / "tiny.pt")
    np.savez(tmp_path / "one.npz", np.ones((1, 3, 16, 16), np.float32))
    asked = (*SIM, "--costs", tmp_path / "costs.sqlite", "--calibration", tmp_path / "one.npz")
    result = cli.ok("pareto", *asked, model)
    assert "held-out data" not in result.out and "unknown" in result.out
    assert result.err.count("there is one sample only") == 1
    bundle = tmp_path / "tiny.nnprof"
    cli.ok("partition", *asked, "--accuracy-budget", "50%", "--no-verify", "-o", bundle, model)
    cli.ok("run", "--runs", "2", "--no-baselines", bundle)
