"""Two example models in one cost table: what they have in common is measured once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from examples.models import SqueezeNet11, initialise
from tests.cli.common import Result, count_rows, trace

Cli = Callable[..., Result]
SHAPE = (1, 3, 48, 48)
NAMED = ("--device", "sim:npu-phone", "--input", "1x3x48x48", "--preference", "fast")
COUNTS = re.compile(r"(\d+) measured, (\d+) refused by the converter, (\d+) known before")


@pytest.mark.slow
def test_the_second_model_measures_less(cli: Cli, tmp_path: Path) -> None:
    # One network with two heads, as after fine-tuning: everything before the head is shared.
    models = [
        trace(initialise(SqueezeNet11(classes)), tmp_path / f"squeezenet_{classes}.pt", SHAPE)
        for classes in (1000, 7)
    ]

    def profile(model: Path, costs: Path) -> tuple[int, int]:
        done = cli("profile", *NAMED, "--costs", costs, model)
        assert done.code == 0, done.err
        actual = COUNTS.search(" ".join(done.out.split()))
        assert actual is not None, done.out
        return int(actual[1]) + int(actual[2]), int(actual[3])

    both, alone = tmp_path / "both.sqlite", tmp_path / "alone.sqlite"
    first, result = profile(models[0], both)
    assert result == 0
    second, result = profile(models[1], both)
    fresh, _ = profile(models[1], alone)
    assert result > 0 and 0 < second < fresh / 2
    assert count_rows(both) == first + second
    # Weights are no part of what is measured: one that was trained on is the same.
    torch.manual_seed(3)
    again = trace(initialise(SqueezeNet11(7), seed=1), tmp_path / "tuned.pt", SHAPE)
    assert profile(again, both)[0] == 0
