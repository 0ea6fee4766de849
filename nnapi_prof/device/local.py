"""A transport to this very host: files are copied, commands are child processes."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nnapi_prof.device.transport import (
    COMMAND_TIMEOUT_S,
    CommandResult,
    LineStream,
    refusal,
    run_to_end,
)
from nnapi_prof.errors import DeviceError, DeviceOffline

POLL_S = 0.2
"""How often a silent command is looked after."""


class LocalTransport:
    """Commands run in a session of their own, in this process's environment changed by ``env``: a
    name without a value is taken out.

    ``folder`` is a new temporary folder for store and work files; :meth:`close` removes it.
    """

    def __init__(self, serial: str, description: str, env: Mapping[str, str | None]) -> None:
        self._serial = serial
        self._description = description
        changed = {**os.environ, **env}
        self._env = {name: value for name, value in changed.items() if value is not None}
        self.folder = Path(tempfile.mkdtemp(prefix="nnapi-prof-"))

    @property
    def serial(self) -> str:
        return self._serial

    @property
    def description(self) -> str:
        return self._description

    def push(self, data: bytes | Path, remote: str, mode: int = 0o644) -> None:
        try:
            if isinstance(data, Path):
                shutil.copyfile(data, remote)
            else:
                Path(remote).write_bytes(data)
            os.chmod(remote, mode)
        except OSError as error:
            raise refusal(str(error), "write", remote, self._serial) from error

    def pull(self, remote: str) -> bytes:
        try:
            return Path(remote).read_bytes()
        except OSError as error:
            raise refusal(str(error), "read", remote, self._serial) from error

    def shell(self, argv: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        return run_to_end(self.stream(argv, timeout_s))

    def stream(self, argv: Sequence[str], silence_s: float = COMMAND_TIMEOUT_S) -> LineStream:
        return LineStream(self._run(list(argv), silence_s), self._serial)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, argv: list[str], silence_s: float) -> Iterator[bytes | int]:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(
                f"{self._serial}: cannot run {argv[0]}: {error.strerror}", self._serial
            ) from error
        assert process.stdout is not None
        whole = False
        try:
            yield from self._read(process, argv[0], silence_s)
            code = process.wait(silence_s)
            whole = code >= 0
            # As a shell reports it: 128 + the signal.
            yield 128 - code if code < 0 else code
        finally:
            process.stdout.close()
            if not whole:
                _kill_session(process)

    def _read(
        self, process: subprocess.Popen[bytes], command: str, silence_s: float
    ) -> Iterator[bytes]:
        """Chunks of output until its end, or until the command is dead and nothing more comes: a
        killed agent may leave a child behind that keeps the pipe open."""
        assert process.stdout is not None
        fd = process.stdout.fileno()
        deadline = time.monotonic() + silence_s
        while True:
            readable, _, _ = select.select([fd], [], [], POLL_S)
            if readable:
                chunk = os.read(fd, 1 << 16)
                if not chunk:
                    return
                yield chunk
                deadline = time.monotonic() + silence_s
            elif process.poll() is not None:
                return
            elif time.monotonic() > deadline:
                raise DeviceOffline(
                    f"{self._serial}: {command} said nothing for {silence_s:g} s", self._serial
                )


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """Ends the command and what it started, as closing an adb shell does."""
    with contextlib.suppress(ProcessLookupError):  # all of it ended meanwhile
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(COMMAND_TIMEOUT_S)
