"""`nnapi-prof partition --max-error`: what less than float32 moves too far stays off NNAPI."""

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
from nnapi_prof.execution.estimation import estimated_costs
from nnapi_prof.execution.half_errors import accuracy_constraint, narrow_errors, unit_errors
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import Engine
from nnapi_prof.partition import Constraints
from tests.cli.common import Cli, Result, trace
from tests.conftest import PHONES

SHAPE = (1, 3, 64, 64)
ONLY = ("--accelerator", "sim-npu", "--preference", "fast")


def heavy() -> nn.Module:
    """Two convolutions that pay on an accelerator, and a maximum that rounding passes through.
    [1, 3, 64, 64] -> [1, 64, 32, 32]"""
    first, second = nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1)
    return nn.Sequential(first, nn.Tanh(), second, nn.MaxPool2d(2))


def on_nnapi(bundle: Bundle) -> set[str]:
    """The operations that the plan runs there."""
    units = bundle.graph.units
    return {
        units[u].label.partition(" ")[0]
        for segment in bundle.plan.segments
        if segment.target.engine is Engine.NNAPI
        for u in segment.units
    }


@pytest.mark.slow
def test_the_guard_keeps_off_what_moves_too_far(cli: Cli, tmp_path: Path) -> None:
    torch.manual_seed(0)
    phone = json.loads((PHONES / "npu-phone.json").read_text())
    del phone["cpu"]["peak"]["relaxed"]  # a CPU without float16 keeps to float32
    (tmp_path / "phone.json").write_text(json.dumps(phone))
    named = ("--device", f"sim:{tmp_path / 'phone.json'}", "--input", "1x3x64x64", "--relaxed")
    model, costs = trace(heavy(), tmp_path / "heavy.pt", SHAPE), tmp_path / "costs.sqlite"
    cli.ok("profile", *named, "--costs", costs, *ONLY, model)

    def partition(limit: str) -> tuple[Bundle, Result]:
        output = tmp_path / f"{limit}.nnprof"
        guard = ("--max-error", limit)
        done = cli.ok("partition", *named, "--costs", costs, "--output", output, *guard, model)
        assert "meets the constraints" in done.err
        return read_bundle(output), done

    loose, _ = partition("0.1")
    assert "conv2d" in on_nnapi(loose)
    strict, text = partition("1e-6")
    assert "conv2d" not in on_nnapi(strict)
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
def test_on_a_cpu_in_float16_it_is_refused(
    model: nn.Module, half: HalfArithmetic, limit: float, refused: bool
) -> None:
    """Where only the CPU runs a unit, too."""
    program = prepare(model.eval(), (torch.rand(SHAPE),), "model")
    description = json.loads((PHONES / "npu-phone.json").read_text())
    table = estimated_costs(program, description, relaxed=True).table
    accelerated = [t.engine is Engine.NNAPI for t in table.targets]
    table = replace(table, unit_ns=np.where(accelerated, np.inf, table.unit_ns))
    message = "the CPU of this device computes in float16, too"
    with pytest.raises(UsageError, match=message) if refused else nullcontext():
        relaxed = Conditions(Precision.RELAXED)
        accuracy_constraint(program, table, relaxed, limit, half, Constraints())


def test_sums_in_float16_have_larger_errors_of_the_cpu() -> None:
    torch.manual_seed(0)
    program = prepare(nn.Linear(2000, 8).eval(), (torch.randn(4, 2000),), "linear")
    assert narrow_errors(program, [0])[0] > 3 * unit_errors(program, [0])[0].relative > 0
