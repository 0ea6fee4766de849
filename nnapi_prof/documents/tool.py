"""Builds the ``--json`` documents of commands about the tool, devices, their agents and
conversions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof import documents as s
from nnapi_prof.documents import Document, Schema, document, properties

if TYPE_CHECKING:
    from nnapi_prof.device.agent import Removed
    from nnapi_prof.device.find import ListedDevice
    from nnapi_prof.device.protocol import AgentInfo
    from nnapi_prof.doctor import CheckResult


@document(
    "version",
    1,
    "What this nnapi-prof is, and what it runs on",
    version=s.TEXT,
    python=s.TEXT,
    platform=s.TEXT,
    packages=s.described(
        s.mapping(s.TEXT_OR_NULL), "package -> version; null where it is not installed"
    ),
)
def of_version(
    version: str, python: str, platform: str, packages: Mapping[str, str | None]
) -> Document:
    return {
        "version": version,
        "python": python,
        "platform": platform,
        "packages": dict(packages),
    }


@document(
    "schema",
    1,
    "The documents that commands print with --json",
    documents=s.array(
        s.obj(
            name=s.described(s.TEXT, "what `nnapi-prof schema` takes"),
            id=s.described(s.TEXT, "what the document's own property `schema` says"),
            title=s.TEXT,
        )
    ),
)
def of_schemas(by_name: Mapping[str, Schema]) -> Document:
    return {
        "documents": [
            {"name": name, "id": schema["$id"], "title": schema["title"]}
            for name, schema in by_name.items()
        ]
    }


@document(
    "completion",
    1,
    "A script that lets a shell complete commands, options and values",
    shell=s.TEXT,
    script=s.TEXT,
)
def of_completion(shell: str, script: str) -> Document:
    return {"shell": shell, "script": script}


@document(
    "devices",
    1,
    "The devices within reach",
    devices=s.array(
        s.obj(
            serial=s.described(s.TEXT, "what --device takes"),
            kind=s.described(s.TEXT, "how it is reached"),
            state=s.TEXT,
            description=s.TEXT,
            simulated=s.TRUTH,
        )
    ),
)
def of_devices(rows: Iterable[ListedDevice]) -> Document:
    devices = [
        {**dataclasses.asdict(row), "simulated": row.serial.startswith("sim:")} for row in rows
    ]
    return {"devices": devices}


_FINDING = s.obj(
    family=s.described(s.TEXT, "what the check belongs to: Python, ADB, Phone, ..."),
    check=s.described(s.TEXT, "what was looked at"),
    level=s.choice("ok", "warning", "problem"),
    found=s.TEXT,
    fix=s.described(s.TEXT_OR_NULL, "how to fix it; null if there is nothing to fix"),
)


@document(
    "doctor",
    1,
    "Problems that prevent measuring",
    problems=s.described(
        s.COUNT, "findings of level problem; the exit code is 1 where there are any"
    ),
    warnings=s.described(s.COUNT, "findings of level warning"),
    findings=s.array(_FINDING),
)
def of_findings(findings: Sequence[CheckResult]) -> Document:
    levels = [each.level.value for each in findings]
    return {
        "problems": levels.count("problem"),
        "warnings": levels.count("warning"),
        "findings": [properties(_FINDING, each) for each in findings],
    }


_AGENT_PATH = s.described(s.TEXT, "of the agent on the device")


@document(
    "agent-build",
    1,
    "Agents that were built, or found built",
    agents=s.array(s.obj(abi=s.TEXT, n_bytes=s.COUNT, file=s.TEXT)),
)
def of_build(built: Sequence[tuple[str, Path]]) -> Document:
    """Return the document of ``built`` agents, each an ABI and a file."""
    return {
        "agents": [
            {"abi": abi, "n_bytes": path.stat().st_size, "file": str(path)} for abi, path in built
        ]
    }


@document("agent-push", 1, "The agent is on a device and runs", serial=s.TEXT, path=_AGENT_PATH)
def of_push(serial: str, path: str) -> Document:
    return {"serial": serial, "path": path}


@document(
    "agent-info",
    1,
    "A device's system, cores, engines and accelerators",
    serial=s.TEXT,
    device=s.described(s.TEXT, "for people"),
    fingerprint=s.described(s.TEXT, "the device in the cost table"),
    simulated=s.TRUTH,
    phone=s.described(s.TEXT_OR_NULL, "name of the simulated phone"),
    path=_AGENT_PATH,
    agent=s.described(s.TEXT, "its version"),
    protocol=s.COUNT,
    abi=s.TEXT,
    os=s.TEXT,
    api_level=s.COUNT_OR_NULL,
    properties=s.described(s.mapping(s.TEXT), "of the system"),
    cpus=s.COUNT,
    cpu_max_khz=s.array(s.COUNT_OR_NULL),
    big_cores=s.described(s.TEXT_OR_NULL, "mask of the cores with the highest clock rate"),
    threads_max=s.described(s.COUNT_OR_NULL, "threads that are of use"),
    cpu_float16=s.described(s.TEXT, "native, emulated or none: how the CPU engine computes so"),
    memory_kb=s.COUNT_OR_NULL,
    engines=s.described(s.mapping(s.array(s.TEXT)), "engine -> whose kernels it has"),
    nnapi=s.obj(
        library=s.TEXT_OR_NULL,
        door=s.described(
            s.TEXT, "nnapi, support library or neuron adapter: how it has its functions"
        ),
        error=s.TEXT_OR_NULL,
        missing=s.described(s.array(s.TEXT), "functions that this version lacks"),
        accelerators=s.array(
            s.obj(name=s.TEXT, type=s.TEXT, version=s.TEXT, feature_level=s.COUNT),
        ),
    ),
)
def of_info(serial: str, path: str, info: AgentInfo) -> Document:
    from nnapi_prof.device import describe, device_fingerprint

    return properties(
        "agent-info",
        info,
        serial=serial,
        device=describe(info),
        fingerprint=device_fingerprint(info),
        path=path,
    )


@document(
    "agent-clean",
    1,
    "What was removed from a device",
    serial=s.TEXT,
    n_agents=s.COUNT,
    n_files=s.COUNT,
    n_bytes=s.described(s.COUNT, "removed"),
    kept_bytes=s.COUNT,
)
def of_clean(serial: str, gone: Removed) -> Document:
    return properties("agent-clean", gone, serial=serial)
