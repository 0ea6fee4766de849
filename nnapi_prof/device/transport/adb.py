"""Reach devices without an adb server: adb-shell over TCP and USB, with its defects worked around.

* adb_shell's TCP transport sends once and ignores how much went out, and reads a closed connection
  as "nothing yet" until a timeout: :class:`TcpLink` sends everything and raises at the end.
* While it pushes a file, adb_shell drops what the device sends between acknowledgements; that is
  where adbd reports a full disk. :class:`WireDevice` keeps it.
* A command that is left before its end is never closed: :meth:`WireDevice.command` closes it.
* It mistakes a slow link for a dead one: a packet must arrive within a fixed time, however long it
  is. :class:`_Packets` waits as long as bytes come, and :class:`WireDevice` sends at once no more
  than a slow link carries.
* It trusts the lengths that the peer states; wrong ones raise one of a dozen exceptions.
  :class:`_Packets` refuses lengths that were not agreed on, and :data:`GARBLED` are the exceptions.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import socket
import struct
import time
from collections.abc import Generator, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from adb_shell import constants
from adb_shell import exceptions as adb_errors
from adb_shell.adb_device import AdbDevice, UsbTransport, _AdbIOManager
from adb_shell.adb_message import AdbMessage
from adb_shell.auth.keygen import keygen, write_public_keyfile
from adb_shell.auth.sign_cryptography import CryptographySigner
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
    escape_untrusted,
)
from nnapi_prof.progress import Notify

LINK_ERRORS = (
    OSError,
    AdbTimeoutError,
    TcpTimeoutException,
    UsbReadFailedError,
    UsbWriteFailedError,
)
"""Errors of a link that is broken or silent."""

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
"""Errors of adb_shell over bytes that are not ADB: its own, and those of reading the bytes."""

SMALLEST_SENT = 4096
"""Bytes that are sent at once over a slow link."""
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
        """Reads at least one byte, at most ``numbytes``.

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
    """adb_shell's packets, of lengths that were agreed on, and read as long as bytes arrive."""

    banner = b""
    """Banner that the device sent when it was connected."""

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
    """Describes the error in the peer's bytes, for a message."""
    return escape_untrusted(str(error) or type(error).__name__, 200)


class WireDevice(AdbDevice):  # type: ignore[misc]  # adb_shell has no types
    """adb_shell's device with a push that notices refusals, and commands that can be left."""

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
        """Runs a command, such as ``shell:ls``, and yields its output as it arrives.

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
            # On a broken link the reader has already raised the error.
            with contextlib.suppress(*LINK_ERRORS):
                close = AdbMessage(constants.CLSE, info.local_id, info.remote_id)
                self._io_manager.send(close, info)

    def _filesync_flush(self, adb_info: Any, filesync_info: Any) -> None:
        """Sends the buffer, in packets that grow while the link is fast and shrink where it is
        slow: the silence until a packet is through must not look like a dead link."""
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
        """Sends one packet and waits until it was taken, keeping the device's words meanwhile."""
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


DEFAULT_PORT = 5555
LINK_TIMEOUT_S = 10.0
"""Longest silence of the link itself, in either direction."""
CONSENT_TIMEOUT_S = 10.0
"""Seconds in which a phone's owner must confirm this host's key."""
CONSENT = "confirm 'Allow USB debugging' on the phone's screen, then run again"


