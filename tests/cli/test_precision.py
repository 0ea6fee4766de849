"""Precision: an error that may not be passed, budgets of accuracy, and quantised inputs."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.costs import Conditions, Precision
from nnapi_prof.device.protocol import HalfArithmetic
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.estimation import estimated_costs, read_phone
from nnapi_prof.execution.half_errors import accuracy_constraint, narrow_errors, unit_errors
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import Engine
from nnapi_prof.partition import Constraints
from tests.cli.common import INPUT, SIM, Result, trace
from tests.cli.test_partition import on_nnapi
from tests.conftest import PHONES
from tests.models import Function

SHAPE = (1, 3, 64, 64)


def heavy() -> nn.Module:
    """Two convolutions that pay on an accelerator, and a maximum that rounding passes through.
    [1, 3, 64, 64] -> [1, 64, 32, 32]"""
    first, second = nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1)
    return nn.Sequential(first, nn.Tanh(), second, nn.MaxPool2d(2))


@pytest.mark.slow
def test_the_guard_keeps_off_what_moves_too_far(cli, tmp_path):
    torch.manual_seed(0)
    phone = json.loads((PHONES / "npu-phone.json").read_text())
    del phone["cpu"]["peak"]["relaxed"]  # a CPU without float16 keeps to float32
    (tmp_path / "phone.json").write_text(json.dumps(phone))
    named = ("--device", f"sim:{tmp_path / 'phone.json'}", "--input", "1x3x64x64", "--relaxed")
    model, costs = trace(heavy(), tmp_path / "heavy.pt", SHAPE), tmp_path / "costs.sqlite"
    only = ("--accelerator", "sim-npu", "--preference", "fast")
    cli.ok("profile", *named, "--costs", costs, *only, model)

    def partition(limit: str) -> tuple[Bundle, Result]:
        output = tmp_path / f"{limit}.nnprof"
        guard = ("--max-error", limit)
        done = cli.ok("partition", *named, "--costs", costs, "--output", output, *guard, model)
        assert "meets the constraints" in done.err
        return read_bundle(output), done

    loose, _ = partition("0.1")
    assert any(label.startswith("conv2d ") for label in on_nnapi(loose))
    strict, text = partition("1e-6")
    assert not any(label.startswith("conv2d ") for label in on_nnapi(strict))
    causes = " ".join(segment.cause for segment in strict.plan.segments)
    assert "float16 moves its result by" in causes and "more than 1e-06" in causes
    assert "more than 1e-06" in " ".join(text.out.split())
    # It binds the plan; baselines show what leaving it out would give.
    assert any(s.target.engine is Engine.NNAPI for p in strict.plans[1:] for s in p.segments)
    assert strict.plan.predicted_ns > loose.plan.predicted_ns


@pytest.mark.parametrize(
    ("model", "half", "limit", "refused"),
    [
        (heavy(), HalfArithmetic.EMULATED, 1e-6, False),  # relaxed is float32 there
        (heavy(), HalfArithmetic.NATIVE, 1e-6, True),
        (heavy(), HalfArithmetic.NATIVE, 0.1, False),
        (nn.Softmax(-1), HalfArithmetic.NATIVE, 1e-6, False),  # the CPU keeps it in float32
    ],
)
def test_on_a_cpu_in_float16_it_is_refused(model, half, limit, refused):
    """Where only the CPU runs a unit, too."""
    program = prepare(model.eval(), (torch.rand(SHAPE),), "model")
    table = estimated_costs(program, read_phone("npu-phone"), relaxed=True).table
    accelerated = [t.engine is Engine.NNAPI for t in table.targets]
    table = replace(table, unit_ns=np.where(accelerated, np.inf, table.unit_ns))
    message = "the CPU of this device computes in float16, too"
    with pytest.raises(UsageError, match=message) if refused else nullcontext():
        relaxed = Conditions(Precision.RELAXED)
        accuracy_constraint(program, table, relaxed, limit, half, Constraints())


def test_sums_in_float16_have_larger_errors_of_the_cpu():
    torch.manual_seed(0)
    program = prepare(nn.Linear(2000, 8).eval(), (torch.randn(4, 2000),), "linear")
    assert narrow_errors(program, [0])[0] > 3 * unit_errors(program, [0])[0].relative > 0


DSP = ("--device", "sim:dsp-phone", "--input", INPUT, "--precisions", "float32,int8")


def test_the_front_then_a_plan_of_it(cli, tiny, tmp_path):
    data, bundle = tmp_path / "samples.npz", tmp_path / "tiny.nnprof"
    np.savez(data, np.random.default_rng(0).normal(size=(8, 3, 16, 16)).astype(np.float32))
    costs = ("--costs", tmp_path / "costs.sqlite")
    asked = (*DSP, *costs, "--calibration", data)
    document = cli.document("pareto", *asked, "--budget", "34dB", tiny)
    assert document["precisions"] == ["int8"] and document["metric"] == "relative"
    assert document["points"][-1]["error"] == 0
    names = [rule["name"] for rule in document["baselines"]]
    assert names[:2] == ["uniform float32", "uniform int8"]
    planned = cli.document("partition", *asked, "--accuracy-budget", "5%", "-o", bundle, tiny)
    cli.ok("run", "--runs", "2", "--no-baselines", bundle)
    shown = cli("report", *costs, "--format", "md", "-o", "-", bundle)
    assert "Latency against accuracy" in shown.out and planned["plan"]["segments"]


def test_a_single_sample_judges_nothing(cli, tiny, tmp_path):
    data, bundle = tmp_path / "one.npz", tmp_path / "tiny.nnprof"
    np.savez(data, np.ones((1, 3, 16, 16), np.float32))
    asked = (*DSP, "--costs", tmp_path / "costs.sqlite", "--calibration", data)
    result = cli.ok("pareto", *asked, tiny)
    assert "held-out data" not in result.out and "unknown" in result.out
    assert result.err.count("there is one sample only") == 1
    budget = ("--accuracy-budget", "50%", "--no-verify")
    cli.ok("partition", *asked, *budget, "-o", bundle, tiny)
    cli.ok("run", "--runs", "2", "--no-baselines", bundle)


SPEC = "1x3x8x8:quint8@0.03@120"

quantises = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")


@pytest.fixture
def qnnpack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.quantized, "engine", "qnnpack")


def save_quantised(path: Path, *then: nn.Module) -> Path:
    """A convolution from quint8 to quint8, and more: its input never was a float. [1, 3, 8, 8]"""
    torch.manual_seed(0)
    weights = torch.randint(-90, 90, (4, 3, 3, 3), dtype=torch.int8)
    layer = torch.ao.nn.quantized.Conv2d(3, 4, 3)
    layer.set_weight_bias(torch._make_per_tensor_quantized_tensor(weights, 0.01, 0), torch.randn(4))
    layer.scale, layer.zero_point = 0.05, 110
    integers = torch.randint(0, 255, (1, 3, 8, 8), dtype=torch.uint8)
    image = torch._make_per_tensor_quantized_tensor(integers, 0.03, 120)
    return trace(nn.Sequential(layer, *then), path, image)


@quantises
def test_quantised_inputs_go_the_whole_way(cli, qnnpack, tmp_path):
    quantised = save_quantised(tmp_path / "quantised.pt")
    on = (*SIM, "--input", SPEC, "--costs", tmp_path / "costs.sqlite")
    cli.ok("profile", *on, "--preference", "fast", quantised)
    cli.ok("partition", *on, quantised)
    bundle = quantised.with_suffix(".nnprof")
    cli.ok("run", *SIM, bundle)
    (check,) = json.loads((bundle / "run.json").read_text())["checks"]
    assert check["shape"] == [1, 4, 6, 6] and check["max_abs"] <= 1  # a step of the integers


@quantises
def test_rules_that_make_floats_are_told(cli, qnnpack, tmp_path):
    """NNAPI's MUL wants a scale above the product of its inputs' scales."""
    square = Function(lambda x: torch.ops.quantized.mul(x, x, 0.0005, 0))
    model, tables = (
        save_quantised(tmp_path / "other.pt", square),
        ("--costs", tmp_path / "c.sqlite"),
    )
    on = (*SIM, "--input", SPEC, *tables)
    cli.ok("profile", *on, "--preference", "fast", model)
    cli.ok("partition", *on, model)
    report = cli.ok("report", "--format", "md", "-o", "-", *tables, model.with_suffix(".nnprof"))
    told = "1 quantised unit is computed in float32 between conversions"
    assert told in report.out and "0.0005" in report.out
