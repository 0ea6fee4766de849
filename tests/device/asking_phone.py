"""A phone that asks its owner before it lets anybody in.

Debian's adbd asks nobody for consent, so phones that do are played by a peer that speaks adb's wire
protocol (AOSP, packages/modules/adb/protocol.txt) and checks signatures for real.
"""

import base64
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa, utils

TOKEN, SIGNATURE, PUBLIC_KEY = 1, 2, 3


@pytest.fixture
def asking_phone() -> Iterator[Callable[..., "AskingPhone"]]:
    """Starts phones that want a known key."""
    with contextlib.ExitStack() as phones:
        yield lambda **how: phones.enter_context(contextlib.closing(AskingPhone(**how)))


class AskingPhone:
    """A phone that wants a known key. ``accepts`` holds the public keys its owner confirmed; the
    key of each stranger lands in ``offered``. ``silent`` plays one that hangs."""

    def __init__(self, accepts: tuple[bytes, ...] = (), silent: bool = False) -> None:
        self.accepts, self.silent = accepts, silent
        self.offered: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._links: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    @property
    def serial(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                self._links.append(link)
                thread = threading.Thread(target=self._talk, args=(link,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _talk(self, link: socket.socket) -> None:
        token = os.urandom(20)
        with link, contextlib.suppress(OSError, struct.error):
            while True:
                command, kind, _, length = struct.unpack("<4sIII8x", self._exact(link, 24))
                body = self._exact(link, length)
                if self.silent:
                    continue
                if command == b"CNXN" or (kind == SIGNATURE and not self._known(body, token)):
                    self._send(link, b"AUTH", TOKEN, 0, token)
                elif kind == SIGNATURE:
                    self._send(link, b"CNXN", 0x01000000, 4096, b"device::ro.product.model=X;\0")
                elif kind == PUBLIC_KEY:
                    self.offered.append(body)

    @staticmethod
    def _exact(link: socket.socket, n: int) -> bytes:
        data = b""
        while len(data) < n:
            chunk = link.recv(n - len(data))
            if not chunk:
                raise ConnectionResetError
            data += chunk
        return data

    @staticmethod
    def _send(link: socket.socket, command: bytes, first: int, second: int, body: bytes) -> None:
        (number,) = struct.unpack("<I", command)
        tail = (len(body), sum(body) & 0xFFFFFFFF, number ^ 0xFFFFFFFF)
        link.sendall(struct.pack("<6I", number, first, second, *tail) + body)

    def _known(self, signature: bytes, token: bytes) -> bool:
        for key in self.accepts:
            # Android's form: words of modulus, inverse, modulus, its square's residue, exponent.
            raw = base64.b64decode(key.split()[0])
            modulus = int.from_bytes(raw[8 : 8 + 256], "little")
            (exponent,) = struct.unpack_from("<I", raw, 8 + 512)
            public = rsa.RSAPublicNumbers(exponent, modulus).public_key()
            with contextlib.suppress(InvalidSignature):
                public.verify(signature, token, padding.PKCS1v15(), utils.Prehashed(hashes.SHA1()))
                return True
        return False
