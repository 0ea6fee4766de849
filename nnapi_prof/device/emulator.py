"""Devices on this host: ``local``, and simulated phones ``sim:NAME``.

Both run the agent as a child process. ``local`` measures this machine: through its own
libneuralnetworks.so where it has one, else through our emulator in real time. A simulated phone is
the emulator with a description (device_agent/emulator/PHONES.md) whose latencies it gives.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.build import build_host
from nnapi_prof.device.install import InstalledAgent
from nnapi_prof.device.local import LocalTransport
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.errors import DeviceError, DeviceNotFound, did_you_mean
from nnapi_prof.toolchain import Progress

LOCAL = "local"
SIMULATED = "sim:"
DEFAULT_PHONE = "npu-phone"
PHONES_DIR = SOURCE_DIR / "emulator" / "phones"
LIBRARY = "libneuralnetworks.so"


def list_phones() -> list[str]:
    """Names of the simulated phones that come along, for ``sim:NAME``."""
    return sorted(path.stem for path in PHONES_DIR.glob("*.json"))


def phone_description(name: str) -> str:
    """The sentence with which a phone that comes along describes itself."""
    described = json.loads((PHONES_DIR / f"{name}.json").read_text(encoding="utf-8"))
    return str(described["description"])


def phone_file(name: str) -> Path:
    """The description of a simulated phone: a name that comes along, or a path to a JSON file.

    Raises DeviceNotFound, listing the names.
    """
    own = Path(name)
    if own.suffix == ".json" and own.is_file():
        return own.absolute()
    path = PHONES_DIR / f"{name}.json"
    if name not in list_phones():
        raise DeviceNotFound(
            f"no simulated phone {name!r}{did_you_mean(name, list_phones())}: "
            f"there are {', '.join(list_phones()) or 'none'}; "
            "sim:PATH.json takes a description of your own",
            f"{SIMULATED}{name}",
        )
    return path


def open_simulated(name: str, progress: Progress | None = None) -> AgentClient:
    """The simulated phone ``sim:name``.

    Raises DeviceNotFound, BuildError, and DeviceError where a description is damaged.
    """
    description = phone_file(name)
    built = build_host(progress=progress)
    transport = LocalTransport(
        f"{SIMULATED}{name}",
        "simulated phone on this host",
        {"NNAPI_EMULATOR_PHONE": str(description)},
    )
    client = _client(transport, built.agent, built.library)
    try:
        info = client.info()  # which is asked for next, and kept
        if info.nnapi.error is not None:
            words = info.nnapi.error.removeprefix("NNAPI_EMULATOR_PHONE ")
            raise DeviceError(
                f"no phone can be simulated by {words}: mend the description, as "
                "device_agent/emulator/PHONES.md has it",
                client.serial,
            )
    except BaseException:
        client.close()
        raise
    return client


def open_local(progress: Progress | None = None) -> AgentClient:
    """This machine, in real time; at its first use XNNPACK is built for it. Raises BuildError."""
    built = build_host(progress=progress, fast=True)
    own = has_system_nnapi()
    words = f"this host, {'its own NNAPI' if own else 'emulated NNAPI in real time'}"
    # Taken out, so that a variable of the user's does not turn this host into a simulated phone,
    # nor asks for faults, which only those have.
    without = {"NNAPI_EMULATOR_PHONE": None, "NNAPI_EMULATOR_FAULTS": None}
    transport = LocalTransport(LOCAL, words, without)
    return _client(transport, built.agent, None if own else built.library)


def has_system_nnapi() -> bool:
    """Whether the dynamic linker finds a libneuralnetworks.so of this machine's own."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return not hasattr(library, "np_emulator_phone")


def _client(transport: LocalTransport, agent: Path, library: Path | None) -> AgentClient:
    folder = transport.folder
    installed = InstalledAgent(
        path=str(agent),
        store=str(folder / "store"),
        work=str(folder / "work"),
        nnapi_library=None if library is None else str(library),
    )
    for made in (installed.store, installed.work):
        Path(made).mkdir()
    return AgentClient(transport, installed)
