"""One user of a phone at a time: on this host by a lock of the kernel's, against others by a folder
on the phone.

The kernel's lock ends with its process. The folder is made by one host (``mkdir`` makes it once)
and says which; a host that finds its own name there, and has the kernel's lock, had died. Another
host's stands for :data:`LEASE_MIN` minutes by the phone's own clock, longer than a model takes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnapi_prof.device.transport import LocalTransport, Transport
from nnapi_prof.errors import DeviceError, escape_untrusted
from nnapi_prof.toolchain import cache_dir

LEASE_MIN = 120
# $0 the folder of the lock, $1 who wants it, $2 minutes. Says who has it.
_TAKE = (
    'find "$0" -maxdepth 0 -mmin +"$2" -exec rm -rf {} + 2>/dev/null; '
    '[ "$(cat "$0/host" 2>/dev/null)" = "$1" ] && rm -rf "$0"; '
    'mkdir -p "${0%/*}"; if mkdir "$0" 2>/dev/null; then echo "$1" >"$0/host"; fi; '
    'cat "$0/host"'
)


class PhoneBusy(DeviceError):
    """Somebody else measures on the phone; ``holder`` says who."""

    def __init__(self, serial: str, holder: str) -> None:
        super().__init__(f"{serial} is in use by {holder}", serial=serial)
        self.holder = holder


@contextmanager
def held_here(serial: str) -> Iterator[None]:
    """Keeps other processes of this host from the phone while a block runs. Raises PhoneBusy."""
    folder = cache_dir() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(serial.encode()).hexdigest()[:32]
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PhoneBusy(serial, f"another process of {socket.gethostname()}") from None
        yield


@contextmanager
def held_there(transport: Transport, folder: str, host: str | None = None) -> Iterator[None]:
    """Keeps other hosts from the phone while a block runs; its own processes are kept from it by
    :func:`held_here`. What runs on this host alone needs nothing. Raises PhoneBusy."""
    if host is None and isinstance(transport, LocalTransport):
        yield
        return
    own = host or f"{socket.gethostname()} {_machine_id()}".strip()
    lock = f"{folder}/lab-lock"
    result = transport.shell(["sh", "-c", _TAKE, lock, own, str(LEASE_MIN)])
    holder = escape_untrusted(result.output.strip().partition("\n")[0], 100)
    if holder != own:
        raise PhoneBusy(transport.serial, holder.partition(" ")[0] or "another host")
    try:
        yield
    finally:
        # A phone that is gone keeps it, until this host comes back or the lease ends.
        with contextlib.suppress(DeviceError):
            transport.shell(["rm", "-rf", lock])


def _machine_id() -> str:
    """Tells hosts of one name apart."""
    path = Path("/etc/machine-id")
    return path.read_text(encoding="ascii").strip()[:12] if path.is_file() else ""
