"""From ``--device`` to an open phone, and to its agent where that needs no building."""

from __future__ import annotations

import os
from dataclasses import replace

from nnapi_prof.device import xnnpack
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.build import find_agent
from nnapi_prof.device.emulator import LOCAL, SIMULATED, phone_file
from nnapi_prof.device.find import connected, open_device
from nnapi_prof.device.install import device_platform, remote_dir
from nnapi_prof.doctor.findings import Family, Finding
from nnapi_prof.doctor.phone_facts import Phone, read_facts
from nnapi_prof.doctor.registry import told
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.toolchain import Progress, host_abi

PHONE = Family("Phone")
_CHECK = "device"
_CONNECT = (
    "connect one by USB with USB debugging on (Settings, Developer options), then: "
    "nnapi-prof doctor"
)


def reach(spec: str | None, progress: Progress | None = None) -> tuple[Phone | None, list[Finding]]:
    """The device to look at, opened, and what was found on the way; close its transport.

    Without ``spec`` the only phone that can be used, if there is one.
    """
    spec = spec or os.environ.get("ANDROID_SERIAL") or None
    if spec is None:
        ready = [phone.serial for phone in connected() if phone.state == "device"]
        if not ready:
            words = "no phone is within reach: simulated ones stand in for it"
            return None, [PHONE.warning(_CHECK, words, _CONNECT)]
        if len(ready) > 1:
            words = f"several are within reach: {', '.join(ready)}; none was looked at"
            return None, [PHONE.warning(_CHECK, words, "nnapi-prof doctor --device SERIAL")]
        spec = ready[0]
    try:
        if spec == LOCAL or spec.startswith(SIMULATED):
            return _here(spec)
        return _there(spec, progress)
    except NnapiProfError as error:
        return None, [told(PHONE, _CHECK, error)]


def _there(spec: str, progress: Progress | None) -> tuple[Phone, list[Finding]]:
    opened = open_device(spec, progress)
    transport = opened.transport
    try:
        abi, system = device_platform(transport)
        facts = read_facts(transport)
        name = " ".join(filter(None, (facts.get("maker"), facts.get("model"))))
        words = f"{opened.serial} ({name or 'no name told'}), {transport.description}"
        phone = Phone(transport, abi, system, facts, remote_dir())
        return phone, [PHONE.ok(_CHECK, words)]
    except BaseException:
        opened.close()
        raise


def _here(spec: str) -> tuple[Phone | None, list[Finding]]:
    """This host or a phone simulated on it: nothing is built for it now."""
    if spec.startswith(SIMULATED):
        phone_file(spec.removeprefix(SIMULATED))
    unbuilt = find_agent(host_abi(), "linux") is None
    if unbuilt or (spec == LOCAL and xnnpack.state() == xnnpack.State()):
        words = f"{spec} is there; its agent is built at first use, or `nnapi-prof agent build`"
        return None, [PHONE.ok(_CHECK, words)]
    opened = open_device(spec)
    phone = Phone(
        opened.transport, host_abi(), "linux", {}, "", opened.client.info(), host_only=True
    )
    return phone, [PHONE.ok(_CHECK, f"{opened.serial}: {opened.transport.description}")]


def with_agent(phone: Phone, progress: Progress | None = None) -> tuple[Phone, Finding | None]:
    """The phone with what its agent says, if the agent can be had without building it."""
    if phone.info is not None:
        return phone, None
    if find_agent(phone.abi, phone.os) is None:
        abi = phone.abi if phone.os == "android" else "host"
        return phone, PHONE.warning(
            "agent",
            f"none is built for {phone.os} on {phone.abi}: NNAPI is judged by files alone",
            f"nnapi-prof agent build --abi {abi}, then nnapi-prof doctor again",
        )
    # Not closed: that would close the transport, which is the caller's.
    client = AgentClient(phone.transport, progress=progress)
    info = client.info()
    words = f"runs there: {info.agent}, {client.installed.path}"
    return replace(phone, info=info), PHONE.ok("agent", words)
