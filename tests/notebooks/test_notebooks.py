"""The notebooks run from a fresh start and give the outputs that are committed with them."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests import warm
from tests.parts import again_but, need

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 400_000
TRAINS = "06"
"""Trains a network: on another kind of CPU its weights, and all that follows, are others."""
ROUNDING = re.compile(r"\b\d\.\de-(?:0[6-9]|1\d)\b")
"""How far outputs are off where they agree: on another kind of CPU by other kernels."""

EXECUTORCH, CHIPS = "08", "09"
QUICK = ("01", "02", "04", "05")

KERNEL = """
import matplotlib, pandas
# As they are where a notebook imports them.
matplotlib.rcParams["backend"] = "module://matplotlib_inline.backend_inline"
pandas.options.display.max_columns = 20
from ipykernel.kernelapp import launch_new_instance
from tests.parts import need
launch_new_instance()
"""


def code_cells(path: Path) -> list[Any]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def said(cell: Any) -> list[tuple[str, list[str], str]]:
    """Of each output, what it is and its text: pictures are compared by being there, and errors of
    rounding."""
    return [
        (output.output_type, sorted(output.get("data", {})), ROUNDING.sub("#", text_of(output)))
        for output in cell.outputs
    ]


def roughly(cell: Any) -> list[tuple[str, list[str], str]]:
    """The same but for tables, which may have other rows, and numbers."""
    words = []
    for kind, data, text in said(cell):
        table = "<table" in text
        words.append((kind, data, "a table" if table else re.sub(r"[\d.]+", "#", text)))
    return words


def text_of(output: Any) -> str:
    data = output.get("data", {})
    return str(output.get("text", "") + data.get("text/plain", "") + data.get("text/html", ""))


def test_there_are_nine() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == [f"0{n}" for n in range(1, 10)]


@pytest.mark.parametrize(
    "path",
    again_but(
        NOTEBOOKS,
        *(path for path in NOTEBOOKS if path.name[:2] in QUICK),
        why="tests of partition, precision, library and executorch do on less what these do",
    ),
    ids=lambda path: path.stem,
)
def test_they_run_and_say_the_same(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path.name.startswith(EXECUTORCH):
        need("executorch", "executorch")
    if path.name.startswith(CHIPS):
        need("onnxruntime_qnn", "qnn")
    kernel = tmp_path / "jupyter/kernels/python3/kernel.json"
    kernel.parent.mkdir(parents=True)
    words = [*warm.python(), "-c", KERNEL, "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": words, "display_name": "warm", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    command = [sys.executable, str(FOLDER / "execute.py"), "--to", str(tmp_path), path.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    fresh, committed = code_cells(tmp_path / path.name), code_cells(path)
    heard = roughly if path.name.startswith(TRAINS) else said
    for new, old in zip(fresh, committed, strict=True):
        assert heard(new) == heard(old), f"{path.name}, {old.source}: `python notebooks/execute.py`"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_committed_small_and_labelled(path: Path) -> None:
    outputs = [output for cell in code_cells(path) for output in cell.outputs]
    assert len(outputs) >= 5
    assert all(
        output.output_type in ("execute_result", "display_data", "stream") for output in outputs
    )
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert path.stat().st_size < LARGEST
    text = path.read_text(encoding="utf-8")
    assert "simulated" in text
    for private in ("/tmp/", "/home/", "/root/", str(Path.home())):
        assert private not in text
