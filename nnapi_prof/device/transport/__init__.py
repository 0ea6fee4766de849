"""The interface between nnapi-prof and a device: push, pull, run a command, read its lines.

Four implementations: adb-shell over TCP and USB (:mod:`~nnapi_prof.device.transport.adb`), a
running adb server (:mod:`~nnapi_prof.device.transport.adb_server`), and a process on this host
(:class:`LocalTransport`). Everything above this interface is the same for all of them.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from nnapi_prof.errors import DeviceError, DeviceOffline, DeviceStorageError, escape_untrusted

COMMAND_TIMEOUT_S = 30.0
"""Timeout of commands that end at once: mkdir, getprop, rm."""
MAX_LINE_BYTES = 32 << 20
"""Longest line of a command (PROTOCOL.md, section 5); 100,000 samples take some 5 MB."""
MAX_OUTPUT_BYTES = 64 << 20
"""Largest output of a command that is run to its end."""
MAX_FILE_BYTES = 1 << 30
"""Largest file that is pulled: an output."""
SLOWEST_BYTES_PER_S = 1000
"""Speed below which a link counts as dead."""


class CommandResult(NamedTuple):
    """The exit code of a command on the device, and its output, both streams together."""

    exit_code: int
    output: str


class Transport(Protocol):
    """A way to one device. Every call either ends within its timeout or raises DeviceOffline."""

    @property
    def serial(self) -> str:
        """The device's ``--device`` value."""
        ...

    @property
    def description(self) -> str:
        """Description of the connection for people."""
        ...

    def push(self, data: bytes | Path, remote: str, mode: int = 0o600) -> None:
        """Writes a file on the device; its folder exists.

        Raises DeviceStorageError where the device's storage is full or read-only, DeviceError for
        other refusals.
        """
        ...

    def pull(self, remote: str) -> bytes:
        """Returns the bytes of a file. Raises DeviceError where it cannot be read."""
        ...

    def shell(self, argv: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        """Runs a command to its end. ``timeout_s`` limits the silences of its output."""
        ...

    def stream(self, argv: Sequence[str], silence_s: float = COMMAND_TIMEOUT_S) -> LineStream:
        """Starts a command and yields its lines as they arrive.

        A command that says nothing for ``silence_s`` raises DeviceOffline.
        """
        ...

    def close(self) -> None:
        """Closes the connection to the device. A second call does nothing."""
        ...


class LineStream(Iterator[str]):
    """The lines of a running command, without their ends; ``exit_code`` is known after the last.

    It is made from an iterator of chunks of bytes that ends with the exit code as an int. Where the
    iterator ends without one, the connection broke: DeviceOffline, after the lines that arrived.
    Closing before the end stops reading and hangs up on the command.
    """

    def __init__(self, chunks: Iterator[bytes | int], serial: str) -> None:
        self._chunks = chunks
        self._serial = serial
        self._lines = self._split()
        self._exit_code: int | None = None

    @property
    def exit_code(self) -> int:
        """The exit code. Raises DeviceError before the last line was read."""
        if self._exit_code is None:
            raise DeviceError("the command has not ended yet", serial=self._serial)
        return self._exit_code

    def __next__(self) -> str:
        return next(self._lines)

    def too_much(self) -> DeviceError:
        """Returns the error for a command whose output does not end."""
        return DeviceError(
            f"{self._serial} says more than {MAX_OUTPUT_BYTES >> 20} MiB where a few words are "
            "wanted",
            "is it a phone of yours?",
            serial=self._serial,
        )

    def close(self) -> None:
        self._lines.close()
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()

    def _split(self) -> Generator[str, None, None]:
        parts: list[bytes] = []  # of the line that has not ended yet
        n_bytes = 0
        for chunk in self._chunks:
            if isinstance(chunk, int):
                self._exit_code = chunk
                break
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                yield _decode_line(b"".join([*parts, line]))
                parts, n_bytes = [], 0
            if rest:
                parts.append(rest)
                n_bytes += len(rest)
            if n_bytes > MAX_LINE_BYTES:
                raise DeviceError(
                    f"{self._serial} sends a line of more than {MAX_LINE_BYTES >> 20} MiB without "
                    "an end, which no agent does",
                    "is it a phone of yours?",
                    serial=self._serial,
                )
        if parts:
            yield _decode_line(b"".join(parts))
        if self._exit_code is None:
            raise DeviceOffline(
                f"{self._serial}: the connection closed before the command ended",
                serial=self._serial,
            )


def run_to_end(stream: LineStream) -> CommandResult:
    """Reads a stream to its end."""
    lines, n_bytes = [], 0
    for line in stream:
        lines.append(line)
        n_bytes += len(line) + 1
        if n_bytes > MAX_OUTPUT_BYTES:
            stream.close()
            raise stream.too_much()
    return CommandResult(stream.exit_code, "".join(f"{line}\n" for line in lines))


def _decode_line(line: bytes) -> str:
    # Terminals of old Android versions end lines with \r\n.
    return line.removesuffix(b"\r").decode("utf-8", "replace")


# The plain shell service (the only one before Android 7) has no exit code, so the command prints
# it itself, after a marker that no output contains.


def marked_command(argv: Sequence[str]) -> tuple[str, bytes]:
    """Makes a shell command line that runs ``argv`` and then prints a marker and its exit code.

    Returns the command line and the marker.
    """
    marker = f"@exit-{uuid.uuid4().hex}:"
    # The marker is split in the command line, so that a terminal that echoes it shows no marker.
    return f"{shlex.join(argv)}; echo '{marker[:6]}''{marker[6:]}'$?", marker.encode()


def until_marker(chunks: Iterator[bytes], marker: bytes) -> Iterator[bytes | int]:
    """Passes chunks on up to the marker, then yields the exit code that follows it."""
    pattern = re.compile(re.escape(marker) + rb"(\d{1,3})\r?\n")
    held = b""
    for chunk in chunks:
        held += chunk
        if end := pattern.search(held):
            if end.start():
                yield held[: end.start()]
            yield int(end[1])
            return
        # Pass on everything that cannot be the beginning of the marker.
        at = held.rfind(marker[:1])
        cut = len(held) if at < 0 or _differs(held[at:], marker) else at
        if cut:
            yield held[:cut]
            held = held[cut:]
    if held:
        yield held


def _differs(tail: bytes, marker: bytes) -> bool:
    """Returns whether ``tail`` cannot be the beginning of the marker and an exit code."""
    n = min(len(tail), len(marker))
    return tail[:n] != marker[:n] or len(tail) > len(marker) + len("255\r\n")


_PACKET = struct.Struct("<BI")  # of shell,v2: identifier, length
_MAX_PACKET = 1 << 20  # the largest buffer of adbd
_STDOUT, _STDERR, _EXIT = 1, 2, 3


def until_exit(chunks: Iterable[bytes]) -> Iterator[bytes | int]:
    """Passes on the output of a command under the service ``shell,v2``, then its exit code. Raises
    ConnectionResetError where the chunks end before it, or are not such packets."""
    held = b""
    for chunk in chunks:
        held += chunk
        while len(held) >= _PACKET.size:
            kind, length = _PACKET.unpack_from(held)
            if length > _MAX_PACKET:
                raise ConnectionResetError(f"a packet of {length} bytes")
            end = _PACKET.size + length
            if len(held) < end:
                break
            body, held = held[_PACKET.size : end], held[end:]
            if kind == _EXIT:
                yield body[0] if body else 255
                return
            if kind in (_STDOUT, _STDERR):
                yield body
    raise ConnectionResetError("a command ended without its exit code")


STORAGE_WORDS = {
    "no space left": "is full",
    "enospc": "is full",
    "quota exceeded": "is full",
    "read-only file system": "is read-only",
    "erofs": "is read-only",
}


def storage_error(words: str, remote: str, serial: str) -> DeviceStorageError | None:
    """Returns the error for a device's words about full or read-only storage, else None."""
    lower = words.lower()
    for needle, state in STORAGE_WORDS.items():
        if needle in lower:
            return DeviceStorageError(
                f"{serial}: the storage that holds {remote} {state} ({_last_line(words)})",
                "free some space there, for instance with `nnapi-prof agent clean --all`, and run"
                " again"
                if state == "is full"
                else "make it writable, or name another folder in NNAPI_PROF_REMOTE_DIR",
                serial=serial,
            )
    return None


def refusal(words: str, what: str, remote: str, serial: str) -> DeviceError:
    """Returns the error for a file operation that the device refused with ``words``."""
    return storage_error(words, remote, serial) or DeviceError(
        f"{serial}: cannot {what} {remote}: {_last_line(words) or 'the device does not say why'}",
        serial=serial,
    )


def _last_line(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return escape_untrusted(lines[-1], 300) if lines else ""


POLL_S = 0.2
"""Seconds between two checks of a silent command."""


class LocalTransport:
    """Commands on this host, in a session of their own. Their environment is this process's,
    changed by ``env``: a name without a value is removed.

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

    def push(self, data: bytes | Path, remote: str, mode: int = 0o600) -> None:
        try:
            if isinstance(data, Path):
                shutil.copyfile(data, remote)
            else:
                Path(remote).write_bytes(data)
            Path(remote).chmod(mode)
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
                f"{self._serial}: cannot run {argv[0]}: {error.strerror}", serial=self._serial
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
        """Yields chunks of output until its end, or until the command is dead and nothing more
        comes: a killed agent may leave a child behind that keeps the pipe open."""
        assert process.stdout is not None
        fd = process.stdout.fileno()
        deadline = time.monotonic() + silence_s
        ended = False
        while True:
            readable, _, _ = select.select([fd], [], [], 0 if ended else POLL_S)
            if readable:
                chunk = os.read(fd, 1 << 16)
                if not chunk:
                    return
                yield chunk
                deadline = time.monotonic() + silence_s
            elif ended:
                return
            elif process.poll() is not None:
                ended = True  # its last words may have come after the pipe was read
            elif time.monotonic() > deadline:
                raise DeviceOffline(
                    f"{self._serial}: {command} said nothing for {silence_s:g} s",
                    serial=self._serial,
                )


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """Ends the command and its children, as closing an adb shell does."""
    with contextlib.suppress(ProcessLookupError):  # all of it ended meanwhile
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(COMMAND_TIMEOUT_S)
