"""Models converted for stock PyTorch, run by stock PyTorch on the emulator library."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.cli import main
from nnapi_prof.frontend import reference

ROOT = Path(__file__).resolve().parent.parent.parent

# A process of its own, without anything of ours but the library: what an app would run.
PROGRAM = """
import ctypes, sys, torch
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
module = torch.jit.load(sys.argv[2])
assert "torch.classes._nnapi.Compilation" in str(module.mod.graph)
inputs, wanted = torch.load(sys.argv[3])
for _ in range(2):
    found = module(*inputs)
    found = found if isinstance(found, tuple) else (found,)
    assert [value.shape for value in found] == [value.shape for value in wanted]
    for mine, theirs in zip(found, wanted):
        print(((mine - theirs).abs().max() / theirs.abs().max()).item())
assert "nnapi_prof" not in sys.modules
"""


def test_mobilenet_v2_in_stock_pytorch(
    tmp_path: Path, emulator_library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, converted = tmp_path / "mobilenet_v2.pt", tmp_path / "converted.pt"
    subprocess.run(
        [sys.executable, ROOT / "examples" / "models.py", "mobilenet_v2", model], check=True
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


def run_in_stock_pytorch(
    folder: Path, library: Path, converted: Path, model: Path, *inputs: torch.Tensor
) -> list[float]:
    """The relative difference of every output of ``converted`` from eager's, of two runs."""
    torch.save((inputs, reference(model)(*inputs)), folder / "data.pt")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, library, converted, folder / "data.pt"],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]
