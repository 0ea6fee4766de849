"""Phones that lie: each ends in one sentence."""

import contextlib
import json
import math
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from nnapi_prof.device import agent
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.install import InstalledAgent
from nnapi_prof.device.protocol import ActionResult
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.device.transport import adb
from nnapi_prof.errors import DeviceError, DeviceOffline

# ---- a phone that speaks ADB and lies -----------------------------------------------------------
# A scripted peer, in threads of the test's process. It accepts every connection, opens every
# service, and answers shell commands and file transfers as a small agent would, until its ``Lie``
# says otherwise.

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
    bytes_per_s: float = math.inf
    """Pace of both directions."""
    hello: bytes | None = None
    exit_code: bytes = b"0"
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
            if self.lie.bytes_per_s < math.inf:  # little may lie in the system's buffers
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
        marker = MARKER.search(command)
        pieces = self.lie.output(command) if self.lie.output else iter(())
        for piece in pieces:
            for at in range(0, len(piece), 1 << 16):
                self._write(link, stream, piece[at : at + (1 << 16)])
        if marker:
            self._write(link, stream, marker[1] + marker[2] + self.lie.exit_code + b"\n")
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
        step = self._paced(len(data))
        for at in range(0, len(data), step):
            link.sendall(data[at : at + step])
            time.sleep(step / self.lie.bytes_per_s)

    def _paced(self, n: int) -> int:
        """Returns how many of these bytes go in a tenth of a second."""
        return max(1, int(min(n, self.lie.bytes_per_s / 10)))

    def _read(self, link: socket.socket, n: int) -> bytes:
        data = b""
        while len(data) < n:
            want = self._paced(n - len(data))
            time.sleep(want / self.lie.bytes_per_s)
            piece = link.recv(want)
            if not piece:
                raise OSError("the host hung up")
            data += piece
        return data


# ---- what a host makes of it --------------------------------------------------------------------

HELLO = line("hello", protocol=2, agent="1", actions=2, simulated=False, phone=None)
START = line("start", action=0)
RESULT: dict[str, Any] = {
    "action": 0,
    "status": "ok",
    "clock": "monotonic",
    "segments": [{"samples_ns": [5, 6]}],
    "total_ns": [5, 6],
}
GOOD = HELLO + START + line("result", **RESULT)
Start = Callable[[Lie], Peer]


