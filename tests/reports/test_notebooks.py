"""The notebooks run as they stand, in order, on a simulated phone."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from nnapi_prof.costs.store import CostStore

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def code_cells(path: Path) -> list[str]:
    book = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(c["source"]) for c in book["cells"] if c["cell_type"] == "code"]


def test_there_are_three() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped_and_cells_are_python(path: Path) -> None:
    book = json.loads(path.read_text(encoding="utf-8"))
    assert book["nbformat"] == 4
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            ast.parse("".join(cell["source"]))


def test_they_run(tmp_path: Path) -> None:
    """All in one process, each with names of its own; what one measured the next one re-uses.

    The table knows another phone from before, which must not be taken for the one at hand.
    """
    with CostStore(tmp_path / "out" / "costs.sqlite") as store:
        store.add_device("another phone", {}, simulated=False)
    script = tmp_path / "run.py"
    script.write_text(
        "import json, sys\n"
        f"for cells in json.loads({json.dumps(json.dumps([code_cells(p) for p in NOTEBOOKS]))}):\n"
        "    names = {'__name__': 'notebook'}\n"
        "    for cell in cells:\n"
        "        exec(compile(cell, cell[:60], 'exec'), names)\n"
    )
    root = str(Path(__file__).parents[2])
    path = f"import sys, runpy; sys.path.insert(0, {root!r}); runpy.run_path({str(script)!r})"
    done = subprocess.run(
        [sys.executable, "-c", path], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert (tmp_path / "out" / "net.html").stat().st_size > 50_000
    assert (tmp_path / "out" / "costs.csv").exists()
    assert "Latencies in ms, simulated." in done.stdout
