"""Pages that are written by hand name all that there is, and nothing else; the check of prose knows
the phrases that it is for."""

import importlib
import re

import pytest

import nnapi_prof
from tests.docs.blocks import DOCS, REPO
from tests.parts import script

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
PLACES = re.findall(r"`(nnapi_prof[\w.]*):(\w+)`", PAGE)


@pytest.mark.parametrize(("module", "name"), PLACES)
def test_what_it_names_is_there(module, name):
    assert hasattr(importlib.import_module(module), name)


def test_files_that_it_names_are_there():
    for line in re.findall(r"^\| \{src\}.*", PAGE, re.MULTILINE):
        folders = re.findall(r"\{src\}`([^`]+)`", line.split("|")[1])
        for file in re.findall(r"`(\w[\w/]*(?:\.py|/))`", line.split("|")[3]):
            assert any((REPO / folder / file).exists() for folder in folders), (folders, file)


def test_every_package_is_a_room():
    packages = {init.parent.name for init in (REPO / "nnapi_prof").glob("*/__init__.py")}
    rooms = {path.rsplit("/")[-1] for path in re.findall(r"\{src\}`([\w/]+)`", PAGE)}
    assert not packages - rooms


@pytest.mark.parametrize(("heading", "most"), [("weight", 5), ("sample", 8)])
def test_the_ways_are_no_longer_than_they_should_be(heading, most):
    table = PAGE.split(f"## The way of a {heading}")[1].split("\n## ")[0]
    numbers = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    assert numbers == [str(n + 1) for n in range(len(numbers))]
    assert 3 <= len(numbers) <= most


# ---- the check of prose --------------------------------------------------------------------------


DIALECT = (
    "A unit of the float model is had in 8 bits where NNAPI has its operation so.",
    "and gives the like module",
    "The rest is said otherwise, always by name:",
    "What is not so is waited for, and said; after C the profile ends",
    "What a phone does not tell stands in nobody's way.",
    "Latency is what is made least.",
    "dropped are those that another one betters in latency, noise and formats at once",
    "That brings executorch 1.5.1, for whose C++ interface the delegate is built",
    "its pointers come from a stranger",
    "Otherwise they are guessed from the first layer, and the guess is said.",
    "what was never tried is said to be so.",
    "Then it counts how busy the busiest processor is, and not what one frame takes.",
    "a problem as that of one phone is",
    "So a change of nothing passes, and what is between is decided by where it lies.",
    "**Order** is 0: a tensor lies as the model wants it.",
    "Timed apart, and never part of a latency.",
    "**Anchors** show what nobody asked for.",
    "the only connected phone, else `sim:npu-phone`; said in one line",
    "of the 122 ATen rows by which C compares converters, 121",
    "some three seconds, none where the cost table has everything",
    "USB is written, its error paths are tested.",
    "the agent, so that it can be told apart",
    "whoever calls the model keeps them",
    "a note, of which there are two",
)


@pytest.fixture(scope="module")
def prose():
    return script(REPO / ".ci" / "prose.py")


@pytest.mark.parametrize("sentence", DIALECT)
def test_phrases_are_found(prose, sentence):
    assert list(prose.phrases(sentence))


def test_code_in_markdown_is_no_prose(prose, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("`is had`\n\n```text\nis had\n```\n\nis had\n")
    assert [(line, text) for line, text in prose.markdown(page) if "had" in text] == [(7, "is had")]


def test_messages_and_help_are_read(prose, tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        '@define(\'x\')\ndef command():\n    """Help is had."""\n'
        '    raise UsageError(f\'{name} is had\')\n\ndef other():\n    """Docstring."""\n'
    )
    assert [text for _, text in prose.module(module)] == ["Help is had.", "X is had", "x"]


def test_exceptions_are_few(prose):
    assert len(prose.EXCEPTIONS) <= 10
