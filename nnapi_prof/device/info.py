"""A device in few words: for people, and as the key under which costs are stored."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from nnapi_prof.device.results import AgentInfo

FINGERPRINT_LENGTH = 16

_FINGERPRINT_PROPERTIES = (
    "ro.product.manufacturer",
    "ro.product.model",
    "ro.build.fingerprint",
    "ro.board.platform",
    "ro.hardware",
)


def device_fingerprint(info: AgentInfo) -> str:
    """Names what a measurement depends on: the same phone with the same system and drivers.

    A hash over manufacturer, model, build, platform, ABI, API level, accelerators with their
    versions, and a simulated phone's description. A Linux machine has no such names: memory and
    clock rates stand in for them. The agent's own version is not part of it.
    """
    facts: dict[str, Any] = {
        "properties": {name: info.properties.get(name) for name in _FINGERPRINT_PROPERTIES},
        "abi": info.abi,
        "os": info.os,
        "api_level": info.api_level,
        "cpus": info.cpus,
        "simulated": info.simulated,
        "identity": info.identity,
        "accelerators": sorted(
            (a.name, a.type, a.version, a.feature_level) for a in info.nnapi.accelerators
        ),
    }
    if not info.properties and not info.simulated:
        facts |= {"memory_kb": info.memory_kb, "cpu_max_khz": info.cpu_max_khz}
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_LENGTH]


def describe(info: AgentInfo) -> str:
    """One line: model, system, accelerators; says so where the phone is simulated."""
    parts = [
        info.properties.get("ro.product.manufacturer"),
        info.properties.get("ro.product.model"),
    ]
    name = " ".join(part for part in parts if part) or info.phone or f"{info.os} machine"
    if info.api_level is None:
        system = info.os
    else:
        release = info.properties.get("ro.build.version.release")
        system = f"Android {release}, API {info.api_level}" if release else f"API {info.api_level}"
    kind = "simulated phone, " if info.simulated else ""
    if info.nnapi.accelerators:
        nnapi = "NNAPI: " + ", ".join(a.name for a in info.nnapi.accelerators)
    elif info.nnapi.library is not None and info.nnapi.error is None:
        nnapi = "NNAPI without names of accelerators"
    else:
        nnapi = f"no NNAPI ({info.nnapi.error or 'no library'})"
    return f"{name} ({kind}{system}, {info.abi}; {nnapi})"
