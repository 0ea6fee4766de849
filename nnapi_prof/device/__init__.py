"""Reach a device and its agent: transports, install, requests out, results in.

This module describes a device: its name for people, its fingerprint, and its entry in a cost table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from nnapi_prof.device.protocol import Accelerator, AgentInfo, NnapiEntryPoint, NnapiInfo
from nnapi_prof.errors import CostError, escape_untrusted

FINGERPRINT_LENGTH = 16

_FINGERPRINT_PROPERTIES = (
    "ro.product.manufacturer",
    "ro.product.model",
    "ro.build.fingerprint",
    "ro.board.platform",
    "ro.hardware",
)


def device_fingerprint(info: AgentInfo) -> str:
    """Returns the identity of what a measurement depends on: the phone, its system and its drivers.

    It is a hash over manufacturer, model, build, platform, ABI, API level, accelerators with their
    versions, and a simulated phone's description. A Linux machine has no such names: memory and
    clock rates are used instead. The agent's own version is not part of it.
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


def description_of(info: AgentInfo) -> dict[str, object]:
    """Returns the entry of an agent's info in the table of devices."""
    return {
        "phone": info.phone,
        "abi": info.abi,
        "os": info.os,
        "api_level": info.api_level,
        "cpus": info.cpus,
        "cpu_max_khz": list(info.cpu_max_khz),
        "cpu_float16": info.cpu_float16.value,
        "memory_kb": info.memory_kb,
        "properties": dict(info.properties),
        "nnapi_library": info.nnapi.library,
        "nnapi_door": info.nnapi.door.value,
        "accelerators": [
            {
                "name": a.name,
                "type": a.type,
                "version": a.version,
                "feature_level": a.feature_level,
            }
            for a in info.nnapi.accelerators
        ],
    }


def described_info(description: Mapping[str, Any], simulated: bool) -> AgentInfo:
    """Returns the info of a device from its entry in a table (:func:`description_of`).

    Raises CostError where the description is not one.
    """
    try:
        library = description.get("nnapi_library")
        level = description.get("api_level")
        return AgentInfo(
            protocol=0,
            agent="",
            abi=str(description["abi"]),
            os=str(description["os"]),
            properties={str(k): str(v) for k, v in description["properties"].items()},
            api_level=None if level is None else int(level),
            cpus=int(description.get("cpus") or 1),
            cpu_max_khz=(),
            memory_kb=None,
            simulated=simulated,
            phone=description.get("phone"),
            identity="",
            nnapi=NnapiInfo(
                library=None if library is None else str(library),
                error=None,
                missing=(),
                accelerators=tuple(
                    Accelerator(
                        str(a["name"]), str(a["type"]), str(a["version"]), int(a["feature_level"])
                    )
                    for a in description["accelerators"]
                ),
                door=NnapiEntryPoint(description.get("nnapi_door", NnapiEntryPoint.NNAPI.value)),
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CostError(
            f"the table's description of a device lacks {escape_untrusted(str(error), 100)}",
            "profile a model on that device again",
        ) from error


def describe(info: AgentInfo) -> str:
    """Describes a device in one line: model, system, accelerators, and whether it is simulated."""
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


def description_parts(described: str) -> tuple[str, str]:
    """Splits the text of :func:`describe` into the device's name, and its system and drivers in
    brackets."""
    name, _, details = described.partition(" (")
    return name, details.removesuffix(")")


def device_name(described: str) -> str:
    """Returns the device's name from the text of :func:`describe`."""
    return description_parts(described)[0]
