"""`nnapi-prof partition --max-error`: what less than float32 moves too far stays off NNAPI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.graph.plan import Engine
from tests.cli.common import Result, trace

Cli = Callable[..., Result]
SHAPE = (1, 3, 64, 64)
NAMED = ("--device", "sim:npu-phone", "--input", "1x3x64x64", "--relaxed")
ONLY = ("--accelerator", "sim-npu", "--preference", "fast")


class Heavy(nn.Module):
    """Two convolutions that pay on an accelerator, and a maximum that rounding passes through.
    [1, 3, 64, 64] -> [1, 64, 32, 32]"""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 64, 3, padding=1)
        self.second = nn.Conv2d(64, 64, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.max_pool2d(self.second(torch.tanh(self.first(x))), 2)


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
    model, costs = trace(Heavy(), tmp_path / "heavy.pt", SHAPE), tmp_path / "costs.sqlite"
    done = cli("profile", *NAMED, "--costs", costs, *ONLY, model)
    assert done.code == 0, done.err

    def partition(limit: str) -> tuple[Bundle, Result]:
        output = tmp_path / f"{limit}.nnprof"
        guard = ("--max-error", limit)
        done = cli("partition", *NAMED, "--costs", costs, "--output", output, *guard, model)
        assert done.code == 0, done.err
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
