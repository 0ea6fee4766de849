"""A user's error as a case: how it is provoked, and what the user is told.

One case of each family of errors has its very words; the others have the facts that their words
must hold: which file, option, number or name it is about."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.common import INPUT, SIM

SHAPE = ("--input", INPUT)
Arguments = Sequence[object]


class Place:
    """Where a case happens: a folder of its own, and what the fixtures of the tests give."""

    sim, shape = " ".join(SIM), " ".join(SHAPE)

    def __init__(self, tmp: Path, request: pytest.FixtureRequest) -> None:
        self.tmp = tmp
        self.fixture: Callable[[str], Any] = request.getfixturevalue

    @property
    def env(self) -> pytest.MonkeyPatch:
        """Undone after the case. What many cases share is made before it changes: a profile under
        one case's environment would fail for all."""
        self.fixture("_profiled")
        patch: pytest.MonkeyPatch = self.fixture("monkeypatch")
        return patch

    @property
    def model(self) -> Path:
        """Two convolutions, for [1, 3, 16, 16]."""
        path: Path = self.fixture("tiny")
        return path

    @property
    def costs(self) -> Path:
        """What that model costs; the file is the case's own, as the bundle is."""
        path: Path = self.fixture("profiled").costs
        return path

    @property
    def bundle(self) -> Path:
        path: Path = self.fixture("profiled").bundle
        return path

    def file(self, name: str, content: str | bytes = "") -> Path:
        path = self.tmp / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


@dataclass(frozen=True)
class Case:
    """``message`` is exact but for {tmp}, {model}, {serial} and {*}, any text; without one, the
    ``facts`` stand in what is told, in this order.

    ``prints`` marks the few that have a result all the same, on standard output; ``document`` is
    what ``--json`` prints there. ``needs`` are markers of tests/conftest.py, for what provokes it.
    """

    name: str
    provoke: Callable[[Place], Arguments]
    code: int
    message: str = ""
    facts: tuple[str, ...] = ()
    prints: bool = False
    document: str = "error"
    needs: tuple[str, ...] = ()

    def matches(self, words: str) -> bool:
        """Whether a message with placeholders is this case's."""
        template = self.message or "{*}".join(("", *self.facts, ""))
        parts = [re.escape(part) for part in re.split(r"\{(?:\*|serial)\}", template)]
        return re.fullmatch((".+" if self.message else ".*").join(parts), words) is not None


CASES: list[Case] = []


def provoked(
    code: int, told: str | tuple[str, ...], **more: Any
) -> Callable[[Callable[[Place], Arguments]], None]:
    """Registers a function that makes an error possible and returns the command that meets it;
    what is told is a message, or facts."""

    def register(provoke: Callable[[Place], Arguments]) -> None:
        kind = "message" if isinstance(told, str) else "facts"
        case = Case(provoke.__name__, provoke, code, **{kind: told}, **more)
        assert case.name not in {each.name for each in CASES}, case.name
        CASES.append(case)

    return register


def met_by(line: str, code: int, told: str | tuple[str, ...], **more: Any) -> None:
    """Registers a command line that meets an error wherever it is typed; ``at`` is the place."""

    def provoke(at: Place) -> Arguments:
        return line.format(at=at).split()

    provoke.__name__ = line
    provoked(code, told, **more)(provoke)
