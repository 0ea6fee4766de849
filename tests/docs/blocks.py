"""What the documentation shows, block by block: commands, Python, files and outputs.

A fenced block counts by its language:

    sh        commands, run as one script of bash
    console   a session: lines that begin with "$ ", and what they print
    python    run in the page's own namespace
    others    shown only

A comment right above a block says what else it is (in HTML's form, so that no reader sees it):

    <!-- file: NAME -->    the block is the file NAME in the page's folder
    <!-- output -->        the block is what the block before printed
    <!-- checkout -->      anywhere in a page: its folder looks like a checkout of the repository
    <!-- folder: NAME -->  anywhere in a page: it goes on in the folder of the pages of that name

A block without a language counts as ``sh`` if each of its commands begins with a program of
:data:`PROGRAMS` (the READMEs beside the sources have such blocks).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
DOCS = REPO / "docs"
INCLUDED = (
    *("device_agent/PROTOCOL.md", "device_agent/emulator/PHONES.md"),
    *("device_agent/emulator/README.md", "device_agent/runtime/README.md"),
    *("device_agent/android/README.md", "device_agent/library/README.md"),
    "device_agent/library/FORMAT.md",
)
"""Shown in the documentation, though not in its folder."""
PROGRAMS = frozenset({"make", "nnapi-prof", "python", "cmake", "ninja", "adb", "sudo", "export"})

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<info>[^`]*)$")
MARK = re.compile(r"<!-- (?P<word>file|output|checkout|folder)(?:: (?P<value>[^ ]+))? -->")
INLINE = re.compile(r"(?<!`)`(?P<code>[^`\n]+(?:\n[^`\n]+)?)`(?!`)")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True)
class Block:
    """A fenced block. ``line`` is its first line's number in the file, from 1."""

    language: str
    text: str
    line: int
    file: str | None = None
    is_output: bool = False


@dataclass(frozen=True)
class Page:
    """A Markdown file. ``name`` is its path from the repository's root."""

    name: str
    blocks: tuple[Block, ...]
    inline: tuple[str, ...]
    checkout: bool
    folder: str

    @property
    def path(self) -> Path:
        return REPO / self.name


def pages() -> tuple[Page, ...]:
    """The README, every page of docs/, and what these include."""
    names = ["README.md", *(p.relative_to(REPO).as_posix() for p in sorted(DOCS.rglob("*.md")))]
    return tuple(read(name) for name in (*names, *INCLUDED))


def read(name: str, text: str | None = None) -> Page:
    """A page from its file, or from ``text``."""
    lines = ((REPO / name).read_text() if text is None else text).splitlines()
    blocks, prose, marks = [], [], {}
    above: dict[str, str | None] = {}
    i = 0
    while i < len(lines):
        fence = FENCE.match(lines[i])
        if fence is None:
            mark = MARK.match(lines[i].strip())
            if mark is not None:
                above[mark["word"]] = marks[mark["word"]] = mark["value"]
            elif lines[i].strip():
                above = {}
            prose.append(lines[i])
            i += 1
            continue
        first, indent = i + 1, len(fence["indent"])
        i = first
        while lines[i].strip() != fence["fence"]:
            i += 1
        text_ = "\n".join(line[indent:] for line in lines[first:i])
        info = fence["info"].strip()
        if not info.startswith("{"):
            block = Block(
                info or _guess(text_), text_, first + 1, above.get("file"), "output" in above
            )
            blocks.append(block)
        above = {}
        i += 1
    code = tuple(" ".join(result["code"].split()) for result in INLINE.finditer("\n".join(prose)))
    return Page(name, tuple(blocks), code, "checkout" in marks, str(marks.get("folder") or name))


def commands(script: str) -> Iterator[str]:
    """The commands of a script, each with its continued lines and here-documents; comments at the
    ends of lines are left out."""
    lines = iter(script.splitlines())
    for line in lines:
        command = line
        while command.endswith("\\"):
            command = f"{command[:-1].rstrip()} {next(lines).strip()}"
        command = re.sub(r"(^|\s+)#( .*)?$", "", command).rstrip()
        if here := re.search(r"<<-? *'?(\w+)'?", command):
            for more in lines:
                command += f"\n{more}"
                if more == here[1]:
                    break
        if command.strip():
            yield command


def session(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown below it."""
    items: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            items.append((line[2:], []))
        elif items and line.startswith("> ") and not items[-1][1] and items[-1][0].endswith("\\"):
            items[-1] = (f"{items[-1][0][:-1].rstrip()} {line[2:].strip()}", [])
        else:
            items[-1][1].append(line)
    return [(command, "\n".join(output)) for command, output in items]


def _guess(text: str) -> str:
    words = [re.split(r"[ (]", command.strip())[0] for command in commands(text)]
    is_command = all(word in PROGRAMS or ASSIGNMENT.match(word) for word in words)
    return "sh" if words and is_command and any(word in PROGRAMS for word in words) else "text"
