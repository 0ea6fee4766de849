"""``convert --float16`` and ``--relaxed``: what is written, and what is said of its accuracy."""

import re
from pathlib import Path

import torch

from nnapi_prof.nnapi.codes import OperandCode
from tests.cli.common import INPUT, Cli, TinyNet, trace
from tests.convert.region_reader import from_json


def model_in(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    return trace(TinyNet(torch.sigmoid), tmp_path / "tiny.pt")


def test_float16_is_written_and_measured(cli: Cli, tmp_path: Path) -> None:
    model = model_in(tmp_path)
    asked = ("--input", INPUT, "--float16", "--format", "json", "--output", tmp_path / "half.json")
    result = cli.ok("convert", *asked, model)
    moved = re.search(r"note: float16 moves the outputs by (\S+) of their largest", result.err)
    assert moved is not None and 1e-6 < float(moved[1]) < 1e-2
    text = (tmp_path / "half.json").read_text()
    weights = next(tmp_path.glob("half*.weights*"))
    region = from_json(text, weights.read_bytes()).region
    types = {operand.type for operand in region.model.operands}
    assert OperandCode.TENSOR_FLOAT16 in types


def test_relaxed_says_what_it_may_cost(cli: Cli, tmp_path: Path) -> None:
    model = model_in(tmp_path)
    result = cli.ok("convert", "--input", INPUT, "--relaxed", model)
    assert "a driver that computes relaxed float32 all in float16 moves the outputs" in result.err
    result = cli.ok("convert", "--input", INPUT, "--relaxed", "--level", 28, model)
    assert "not measured: float16 needs API 29" in result.err


def test_float16_below_its_level_is_refused(cli: Cli, tmp_path: Path) -> None:
    error = cli.error(
        "convert", "--input", INPUT, "--float16", "--level", 28, model_in(tmp_path), code=1
    )
    assert "float16 needs API 29 (feature level 3), the region is for API 28" in error
    assert not (tmp_path / "tiny.nnapi.pt").exists()
