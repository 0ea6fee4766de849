"""Reference pages that are written by hand name all that there is, and nothing else."""

import re

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
