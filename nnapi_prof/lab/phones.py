"""The phones of a shelf: what they say of themselves, and which of them a selector means."""

from __future__ import annotations

import dataclasses
import fnmatch
import glob
import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnapi_prof.device.find import SIMULATED, connected, list_devices, open_device
from nnapi_prof.device.protocol.description import device_fingerprint
from nnapi_prof.device.protocol.results import AgentInfo
from nnapi_prof.errors import DeviceError, DeviceNotFound, UsageError
from nnapi_prof.progress import Notify

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
