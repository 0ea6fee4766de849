"""Check the project's prose against a list of phrases that are not plain English.

    python .ci/prose.py            print each phrase with its place and what to write
    python .ci/prose.py --count    count them by file

It checks the README, every page of the documentation, the READMEs of the C side, the text cells of
notebooks, ``--help`` and every message: string literals of the packages, and the docstrings of
commands. Code in Markdown (fenced blocks and `code`) is not prose.
"""

from __future__ import annotations

import ast
import collections
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("*.md", "docs/**/*.md", ".github/**/*.md", "device_agent/**/*.md")
NOTEBOOKS = ("notebooks/*.ipynb",)
PACKAGES = ("nnapi_prof/**/*.py", "partition/**/*.py", "reports/**/*.py")

_NUMBER = "(?:[0-9]|half|two|three|four|five|six|ten|twelve|twenty|thirty|forty|a dozen)"
_PLACE = "(?:in|at|on|there|once|beside|below|above|first|alone|where|behind)"
PHRASES: tuple[tuple[str, str], ...] = (
    # A passive without an actor, where an ordinary verb has a subject.
    (r"\b(?:is|are|was|were|be|been) had\b", "can run, is available, exists"),
    (
        r"\b(?:is|are|be|guess is) said\b|\b(?:said|told) (?:to be|to|so|otherwise|of|apart|in)\b",
        "",
    ),
    (r"[,;] (?:and )?said\b|\bwhat is not so\b", "the program says"),
    (r"\b(?:is|are|be|was) told\b|\btells of\b", "names, describes, reports"),
    (r"\b[Tt]imed apart\b|\bkept apart\b|\bcounts? how\b", "separately"),
    (r"\b(?:is|are) made (?:the )?least\b|\bmakes? .{0,30} least\b", "minimises"),
    (r"\bof (?:the )?(?:least|most) (?:latency|mean|error|regret|cost|weight)\b", "the lowest"),
    (r"\b(?:is|are) there already\b|\bwhat is there\b(?! in)", "exists, already has"),
    (r"\bUSB is written\b|\bdecided by where it\b|\b(?:problem|problems) as that\b", ""),
    # A clause in the place of a noun.
    (r"\bwhat (?:is|was|are|were) (?:made|said|known|asked|kept|put|wanted|between|to be)\b", ""),
    (
        r"(?:^|[.;:] )What (?!matters)(?:[a-z]+ ){1,9}"
        r"(?:is|are|has|have|stands?|goes)\b(?![^.]*\?)",
        "",
    ),
    (r"\bshow what\b|\bfor whose\b|\bby which\b", "a noun"),
    (r"\bwho(?:m)?ever\b|\bwhosoever\b|\bhe who\b|\bthat which\b", "a noun"),
    (r"\bof wh(?:ich|om)\b", "two sentences"),
    (r"\ball that (?:is|it|one|they|has|can)\b", "everything"),
    # Words of another century, or another language's order.
    (r"\bthe like\b|\bof like\b", "equivalent, similar"),
    (r"\bso that (?:it|they|there|nothing|none|no)\b", "so, therefore; two sentences"),
    (r"\bbut for\b", "except"),
    (r", for (?:it|they|there|he|she|that|this|which|each|none|no)\b", "because"),
    (r"\bin the place of\b|\bin (?:its|their|our) place\b", "instead of"),
    (r"\b(?:where|there|here)(?:in|of|upon)\b", ""),
    (r"\bat hand\b", "available"),
    (r"\bmend(?:s|ed|ing)?\b", "fix"),
    (r"\bdear(?:er|est)?\b", "expensive"),
    (r"\bbetter(?:s|ed)\b", "dominates"),
    (r"\bstrangers?\b", "untrusted"),
    (r"\bnobody(?:'s)?\b|\bsomebody(?:'s)?\b", "no one; name who"),
    (rf"\bsome {_NUMBER}\b", "about"),
    (r"\bas ever\b|\bnow and then\b", "as before, sometimes"),
    (r"\bLeave to\b|\bhas leave\b", "may, permission"),
    (r"\bin the manner of\b", "like"),
    (r"\b(?:comes?|brings?) along\b|\bThat brings\b", "includes, installs"),
    (r"\bthe house\b|\bof the house\b", "the project"),
    (r"\bknows? (?:no|neither|nothing)\b", "does not know, does not use"),
    (r"(?<![Tt]here )\bis no (?!longer|more\b|other|such|[a-z]+er\b)(?=[a-z]+[ .,;:])", "is not a"),
    (r"\bgo(?:es)? (?:before|its way|their way)\b", "takes precedence, proceeds"),
    (rf"\bstands? {_PLACE}\b", "is in, is at"),
    (r"\bl(?:ies|ie|ay) (?:in|at|there|where|behind|so far|beside|as)\b", "is in, is at"),
    (r"\b(?:found|built|chosen|marked) by (?:it|them)sel(?:f|ves)\b", "automatically"),
    (r"\bwithout a word\b", "without a message"),
    (r"\bha(?:ve|s) to do with\b", "concern"),
    (r"\b(?:is|are) none\b", "is not one, there are none"),
    (r"\bof (?:ours|theirs)\b", "our, their"),
)
"""(pattern, what to write). An empty suggestion asks for another sentence."""

