"""No module imports one that imports it, by whatever way: within functions and for types either."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"nnapi_prof": "nnapi_prof", "partition": "nnapi_prof.partition"} | {
    "reports": "nnapi_prof.reports",
    "device_agent": "nnapi_prof.device_agent",
}


def modules() -> dict[str, Path]:
    """Dotted name -> file, of all there are."""
    named = {}
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            inner = path.relative_to(ROOT / folder).with_suffix("").parts
            named[".".join([package, *inner]).removesuffix(".__init__")] = path
    return named


def imported(path: Path, every: dict[str, Path]) -> set[str]:
    """Modules of ours that a file imports; ``from package import module`` is of the module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            within = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            names.update(full if full in every else node.module for full in within.values())
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names & every.keys()


@pytest.mark.slow
def test_no_module_imports_itself_in_a_circle() -> None:
    every = modules()
    graph = {name: imported(path, every) - {name} for name, path in every.items()}
    assert tuple(graphlib.TopologicalSorter(graph).static_order())  # CycleError names the circle
