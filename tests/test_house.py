"""What keeps the house in order is itself in order: hooks, names, mutations, imports."""

import ast
import graphlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.mutations import MUTATIONS
from tests.parts import script

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("found = 1", [1]),
        ("x = 1\nfor known, y in pairs: pass", [2]),
        ("with open(p) as kept: pass", [1]),
        ("self._made = 1", [1]),
        ("class A:\n    said: str", [2]),
        ("[given for given in rows]", [1]),
        ("if (wanted := f()): pass", [1]),
        ("unknown = known(1); x.found; f(kept=2)", []),
    ],
)
def test_names_that_are_no_nouns_are_counted(text, lines):
    assert [
        line for line, _ in script(ROOT / ".ci" / "names.py").bindings(ast.parse(text))
    ] == lines


def test_hooks_are_valid_and_their_programs_are_those_of_the_environment():
    path = ROOT / ".pre-commit-config.yaml"
    subprocess.run([sys.executable, "-m", "pre_commit", "validate-config", path], check=True)
    hooks = [h for repo in yaml.safe_load(path.read_text())["repos"] for h in repo["hooks"]]
    assert hooks
    for hook in hooks:
        program = hook["entry"].split()[0]
        assert program.startswith(".venv/bin/")
        assert shutil.which(Path(program).name, path=str(Path(sys.executable).parent)), program


def test_the_hosted_run_is_the_script_that_anyone_can_run():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    steps = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert steps == ["bash .ci/run"]


FOLDERS = {"nnapi_prof": "nnapi_prof"} | {
    name: f"nnapi_prof.{name}" for name in ("partition", "reports", "device_agent")
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


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.after)
def test_what_a_mutation_replaces_occurs_once(mutation):
    assert (ROOT / mutation.file).read_text().count(mutation.before) == 1
    files = [test.split("::")[0] for test in mutation.tests if test.startswith("tests/")]
    assert files and all((ROOT / file).is_file() for file in files)
