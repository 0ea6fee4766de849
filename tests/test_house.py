"""What keeps the house in order is itself in order: hooks, the hosted run, the lint of names."""

import ast
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent


def names_module():
    spec = importlib.util.spec_from_file_location("names", ROOT / ".ci" / "names.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    assert [line for line, _ in names_module().bindings(ast.parse(text))] == lines


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
