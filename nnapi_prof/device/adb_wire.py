"""adb-shell with three of its rough edges filed off.

* adb_shell's TCP transport sends once and ignores how much went out, and reads a closed connection
  as "nothing yet" until a timeout: :class:`TcpLink` sends everything and raises at the end.
* While it pushes a file, adb_shell drops what the device says between acknowledgements; that is
  where adbd reports a full disk. :class:`WireDevice` keeps it.
* A command that is left before its end is never closed: :meth:`WireDevice.command` closes it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

from adb_shell import constants
from adb_shell.adb_device import AdbDevice
from adb_shell.adb_message import AdbMessage
from adb_shell.exceptions import (
    AdbTimeoutError,
    TcpTimeoutException,
    UsbReadFailedError,
    UsbWriteFailedError,
)
from adb_shell.transport.base_transport import BaseTransport

LINK_ERRORS = (
    OSError,
    AdbTimeoutError,
    TcpTimeoutException,
    UsbReadFailedError,
    UsbWriteFailedError,
)
"""What a link that is broken or silent raises."""


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


class WireDevice(AdbDevice):  # type: ignore[misc]  # adb_shell has no types
    """adb_shell's device with a push that hears refusals, and commands that can be left."""

    def command(self, command: str, silence_s: float) -> Iterator[bytes]:
        """Runs a shell command and yields its output as it comes.

        ``silence_s`` limits the wait for each piece. Closing the generator hangs up on the command.
        """
        info = self._open(b"shell:" + command.encode(), silence_s, silence_s, None)
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
        sent = filesync_info.send_buffer[: filesync_info.send_idx]
        message = AdbMessage(constants.WRTE, adb_info.local_id, adb_info.remote_id, bytes(sent))
        self._io_manager.send(message, adb_info)
        filesync_info.send_idx = 0
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
