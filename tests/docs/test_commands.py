"""Every command that the README and the documentation show is run, as it stands.
NNAPI_PROF_UPDATE_DOCS=1 writes the outputs that the pages show anew instead of comparing them."""

import functools
import os
import re
import shlex

import click
import pytest
import torch

from nnapi_prof.cli import cli
from nnapi_prof.cli.command import HELP
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.docs.blocks import DOCS, commands, pages, read, session
from tests.docs.left_out import LEFT_OUT, NO_COMMANDS, SUBSTITUTIONS
from tests.docs.sessions import DocumentationError, Reader, shown

PAGES = pages()
FOLDERS = {
    name: sorted((p for p in PAGES if p.folder == name), key=lambda page: page.name != name)
    for name in dict.fromkeys(page.folder for page in PAGES)
}
PLACEHOLDER = re.compile(r"(?<![A-Za-z0-9_./-])[A-Z][A-Z_]{2,}(?![A-Za-z0-9_])|\.\.\.|…|\|")


def typed(page):
    """The commands of a page's blocks."""
    for block in page.blocks:
        if block.language == "sh" and block.file is None:
            yield from commands(block.text)
        elif block.language == "console":
            yield from (command for command, _ in session(block.text))


def parses(words):
    """Whether click takes a command line as complete. Raises UsageError for a bad option,
    AssertionError for an unknown command."""
    command, context = cli, click.Context(cli, info_name="nnapi-prof", **HELP)
    while isinstance(command, click.Group):
        if not words:
            return False
        result = command.get_command(context, words[0])
        assert result is not None, f"there is no command {words[0]}"
        command, words = result, words[1:]
        context = click.Context(command, info_name=command.name, parent=context, **HELP)
    try:
        command.make_context(command.name, list(words), parent=context.parent)
    except click.exceptions.Exit:  # --help, --version
        return True
    except click.MissingParameter:
        return False
    return True


def in_sentences(page):
    """Command lines of nnapi-prof in a page's sentences."""
    result = (code for code in page.inline if code.startswith("nnapi-prof "))
    return [code for code in result if code not in NO_COMMANDS]


def complete(page):
    """Those that could be typed as they stand."""
    for code in in_sentences(page):
        if not PLACEHOLDER.search(_filled(code)):
            words = shlex.split(code)[1:]
            if words[0].startswith("-") or parses(words):
                yield code


def _filled(command):
    return re.sub(r"\b(" + "|".join(SUBSTITUTIONS) + r")\b", "x", command)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The reader's own ``model.pt``."""
    path = tmp_path_factory.mktemp("model") / "model.pt"
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2), torch.nn.ReLU(), torch.nn.Flatten())
    with quiet_torch():
        torch.jit.save(torch.jit.trace(layers.eval(), torch.rand(1, 3, 32, 32)), path)
    return path


@pytest.fixture
def reader(tmp_path_factory, built_host, model):
    reader = Reader(tmp_path_factory.mktemp("reader"), tmp_path_factory.mktemp("home"))
    (reader.folder / "model.pt").symlink_to(model)
    return reader


def follow(reader, group):
    """Does what pages show, and the commands in their sentences; their text as it should be."""
    texts = {}
    for page in group:
        texts[page] = "\n".join(reader.follow(page)) + "\n"
        shown = set(typed(page))
        for code in dict.fromkeys(complete(page)):
            if code not in LEFT_OUT and code not in shown:
                reader.run(code, page.name)
    return texts


@pytest.mark.parametrize("name", sorted(FOLDERS, key=lambda name: -len(FOLDERS[name])))
def test_commands_do_what_the_page_says(name, reader):
    for page, text in follow(reader, FOLDERS[name]).items():
        if os.environ.get("NNAPI_PROF_UPDATE_DOCS") == "1":
            page.path.write_text(text)
        else:
            assert text == page.path.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_name_what_there_is_and_blocks_their_language(page):
    for code in in_sentences(page):
        if not re.search(r"[|…\[]", code):
            words = shlex.split(code)[1:]
            if not words[0].startswith("-"):
                parses(words)  # complete or not: what click does not know raises

    if not page.name.startswith("device_agent/"):  # the agent and CMake have others
        named = {code.split()[0] for code in page.inline if code.startswith("--")}
        assert named - options() == set()
    if page.path.is_relative_to(DOCS):
        text = page.path.read_text()
        openings = re.findall(r"^ *```+(.*)$", text, re.MULTILINE)[::2]
        assert all(openings), f"{page.name} has a block without a language"


def test_what_is_left_out_still_occurs_and_is_understood():
    shown = {command for page in PAGES for command in typed(page)}
    shown |= {code for page in PAGES for code in page.inline}
    assert [entry for entry in (*LEFT_OUT, *NO_COMMANDS) if entry not in shown] == []

    left = [shlex.split(entry)[1:] for entry in LEFT_OUT if entry.startswith("nnapi-prof ")]
    assert all(parses(words) for words in left)


@functools.cache
def options(command=cli):
    """Every option of a command and of what is in it."""
    context = click.Context(command, **HELP)
    result = {o for p in command.get_params(context) for o in (*p.opts, *p.secondary_opts)}
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            result |= options(command.get_command(context, name))
    return result


# ---- the reader of pages itself ------------------------------------------------------------------


PAGE = """A page with `nnapi-prof devices` and `--json`.
<!-- checkout -->
```sh
make test     # minutes
nnapi-prof run \\
  plan.nnprof
```
<!-- file: net.py -->

```python
print(1)
```

<!-- output -->
```text
1
```
```
library=$(python -m nnapi_prof.device.build | tail -n 1)
```
```
offset size
```
"""


def test_blocks_and_marks():
    page = read("README.md", PAGE)
    languages = [block.language for block in page.blocks]
    assert languages == ["sh", "python", "text", "text", "text"]
    assert [block.file for block in page.blocks] == [None, "net.py", None, None, None]
    assert [block.is_output for block in page.blocks] == [False, False, True, False, False]
    assert page.checkout
    assert page.inline == ("nnapi-prof devices", "--json")


@pytest.mark.parametrize(
    ("expected", "printed"), [("3.1 ms", "3.2 ms\n"), ("a\n...\nz", "a\nb\n"), ("", "a\n")]
)
def test_another_output(expected, printed):
    assert shown(expected, printed) == printed.rstrip("\n")


def test_a_command_that_fails_fails_the_page(tmp_path):
    reader = Reader(tmp_path, tmp_path)
    with pytest.raises(DocumentationError, match="exit code 2"):
        reader.run("nnapi-prof no-such-command", "page:1")
    with pytest.raises(DocumentationError, match="exit code 1"):
        reader.run("false | cat", "page:1")
