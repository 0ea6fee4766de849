"""MobileNetV2 converted for stock PyTorch, run by stock PyTorch on the emulator library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

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
    found = module(inputs)
    print(((found - wanted).abs().max() / wanted.abs().max()).item())
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
    (wanted,) = reference(model)(inputs)
    torch.save((inputs, wanted), tmp_path / "data.pt")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, emulator_library, converted,
         tmp_path / "data.pt"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all(float(line) <= 1e-4 for line in done.stdout.split())
    assert len(done.stdout.split()) == 2
