"""Models whose inputs are quantised tensors to them, through every command."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.cli.common import Cli, trace

SPEC = "1x3x8x8:quint8@0.03@120"

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")


class Squares(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.quantized.mul(x, x, 0.0005, 0)
        return product


@pytest.fixture
def qnnpack() -> Iterator[None]:
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "qnnpack"
    yield
    torch.backends.quantized.engine = before


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


@pytest.fixture
def quantised(tmp_path: Path, qnnpack: None) -> Path:
    return save_quantised(tmp_path / "quantised.pt")


def test_the_whole_way(cli: Cli, quantised: Path, tmp_path: Path) -> None:
    on = ("--device", "sim:npu-phone", "--input", SPEC, "--costs", tmp_path / "costs.sqlite")
    cli.ok("profile", *on, "--preference", "fast", quantised)
    cli.ok("partition", *on, quantised)
    bundle = quantised.with_suffix(".nnprof")
    cli.ok("run", "--device", "sim:npu-phone", bundle)
    (check,) = json.loads((bundle / "run.json").read_text())["checks"]
    assert check["shape"] == [1, 4, 6, 6] and check["max_abs"] <= 1  # a step of the integers


def test_rules_that_make_floats_are_told(cli: Cli, qnnpack: None, tmp_path: Path) -> None:
    """NNAPI's MUL wants a scale above the product of its inputs' scales."""
    model = save_quantised(tmp_path / "other.pt", Squares())
    on = ("--device", "sim:npu-phone", "--input", SPEC, "--costs", tmp_path / "costs.sqlite")
    cli.ok("profile", *on, "--preference", "fast", model)
    cli.ok("partition", *on, model)
    told = "1 quantised unit is computed in float32 between conversions"
    tables = ("--costs", tmp_path / "costs.sqlite")
    report = cli.ok("report", "--format", "md", "-o", "-", *tables, model.with_suffix(".nnprof"))
    assert told in report.out and "0.0005" in report.out
