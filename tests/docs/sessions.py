"""Runs the blocks of a page, in order, in one folder, as a reader would."""

import atexit
import contextlib
import functools
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from tests import warm
from tests.docs.blocks import REPO, Block, Page, commands, session
from tests.docs.left_out import LEFT_OUT, NEVER, SUBSTITUTIONS

TIMEOUT_S = 600
NOT_LINKED = {".git", "build", "out", ".venv"}

PLACES = re.compile(r"(?<=costs in )\S+")
TIMES = re.compile(r"\b\d+(\.\d+)?(?= s\b)|\b\d+:\d\d:\d\d\b|\d\d\d\d-\d\d-\d\d[T ][\d:.+Z]+")
PROGRESS = re.compile(
    r"^((building the agent|building XNNPACK|pushing ).*|[a-z][^:\n]*: \d+.* in \d+ s)\n",
    re.MULTILINE,
)
THE_OWNERS = ("ANDROID_SERIAL", "ANDROID_ADB_SERVER_PORT", "NNAPI_EMULATOR_PHONE")


class DocumentationError(AssertionError):
    """A block does not do what the page says."""


@dataclass
class Reader:
    """Somebody who types what a page shows. ``folder`` is where, ``home`` whose."""

    folder: Path
    home: Path
    namespace: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    """Of the block before."""
    done: set[str] = field(default_factory=set)
    """Commands of earlier pages in this folder: one that stands in several runs once."""

    def follow(self, page: Page) -> list[str]:
        """Does all that a page shows; returns its text with the outputs as they were."""
        if page.checkout or page.name == "README.md":
            self._look_like_a_checkout()
        lines = page.path.read_text().splitlines()
        shift = 0
        typed: set[str] = set()
        for block in page.blocks:
            now = self._do(block, f"{page.name}:{block.line}")
            if block.language == "sh" and block.file is None and not block.is_output:
                typed.update(commands(block.text))
            if now == block.text:
                continue
            n_lines = len(block.text.splitlines())
            start = block.line - 1 + shift
            lines[start : start + n_lines] = now.splitlines()
            shift += len(now.splitlines()) - n_lines
        self.done |= {command for command in typed if command.startswith("nnapi-prof ")}
        return lines

    def run(self, command: str, where: str) -> str:
        """Runs a script of bash; returns what it printed, on both streams."""
        for line in commands(command):
            if line.split()[0] in NEVER:
                raise DocumentationError(f"{where}: `{line}` has no reason in left_out.py")
        for word, value in SUBSTITUTIONS.items():
            command = re.sub(rf"\b{word}\b", value, command)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise DocumentationError(
                f"{where}: exit code {done.returncode} of\n{command}\n{done.stdout}"
            )
        return done.stdout

    def _do(self, block: Block, where: str) -> str:
        """The block's text, with the outputs that it really has."""
        if block.file is not None:
            (self.folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / block.file).write_text(f"{block.text}\n")
        elif block.is_output:
            return shown(block.text, self.printed)
        elif block.language == "sh":
            skipped = LEFT_OUT.keys() | self.done
            script = [c for c in commands(block.text) if c not in skipped]
            self.printed = self.run("\n".join(script), where) if script else ""
        elif block.language == "console":
            return self._session(block, where)
        elif block.language == "python":
            self.printed = self._python(block.text, where)
        return block.text

    def _session(self, block: Block, where: str) -> str:
        text = []
        typed = re.findall(r"^\$ .*(?:\\\n> .*)*", block.text, re.MULTILINE)
        for (command, expected), as_typed in zip(session(block.text), typed, strict=True):
            text.append(as_typed)
            if command in LEFT_OUT:
                text.append(expected)
                continue
            self.printed = self.run(command, where)
            text.append(shown(expected, self.printed))
        return "\n".join(line for line in text if line)

    def _python(self, code: str, where: str) -> str:
        """Runs a block in this process, which has torch in memory already."""
        out = io.StringIO()
        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, self._environment(), clear=True),
            contextlib.redirect_stdout(out),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", DeprecationWarning)  # as Python does by itself
            exec(compile(code, where, "exec"), self.namespace)
        return out.getvalue()

    def _environment(self) -> dict[str, str]:
        """No phone and no adb server is in reach, and no settings of who runs the tests."""
        programs = f"{_warm_programs()}{os.pathsep}{Path(sys.executable).parent}"
        inherited = {name: os.environ[name] for name in os.environ if name not in THE_OWNERS}
        return inherited | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPO),
            "HOME": str(self.home),
            "ADB_SERVER_SOCKET": f"localfilesystem:{self.home}/no-adb-server",
            "XDG_DATA_HOME": str(self.home / "data"),
        }

    def _look_like_a_checkout(self) -> None:
        for entry in REPO.iterdir():
            link = self.folder / entry.name
            if entry.name not in NOT_LINKED and not link.is_symlink():
                link.symlink_to(entry)


@functools.cache
def _warm_programs() -> Path:
    """A folder with the two programs that pages begin with, which need not import PyTorch."""
    folder = Path(tempfile.mkdtemp(prefix="nnapi-prof-programs-"))
    atexit.register(shutil.rmtree, folder)
    installed = Path(sys.executable).with_name("nnapi-prof")
    for name, script in (("python", ""), ("nnapi-prof", f" {installed}")):
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(warm.python())}{script} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def shown(expected: str, printed: str) -> str:
    """``expected`` where ``printed`` is that but for times and left-out lines, else ``printed``.

    A line ``...`` in the expected text stands for any lines.
    """
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()) + r"[ \t]*\n"
        for line in _plain(expected).splitlines()
    )
    text = "".join(f"{line.rstrip()}\n" for line in _plain(printed).splitlines())
    matches = re.fullmatch(pattern, text) is not None
    return expected if matches else "\n".join(line.rstrip() for line in printed.splitlines())


def _plain(text: str) -> str:
    text = text.rstrip("\n")
    text = PLACES.sub("#", text)
    return TIMES.sub("#", PROGRESS.sub("", f"{text}\n")) if text else ""
