"""A phone that speaks ADB and lies: a scripted peer for tests, in threads of the test's process.

It accepts every connection, opens every service, and answers shell commands and file transfers as a
small agent would, until its ``Lie`` says otherwise.
"""

import contextlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_HEADER = struct.Struct("<6I")
_CNXN, _OPEN, _OKAY, _WRTE, _CLSE = (
    int.from_bytes(word, "little") for word in (b"CNXN", b"OPEN", b"OKAY", b"WRTE", b"CLSE")
)
MARKER = re.compile(rb"; echo '(@exit-)''([^']+)'\$\?")


def line(kind: str, **fields: object) -> bytes:
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode() + b"\n"


def packet(command: int, arg0: int, arg1: int, data: bytes = b"") -> bytes:
    head = (command, arg0, arg1, len(data), sum(data) & 0xFFFFFFFF, command ^ 0xFFFFFFFF)
    return _HEADER.pack(*head) + data


@dataclass
class Lie:
    """What the peer does: each is called instead of being honest, where it is not None."""

    output: Callable[[bytes], Iterator[bytes]] | None = None
    """Of a command line: the pieces that its output comes in. Ends the command unless it raises."""
    garble: Callable[[bytes], bytes] = staticmethod(lambda data: data)
    """Of every packet that goes out."""
    bytes_per_s: float | None = None
    """Pace of both directions."""
    hello: bytes | None = None
    exit_code: int | bytes = 0
    commands: list[bytes] = field(default_factory=list)
    files: dict[bytes, int] = field(default_factory=dict)
    """What was pushed, and how many bytes."""


class Silent(Exception):
    """Raised by an output: the peer says nothing more."""


class Left(Exception):
    """The host hung up on a command."""


class Peer:
    """Listens on a port of this host until :meth:`close`."""

    def __init__(self, lie: Lie) -> None:
        self.lie = lie
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.serial = f"127.0.0.1:{self.port}"
        self._links: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for link in self._links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            if self.lie.bytes_per_s is not None:  # little may lie in the system's buffers
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            self._links.append(link)
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with contextlib.suppress(OSError, Silent, struct.error):
            self._talk(link)

    def _talk(self, link: socket.socket) -> None:
        streams: dict[int, bytearray] = {}  # of sync services
        while True:
            command, arg0, _, length, *_ = _HEADER.unpack(self._read(link, _HEADER.size))
            data = self._read(link, length)
            if command == _CNXN:
                self._send(link, self.lie.hello or packet(_CNXN, 0x01000000, 1 << 18, b"device::"))
            elif command == _OPEN:
                self._send(link, packet(_OKAY, arg0 + 100, arg0))
                if data.startswith(b"sync:"):
                    streams[arg0] = bytearray()
                else:
                    with contextlib.suppress(Left):
                        self._shell(link, arg0, data.removeprefix(b"shell:").rstrip(b"\0"))
            elif command == _CLSE and streams.pop(arg0, None) is not None:
                self._send(link, packet(_CLSE, arg0 + 100, arg0))
            elif command == _WRTE:
                self._send(link, packet(_OKAY, arg0 + 100, arg0))
                streams[arg0] += data
                self._sync(link, arg0, streams[arg0])

    def _shell(self, link: socket.socket, stream: int, command: bytes) -> None:
        self.lie.commands.append(command)
        marker = MARKER.search(command)
        pieces = self.lie.output(command) if self.lie.output else iter(())
        for piece in pieces:
            for at in range(0, len(piece), 1 << 16):
                self._write(link, stream, piece[at : at + (1 << 16)])
        if marker:
            code = self.lie.exit_code
            told = code if isinstance(code, bytes) else str(code).encode()
            self._write(link, stream, marker[1] + marker[2] + told + b"\n")
        self._send(link, packet(_CLSE, stream + 100, stream))

    def _write(self, link: socket.socket, stream: int, data: bytes) -> None:
        self._send(link, packet(_WRTE, stream + 100, stream, data))
        while True:  # until it is taken
            command, _, arg1, length, *_ = _HEADER.unpack(self._read(link, _HEADER.size))
            self._read(link, length)
            if command == _CLSE and arg1 == stream + 100:
                raise Left
            if command == _OKAY:
                return

    def _sync(self, link: socket.socket, stream: int, data: bytearray) -> None:
        """Takes a file: SEND path, DATA..., DONE."""
        if bytes(data[:4]) != b"SEND":
            return
        at = 8 + int.from_bytes(data[4:8], "little")
        path, n_bytes = bytes(data[8:at]), 0
        while len(data) >= at + 8:
            kind, length = bytes(data[at : at + 4]), int.from_bytes(data[at + 4 : at + 8], "little")
            if kind == b"DONE":
                self.lie.files[path] = n_bytes
                self._write(link, stream, b"OKAY\0\0\0\0")
                data.clear()
                return
            at, n_bytes = at + 8 + length, n_bytes + length

    def _send(self, link: socket.socket, data: bytes) -> None:
        data = self.lie.garble(data)
        step = max(1, int((self.lie.bytes_per_s or 0) / 10)) if self.lie.bytes_per_s else len(data)
        for at in range(0, len(data), step or 1):
            link.sendall(data[at : at + step])
            if self.lie.bytes_per_s:
                time.sleep(0.1)

    def _read(self, link: socket.socket, n: int) -> bytes:
        data = b""
        while len(data) < n:
            want = n - len(data)
            if self.lie.bytes_per_s:
                want = min(want, max(1, int(self.lie.bytes_per_s / 10)))
                time.sleep(want / self.lie.bytes_per_s)
            piece = link.recv(want)
            if not piece:
                raise OSError("the host hung up")
            data += piece
        return data
