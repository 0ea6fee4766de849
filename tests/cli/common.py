"""Calling the command line, tiny models, and what is in a cost table."""

import contextlib
import dataclasses
import json
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nnapi_prof.api.run import eager_reference
from nnapi_prof.cli import main
from nnapi_prof.execution import RunOptions
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests import warm
from tests.documents.common import check

INPUT = "1x3x16x16"
SIM = ("--device", "sim:npu-phone")


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """What it complained of: the one line at the end of standard error."""
        assert "Traceback" not in self.out + self.err
        *before, last = self.err.splitlines()
        assert last.startswith("nnapi-prof: error: "), self.err
        assert not any("error:" in line for line in before), self.err
        return last.removeprefix("nnapi-prof: error: ")

    def document(self, name: str) -> dict[str, Any]:
        """What ``--json`` printed: one document, all of it as its schema says, and no more."""
        document: dict[str, Any] = json.loads(self.out)
        check(document, name)
        return document


class Cli:
    """``cli("profile", "--device", ...)`` as a shell would run it, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Result:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert isinstance(ended.value.code, int)
        return Result(ended.value.code, *self._capsys.readouterr())

    def ok(self, *arguments: object) -> Result:
        """A command that must succeed."""
        result = self(*arguments)
        assert result.code == 0, result.err
        return result

    def document(self, command: str, *arguments: object) -> dict[str, Any]:
        """Returns the document of a command that must succeed."""
        words = command.split()
        return self.ok(*words, *arguments, "--json").document("-".join(words))

    def error(self, *arguments: object, code: int = 2) -> str:
        """Returns the message of a command that must fail with this code."""
        result = self(*arguments)
        assert result.code == code, result.err
        return result.error


def call(*arguments: object) -> None:
    """A command that must succeed, for fixtures of more than one test."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0


def two_phones(model: Path, folder: Path, runs: int) -> tuple[Path, Path, Path]:
    """Profiles the tiny model on two simulated phones, plans and runs it there.

    Returns the cost table and the bundles; that of the npu-phone has convolutions on the NPU.
    """
    costs, bundles = folder / "costs.sqlite", (folder / "npu.nnprof", folder / "gpu.nnprof")
    npu, gpu = ("--pin", "conv2d*=nnapi:sim-npu/fast"), ("--no-verify",)
    for bundle, more in zip(bundles, (npu, gpu), strict=True):
        device = ("--device", f"sim:{bundle.stem}-phone")
        named = (*device, "--input", INPUT, "--costs", costs)
        call("profile", *named, "--preference", "fast", model)
        call("partition", *named, *more, "--output", bundle, model)
        call("run", *device, "--runs", runs, bundle)
    return costs, *bundles


def python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a Python of its own; returns its output and exit code."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def on_a_terminal(*arguments: object, **env: str) -> str:
    """All that a Python that must succeed writes to a terminal of 80 columns."""
    program = [*warm.python(), *map(str, arguments)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(program[0], program, {**os.environ, "TERM": "xterm", "COLUMNS": "80", **env})
    seen = b""
    with contextlib.suppress(OSError):  # Linux's word for the end of a terminal
        while more := os.read(terminal, 65536):
            seen += more
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, seen.decode()
    return seen.decode()


class TinyNet(nn.Module):
    """Two convolutions and what stands between them. [1, 3, 16, 16] -> [1, 8, 16, 16]"""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor] = torch.sigmoid) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.between(torch.relu(self.first(x))))


def trace(model: nn.Module, path: Path, *inputs: tuple[int, ...] | torch.Tensor) -> Path:
    """Saves a model as TorchScript, traced with these inputs or inputs of these shapes."""
    examples = tuple(
        each if isinstance(each, torch.Tensor) else torch.randn(each)
        for each in inputs or ((1, 3, 16, 16),)
    )
    return save(model, path, examples)


def save(module: nn.Module, path: Path, args: tuple[object, ...], **kwargs: object) -> Path:
    """Saves as an ExportedProgram or as TorchScript, by the ending."""
    with quiet_torch(), torch.no_grad():
        if path.suffix == ".pt2":
            torch.export.save(torch.export.export(module.eval(), args, kwargs), path)
        else:
            torch.jit.save(torch.jit.trace(module.eval(), args, strict=False), str(path))
    return path


def shift_reference(
    patch: pytest.MonkeyPatch, where: str = "nnapi_prof.api.run.eager_reference"
) -> None:
    """Make `run` compare with a reference that is 0.1 % off: more than rounding explains."""

    def shifted(*arguments: Any) -> Any:
        inputs, references = eager_reference(*arguments)
        return inputs, tuple(value * 1.001 for value in references)

    patch.setattr(where, shifted)


def raises(error: BaseException) -> Callable[..., None]:
    """A function that always raises this."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Plans that run whole do so for next to no time, and wait a second for what is not there."""
    timing = RunOptions._timing

    def hasty(*given: Any) -> Any:
        brief = {"warmup_ns": 1_000_000, "warm_ns": 0, "spin_ns": 0, "timeout_ms": 1000}
        return dataclasses.replace(timing(*given), **brief)

    patch.setattr(RunOptions, "_timing", hasty)


@dataclass(frozen=True)
class Profiled:
    """A model that was profiled on sim:npu-phone and partitioned; files may be changed freely."""

    model: Path
    costs: Path
    bundle: Path

    @property
    def named(self) -> tuple[object, ...]:
        """The options of a command that reads the costs."""
        return (*SIM, "--input", INPUT, "--costs", self.costs)


def start_program(*arguments: object) -> subprocess.Popen[str]:
    """nnapi-prof as a terminal's shell starts it."""
    command = [sys.executable, "-m", "nnapi_prof", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def count_rows(costs: Path) -> int:
    """Measurements in a cost table, 0 while there is none; runs of the reference and of a trial of
    threads do not count."""
    if not costs.exists():
        return 0
    query = "select count(*) from measurements where kind not in ('anchor', 'threads')"
    with contextlib.closing(sqlite3.connect(f"file:{costs}?mode=ro", uri=True)) as link:
        try:
            return int(link.execute(query).fetchone()[0])
        except sqlite3.OperationalError:  # its tables are being made
            return 0
