"""What CONTRIBUTING.md says one adds is added to a copy of the tree, and its cases are run."""

import os
import re
import shutil
import sys

import pytest

from tests.docs.blocks import DOCS
from tests.processes import output_of

ROOT = DOCS.parent
ADDED = re.findall(
    r"^### (.+?)\n.*?^```diff\n(.*?)^```\n\n^`pytest (.+?)`$",
    (ROOT / "CONTRIBUTING.md").read_text(),
    re.MULTILINE | re.DOTALL,
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The files of the repository, its links as links, with everything added."""
    copy = tmp_path_factory.mktemp("tree") / "copy"
    ignored = shutil.ignore_patterns(".*_cache", "__pycache__", "*.egg-info")
    copy.mkdir()
    for path in ROOT.iterdir():
        if path.name in {".git", ".venv", "build", "dist", "out", ".hypothesis"}:
            continue
        if path.is_dir():
            shutil.copytree(path, copy / path.name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(path, copy / path.name)
    alone = os.environ | {"GIT_CEILING_DIRECTORIES": str(copy.parent)}
    for _, diff, _ in ADDED:
        output_of(["git", "apply", "--unidiff-zero", "-"], input=diff, cwd=copy, env=alone)
    return copy


@pytest.mark.usefixtures("tree")
def test_each_applies_and_is_short():
    assert len(ADDED) == 5
    for what, diff, _ in ADDED:
        assert len(diff.splitlines()) < 30, what


@pytest.mark.again("runs tests in a changed copy of the tree")
@pytest.mark.parametrize("case", [pytest.param(case, id=what) for what, _, case in ADDED])
def test_its_case_passes(tree, case):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *case.split()]
    printed = output_of(command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)})
    assert re.search(r"\b[1-9]\d* passed", printed)