EXCEPTIONS: tuple[tuple[str, str, str], ...] = ()
"""(file, exact phrase, reason): at most ten."""

FENCE = re.compile(r"^ *(```+|~~~+)[^\n]*\n.*?^ *\1 *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*(?:\n[^`\n]+)?`")
_COMPILED = [(re.compile(pattern), plain) for pattern, plain in PHRASES]


def phrases(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (offset, phrase, what to write) of each phrase in a text."""
    for pattern, plain in _COMPILED:
        for match in pattern.finditer(text.replace("\n", " ")):
            yield match.start(), match[0], plain


def markdown(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each paragraph of a page."""
    numbered = enumerate(_prose(path.read_text()).splitlines(), 1)
    for is_blank, group in itertools.groupby(numbered, lambda item: not item[1].strip()):
        if not is_blank:
            lines = list(group)
            yield lines[0][0], "\n".join(line for _, line in lines)


def _prose(text: str) -> str:
    """Return Markdown without its code, with the same number of lines."""
    return CODE.sub("C", FENCE.sub(lambda match: "\n" * match[0].count("\n"), text))


def notebook(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number of the cell, text) of each text cell."""
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] == "markdown":
            yield number, _prose("".join(cell["source"]))


def module(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each literal of a module that may reach a user."""
    tree = ast.parse(path.read_text())
    skipped: set[ast.expr] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)
        if isinstance(node, ast.FunctionDef) and any(map(_is_command, node.decorator_list)):
            yield node.lineno, _prose(ast.get_docstring(node) or "")
        if isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
            values = [v.value if isinstance(v, ast.Constant) else "X" for v in node.values]
            yield node.lineno, "".join(map(str, values))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield node.lineno, node.value


def _is_command(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(called, "id", getattr(called, "attr", "")) in {"define", "command", "group"}


def places() -> Iterator[tuple[str, int, str, str]]:
    """Yield (file, line, phrase, what to write) of each phrase that has no exception."""
    excepted = {(file, phrase) for file, phrase, _ in EXCEPTIONS}
    for globs, reader in ((PAGES, markdown), (NOTEBOOKS, notebook), (PACKAGES, module)):
        for path in sorted({path for pattern in globs for path in ROOT.glob(pattern)}):
            name = path.relative_to(ROOT).as_posix()
            for line, text in reader(path):
                for offset, phrase, plain in phrases(text):
                    if (name, phrase) not in excepted:
                        yield name, line + text[:offset].count("\n"), phrase, plain


def main() -> int:
    violations = list(places())
    if "--count" in sys.argv[1:]:
        counts = collections.Counter(name for name, *_ in violations)
        print("\n".join(f"{count:5} {name}" for name, count in counts.most_common()))
    else:
        for name, line, phrase, plain in violations:
            print(f"{name}:{line}: “{phrase}”" + (f": write {plain}" if plain else ""))
    if len(EXCEPTIONS) > 10:
        print(f"{len(EXCEPTIONS)} exceptions, at most ten", file=sys.stderr)
    return 1 if violations or len(EXCEPTIONS) > 10 else 0


if __name__ == "__main__":
    sys.exit(main())
