"""Models converted for stock PyTorch, run by it on the emulator library; files of other formats."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from nnapi_prof.bundle.storage import read_bundle, write_bundle
from nnapi_prof.convert.export_json import RegionDescription
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.frontend import load, reference
from nnapi_prof.frontend.inputs import parse_input_spec
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.plan import Engine, Preference
from nnapi_prof.nnapi.codes import OperandCode
from tests import warm
from tests.api.test_model import scripted
from tests.cli.common import INPUT, Profiled, save, trace
from tests.convert.region_reader import from_json
from tests.models import Function
from tests.processes import output_of

PROGRAM = """
import ctypes, sys, torch
module, x = torch.jit.load(sys.argv[2]), torch.load(sys.argv[3])
try:
    module(x)
except RuntimeError as error:
    assert "libneuralnetworks" in str(error)
else:
    raise AssertionError("it ran without NNAPI")
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
torch.save(module(x), sys.argv[3])
assert "nnapi_prof" not in sys.modules
"""
"""An app, without anything of ours but the library; its input becomes its output."""


def run(
    model: Path,
    *inputs: object,
    wanted: object,
    tolerance: float = 1e-4,
    wrong: tuple[tuple[object, ...], ...] = (),
    **kwargs: object,
) -> list[str]:
    """Compares the outputs of a converted model; returns the errors of wrong inputs, the names of
    the parts, and the preference and precision of each. Wants the fixture ``nnapi_library``."""
    with quiet_torch():
        module = torch.jit.load(model.with_suffix(".nnapi.pt"))
    wanted_values, wanted_shape = tree_flatten(wanted)
    for _ in range(2):
        values, shape = tree_flatten(module(*inputs, **kwargs))
        assert shape == wanted_shape
        torch.testing.assert_close(values, wanted_values, rtol=tolerance, atol=tolerance / 10)
    lines = []
    for bad in wrong:
        with pytest.raises(torch.jit.Error) as raised:
            module(*bad, **kwargs)
        last = str(raised.value).strip().splitlines()[-1]
        lines.append(last.removeprefix("RuntimeError: AssertionError: "))
    parts = dict(module.named_children())
    on_nnapi = [part for name, part in parts.items() if name.startswith("nnapi")]
    how = [f"{each.compilation_preference} {each.relax_f32_to_f16}" for each in on_nnapi]
    return [*lines, " ".join(parts), *how]


def stated(*shapes: str) -> list[str]:
    return [word for shape in shapes for word in ("--input", shape)]


@pytest.mark.slow("converts a published network in a process of its own")
def test_mobilenet_v2_in_stock_pytorch(cli, tmp_path, emulator_library):
    model = tmp_path / "mobilenet_v2.pt"
    script = Path(__file__).parents[2] / "examples" / "models.py"
    subprocess.run([*warm.python(), script, "mobilenet_v2", model], check=True)
    assert "66 NNAPI operations" in cli.ok("convert", "--input", "1x3x224x224", model).err
    x, data = torch.randn(1, 3, 224, 224), tmp_path / "data.pt"
    torch.save(x, data)
    command = [*warm.python(ours=False), "-W", "ignore", "-c", PROGRAM]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    output_of(
        [*command, emulator_library, model.with_suffix(".nnapi.pt"), data], env=env, cwd=tmp_path
    )
    torch.testing.assert_close(torch.load(data), reference(model)(x)[0], rtol=1e-4, atol=1e-5)


def crossed(unread, x, y, first, second):
    """Outputs in another order than they are made, twice, as they came in, and constant; an input
    that nothing reads before those that are read last one first."""
    early = torch.relu(first(y))
    late = second(early) + x
    return late, (late, early), x, torch.arange(1.0, 5.0) * 2


def test_inputs_and_outputs_are_the_models(cli, tmp_path, nnapi_library):
    inputs = torch.randn(2), torch.randn(1, 2, 5, 5), torch.randn(1, 3, 9, 9)
    module = Function(crossed, first=nn.Conv2d(3, 4, 3), second=nn.Conv2d(4, 2, 3))
    model = save(module, tmp_path / "crossed.pt", inputs)
    cli.ok("convert", *stated("2", "1x2x5x5", "1x3x9x9"), model)
    run(model, *inputs, wanted=module(*inputs))


NESTED = {
    "pairs in another order": lambda x: {"z": (x.relu(), (-x).relu()), "a": (x + x.relu(), x)},
    "a list and a dict": lambda x: ([torch.relu(x), x * 2.0], {"only": torch.sigmoid(x)}),
    "a list of one": lambda x: [torch.relu(x)],
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("ending", ["pt", "pt2"])
def test_outputs_are_nested_as_the_models(cli, tmp_path, nnapi_library, name, ending):
    module, x = Function(NESTED[name]), torch.randn(2, 3)
    model = save(module, tmp_path / f"nested.{ending}", (x,))
    cli.ok("convert", "--input", "2x3", model)
    run(model, x, wanted=module(x), tolerance=1e-6)


class Takes(nn.Module):
    """A pair, a list in a dict, a number, and a keyword."""

    def forward(self, pair, named, power, *, shift=None):
        first, second = pair
        return {"sum": first + second + named["one"][0] * power, "diff": named["one"][1] - shift}


def test_inputs_are_nested_as_the_models(cli, tmp_path, nnapi_library):
    a, b, c, d, e = (torch.randn(2, 3) for _ in range(5))
    args = ((a, b), {"one": [c, d]}, 3.0)
    model = save(Takes(), tmp_path / "takes.pt2", args, shift=e)
    cli.ok("convert", model)
    wrong = (
        ((a, b), {"one": [c, d]}, 4.0),
        ((a, b), {"two": [c, d]}, 3.0),
        ((a, b), {"one": [c, d, a]}, 3.0),
    )
    outputs = Takes()(*args, shift=e)
    ran = run(model, *args, wanted=outputs, wrong=wrong, shift=e)
    assert ran[:3] == [
        "arg_2: the model was exported for 3.0",
        "arg_1: the model was exported for the key one",
        'arg_1["one"]: the model was exported for 2 items',
    ]


Pair = tuple[torch.Tensor, torch.Tensor]


class Scripted(nn.Module):
    """A tuple, a list and a dict, as TorchScript types them."""

    def forward(
        self, pair: Pair, listed: list[torch.Tensor], named: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        return {"sum": pair[0] + pair[1] + listed[0], "diff": listed[1] - named["one"]}


def test_torchscript_inputs_are_nested_as_the_models(cli, tmp_path, nnapi_library):
    a, b, c, d, e = (torch.randn(2, 3) for _ in range(5))
    model = tmp_path / "scripted.pt"
    scripted(Scripted().eval()).save(str(model))
    cli.ok("convert", *stated(*["2x3"] * 5), model)
    args, wrong = ((a, b), [c, d], {"one": e}), (((a, b), [c], {"one": e}),)
    ran = run(model, *args, wanted=Scripted()(*args), wrong=wrong)
    assert ran[0] == "arg_1: the model was exported for 2 items"


def test_a_dict_of_several_types_becomes_a_tuple(cli, tmp_path, nnapi_library):
    """TorchScript has no type for it."""
    x, mixed = torch.randn(2, 3), Function(lambda x: {"one": torch.relu(x), "two": (x + 1.0, x)})
    model = save(mixed, tmp_path / "mixed.pt2", (x,))
    result = cli.ok("convert", model)
    assert "it becomes a tuple of one, two, in that order" in result.err
    run(model, x, wanted=(torch.relu(x), (x + 1.0, x)))


def test_convert_says_that_a_model_grew(cli, tmp_path):
    """By a recurrence in both directions, which stock PyTorch's runtime has step by step only."""
    tagger = nn.LSTM(8, 8, bidirectional=True, batch_first=True)
    for steps, grows in ((2, False), (32, True)):
        model = trace(tagger, tmp_path / f"tagger{steps}.pt", (1, steps, 8))
        done = cli.ok("convert", "--input", f"1x{steps}x8", model)
        assert ("note: the model becomes" in done.err) == grows


