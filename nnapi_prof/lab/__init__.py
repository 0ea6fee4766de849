"""Measure the phones of many hosts (labs) side by side through Dask into one cost table.

This module has the phones of a host, selectors of phones, and locks on phones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import fnmatch
import glob
import hashlib
import json
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnapi_prof.device import device_fingerprint
from nnapi_prof.device.find import SIMULATED, connected, list_devices, open_device
from nnapi_prof.device.protocol import AgentInfo
from nnapi_prof.device.transport import LocalTransport, Transport
from nnapi_prof.errors import DeviceError, DeviceNotFound, UsageError, escape_untrusted
from nnapi_prof.progress import Notify
from nnapi_prof.toolchain import cache_dir

FIELDS = ("fingerprint", "name", "soc", "android", "abi", "host", "serial")
"""Fields of a phone that a selector may name."""


@dataclass(frozen=True, slots=True)
class LabPhone:
    """A phone that a host offers. Phones of one build share a fingerprint, and so their rows."""

    serial: str
    """Its name for ``--device`` on its host."""
    host: str
    fingerprint: str
    name: str
    soc: str
    """``ro.soc.model``, before Android 12 ``ro.board.platform``; empty where both are missing."""
    android: str
    """Its Android release; empty on a machine that is not a phone."""
    abi: str
    simulated: bool

    @property
    def label(self) -> str:
        """Its name and serial, for people, as several phones may have the same name."""
        return f"{self.name} ({self.serial})"

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def phone_of(serial: str, info: AgentInfo) -> LabPhone:
    """Returns the phone of this host with this agent's answer."""
    properties = info.properties
    parts = (properties.get("ro.product.manufacturer"), properties.get("ro.product.model"))
    return LabPhone(
        serial=serial,
        host=socket.gethostname(),
        fingerprint=device_fingerprint(info),
        name=" ".join(filter(None, parts)) or info.phone or f"{info.os} machine",
        soc=properties.get("ro.soc.model") or properties.get("ro.board.platform") or "",
        android=properties.get("ro.build.version.release", ""),
        abi=info.abi,
        simulated=info.simulated,
    )


def serials_of(selector: str) -> list[str]:
    """Lists the ``--device`` value of each device of this host that a selector matches.

    A folder, or a pattern of paths, matches descriptions of simulated phones (``FOLDER/*.json``);
    any other pattern matches serials that ``nnapi-prof devices`` lists (``sim:*``); anything else
    is one device. Raises DeviceNotFound where nothing matches.
    """
    path = selector.removeprefix(SIMULATED)
    pattern = f"{glob.escape(path)}/*.json" if Path(path).is_dir() else path
    if not glob.has_magic(pattern):
        return [selector]
    paths = sorted(glob.glob(pattern))  # noqa: PTH207  # may be absolute, as no pattern of Path is
    files = [file for file in paths if file.endswith(".json")]
    if files:
        return [f"{SIMULATED}{Path(file).absolute()}" for file in files]
    listed = [each.serial for each in list_devices() if each.state == "device"]
    serials = [serial for serial in listed if _like(serial, selector)]
    if not serials:
        raise DeviceNotFound(
            f"no description of a phone and no device of this host fits {selector!r}: the devices"
            f" are {', '.join(listed)}",
            serial=selector,
        )
    return serials


def shelf(
    selectors: Sequence[str] = (), progress: Notify | None = None
) -> tuple[list[LabPhone], list[tuple[str, str]]]:
    """Returns the phones that selectors match (see :func:`serials_of`; without any, all that are
    connected to this host), and those that do not answer, each with the reason."""
    phones: list[LabPhone] = []
    silent: list[tuple[str, str]] = []
    serials = [serial for selector in selectors for serial in serials_of(selector)]
    if not selectors:
        serials = [each.serial for each in connected() if each.state == "device"]
    for serial in dict.fromkeys(serials):
        try:
            with open_device(serial, progress) as opened:
                phones.append(phone_of(serial, opened.client.info()))
        except DeviceError as error:
            silent.append((serial, str(error)))
    return phones, silent


