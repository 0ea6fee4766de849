"""Models converted for stock PyTorch, run by stock PyTorch on the emulator library."""

import os
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.cli import main
from tests import warm
from tests.cli.common import INPUT, Profiled, Result, trace

ROOT = Path(__file__).resolve().parent.parent.parent

# A process of its own, without anything of ours but the library: what an app would run.
PROGRAM = """
import ctypes, sys, torch
from torch.utils._pytree import tree_flatten
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
module = torch.jit.load(sys.argv[2])
assert "torch.classes._nnapi.Compilation" in str(module.mod.graph)
inputs, returned = torch.load(sys.argv[3])
for _ in range(2):
    found, shape = tree_flatten(module(*inputs))
    wanted, wanted_shape = tree_flatten(returned)
    assert shape == wanted_shape
    assert [value.shape for value in found] == [value.shape for value in wanted]
    for mine, theirs in zip(found, wanted):
        print(((mine - theirs).abs().max() / theirs.abs().max()).item())
assert "nnapi_prof" not in sys.modules
"""


@pytest.mark.slow
def test_mobilenet_v2_in_stock_pytorch(
    tmp_path: Path, emulator_library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, converted = tmp_path / "mobilenet_v2.pt", tmp_path / "converted.pt"
    subprocess.run(
        [*warm.python(), ROOT / "examples" / "models.py", "mobilenet_v2", model], check=True
    )
    with pytest.raises(SystemExit) as ended:
        main(["convert", "--input", "1x3x224x224", "--output", str(converted), str(model)])
    assert ended.value.code == 0
    assert "66 NNAPI operations" in capsys.readouterr().err

    inputs = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    differences = run_in_stock_pytorch(tmp_path, emulator_library, converted, model, inputs)
    assert len(differences) == 2 and max(differences) <= 1e-4


class Crossed(nn.Module):
    """Outputs in another order than they are made, twice, as they came in, and constant; an input
    that nothing reads before those that are read last one first."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.second = nn.Conv2d(4, 2, 3)
        self.register_buffer("anchors", torch.arange(1.0, 5.0))

    def forward(self, unread, x, y):
        early = torch.relu(self.first(y))
        late = self.second(early) + x
        return late, (late, early), x, self.anchors * 2


@pytest.mark.slow
def test_inputs_and_outputs_are_the_models(tmp_path: Path, emulator_library: Path) -> None:
    model, converted = tmp_path / "crossed.pt", tmp_path / "converted.pt"
    shapes = ((2,), (1, 2, 5, 5), (1, 3, 9, 9))
    inputs = tuple(torch.randn(shape) for shape in shapes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(Crossed().eval(), inputs, strict=False), str(model))
    stated = [word for s in shapes for word in ("--input", "x".join(map(str, s)))]
    with pytest.raises(SystemExit) as ended:
        main(["convert", *stated, "--output", str(converted), str(model)])
    assert ended.value.code == 0
    differences = run_in_stock_pytorch(tmp_path, emulator_library, converted, model, *inputs)
    assert len(differences) == 2 * 5 and max(differences) <= 1e-4


class Nested(nn.Module):
    """A dict of pairs, of tensors that were made in another order."""

    def forward(self, x):
        low, high = torch.relu(-x), torch.relu(x)
        return {"z": (high, low), "a": (x + high, x)}


class Listed(nn.Module):
    """A list and a dict in a tuple."""

    def forward(self, x):
        return [torch.relu(x), x * 2.0], {"only": torch.sigmoid(x)}


class Lone(nn.Module):
    """A list of one."""

    def forward(self, x):
        return [torch.relu(x)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Nested, Listed, Lone])
@pytest.mark.parametrize("ending", ["pt", "pt2"])
def test_outputs_are_nested_as_the_models(
    tmp_path: Path, emulator_library: Path, kind: type[nn.Module], ending: str
) -> None:
    model, converted = tmp_path / f"nested.{ending}", tmp_path / "converted.pt"
    x = torch.randn(2, 3)
    save(kind().eval(), model, (x,))
    convert("--input", "2x3", "--output", converted, model)
    assert max(run_in_stock_pytorch(tmp_path, emulator_library, converted, model, x)) <= 1e-6


class Takes(nn.Module):
    """A pair, a list in a dict, a number, and a keyword."""

    def forward(self, pair, named, power, *, shift=None):
        first, second = pair
        return {"sum": first + second + named["one"][0] * power, "diff": named["one"][1] - shift}


NESTED_PROGRAM = """
import ctypes, sys, torch
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
module = torch.jit.load(sys.argv[2])
args, kwargs, wanted, wrong = torch.load(sys.argv[3])
found = module(*args, **kwargs)
assert type(found) is type(wanted)
torch.testing.assert_close(found, wanted)
for bad in wrong:
    try:
        module(*bad, **kwargs)
    except torch.jit.Error as error:
        print(str(error).strip().splitlines()[-1].removeprefix("RuntimeError: AssertionError: "))
"""


@pytest.mark.slow
def test_inputs_are_nested_as_the_models(tmp_path: Path, emulator_library: Path) -> None:
    model, converted = tmp_path / "takes.pt2", tmp_path / "converted.pt"
    a, b, c, d, e = (torch.randn(2, 3) for _ in range(5))
    args, kwargs = ((a, b), {"one": [c, d]}, 3.0), {"shift": e}
    save(Takes().eval(), model, args, kwargs)
    convert("--output", converted, model)
    wrong = (
        ((a, b), {"one": [c, d]}, 4.0),
        ((a, b), {"two": [c, d]}, 3.0),
        ((a, b), {"one": [c, d, a]}, 3.0),
    )
    torch.save((args, kwargs, Takes()(*args, **kwargs), wrong), tmp_path / "data.pt")
    done = in_a_process(NESTED_PROGRAM, emulator_library, converted, tmp_path / "data.pt")
    assert done.stdout.splitlines() == [
        "arg_2: the model was exported for 3.0",
        "arg_1: the model was exported for the key one",
        'arg_1["one"]: the model was exported for 2 items',
    ]


class Scripted(nn.Module):
    """A tuple, a list and a dict, as TorchScript types them."""

    def forward(
        self,
        pair: tuple[torch.Tensor, torch.Tensor],
        listed: list[torch.Tensor],
        named: dict[str, torch.Tensor],
    ) -> dict[str, torch.Tensor]:
        return {"sum": pair[0] + pair[1] + listed[0], "diff": listed[1] - named["one"]}


@pytest.mark.slow
def test_torchscript_inputs_are_nested_as_the_models(
    tmp_path: Path, emulator_library: Path
) -> None:
    model, converted = tmp_path / "scripted.pt", tmp_path / "converted.pt"
    a, b, c, d, e = (torch.randn(2, 3) for _ in range(5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(Scripted().eval()), str(model))
    convert(*(word for _ in range(5) for word in ("--input", "2x3")), "--output", converted, model)
    args = ((a, b), [c, d], {"one": e})
    wrong = (((a, b), [c], {"one": e}),)
    torch.save((args, {}, Scripted()(*args), wrong), tmp_path / "data.pt")
    done = in_a_process(NESTED_PROGRAM, emulator_library, converted, tmp_path / "data.pt")
    assert done.stdout == "arg_1: the model was exported for 2 items\n"


class Mixed(nn.Module):
    """A dict that TorchScript has no type for."""

    def forward(self, x):
        return {"one": torch.relu(x), "two": (x + 1.0, x)}


def test_a_dict_of_several_types_becomes_a_tuple(
    tmp_path: Path, emulator_library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, converted = tmp_path / "mixed.pt2", tmp_path / "converted.pt"
    x = torch.randn(2, 3)
    save(Mixed().eval(), model, (x,))
    convert("--output", converted, model)
    assert "it becomes a tuple of one, two, in that order" in capsys.readouterr().err
    torch.save(((x,), {}, (torch.relu(x), (x + 1.0, x)), ()), tmp_path / "data.pt")
    in_a_process(NESTED_PROGRAM, emulator_library, converted, tmp_path / "data.pt")


def save(
    module: nn.Module, path: Path, args: tuple[object, ...], kwargs: dict[str, object] | None = None
) -> None:
    """As TorchScript or, by its ending, as an ExportedProgram."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.suffix == ".pt2":
            torch.export.save(torch.export.export(module, args, kwargs), path)
        else:
            torch.jit.save(torch.jit.trace(module, args, strict=False), str(path))


def convert(*arguments: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["convert", *map(str, arguments)])
    assert ended.value.code == 0


def eager(model: Path) -> Callable[..., object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if model.suffix == ".pt2":
            return torch.export.load(model).module()
        return torch.jit.load(str(model))


def run_in_stock_pytorch(
    folder: Path, library: Path, converted: Path, model: Path, *inputs: torch.Tensor
) -> list[float]:
    """The relative difference of every output of ``converted`` from eager's, of two runs."""
    torch.save((inputs, eager(model)(*inputs)), folder / "data.pt")
    done = in_a_process(PROGRAM, library, converted, folder / "data.pt")
    return [float(line) for line in done.stdout.split()]


def in_a_process(
    program: str, library: Path, converted: Path, data: Path
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*warm.python(ours=False), "-W", "ignore", "-c", program, library, converted, data],
        cwd=data.parent,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


class Tagger(nn.Module):
    """A recurrence in both directions, which stock PyTorch's runtime has step by step only."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 8, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


@pytest.mark.slow
def test_convert_says_that_a_model_grew(cli: Callable[..., Result], tmp_path: Path) -> None:
    torch.manual_seed(0)
    for steps, grows in ((2, False), (32, True)):
        model = trace(Tagger(), tmp_path / f"tagger{steps}.pt", (1, steps, 8))
        done = cli("convert", "--input", f"1x{steps}x8", model)
        assert done.code == 0
        assert ("note: the model becomes" in done.err) == grows


def test_partition_says_that_a_plan_grew(
    cli: Callable[..., Result], profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnapi_prof.convert.region.VERY_MANY", 1)  # a model that grows takes long
    named = ("--device", "sim:npu-phone", "--input", INPUT, "--costs", profiled.costs)
    done = cli("partition", *named, "--pin", "conv2d*=nnapi:sim-npu/fast", "--output",
               profiled.bundle, profiled.model)  # fmt: skip
    assert done.code == 0
    assert "note: what the plan gives to NNAPI becomes" in done.err
    done = cli("partition", *named, "--pin", "*=cpu", "--output", profiled.bundle, profiled.model)
    assert done.code == 0 and "becomes" not in done.err
