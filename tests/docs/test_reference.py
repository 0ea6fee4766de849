"""Pages that are written by hand name all that there is, and nothing else."""

import importlib
import re

import pytest

import nnapi_prof
from tests.docs.blocks import DOCS, REPO

SOURCES = ("nnapi_prof", "partition", "reports", "device_agent", "tests", "Makefile", ".ci/run")
INNER = re.compile(r"NNAPI_PROF_(TEST|RIG|RUNTIME|EXAMPLE|COMPLETING|LAB)_?[A-Z_0-9]*")
"""Of C headers' guards, and between programs of ours, one of which starts the other."""


def variables(text):
    return set(re.findall(r"\bNNAPI_(?:PROF|EMULATOR)_[A-Z][A-Z_]*[A-Z]\b", text))


def test_environment_variables():
    used = set()
    for name in SOURCES:
        top = REPO / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.suffix in (".py", ".c", ".h", ".cmake", "") and path.is_file():
                used |= variables(path.read_text(errors="ignore"))
    listed = variables((DOCS / "reference" / "environment.md").read_text())
    kept_inside = {name for name in used - listed if INNER.fullmatch(name)}
    assert used - listed - kept_inside == set()
    assert listed - used == set()


def test_public_names():
    text = (DOCS / "reference" / "api.md").read_text()
    listed = re.findall(r"^\.\. auto(?:function|class):: nnapi_prof\.(\w+)", text, re.MULTILINE)
    assert sorted(listed) == sorted(set(nnapi_prof.__all__) - {"__version__"})


def test_exit_codes():
    text = (DOCS / "reference" / "exit-codes.md").read_text()
    assert re.findall(r"^\| (\d+) \|", text, re.MULTILINE) == ["0", "1", "2", "130"]


def test_the_glossary_is_in_order():
    glossary = (DOCS / "glossary.md").read_text().split("```{glossary}")[1]
    words = re.findall(r"^(\w[\w -]*)\n  \S", glossary, re.MULTILINE)
    assert words == sorted(words, key=str.lower)
    assert len(words) > 40


# ---- architecture.md -----------------------------------------------------------------------------


PAGE = (DOCS / "architecture.md").read_text()
ROOT = DOCS.parent
PLACES = re.findall(r"`(nnapi_prof[\w.]*):(\w+)`", PAGE)


@pytest.mark.parametrize(("module", "name"), PLACES)
def test_what_it_names_is_there(module, name):
    assert hasattr(importlib.import_module(module), name)


def test_files_that_it_names_are_there():
    for line in re.findall(r"^\| \{src\}.*", PAGE, re.MULTILINE):
        folders = re.findall(r"\{src\}`([^`]+)`", line.split("|")[1])
        for file in re.findall(r"`(\w[\w/]*(?:\.py|/))`", line.split("|")[3]):
            assert any((ROOT / folder / file).exists() for folder in folders), (folders, file)


def test_every_package_is_a_room():
    packages = {init.parent.name for init in (ROOT / "nnapi_prof").glob("*/__init__.py")}
    rooms = {path.rsplit("/")[-1] for path in re.findall(r"\{src\}`([\w/]+)`", PAGE)}
    assert not packages - rooms


@pytest.mark.parametrize(("heading", "most"), [("weight", 5), ("sample", 8)])
def test_the_ways_are_no_longer_than_they_should_be(heading, most):
    table = PAGE.split(f"## The way of a {heading}")[1].split("\n## ")[0]
    numbers = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    assert numbers == [str(n + 1) for n in range(len(numbers))]
    assert 3 <= len(numbers) <= most
