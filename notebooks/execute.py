"""Executes the notebooks and writes them back with their outputs.

    python notebooks/execute.py [--to FOLDER] [NAME.ipynb ...]

Each runs in an empty folder of its own, as on a first visit, with the user's cost table out of
reach. What changes from run to run (times of execution) is left out. With --to they are written
there, and those here stay as they are.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 600


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs that it gives in ``folder``. Raises CellExecutionError."""
    book = nbformat.read(path, as_version=4)
    shutil.copy(HERE / "example_net.py", folder)
    (folder / "out").mkdir(exist_ok=True)
    # The kernel inherits the environment: neither a cost table nor a phone of the user's is used.
    # With other numbers of threads PyTorch adds up in another order.
    changed = {
        "XDG_DATA_HOME": str(folder / "data"),
        "PYTHONPATH": _paths(),
        "OMP_NUM_THREADS": "1",
    }
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        where = {"metadata": {"path": folder}}
        NotebookClient(book, timeout=TIMEOUT_S, resources=where).execute()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    for cell in book.cells:
        cell.metadata.pop("execution", None)
    book.metadata["language_info"] = {"name": "python"}
    return book


def _paths() -> str:
    """The kernel finds this checkout, installed or not."""
    return os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--to", type=Path, default=HERE, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME.ipynb")
    options = parser.parse_args()
    for path in [HERE / name for name in options.names] or sorted(HERE.glob("*.ipynb")):
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(path, Path(folder)), options.to / path.name)
        print(f"{path.name}: {time.perf_counter() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