def test_partition_says_that_a_plan_grew(cli, profiled, monkeypatch):
    monkeypatch.setattr("nnapi_prof.convert.region.VERY_MANY", 1)  # a model that grows takes long
    for pin, grows in (("conv2d*=nnapi:sim-npu/fast", True), ("*=cpu", False)):
        asked = ("--pin", pin, "--output", profiled.bundle)
        done = cli.ok("partition", *profiled.named, *asked, profiled.model)
        assert ("note: what the plan gives to NNAPI becomes" in done.err) == grows


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
    note, last = result.err.splitlines()
    assert note.startswith("note:")  # on relaxed precision
    assert last == f"{len(region.operations)} NNAPI operations in {base}.json, {base}.weights"
    assert described(base) == RegionDescription(region, Preference.FAST_SINGLE_ANSWER, True)


@pytest.fixture
def offloading(profiled: Profiled) -> Path:
    """A bundle whose plan has NNAPI run something: a baseline of the profiled model's."""
    bundle = read_bundle(profiled.bundle)
    plan, *_ = (p for p in bundle.plans if any(s.target.engine is Engine.NNAPI for s in p.segments))
    write_bundle(profiled.bundle, replace(bundle, plans=(plan,)), profiled.model)
    return profiled.bundle


def test_the_regions_of_a_plan(cli, offloading):
    folder = offloading.parent
    before = names(folder)
    cli.ok("convert", "--format", "json", "--format", "cpp", offloading)
    targets = [s.target for s in read_bundle(offloading).plan.segments]
    on_nnapi = {i: target for i, target in enumerate(targets) if target.engine is Engine.NNAPI}
    endings = ("cpp", "h", "json", "weights")
    expected = [f"tiny_{i}.{ending}" for i in on_nnapi for ending in endings]
    assert on_nnapi and names(folder) == sorted(before + expected)
    for i, target in on_nnapi.items():
        read = described(folder / f"tiny_{i}")
        assert (read.device or "auto", read.preference) == (target.accelerator, target.preference)
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
    result = cli.ok("convert", "--format", "json", *stated("2", "2x3"), path)
    for values in ("outputs", "inputs"):
        assert f"note: {values} of the model that NNAPI has nothing to do with" in result.err
    assert f"1 NNAPI operations in {tmp_path}/beside.json\n" in result.err
    assert not (tmp_path / "beside.weights").exists()
    region = described(tmp_path / "beside").region
    assert (len(region.inputs), len(region.outputs)) == (1, 1)


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


def test_float16_is_written_and_measured(cli, model):
    asked = ("--input", INPUT, "--float16")
    result = cli.ok("convert", *asked, "--format", "json", model)
    moved = re.search(r"note: float16 moves the outputs by (\S+) of their largest", result.err)
    assert moved is not None and 1e-6 < float(moved[1]) < 1e-2
    operands = described(model.with_suffix("")).region.model.operands
    assert OperandCode.TENSOR_FLOAT16 in {operand.type for operand in operands}
    before = names(model.parent)
    error = cli.error("convert", *asked, "--level", 28, model, code=1)
    assert "float16 needs API 29 (feature level 3), the region is for API 28" in error
    assert names(model.parent) == before


def test_relaxed_says_what_it_may_cost(cli, model):
    result = cli.ok("convert", "--input", INPUT, "--relaxed", model)
    assert "a driver that computes relaxed float32 all in float16 moves the outputs" in result.err
    result = cli.ok("convert", "--input", INPUT, "--relaxed", "--level", 28, model)
    assert "not measured: float16 needs API 29" in result.err
