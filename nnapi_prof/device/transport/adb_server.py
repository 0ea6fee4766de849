"""Reach devices that a running adb server owns, through the server's own protocol.

A request to the server is four hex digits of length and the text; it answers OKAY, or FAIL, four
hex digits and a reason. ``host:transport:SERIAL`` connects to the device's adbd, whose services
(``shell,v2``, ``shell``, ``sync``) then answer directly. (AOSP, packages/modules/adb: OVERVIEW.TXT,
SERVICES.TXT, SYNC.TXT.) This module never starts a server.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nnapi_prof.device.transport import (
    COMMAND_TIMEOUT_S,
    MAX_FILE_BYTES,
    SLOWEST_BYTES_PER_S,
    CommandResult,
    LineStream,
    marked_command,
    refusal,
    run_to_end,
    until_exit,
    until_marker,
)
from nnapi_prof.errors import (
    DeviceError,
    DeviceNotFound,
    DeviceOffline,
    DeviceUnauthorized,
    UsageError,
    escape_untrusted,
)

DEFAULT_PORT = 5037
SERVER_TIMEOUT_S = 5.0
"""Timeout of the server's own answers: it usually runs on this host."""

_SYNC = struct.Struct("<4sI")
_SYNC_CHUNK = 64 * 1024  # SYNC.TXT: DATA holds at most 64 KiB
_ON_ITS_WAY = 1 << 20  # bytes that server and system hold, about


@dataclass(frozen=True, slots=True)
class ServerDevice:
    """A line of ``adb devices -l``. ``state`` is ``device`` where it can be used."""

    serial: str
    state: str
    description: str


class AdbServer:
    """A client of the adb server at ``address`` (see :func:`server_address`)."""

    def __init__(self, address: tuple[str, int] | str | None = None) -> None:
        self._address = server_address() if address is None else address

    def devices(self, timeout_s: float = SERVER_TIMEOUT_S) -> list[ServerDevice]:
        """Lists the devices of the server; empty where no server runs."""
        try:
            with self.connect(timeout_s) as link:
                link.request("host:devices-l")
                text = link.read_text()
        except DeviceOffline:
            return []
        return [_parse_device(line) for line in text.splitlines() if line.strip()]

    def version(self, timeout_s: float = SERVER_TIMEOUT_S) -> int:
        """Returns the server's version, 41 of adb 1.0.41.

        Raises DeviceOffline where nothing listens, DeviceError where it is not an adb server.
        """
        with self.connect(timeout_s) as link:
            try:
                link.request("host:version")
                return int(link.read_text(), 16)
            except (DeviceOffline, OSError, ValueError) as error:
                reason = str(error).partition("host:version: ")
                raise DeviceError(f"not an adb server: {reason[2] or reason[0]}") from error

    def find(self, serial: str) -> ServerDevice | None:
        """Returns the server's entry for a device, if it has one."""
        return next((d for d in self.devices() if d.serial == serial), None)

    def open(self, serial: str) -> ServerTransport:
        """Opens a transport to a device of this server.

        Raises DeviceNotFound, DeviceUnauthorized or DeviceOffline by the state that the server has.
        """
        device = self.find(serial)
        if device is None:
            raise DeviceNotFound(f"the adb server has no device {serial}", serial=serial)
        if device.state == "unauthorized":
            raise DeviceUnauthorized(
                f"{serial} does not know this computer yet",
                "confirm 'Allow USB debugging' on the phone's screen, then run again",
                serial=serial,
            )
        if device.state.startswith("no permissions"):
            raise DeviceError(
                f"the adb server may not open {serial}",
                "allow its user to use it (Debian: package android-sdk-platform-tools-common), then"
                " restart the server",
                serial=serial,
            )
        if device.state != "device":
            raise DeviceOffline(
                f"{serial} is {device.state}",
                "wake the phone, replug the cable or run `adb reconnect`, then run again",
                serial=serial,
            )
        return ServerTransport(self, device)

    @contextlib.contextmanager
    def connect(self, timeout_s: float = SERVER_TIMEOUT_S) -> Iterator[_Link]:
        """Opens a connection to the server. Raises DeviceOffline where there is none."""
        try:
            link = _connect(self._address, timeout_s)
        except OSError as error:
            raise DeviceOffline(f"no adb server at {self._address}: {error}") from error
        with link:
            yield _Link(link)


