"""Measure the phones of many hosts (labs) side by side through Dask into one cost table.

Here are the phones of a shelf: what they say of themselves, and which of them a selector means.
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
"""Of a phone, what a selector may ask for."""


@dataclass(frozen=True, slots=True)
class LabPhone:
    """A phone that a host offers. Phones of one build share a fingerprint, and so their rows."""

    serial: str
    """What ``--device`` takes on its host."""
    host: str
    fingerprint: str
    name: str
    soc: str
    """``ro.soc.model``, before Android 12 ``ro.board.platform``; empty where it does not tell."""
    android: str
    """Its release; empty on a machine that is none."""
    abi: str
    simulated: bool

    @property
    def label(self) -> str:
        """For people: several phones may have one name."""
        return f"{self.name} ({self.serial})"

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def phone_of(serial: str, info: AgentInfo) -> LabPhone:
    """The phone that answered so, on this host."""
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
    """Lists the ``--device`` value of each device of this host that a selector means.

    A folder, or a pattern of paths, means the descriptions of simulated phones there
    (``FOLDER/*.json``); another pattern the devices that ``nnapi-prof devices`` lists by a serial
    that fits (``sim:*``); anything else is one device. Raises DeviceNotFound where nothing fits.
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
    """The phones that selectors mean (see :func:`serials_of`; none: all that are connected to this
    host), and those that do not answer, each with the reason."""
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
    """Phones as :func:`listed` wrote them."""
    return [LabPhone(**each) for each in json.loads(text)]


def listed(phones: Iterable[LabPhone]) -> str:
    """Phones as JSON, for a worker's environment."""
    return json.dumps([phone.to_json() for phone in phones])


def select(phones: Sequence[LabPhone], selectors: Sequence[str]) -> list[LabPhone]:
    """Those that fit one of the selectors; all without one.

    A selector is terms joined by commas, all of which hold: a pattern of the name, the fingerprint
    or the serial (``pixel*``), or ``soc=PATTERN``, ``android=``, ``abi=``, ``host=`` and so on.
    Raises UsageError where one asks for what no phone has, DeviceNotFound where none fits it.
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


# One user of a phone at a time: on this host by a lock of the kernel's, against others by a folder
# on the phone.
#
# The kernel's lock ends with its process. The folder is made by one host (``mkdir`` makes it once)
# and says which; a host that finds its own name there, and has the kernel's lock, had died. Another
# host's stands for :data:`LEASE_MIN` minutes by the phone's own clock, longer than a model takes.

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