@pytest.fixture
def phone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts lying phones."""
    monkeypatch.setattr(adb, "LINK_TIMEOUT_S", 0.6)
    monkeypatch.setattr(adb, "COMMAND_TIMEOUT_S", 0.6)
    monkeypatch.setattr(agent, "SILENCE_MARGIN_S", 0.6)
    started = []

    def start(lie: Lie) -> Peer:
        started.append(Peer(lie))
        return started[-1]

    yield start
    for peer in started:
        peer.close()


def run(peer: Peer) -> tuple[list[ActionResult], str]:
    """What of a run arrived, and the sentence that it ended in."""
    way = adb.connect_tcp("127.0.0.1", peer.port)
    installed = InstalledAgent("/a/agent", "/a/store", "/a/work", None)
    client = AgentClient(way, installed)
    items: list[ActionResult] = []
    began = time.monotonic()
    try:
        with pytest.raises(DeviceError) as caught:
            for event in client.run(RequestBuilder().request()):
                if isinstance(event, ActionResult):
                    items.append(event)
    finally:
        way.close()
    assert time.monotonic() - began < 30
    text = str(caught.value)
    assert text.isprintable() and len(text) < 1500 and peer.serial in text
    return items, text


def answering(*pieces: bytes | type[Exception], **lies: Any) -> Lie:
    """A phone whose agent says just this; other commands say nothing."""

    def output(command: bytes) -> Iterator[bytes]:
        if b"agent run" in command:
            for piece in pieces:
                if isinstance(piece, type):
                    raise piece
                yield piece

    return Lie(output, **lies)


def result(**changes: Any) -> bytes:
    return line("result", **{**RESULT, **changes})


LIES = {
    "negative": (result(total_ns=[-5]), "total_ns[0] is -5"),
    "endless": (result(total_ns=[10**30]), "total_ns[0] is 1000"),
    "NaN": (result(first_ns=float("nan")), "first_ns is nan"),
    "infinite": (result(total_ns=[float("inf")]), "total_ns[0] is inf"),
    "bool": (result(total_ns=[True]), "total_ns[0] is True"),
    "nested": (b'{"type":' + b"[" * 200_000 + b"\n", "nested too deeply"),
    "an object": (result(segments=[7]), "an object wanted, 7 found"),
    "cut": (line("result", **RESULT)[:40] + b"\n", "is not JSON"),
    "escapes": (line("error", message="\x1b[31mboo\r\n\x07"), "\\x1b[31mboo\\r\\n\\x07"),
    "noise": (b"\x1b]0;evil\x07" * 10 + b"\n", "\\x1b]0;evil\\x07"),
    "no UTF-8": (b'{"type":"\xff\xfe' + b"\n", "is not JSON"),
    "a status": (result(status="\x1b[2J"), "status is '\\\\x1b[2J'"),
    "a type": (b'{"type":7}\n', ""),
}


@pytest.mark.parametrize("kind", LIES)
def test_lines_that_lie(phone: Start, kind: str) -> None:
    lie, words = LIES[kind]
    result, document = run(phone(answering(GOOD, line("start", action=1), lie)))
    assert len(result) == 1, "what came before holds"
    assert words in document
    assert "action 1" in document


def test_silence(phone: Start) -> None:
    result, document = run(phone(answering(GOOD, Silent)))
    assert len(result) == 1
    assert "does not answer any more" in document and "after action 0" in document


def test_endless_noise(phone: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "MAX_OUTPUT_BYTES", 1 << 20)
    _, result = run(phone(answering(GOOD, *[b"noise\n" * 10_000] * 100)))
    assert "more than 1 MiB of lines are not the agent's" in result


@pytest.mark.parametrize("code", [b"1" * 5000, b"", b"x", b"-1"])
def test_exit_codes_that_are_none(phone: Start, code: bytes) -> None:
    run(phone(answering(GOOD, exit_code=code)))


@pytest.mark.parametrize("seed", range(20))
def test_one_garbled_byte(phone: Start, seed: int) -> None:
    """Of what the phone sends, header or body, from the agent's answers on."""
    random_ = random.Random(seed)

    def garble(data: bytes) -> bytes:
        if GOOD[:20] not in data:
            return data
        place = random_.randrange(len(data)) if seed else 24
        return data[:place] + bytes([data[place] ^ 1 << random_.randrange(8)]) + data[place + 1 :]

    run(phone(answering(GOOD, garble=garble)))


@pytest.mark.parametrize("length", [1 << 20 | 1, 0xFFFFFFFF])
def test_packets_longer_than_agreed(phone: Start, length: int) -> None:
    def garble(data: bytes) -> bytes:
        return data[:12] + length.to_bytes(4, "little") + data[16:] if GOOD[:20] in data else data

    _, result = run(phone(answering(GOOD, garble=garble)))
    assert f"a packet of {length} bytes" in result


@pytest.mark.parametrize(
    "hello", [b"\0" * 24, b"HTTP/1.1 200 OK\r\n\r\n12345", packet(0x47474747, 0, 0)]
)
def test_a_greeting_that_is_none(phone: Start, hello: bytes) -> None:
    peer = phone(Lie(hello=hello))
    with pytest.raises(DeviceOffline, match=r"speaks no plain adb|does not answer"):
        adb.connect_tcp("127.0.0.1", peer.port)


def test_a_slow_link_is_no_dead_one(phone: Start) -> None:
    """At some 4 kB/s a packet takes longer than the link's timeout, and yet arrives."""
    lie = answering(GOOD + result(action=1, message="x" * 6000), bytes_per_s=4000)
    peer = phone(lie)
    measurements, _ = run(peer)
    assert len(measurements) == 2
    way = adb.connect_tcp("127.0.0.1", peer.port)
    way.push(bytes(12_000), "/a/blob")
    assert lie.files[b"/a/blob,33152"] == 12_000
    way.close()


def test_the_command_line(phone: Start, refused: Callable[..., str]) -> None:
    """A phone that answers every command with escapes."""
    peer = phone(Lie(lambda command: iter([b"\x1b[31mowned\x07\r\n"])))
    assert peer.serial in refused("agent", "info", "--device", peer.serial)
