"""A user's error as a case: how it is provoked, and what the user is told.

One case of each family of errors has its very words; the others have the facts that their words
must hold: which file, option, number or name it is about."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.common import INPUT, Profiled

SIM = ("--device", "sim:npu-phone")
SHAPE = ("--input", INPUT)
Arguments = Sequence[object]


class Place:
    """Where a case happens: a folder of its own, and what the fixtures of the tests give."""

    def __init__(self, tmp: Path, request: pytest.FixtureRequest) -> None:
        self.tmp = tmp
        self.request = request

    def fixture(self, name: str) -> Any:
        return self.request.getfixturevalue(name)

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
    def profiled(self) -> Profiled:
        """That model, profiled and partitioned; the files are the case's own."""
        result: Profiled = self.fixture("profiled")
        return result

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
    code: int
    message: str
    provoke: Callable[[Place], Arguments]
    facts: tuple[str, ...]
    prints: bool
    document: str
    needs: tuple[str, ...]

    def matches(self, words: str) -> bool:
        """Whether a message with placeholders is this case's."""
        template = self.message or "{*}".join(("", *self.facts, ""))
        parts = [re.escape(part) for part in re.split(r"\{(?:\*|serial)\}", template)]
        return re.fullmatch((".+" if self.message else ".*").join(parts), words) is not None


CASES: list[Case] = []


def provoked(
    code: int,
    message: str = "",
    *,
    facts: tuple[str, ...] = (),
    prints: bool = False,
    document: str = "error",
    needs: tuple[str, ...] = (),
) -> Callable[[Callable[[Place], Arguments]], Callable[[Place], Arguments]]:
    """Registers a function that makes an error possible and returns the command that meets it."""

    def register(provoke: Callable[[Place], Arguments]) -> Callable[[Place], Arguments]:
        name = provoke.__name__
        assert name not in {case.name for case in CASES}, name
        assert bool(message) != bool(facts), name
        CASES.append(Case(name, code, message, provoke, facts, prints, document, needs))
        return provoke

    return register
