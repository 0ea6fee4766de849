"""``convert``: files of each format, what they hold, levels, and precisions."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nnapi_prof.bundle.storage import read_bundle, write_bundle
from nnapi_prof.convert.export_json import RegionDescription
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.frontend import load
from nnapi_prof.frontend.inputs import parse_input_spec
from nnapi_prof.graph.plan import Engine, Preference
from nnapi_prof.nnapi.codes import OperandCode
from tests.cli.common import INPUT, Function, Profiled, trace
from tests.convert.region_reader import from_json


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def described(base: Path) -> RegionDescription:
    text, weights = base.with_suffix(".json"), base.with_suffix(".weights")
    return from_json(text.read_text(), weights.read_bytes() if weights.exists() else b"")


@pytest.fixture
def model(tiny: Path, tmp_path: Path) -> Path:
    """The tiny model, alone in a folder."""
    (tmp_path / "models").mkdir()
    return Path(shutil.copyfile(tiny, tmp_path / "models" / "tiny.pt"))


def test_files_are_called_as_the_model_is(cli, model):
    beside = model.rename(model.with_name("net ä.pt"))
    cli.ok("convert", "--format", "json", "--format", "stock", "--input", INPUT, beside)
    assert names(beside.parent) == ["net ä.json", "net ä.nnapi.pt", "net ä.pt", "net ä.weights"]


def test_json(cli, model):
    asked = ("--preference", "fast", "--relaxed", "--level", "28")
    result = cli.ok("convert", "--format", "json", "--input", INPUT, *asked, model)
    base = model.with_suffix("")
    assert names(model.parent) == ["tiny.json", "tiny.pt", "tiny.weights"]
    program = load(model, [parse_input_spec(INPUT)])
    region = convert_region(program, range(len(program.units.units)), 28)
    n = len(region.operations)
    *notes, last = result.err.splitlines()
    assert last == f"{n} NNAPI operations in {base}.json, {base}.weights"
    assert [note.split(":")[0] for note in notes] == ["note"]  # on relaxed precision
    assert described(base) == RegionDescription(region, Preference.FAST_SINGLE_ANSWER, True)


@pytest.fixture
def offloading(profiled: Profiled) -> Path:
    """A bundle whose plan has NNAPI run something: a baseline of the profiled model's."""
    bundle = read_bundle(profiled.bundle)
    for plan in bundle.plans:
        if any(segment.target.engine is Engine.NNAPI for segment in plan.segments):
            write_bundle(profiled.bundle, replace(bundle, plans=(plan,)), profiled.model)
            return profiled.bundle
    pytest.fail("no plan of the model uses NNAPI")


def test_the_regions_of_a_plan(cli, offloading):
    folder = offloading.parent
    before = names(folder)
    cli.ok("convert", "--format", "json", "--format", "cpp", offloading)
    manifest = json.loads((offloading / "manifest.json").read_text())
    segments = manifest["plans"][0]["segments"]
    on_nnapi = [i for i, s in enumerate(segments) if s["target"].startswith("nnapi:")]
    endings = ("cpp", "h", "json", "weights")
    expected = [f"tiny_{i}.{ending}" for i in on_nnapi for ending in endings]
    assert on_nnapi and names(folder) == sorted(before + expected)
    for i in on_nnapi:
        read = described(folder / f"tiny_{i}")
        accelerator, _, preference = segments[i]["target"].removeprefix("nnapi:").rpartition("/")
        assert (read.device or "auto", read.preference.short) == (accelerator, preference)
        assert f"class Tiny{i} " in (folder / f"tiny_{i}.h").read_text()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), "every plan of the bundle names an accelerator, which stock PyTorch cannot"),
        (("--format", "json", "--format", "stock"), "every plan of the bundle names"),
        (("--format", "cpp", "--output", "no/such/x"), "cannot write no/such/x_"),
    ],
)
def test_a_bundle_refuses(cli, offloading, options, wanted):
    assert wanted in cli.error("convert", *options, offloading)


def test_what_nnapi_does_not_compute_is_said(cli, tmp_path):
    """An input that nothing reads, an output that is an input, and a constant one."""
    beside = Function(lambda unread, x: (torch.relu(x), x, torch.arange(3.0) * 2))
    path = trace(beside, tmp_path / "beside.pt", (2,), (2, 3))
    result = cli.ok("convert", "--format", "json", "--input", "2", "--input", "2x3", path)
    assert "note: outputs of the model that NNAPI has nothing to do with" in result.err
    assert "note: inputs of the model that NNAPI has nothing to do with" in result.err
    assert f"1 NNAPI operations in {tmp_path}/beside.json\n" in result.err
    assert not (tmp_path / "beside.weights").exists()
    region = described(tmp_path / "beside").region
    assert (len(region.inputs), len(region.outputs)) == (1, 1)


# ---- levels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [27, 30, 31, 1000006, 1000007, 1000008])
def test_levels(cli, tmp_path, level):
    """Levels that devices report, also beyond API levels: products of computed matrices are many
    operations before level 6, and one from there on."""
    attend = Function(lambda x: ((x @ x.transpose(1, 2)).softmax(-1) @ x).flip(2))
    attention = trace(attend, tmp_path / "attention.pt", (2, 3, 4))
    asked = ("--input", "2x3x4", "--level", level, "--format", "json", attention)
    if level == 27:
        error = cli.error("convert", *asked, code=1)
        assert "TRANSPOSE exists from level 2 (API 28) on, wanted at level 1" in error
        return
    cli.ok("convert", *asked)
    model = json.loads(attention.with_suffix(".json").read_text())
    have = {operation["name"] for operation in model["operations"]}
    assert ("BATCH_MATMUL" in have) == (level >= 1000006)
    assert ("REVERSE" in have) == (level >= 1000007)


# ---- precision -----------------------------------------------------------------------------------


def test_float16_is_written_and_measured(cli, tiny, tmp_path):
    half = tmp_path / "half.json"
    asked = ("--input", INPUT, "--float16", "--format", "json", "--output", half)
    result = cli.ok("convert", *asked, tiny)
    moved = re.search(r"note: float16 moves the outputs by (\S+) of their largest", result.err)
    assert moved is not None and 1e-6 < float(moved[1]) < 1e-2
    operands = described(tmp_path / "half").region.model.operands
    assert OperandCode.TENSOR_FLOAT16 in {operand.type for operand in operands}


def test_relaxed_says_what_it_may_cost(cli, model):
    result = cli.ok("convert", "--input", INPUT, "--relaxed", model)
    assert "a driver that computes relaxed float32 all in float16 moves the outputs" in result.err
    result = cli.ok("convert", "--input", INPUT, "--relaxed", "--level", 28, model)
    assert "not measured: float16 needs API 29" in result.err


def test_float16_below_its_level_is_refused(cli, model):
    asked = ("--input", INPUT, "--float16", "--level", 28)
    error = cli.error("convert", *asked, model, code=1)
    assert "float16 needs API 29 (feature level 3), the region is for API 28" in error
    assert names(model.parent) == ["tiny.pt"]
