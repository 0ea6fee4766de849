"""A user's error as a case: how it is provoked, and the very words that the user gets."""

from __future__ import annotations

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
        """Undone after the case."""
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
    """``message`` is exact but for {tmp}, {model}, {serial} and {*}, which is any text.

    ``prints`` marks the few that have a result all the same, on standard output; ``document`` is
    what ``--json`` prints there. ``needs`` are markers of tests/conftest.py, for what provokes it.
    """

    name: str
    code: int
    message: str
    provoke: Callable[[Place], Arguments]
    prints: bool
    document: str
    needs: tuple[str, ...]

    def pattern(self) -> re.Pattern[str]:
        """The message as a regular expression."""
        parts = re.split(r"\{[a-z*]+\}", self.message)
        return re.compile(".+".join(map(re.escape, parts)))


CASES: list[Case] = []


def provoked(
    code: int,
    message: str,
    prints: bool = False,
    document: str = "error",
    needs: tuple[str, ...] = (),
) -> Callable[[Callable[[Place], Arguments]], Callable[[Place], Arguments]]:
    """Registers a function that makes an error possible and returns the command that meets it."""

    def register(provoke: Callable[[Place], Arguments]) -> Callable[[Place], Arguments]:
        name = provoke.__name__
        assert name not in {case.name for case in CASES}, name
        CASES.append(Case(name, code, message, provoke, prints, document, needs))
        return provoke

    return register
