"""What ``nnapi-prof agent ... --json`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.documents.registry import (
    COUNT,
    COUNT_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    Document,
    array,
    described,
    document,
    mapping,
    obj,
)

if TYPE_CHECKING:
    from nnapi_prof.device.clean import Removed
    from nnapi_prof.device.protocol.results import AgentInfo

_PATH = described(TEXT, "of the agent on the device")


@document(
    "agent-build",
    1,
    "Agents that were built, or found built",
    agents=array(obj(abi=TEXT, n_bytes=COUNT, file=TEXT)),
)
def of_build(built: Sequence[tuple[str, Path]]) -> Document:
    """``built``: the ABI and file of each."""
    return {
        "agents": [
            {"abi": abi, "n_bytes": path.stat().st_size, "file": str(path)} for abi, path in built
        ]
    }


@document("agent-push", 1, "The agent is on a device and runs", serial=TEXT, path=_PATH)
def of_push(serial: str, path: str) -> Document:
    return {"serial": serial, "path": path}


@document(
    "agent-info",
    1,
    "What a device is and offers",
    serial=TEXT,
    device=described(TEXT, "for people"),
    fingerprint=described(TEXT, "the device in the cost table"),
    simulated=TRUTH,
    phone=described(TEXT_OR_NULL, "name of the simulated phone"),
    path=_PATH,
    agent=described(TEXT, "its version"),
    protocol=COUNT,
    abi=TEXT,
    os=TEXT,
    api_level=COUNT_OR_NULL,
    properties=described(mapping(TEXT), "of the system"),
    cpus=COUNT,
    cpu_max_khz=array(COUNT_OR_NULL),
    big_cores=described(TEXT_OR_NULL, "mask of the cores with the highest clock rate"),
    threads_max=described(COUNT_OR_NULL, "threads that are of use"),
    memory_kb=COUNT_OR_NULL,
    engines=described(mapping(array(TEXT)), "engine -> whose kernels it has"),
    nnapi=obj(
        library=TEXT_OR_NULL,
        error=TEXT_OR_NULL,
        missing=described(array(TEXT), "functions that this version lacks"),
        accelerators=array(
            obj(name=TEXT, type=TEXT, version=TEXT, feature_level=COUNT),
        ),
    ),
)
def of_info(serial: str, path: str, info: AgentInfo) -> Document:
    from nnapi_prof.device.protocol.results import describe, device_fingerprint

    return {
        "serial": serial,
        "device": describe(info),
        "fingerprint": device_fingerprint(info),
        "simulated": info.simulated,
        "phone": info.phone,
        "path": path,
        "agent": info.agent,
        "protocol": info.protocol,
        "abi": info.abi,
        "os": info.os,
        "api_level": info.api_level,
        "properties": dict(info.properties),
        "cpus": info.cpus,
        "cpu_max_khz": list(info.cpu_max_khz),
        "big_cores": info.big_cores,
        "threads_max": info.threads_max,
        "memory_kb": info.memory_kb,
        "engines": {name: list(kernels) for name, kernels in info.engines.items()},
        "nnapi": {
            "library": info.nnapi.library,
            "error": info.nnapi.error,
            "missing": list(info.nnapi.missing),
            "accelerators": [
                {
                    "name": each.name,
                    "type": each.type,
                    "version": each.version,
                    "feature_level": each.feature_level,
                }
                for each in info.nnapi.accelerators
            ],
        },
    }


@document(
    "agent-clean",
    1,
    "What was removed from a device",
    serial=TEXT,
    n_agents=COUNT,
    n_files=COUNT,
    n_bytes=described(COUNT, "removed"),
    kept_bytes=COUNT,
)
def of_clean(serial: str, gone: Removed) -> Document:
    return {
        "serial": serial,
        "n_agents": gone.n_agents,
        "n_files": gone.n_files,
        "n_bytes": gone.n_bytes,
        "kept_bytes": gone.kept_bytes,
    }
