"""The check of prose knows the phrases that it is for, and finds none of them in the repository."""

import importlib.util

import pytest

from tests.docs.blocks import REPO

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
    spec = importlib.util.spec_from_file_location("prose", REPO / ".ci" / "prose.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("sentence", DIALECT)
def test_phrases_are_found(prose, sentence):
    assert list(prose.phrases(sentence))


@pytest.mark.parametrize(
    "sentence",
    (
        "There is no phone. It is no longer needed.",
        "What matters then is the load of the busiest processor.",
        "If the driver crashes, the segment runs on the CPU, and the report says so.",
        "Which phones are there?",
    ),
)
def test_plain_sentences_pass(prose, sentence):
    assert list(prose.phrases(sentence)) == []


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
