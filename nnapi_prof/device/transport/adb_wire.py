"""adb-shell with its rough edges filed off.

* adb_shell's TCP transport sends once and ignores how much went out, and reads a closed connection
  as "nothing yet" until a timeout: :class:`TcpLink` sends everything and raises at the end.
* While it pushes a file, adb_shell drops what the device says between acknowledgements; that is
  where adbd reports a full disk. :class:`WireDevice` keeps it.
* A command that is left before its end is never closed: :meth:`WireDevice.command` closes it.
* It takes a slow link for a dead one: a packet had to be there in a fixed time, however long it is.
  :class:`_Packets` waits as long as bytes come, and :class:`WireDevice` sends what a slow link
  carries at once.
* It believes what lengths the peer states; what does not fit raises one of a dozen exceptions.
  :class:`_Packets` refuses lengths that were not agreed on, and :data:`GARBLED` are the others.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Generator
from typing import Any

from adb_shell import constants
from adb_shell.adb_device import AdbDevice, _AdbIOManager
from adb_shell.adb_message import AdbMessage
from adb_shell.exceptions import (
    AdbConnectionError,
    AdbTimeoutError,
    InvalidChecksumError,
    InvalidCommandError,
    InvalidResponseError,
    TcpTimeoutException,
    UsbReadFailedError,
    UsbWriteFailedError,
)
from adb_shell.transport.base_transport import BaseTransport

from nnapi_prof.device.transport import SLOWEST_BYTES_PER_S
from nnapi_prof.errors import escape_untrusted

LINK_ERRORS = (
    OSError,
    AdbTimeoutError,
    TcpTimeoutException,
    UsbReadFailedError,
    UsbWriteFailedError,
)
"""What a link that is broken or silent raises."""

GARBLED = (
    AdbConnectionError,
    InvalidChecksumError,
    InvalidCommandError,
    InvalidResponseError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)
"""What adb_shell raises over bytes that are no ADB: its own errors, and those of reading them."""

SMALLEST_SENT = 4096
"""Bytes that are sent at once over a link that takes long for them."""
_PATIENCE_S, _HURRY_S = 2.0, 0.25


class TcpLink(BaseTransport):  # type: ignore[misc]  # adb_shell has no types
    """Bytes to and from an adbd over TCP. All times in seconds."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None

    def connect(self, transport_timeout_s: float | None) -> None:
        self._socket = socket.create_connection(self._address, transport_timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def bulk_read(self, numbytes: int, transport_timeout_s: float | None) -> bytes:
        """At least one byte, at most ``numbytes``.

        Raises TcpTimeoutException, or ConnectionError at the end of the stream.
        """
        link = self._open()
        readable, _, _ = select.select([link], [], [], transport_timeout_s)
        if not readable:
            raise TcpTimeoutException(f"no answer for {transport_timeout_s} s")
        data = link.recv(numbytes)
        if not data:
            raise ConnectionResetError("the device closed the connection")
        return data

    def bulk_write(self, data: bytes, transport_timeout_s: float | None) -> int:
        """Sends all of ``data``; raises TcpTimeoutException where that stalls."""
        link = self._open()
        view = memoryview(data)
        while view:
            _, writable, _ = select.select([], [link], [], transport_timeout_s)
            if not writable:
                raise TcpTimeoutException(f"the device took no data for {transport_timeout_s} s")
            view = view[link.send(view) :]
        return len(data)

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionResetError("the connection is closed")
        return self._socket


class _Packets(_AdbIOManager):  # type: ignore[misc]  # adb_shell has no types
    """adb_shell's packets, of lengths that were agreed on, and read as long as bytes come."""

    banner = b""
    """What the device said of itself when it was connected."""

    def _read_expected_packet_from_device(self, expected_cmds: Any, adb_info: Any) -> Any:
        packet = super()._read_expected_packet_from_device(expected_cmds, adb_info)
        if packet[0] == constants.CNXN:
            self.banner = bytes(packet[3])
        return packet

    def _read_bytes_from_device(self, length: int, adb_info: Any) -> bytes:
        if length > constants.MAX_ADB_DATA:
            raise InvalidResponseError(
                f"a packet of {length} bytes, {constants.MAX_ADB_DATA} at most were agreed on"
            )
        data = bytearray()
        # Each read waits for transport_timeout_s; a byte now and then is not enough.
        deadline = time.monotonic() + adb_info.read_timeout_s + length / SLOWEST_BYTES_PER_S
        while len(data) < length:
            if time.monotonic() > deadline:
                raise AdbTimeoutError(f"{len(data)} of {length} bytes in all that time")
            data += self._transport.bulk_read(length - len(data), adb_info.transport_timeout_s)
        return bytes(data)


def garbled_words(error: BaseException) -> str:
    """Describes the flaw of the peer's bytes, for a message."""
    return escape_untrusted(str(error) or type(error).__name__, 200)


class WireDevice(AdbDevice):  # type: ignore[misc]  # adb_shell has no types
    """adb_shell's device with a push that hears refusals, and commands that can be left."""

    def __init__(self, transport: BaseTransport) -> None:
        super().__init__(transport)
        self._io_manager = _Packets(transport)
        self._at_once = SMALLEST_SENT

    @property
    def features(self) -> frozenset[str]:
        """Features of the device's adbd, beyond the first version."""
        words = self._io_manager.banner.rstrip(b"\0").decode("utf-8", "replace").partition("::")[2]
        properties = dict(each.partition("=")[::2] for each in words.split(";"))
        return frozenset(properties.get("features", "").split(","))

    def command(self, service: str, silence_s: float) -> Generator[bytes, None, None]:
        """Runs a command, such as ``shell:ls``, and yields its output as it comes.

        ``silence_s`` limits the wait for each piece. Closing the generator hangs up on the command.
        """
        info = self._open(service.encode(), silence_s, silence_s, None)
        try:
            while True:
                kind, data = self._read_until([constants.CLSE, constants.WRTE], info)
                if kind == constants.CLSE:
                    return
                yield data
        finally:
            # On a broken link the reader already raised what there is to say.
            with contextlib.suppress(*LINK_ERRORS):
                close = AdbMessage(constants.CLSE, info.local_id, info.remote_id)
                self._io_manager.send(close, info)

    def _filesync_flush(self, adb_info: Any, filesync_info: Any) -> None:
        """Sends what is in the buffer, in packets that grow while the link is quick and shrink
        where it is slow: until one is through, nothing is heard, which must not look like death."""
        sent = memoryview(bytes(filesync_info.send_buffer[: filesync_info.send_idx]))
        filesync_info.send_idx = 0
        while sent:
            packet, sent = sent[: self._at_once], sent[self._at_once :]
            began = time.monotonic()
            self._send_packet(bytes(packet), adb_info, filesync_info)
            took = time.monotonic() - began
            if took < _HURRY_S:
                self._at_once = min(2 * self._at_once, self._maxdata)
            elif took > _PATIENCE_S:
                self._at_once = max(self._at_once // 2, SMALLEST_SENT)

    def _send_packet(self, packet: bytes, adb_info: Any, filesync_info: Any) -> None:
        """Sends one packet and waits until it was taken, keeping what the device says meanwhile."""
        message = AdbMessage(constants.WRTE, adb_info.local_id, adb_info.remote_id, packet)
        usual = adb_info.transport_timeout_s
        adb_info.transport_timeout_s = usual + len(packet) / SLOWEST_BYTES_PER_S
        try:
            self._io_manager.send(message, adb_info)
            deadline = time.monotonic() + adb_info.read_timeout_s
            while True:
                kind, data = self._read_until(
                    [constants.OKAY, constants.WRTE, constants.CLSE], adb_info
                )
                if kind == constants.OKAY:
                    return
                if kind == constants.CLSE or time.monotonic() > deadline:
                    raise ConnectionResetError("the device closed the transfer")
                filesync_info.recv_buffer += data
        finally:
            adb_info.transport_timeout_s = usual