class AdbTransport:
    """A connected adb-shell device. Made by :func:`connect_tcp` and :func:`connect_usb`."""

    def __init__(self, device: WireDevice, serial: str, description: str) -> None:
        self._device = device
        self._serial = serial
        self._description = description

    @property
    def serial(self) -> str:
        return self._serial

    @property
    def description(self) -> str:
        return self._description

    def push(self, data: bytes | Path, remote: str, mode: int = 0o600) -> None:
        source = BytesIO(data) if isinstance(data, bytes) else str(data)
        with self._link():
            try:
                self._device.push(
                    source,
                    remote,
                    # adbd needs the bits of a file's type to make a regular file.
                    st_mode=0o100000 | mode,
                    transport_timeout_s=LINK_TIMEOUT_S,
                    read_timeout_s=COMMAND_TIMEOUT_S,
                )
            except adb_errors.PushFailedError as error:
                raise refusal(_device_message(error), "write", remote, self._serial) from error

    def pull(self, remote: str) -> bytes:
        sink = _Sink(self._serial)
        with self._link():
            try:
                self._device.pull(
                    remote,
                    sink,
                    transport_timeout_s=LINK_TIMEOUT_S,
                    read_timeout_s=COMMAND_TIMEOUT_S,
                )
            except adb_errors.AdbCommandFailureException as error:
                raise refusal(_device_message(error), "read", remote, self._serial) from error
        return sink.getvalue()

    def shell(self, argv: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        return run_to_end(self.stream(argv, timeout_s))

    def stream(self, argv: Sequence[str], silence_s: float = COMMAND_TIMEOUT_S) -> LineStream:
        if "shell_v2" in self._device.features:
            # Standard error is separate there: a driver's words reach the agent's message.
            return LineStream(self._packets(shlex.join(argv), silence_s), self._serial)
        command, marker = marked_command(argv)
        chunks = self._chunks(f"shell:{command}", silence_s)
        return LineStream(until_marker(chunks, marker), self._serial)

    def close(self) -> None:
        self._device.close()

    def _chunks(self, service: str, silence_s: float) -> Iterator[bytes]:
        with self._link():
            yield from self._device.command(service, silence_s)

    def _packets(self, command: str, silence_s: float) -> Iterator[bytes | int]:
        with (
            self._link(),
            contextlib.closing(
                self._device.command(f"shell,v2,raw:{command}", silence_s)
            ) as chunks,
        ):
            yield from until_exit(chunks)

    @contextlib.contextmanager
    def _link(self) -> Iterator[None]:
        """Turns errors of a broken link, and of bytes that are not ADB, into DeviceOffline."""
        try:
            yield
        except LINK_ERRORS as error:
            raise DeviceOffline(
                f"{self._serial} does not answer any more ({escape_untrusted(str(error), 200)})",
                "check cable or network, then run again",
                serial=self._serial,
            ) from error
        except GARBLED as error:
            self.close()  # later bytes cannot be trusted to answer any request
            raise DeviceOffline(
                f"{self._serial} sent what is not an adb ({garbled_words(error)})",
                "check cable or network, then run again",
                serial=self._serial,
            ) from error


class _Sink(BytesIO):
    """A sink for a pulled file that refuses more bytes than any file of ours has."""

    def __init__(self, serial: str) -> None:
        super().__init__()
        self._serial = serial

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > MAX_FILE_BYTES:
            raise DeviceError(
                f"{self._serial} sends a file of more than {MAX_FILE_BYTES >> 20} MiB, which no "
                "output has: is it a phone of yours?",
                serial=self._serial,
            )
        return super().write(data)


def connect_tcp(
    host: str, port: int = DEFAULT_PORT, key: Path | None = None, notify: Notify | None = None
) -> AdbTransport:
    """Connects to an adbd that listens on TCP (``adb tcpip``, or an embedded board).

    Raises DeviceNotFound where nothing listens, DeviceOffline where the peer does not answer as
    adbd does, DeviceUnauthorized where the phone's owner does not confirm the key in time.
    ``notify`` is called when the phone asks its owner.
    """
    serial = f"{host}:{port}"
    return _connect(WireDevice(TcpLink(host, port)), serial, "adb over TCP", key, notify)


def connect_usb(
    serial: str | None = None, key: Path | None = None, notify: Notify | None = None
) -> AdbTransport:
    """Connects to a phone on USB, by default the only one. Raises as :func:`connect_tcp` does, and
    DeviceError where libusb is missing or may not open the device."""
    usb = _usb_transport()
    try:
        link = usb.find_adb(serial=serial, default_transport_timeout_s=LINK_TIMEOUT_S)
        reported = link.serial_number
    except adb_errors.UsbDeviceNotFoundError as error:
        raise DeviceNotFound(
            f"no phone {serial or ''} on USB",
            "check the cable and that USB debugging is on",
            serial=serial,
        ) from error
    except _usb_errors() as error:
        raise _usb_refusal(error, serial) from error
    try:
        return _connect(WireDevice(link), reported, "adb over USB", key, notify)
    except _usb_errors() as error:
        raise _usb_refusal(error, reported) from error


def has_libusb() -> bool:
    """Returns whether phones on USB can be reached without an adb server."""
    return UsbTransport is not None


def list_usb() -> list[tuple[str, str]]:
    """Lists serial and description of each adb device on USB; empty where libusb is missing.

    A device that this user may not open has the serial ``?``.
    """
    if UsbTransport is None:
        return []
    phones = []
    for link in UsbTransport.find_all_adb_devices():
        try:
            phones.append((link.serial_number, "USB"))
        except _usb_errors() as error:
            phones.append(("?", f"USB, cannot be opened: {error}"))
    return phones


def key_file() -> Path:
    """Returns the path of this host's private adb key, also before it exists, by adb's own rules.

    The first file of $ADB_VENDOR_KEYS, or ~/.android/adbkey. $ANDROID_SDK_HOME and
    $ANDROID_USER_HOME move that folder as they do for adb.
    """
    for vendor in filter(None, os.environ.get("ADB_VENDOR_KEYS", "").split(os.pathsep)):
        if Path(vendor).is_file() and Path(f"{vendor}.pub").is_file():
            return Path(vendor)
    if user_home := os.environ.get("ANDROID_USER_HOME"):
        folder = Path(user_home)
    elif sdk_home := os.environ.get("ANDROID_SDK_HOME"):
        folder = Path(sdk_home) / ".android"
    else:
        folder = Path.home() / ".android"
    return folder / "adbkey"


def key_path() -> Path:
    """Returns :func:`key_file`, made if absent. Raises DeviceError where it cannot be written."""
    path = key_file()
    try:
        if not path.exists() or not Path(f"{path}.pub").exists():
            _make_key(path)
    except OSError as error:
        raise DeviceError(
            f"the adb key {path} cannot be made: {error.strerror}",
            "make the folder writable, or name a key in ADB_VENDOR_KEYS",
        ) from error
    return path


def _make_key(path: Path) -> None:
    """Makes a new key pair, or the public half of an existing private key."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    if path.exists():
        write_public_keyfile(str(path), f"{path}.pub")
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    # Made with its final mode, so that the private key is never readable by others.
    os.close(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    keygen(str(draft))
    Path(f"{draft}.pub").rename(f"{path}.pub")
    draft.rename(path)


def _connect(
    device: WireDevice, serial: str, description: str, key: Path | None, notify: Notify | None
) -> AdbTransport:
    asked = False

    def asking(_: Any) -> None:
        nonlocal asked
        asked = True
        if notify is not None:
            notify(f"{serial} asks its owner: confirm 'Allow USB debugging' on the phone's screen")

    path = key or key_path()
    try:
        signer = CryptographySigner(str(path))
    except (OSError, ValueError) as error:
        raise DeviceError(f"the adb key {path} cannot be read: {error}", serial=serial) from error
    try:
        device.connect(
            rsa_keys=[signer],
            transport_timeout_s=LINK_TIMEOUT_S,
            read_timeout_s=LINK_TIMEOUT_S,
            auth_timeout_s=CONSENT_TIMEOUT_S,
            auth_callback=asking,
        )
    except adb_errors.DeviceAuthError as error:
        raise _unauthorized(serial) from error
    except LINK_ERRORS as error:
        device.close()
        if asked:
            raise _unauthorized(serial) from error
        if isinstance(error, ConnectionRefusedError):
            raise DeviceNotFound(
                f"no device at {serial}",
                "nothing listens there; run `adb tcpip 5555` while the phone is on USB, or"
                " `adb connect` to its wireless debugging",
                serial=serial,
            ) from error
        raise DeviceOffline(
            f"{serial} does not answer as a device does ({error})",
            "check that it is awake and in the same network",
            serial=serial,
        ) from error
    except GARBLED as error:
        device.close()
        raise DeviceOffline(
            f"{serial} speaks no plain adb ({garbled_words(error)})",
            "for a phone with wireless debugging use `adb pair` and `adb connect`; the running adb"
            " server is then used",
            serial=serial,
        ) from error
    return AdbTransport(device, serial, description)


def _unauthorized(serial: str) -> DeviceUnauthorized:
    return DeviceUnauthorized(f"{serial} does not know this computer yet", CONSENT, serial=serial)


def _device_message(error: Exception) -> str:
    """Returns the device's message in one of adb_shell's exceptions."""
    words = error.args[0] if error.args else ""
    text = bytes(words).decode("utf-8", "replace") if isinstance(words, bytearray) else str(words)
    return escape_untrusted(text.strip(), 300)


def _usb_transport() -> Any:
    if UsbTransport is None:
        raise DeviceError(
            "phones on USB cannot be reached",
            "libusb-1.0 is missing; install it (Debian: libusb-1.0-0), or start an adb server with"
            " `adb start-server`",
        )
    return UsbTransport


def _usb_errors() -> tuple[type[Exception], ...]:
    import usb1

    return (usb1.USBError,)


def _usb_refusal(error: Exception, serial: str | None) -> DeviceError:
    return DeviceError(
        f"the phone {serial or ''} on USB cannot be opened ({error})",
        "allow this user to use it (Debian: package android-sdk-platform-tools-common, then log in"
        " again), or start an adb server with `adb start-server`; a running one is used",
        serial=serial,
    )
