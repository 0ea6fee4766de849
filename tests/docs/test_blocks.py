"""The reader of pages itself: what it takes for a command, and what for the same output."""

import pytest

from tests.docs.blocks import commands, read, session
from tests.docs.sessions import DocumentationError, Reader, shown

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


def test_commands_of_a_script():
    script = "a --x \\\n  y  # why\n# comment\ncat > f <<'E'\nif 1 # no comment\nE\nb '#1'\n"
    assert list(commands(script)) == ["a --x y", "cat > f <<'E'\nif 1 # no comment\nE", "b '#1'"]


def test_a_session():
    text = "$ a \\\n> --x\none\ntwo\n$ b\n"
    assert session(text) == [("a --x", "one\ntwo"), ("b", "")]


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("took 3.1 s", "took 12 s\n"),
        ("a\n...\nz", "a\nb\nc\nz\n"),
        ("a\n...", "a\n"),
        ("a", "building the agent with cc\nunits: 89 in 15 s\na   \n"),
    ],
)
def test_the_same_output(expected, printed):
    assert shown(expected, printed) == expected


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