def named(text: str) -> list[LabPhone]:
    """Returns the phones in a text of :func:`listed`."""
    return [LabPhone(**each) for each in json.loads(text)]


def listed(phones: Iterable[LabPhone]) -> str:
    """Returns phones as JSON, for a worker's environment."""
    return json.dumps([phone.to_json() for phone in phones])


def select(phones: Sequence[LabPhone], selectors: Sequence[str]) -> list[LabPhone]:
    """Returns the phones that match at least one selector; all without selectors.

    A selector is a list of terms, separated by commas, that must all match: a pattern of the name,
    the fingerprint or the serial (``pixel*``), or ``soc=PATTERN``, ``android=``, ``abi=``,
    ``host=`` and so on. Raises UsageError for an unknown field, DeviceNotFound for a selector that
    matches no phone.
    """
    chosen: dict[tuple[str, str], LabPhone] = {}
    for selector in selectors or ["*"]:
        matches = [
            phone for phone in phones if all(_matches_term(phone, t) for t in selector.split(","))
        ]
        if not matches:
            there = ", ".join(sorted({p.label for p in phones})) or "none"
            raise DeviceNotFound(f"no phone of the lab fits {selector!r}: there are {there}")
        chosen |= {(phone.host, phone.serial): phone for phone in matches}
    return list(chosen.values())


def _matches_term(phone: LabPhone, term: str) -> bool:
    name, equals, pattern = term.strip().partition("=")
    values: Mapping[str, str] = {field: getattr(phone, field) for field in FIELDS}
    if not equals:
        paths = f"{SIMULATED}{Path(name).absolute()}"  # as shelf() names a description in a file
        return _like(phone.serial, paths) or any(
            _like(values[field], name) for field in ("name", "fingerprint", "serial")
        )
    if name not in values:
        raise UsageError(
            f"--phones {term!r}: phones have no {name!r}; ask for {', '.join(FIELDS)}, as in"
            " 'android=14,soc=SM*'"
        )
    return _like(values[name], pattern)


def _like(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text.lower(), pattern.lower())


# Locks for one user of a phone at a time: a file lock against other processes of this host, and a
# folder on the phone against other hosts.
#
# The file lock ends with its process. Only one host can create the folder (``mkdir`` fails if it
# exists), and writes its name there; a host that finds its own name, and holds the file lock, left
# it in a crash. Another host's folder is valid for :data:`LEASE_MIN` minutes by the phone's own
# clock, longer than a model takes.

LEASE_MIN = 120
# $0: the folder of the lock, $1: the host that wants it, $2: minutes. Prints the holder.
_TAKE = (
    'find "$0" -maxdepth 0 -mmin +"$2" -exec rm -rf {} + 2>/dev/null; '
    '[ "$(cat "$0/host" 2>/dev/null)" = "$1" ] && rm -rf "$0"; '
    'mkdir -p "${0%/*}"; if mkdir "$0" 2>/dev/null; then echo "$1" >"$0/host"; fi; '
    'cat "$0/host"'
)


class PhoneBusy(DeviceError):
    """The phone is in use by another process or host; ``holder`` names it."""

    def __init__(self, serial: str, holder: str) -> None:
        super().__init__(f"{serial} is in use by {holder}", serial=serial)
        self.holder = holder


@contextmanager
def held_here(serial: str) -> Iterator[None]:
    """Locks a phone against other processes of this host during a block. Raises PhoneBusy."""
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
    """Locks a phone against other hosts during a block; :func:`held_here` locks it against other
    processes of this host. Devices on this host itself need no lock. Raises PhoneBusy."""
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
        # A disconnected phone keeps the lock until this host comes back or the lease ends.
        with contextlib.suppress(DeviceError):
            transport.shell(["rm", "-rf", lock])


def _machine_id() -> str:
    """Returns an id that distinguishes hosts of the same name; empty where there is none."""
    path = Path("/etc/machine-id")
    return path.read_text(encoding="ascii").strip()[:12] if path.is_file() else ""