class ServerTransport:
    """A device behind an adb server; each call opens its own connection."""

    def __init__(self, server: AdbServer, device: ServerDevice) -> None:
        self._server = server
        self._device = device

    @property
    def serial(self) -> str:
        return self._device.serial

    @property
    def description(self) -> str:
        return f"adb server, {self._device.description}".removesuffix(", ")

    def push(self, data: bytes | Path, remote: str, mode: int = 0o600) -> None:
        content = data.read_bytes() if isinstance(data, Path) else data
        with self._service("sync:", COMMAND_TIMEOUT_S) as link:
            target = f"{remote},{0o100000 | mode}".encode()
            # adbd reads on after a refusal; where the server hung up first, its words can be read.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                link.send(_SYNC.pack(b"SEND", len(target)) + target)
                for start in range(0, len(content), _SYNC_CHUNK):
                    chunk = content[start : start + _SYNC_CHUNK]
                    link.send(_SYNC.pack(b"DATA", len(chunk)) + chunk)
                link.send(_SYNC.pack(b"DONE", int(time.time())))
            # The server's buffers go to the phone at the speed of its link.
            on_its_way = min(len(content), _ON_ITS_WAY)
            link.set_timeout(COMMAND_TIMEOUT_S + on_its_way / SLOWEST_BYTES_PER_S)
            tag, length = _SYNC.unpack(link.read(_SYNC.size))
            if tag != b"OKAY":
                words = _decode(link.read(min(length, _SYNC_CHUNK)))
                raise refusal(words, "write", remote, self.serial)

    def pull(self, remote: str) -> bytes:
        content = bytearray()
        with self._service("sync:", COMMAND_TIMEOUT_S) as link:
            target = remote.encode()
            link.send(_SYNC.pack(b"RECV", len(target)) + target)
            while True:
                tag, length = _SYNC.unpack(link.read(_SYNC.size))
                if tag == b"DONE":
                    return bytes(content)
                if tag != b"DATA":
                    words = _decode(link.read(min(length, _SYNC_CHUNK)))
                    raise refusal(words, "read", remote, self.serial)
                if length > _SYNC_CHUNK or len(content) + length > MAX_FILE_BYTES:
                    raise ConnectionResetError(f"a piece of {length} bytes after {len(content)}")
                content += link.read(length)

    def shell(self, argv: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        return run_to_end(self.stream(argv, timeout_s))

    def stream(self, argv: Sequence[str], silence_s: float = COMMAND_TIMEOUT_S) -> LineStream:
        if "shell_v2" in self._features:
            return LineStream(self._packets(shlex.join(argv), silence_s), self.serial)
        command, marker = marked_command(argv)
        chunks = self._chunks(f"shell:{command}", silence_s)
        return LineStream(until_marker(chunks, marker), self.serial)

    def close(self) -> None:
        """Does nothing: no connection is kept between calls."""

    @cached_property
    def _features(self) -> frozenset[str]:
        """The features of the device's adbd."""
        with self._server.connect() as link:
            link.request(f"host-serial:{self.serial}:features")
            return frozenset(link.read_text().split(","))

    @contextlib.contextmanager
    def _service(self, service: str, silence_s: float) -> Iterator[_Link]:
        try:
            with self._server.connect() as link:
                link.request(f"host:transport:{self.serial}")
                link.request(service)
                link.set_timeout(silence_s)
                yield link
        except (OSError, ValueError) as error:
            raise DeviceOffline(
                f"{self.serial} does not answer any more ({escape_untrusted(str(error), 200)})",
                "check cable or network, then run again",
                serial=self.serial,
            ) from error

    def _packets(self, command: str, silence_s: float) -> Iterator[bytes | int]:
        with self._service(f"shell,v2,raw:{command}", silence_s) as link:
            yield from until_exit(iter(link.read_some, b""))

    def _chunks(self, service: str, silence_s: float) -> Iterator[bytes]:
        with self._service(service, silence_s) as link:
            while chunk := link.read_some():
                yield chunk


def server_address() -> tuple[str, int] | str:
    """Returns the address of the adb server by adb's own rules: (host, port), or the path of a unix
    socket.

    $ADB_SERVER_SOCKET (tcp:PORT, tcp:HOST:PORT, localfilesystem:PATH), else
    $ANDROID_ADB_SERVER_ADDRESS and $ANDROID_ADB_SERVER_PORT, else 127.0.0.1:5037. Raises UsageError
    for values of another form.
    """
    if spec := os.environ.get("ADB_SERVER_SOCKET"):
        kind, _, rest = spec.partition(":")
        if kind == "localfilesystem" and rest:
            return rest
        host, _, port = rest.rpartition(":")
        if kind == "tcp" and port.isdecimal():
            return host.strip("[]") or "127.0.0.1", int(port)
        raise UsageError(
            f"ADB_SERVER_SOCKET is {spec!r}",
            "write tcp:PORT, tcp:HOST:PORT or localfilesystem:PATH, or unset it",
        )
    port = os.environ.get("ANDROID_ADB_SERVER_PORT", str(DEFAULT_PORT))
    if not port.isdecimal():
        raise UsageError(f"ANDROID_ADB_SERVER_PORT is {port!r}: a number is required")
    return os.environ.get("ANDROID_ADB_SERVER_ADDRESS", "127.0.0.1"), int(port)


class _Link:
    """One connection: the server's framing, and exact reads."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def set_timeout(self, timeout_s: float) -> None:
        self._link.settimeout(timeout_s)

    def request(self, text: str) -> None:
        """Sends a request. Raises DeviceOffline with the server's reason where it refuses."""
        body = text.encode()
        try:
            self.send(b"%04x" % len(body) + body)
            status = self.read(4)
            if status == b"OKAY":
                return
            reason = self.read_text() if status == b"FAIL" else f"unknown answer {status!r}"
        except (OSError, ValueError) as error:
            reason = str(error)
        reason = escape_untrusted(reason, 300)
        raise DeviceOffline(f"the adb server refuses {text.partition(':')[2]}: {reason}")

    def read_text(self) -> str:
        """Reads a text that follows four hex digits of its length."""
        return _decode(self.read(int(self.read(4), 16)))

    def read(self, n: int) -> bytes:
        """Reads exactly ``n`` bytes. Raises ConnectionError at the end of the stream."""
        data = bytearray()
        while len(data) < n:
            chunk = self._link.recv(min(n - len(data), 1 << 20))
            if not chunk:
                raise ConnectionResetError("the adb server closed the connection")
            data += chunk
        return bytes(data)

    def read_some(self) -> bytes:
        """Reads the available bytes, none at the end of the stream."""
        return self._link.recv(1 << 16)

    def send(self, data: bytes) -> None:
        """Sends all bytes; the timeout is for each piece that goes out, not for all of them."""
        view = memoryview(data)
        while view:
            view = view[self._link.send(view) :]


def _connect(address: tuple[str, int] | str, timeout_s: float) -> socket.socket:
    if not isinstance(address, str):
        return socket.create_connection(address, timeout_s)
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(timeout_s)
        link.connect(address)
    except OSError:
        link.close()
        raise
    return link


def _parse_device(line: str) -> ServerDevice:
    """Parses ``SERIAL STATE key:value ...``; a state may have spaces ("no permissions (...)")."""
    serial, _, rest = line.partition("\t") if "\t" in line else line.partition(" ")
    words = rest.split()
    details = [i for i, word in enumerate(words) if ":" in word and not word.startswith("(")]
    cut = details[0] if details else len(words)
    keyed = dict(word.split(":", 1) for word in words[cut:] if ":" in word)
    model = keyed.get("model", "").replace("_", " ")
    state = " ".join(words[:cut]) or "unknown"
    return ServerDevice(
        escape_untrusted(serial, 200), escape_untrusted(state, 100), escape_untrusted(model, 100)
    )


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")
